package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Arguments that do not fit, and objects that are closed: an exception with a text, and nothing else. */
class BadInputTest {
    private static TestServer server;
    private static Context context;

    @BeforeAll
    static void start() {
        server = TestServer.shared(ServerProgram.FODO);
        context = server.context();
    }

    @AfterAll
    static void stop() {
        if (context != null) {
            context.close();
        }
    }

    /** Null is an error of the caller's program, and so may be a {@link NullPointerException}; both have a text. */
    private static void assertRefused(String what, Executable call) {
        RuntimeException error = assertThrows(RuntimeException.class, call, what);
        assertTrue(error instanceof MisuseException || error instanceof NullPointerException, () -> what + ": " + error);
        assertFalse(error.getMessage() == null || error.getMessage().isBlank(), () -> what + ": " + error);
    }

    private static <T> Channel<T> channel(String pv, Class<T> type) {
        return context.channel(server.name(Protocol.CA, pv), type);
    }

    @Test
    void aContextRefusesInvalidSettings() {
        assertRefused("null", () -> new Context(null).close());
        assertRefused("a null name", () -> new Context(Collections.singletonMap(null, "1")).close());
        assertRefused("a null value", () -> new Context(Collections.singletonMap("EPICS_CA_SERVER_PORT", null)).close());
        assertRefused("an unknown name", () -> new Context(Map.of("EPICS_CA_SERVER_PROT", "1")).close());
        assertRefused("a port", () -> new Context(Map.of("EPICS_CA_SERVER_PORT", "seventy")).close());
        assertRefused("a null timeout", () -> Context.builder().timeout(null).build().close());
        assertRefused("a negative timeout", () -> Context.builder().timeout(Duration.ofSeconds(-1)).build().close());
    }

    @Test
    void aChannelRefusesInvalidNamesAndTypes() {
        assertRefused("null", () -> context.channel(null));
        assertRefused("an empty name", () -> context.channel(""));
        assertRefused("a protocol alone", () -> context.channel("ca://"));
        assertRefused("another protocol", () -> context.channel("http://x"));
        assertRefused("a null type", () -> context.channel("x", null));
        assertRefused("another type", () -> context.channel("x", Object.class));
        assertRefused("a primitive type", () -> context.channel("x", int.class));
        assertRefused("an array of an array", () -> context.channel("x", double[][].class));
        assertRefused("a priority", () -> context.channel("x", Double.class, 100));
        assertRefused("a negative priority", () -> context.channel("x", Double.class, -1));
        assertRefused("a null list", () -> context.channels(null, Double.class));
        assertRefused("a null name in a list", () -> context.channels(Arrays.asList("x", null), Double.class));
        assertRefused("an empty name in a list", () -> context.channels(List.of("x", ""), Double.class));
    }

    @Test
    void aNameWithEveryCharacterIsNotFoundOrRefused() {
        for (String name : List.of("a\0b", "µ", "\ud800", "\n", " ", "a".repeat(100_000), "%s%n", "a://b://c")) {
            assertThrows(PvException.class, () -> {
                try (Channel<Double> channel = context.channel("ca://" + name, Double.class)) {
                    channel.get(Duration.ofMillis(50));
                }
            }, () -> "a name of " + name.length() + " characters");
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void anOperationRefusesInvalidArguments(Protocol protocol) {
        try (Channel<Double> channel = context.channel(server.name(protocol, "ai"), Double.class)) {
            assertRefused("a null request", () -> channel.get((Request) null));
            assertRefused("a null timeout", () -> channel.get((Duration) null));
            assertRefused("a negative timeout", () -> channel.get(Duration.ofSeconds(-1)));
            assertRefused("a negative count", () -> new Request(Detail.TIME, -1));
            assertRefused("a null target", () -> channel.getInto((double[]) null));
            assertRefused("a null value", () -> channel.put(null));
            assertRefused("a null value", () -> channel.putUnconfirmed(null));
            assertRefused("a null callback", () -> channel.monitor((java.util.function.Consumer<Event<Double>>) null));
            assertRefused("null options", () -> channel.monitor((MonitorOptions) null));
            assertRefused("a queue of 0", () -> MonitorOptions.defaults().withQueueMax(0));
            assertRefused("a null subscriber", () -> channel.publisher(MonitorOptions.defaults()).subscribe(null));
            // It still works.
            assertEquals(2.5, channel.get().value());
        }
    }

    @Test
    void aTimeoutBeyondTheClockIsALongTime() {
        try (Channel<Double> channel = channel("ai", Double.class)) {
            assertEquals(2.5, channel.get(Duration.ofSeconds(Long.MAX_VALUE)).value());
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aValueOfAnotherTypeIsAnErrorWithTheName(Protocol protocol) {
        try (Channel<Double> channel = context.channel(server.name(protocol, "stringin"), Double.class)) {
            PvException error = assertThrows(PvException.class, channel::get);
            assertEquals(channel.name(), error.pv());
        }
        try (Channel<String> channel = context.channel(server.name(protocol, "wf_SHORT"), String.class)) {
            assertThrows(PvException.class, () -> channel.put("no number"));
        }
    }

    @Test
    @SuppressWarnings({"unchecked", "rawtypes"})
    void aValueThatIsNotOfTheTypeOfTheChannelIsMisuse() {
        try (Channel channel = channel("ai", Double.class)) {
            assertRefused("a text", () -> channel.put("2.5"));
            assertRefused("an array", () -> channel.put(new double[] {1}));
        }
        try (Channel<String[]> channel = channel("wf_STRING", String[].class)) {
            assertRefused("a null text", () -> channel.put(new String[] {"a", null}));
        }
    }

    @Test
    void structuresOverChannelAccessAreMisuse() {
        try (Channel<Value> channel = channel("ai", Value.class)) {
            assertRefused("a structure", () -> channel.getStructure(""));
            assertRefused("a call", () -> channel.rpc(Value.Structure.of("", Map.of())));
            assertRefused("fields", () -> channel.putFields(Map.of("value", 1.0)));
            assertRefused("processing", channel::process);
        }
    }

    @Test
    void invalidStructuresAreMisuse() {
        try (Channel<Value> channel = context.channel(server.name(Protocol.PVA, "ai"))) {
            assertRefused("an invalid request", () -> channel.getStructure("field(value"));
            assertRefused("a null request", () -> channel.getStructure(null));
            assertRefused("null fields", () -> channel.putFields(null));
            assertRefused("a null field", () -> channel.putFields(Collections.singletonMap("value", null)));
            assertRefused("another type", () -> channel.putFields(Map.of("value", new Object())));
            assertRefused("a null argument", () -> channel.rpc(null));
            PvException error = assertThrows(PvException.class, () -> channel.putFields(Map.of("missing", 1)));
            assertTrue(error.getMessage().contains("missing"), error.getMessage());
            Map<String, Object> itself = new HashMap<>();
            itself.put("itself", itself);
            assertRefused("a map within itself", () -> channel.putFields(itself));
        }
    }

    @Test
    void aListRefusesANumberOfValuesThatDiffers() {
        List<String> names = List.of(server.name(Protocol.CA, "ai"), server.name(Protocol.PVA, "ai"));
        try (Channels<Double> channels = context.channels(names, Double.class)) {
            assertRefused("a value too few", () -> channels.put(List.of(1.0)));
            assertRefused("a null list", () -> channels.put(null));
            assertRefused("a null value", () -> channels.put(Arrays.asList(1.0, null)));
            assertRefused("a null timeout", () -> channels.get(null));
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aClosedChannelIsRefused(Protocol protocol) {
        Channel<Double> channel = context.channel(server.name(protocol, "ai"), Double.class);
        channel.get();
        channel.close();
        channel.close();

        ClosedException error = assertThrows(ClosedException.class, channel::get);
        assertEquals(channel.name(), error.pv());
        assertThrows(ClosedException.class, () -> channel.put(1.0));
        assertThrows(ClosedException.class, channel::connect);
        assertThrows(ClosedException.class, () -> channel.getInto(new double[1]));
        assertThrows(ClosedException.class, () -> channel.monitor(event -> { }));
        assertInstanceOf(ClosedException.class, failureOf(channel.getAsync()));
        assertFalse(channel.isConnected());
        assertTrue(channel.info().isEmpty());
        assertEquals(server.name(protocol, "ai"), channel.name());
    }

    @Test
    void aClosedContextIsRefused() {
        Context closed = server.context();
        Channel<Double> channel = closed.channel(server.name(Protocol.CA, "ai"), Double.class);
        Channels<Double> channels = closed.channels(List.of(channel.name()), Double.class);
        Monitor<Double> monitor = channel.monitor(MonitorOptions.defaults());
        MonitorGroup group = closed.monitorGroup(List.of(channel.name()), GroupOptions.defaults());
        channel.get();
        closed.close();
        closed.close();

        assertThrows(ClosedException.class, () -> closed.channel("x"));
        assertThrows(ClosedException.class, channel::get);
        assertThrows(ClosedException.class, () -> channels.get().get(0).orThrow());
        assertInstanceOf(ClosedException.class, failureOf(channel.getAsync()));
        monitor.counts();
        group.counts();
        channel.close();
        channels.close();
        monitor.close();
        monitor.close();
        group.close();
        group.close();
    }

    private static Throwable failureOf(CompletableFuture<?> future) {
        return assertThrows(CompletionException.class, () -> future.orTimeout(60, TimeUnit.SECONDS).join()).getCause();
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void operationsThatRaceWithACloseEndWithAValueOrAnError(Protocol protocol) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try {
            for (int turn = 0; turn < 50; turn++) {
                Context own = server.context();
                Channel<Double> channel = own.channel(server.name(protocol, "ai"), Double.class);
                Monitor<Double> monitor = channel.monitor(MonitorOptions.defaults());
                List<Future<?>> ends = List.of(
                        threads.submit(() -> ended(channel::get)),
                        threads.submit(() -> ended(() -> channel.getInto(new double[1]))),
                        threads.submit(() -> ended(() -> channel.getAsync().join())),
                        threads.submit(() -> ended(() -> monitor.next(Duration.ofSeconds(1)))));
                TimeUnit.MICROSECONDS.sleep(ThreadLocalRandom.current().nextInt(3000));
                if (turn % 2 == 0) {
                    channel.close();
                }
                own.close();
                for (Future<?> end : ends) {
                    end.get(60, TimeUnit.SECONDS);
                }
            }
        } finally {
            threads.shutdown();
        }
    }

    private static void ended(Executable call) {
        try {
            call.execute();
        } catch (ClosedException | CompletionException closed) {
            assertTrue(closed instanceof ClosedException || closed.getCause() instanceof ClosedException);
        } catch (Throwable other) {
            throw new AssertionError(other);
        }
    }

    @Test
    void aContinuationThatThrowsEndsNothing() throws Exception {
        try (Channel<Double> channel = channel("ai", Double.class)) {
            CompletableFuture<Void> failed = channel.getAsync().thenAccept(reading -> {
                throw new IllegalStateException("this continuation always fails");
            });
            assertInstanceOf(IllegalStateException.class, failureOf(failed));
            assertEquals(2.5, channel.getAsync().get(60, TimeUnit.SECONDS).value());
        }
    }

    @Test
    void aCancelledFutureChangesNothing() throws Exception {
        try (Channel<Double> channel = channel("ai", Double.class)) {
            for (int count = 0; count < 100; count++) {
                channel.getAsync().cancel(true);
            }
            assertEquals(2.5, channel.getAsync().get(60, TimeUnit.SECONDS).value());
        }
    }

    @Test
    void anExecutorThatRejectsEndsNothing() throws Exception {
        ExecutorService executor = Executors.newSingleThreadExecutor();
        executor.shutdownNow();
        try (Channel<Double> channel = channel("count00", Double.class)) {
            Monitor<Double> monitor = channel.monitor(MonitorOptions.defaults().withExecutor(executor), event -> { });

            MonitorTest.await("the rejection is counted", () -> monitor.callbackFailures() > 0);
            assertEquals(2.5, channel("ai", Double.class).getAsync().get(60, TimeUnit.SECONDS).value());
        }
    }
}
