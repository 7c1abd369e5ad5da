package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.fodopv.ServerProgram.Way;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Servers that stop, end and start again. Each test has a server of its own, so they run beside one another. */
@Execution(ExecutionMode.CONCURRENT)
class FaultTest {
    private static final Duration SHORT = Duration.ofMillis(500);

    static List<Way> ways() {
        return ServerProgram.ways();
    }

    /** A client that notices silence within seconds. */
    private static Context impatient(TestServer server) {
        Map<String, String> settings = new HashMap<>(server.settings());
        settings.put("EPICS_CA_CONN_TMO", "2");
        settings.put("EPICS_PVA_CONN_TMO", "2");
        settings.put("EPICS_CA_MAX_SEARCH_PERIOD", "60");
        return Context.builder().settings(settings).timeout(TestServer.PATIENCE).build();
    }

    /** The next event of one of these kinds. */
    private static <T> Event<T> next(Monitor<T> monitor, Class<?>... kinds) {
        while (true) {
            Event<T> event = monitor.next(TestServer.PATIENCE.multipliedBy(2));
            assertTrue(event != null, () -> "no event " + List.of(kinds));
            if (Stream.of(kinds).anyMatch(kind -> kind.isInstance(event))) {
                return event;
            }
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aStoppedServerAnswersNothingAndContinuesLater(Way way) throws Exception {
        try (TestServer server = TestServer.own(way.program());
                Context context = server.context();
                Channel<Double> channel = context.channel(server.name(way.protocol(), "ai"), Double.class)) {
            channel.connect();
            server.suspend();
            NoAnswerException error = assertThrows(NoAnswerException.class, () -> channel.get(SHORT));
            assertEquals(channel.name(), error.pv());
            assertTrue(error.server().isPresent());
            assertThrows(NoAnswerException.class, () -> channel.put(1.0, SHORT));

            server.resume();
            // What was given up earlier changes nothing: neither a late reply nor the put that was sent.
            assertTrue(List.of(1.0, 2.5).contains(channel.get().value()));
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aMonitorReportsASilentServer(Way way) throws Exception {
        try (TestServer server = TestServer.own(way.program());
                Context context = impatient(server);
                Channel<Double> channel = context.channel(server.name(way.protocol(), "ai"), Double.class);
                Monitor<Double> monitor = channel.monitor(MonitorOptions.defaults())) {
            next(monitor, Event.Update.class);
            server.suspend();
            boolean isOpen = next(monitor, Event.Unresponsive.class, Event.Disconnected.class)
                    instanceof Event.Unresponsive<Double>;
            // Channel Access keeps the connection of a silent server; pvAccess may close it.
            assertTrue(isOpen || way.protocol() == Protocol.PVA);
            server.resume();
            next(monitor, Event.Responsive.class, Event.Connected.class);
            assertEquals(2.5, channel.get().value());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aMonitorSurvivesAServerThatStartsAgain(Way way) throws Exception {
        try (TestServer server = TestServer.own(way.program());
                Context context = impatient(server);
                Channel<Double> channel = context.channel(server.name(way.protocol(), "ai"), Double.class);
                Monitor<Double> monitor = channel.monitor(MonitorOptions.defaults())) {
            next(monitor, Event.Update.class);
            server.kill();
            next(monitor, Event.Disconnected.class);
            assertThrows(PvException.class, () -> channel.get(SHORT));

            server.restart();
            assertInstanceOf(Event.Connected.class, next(monitor, Event.Connected.class));
            Event.Update<Double> update = (Event.Update<Double>) next(monitor, Event.Update.class);
            assertEquals(2.5, update.reading().value());
            assertEquals(2.5, channel.get().value());
            assertEquals(1, monitor.counts().disconnects());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aGetOfAServerThatEndsFailsAtOnce(Way way) throws Exception {
        try (TestServer server = TestServer.own(way.program());
                Context context = server.context();
                Channel<Double> channel = context.channel(server.name(way.protocol(), "ai"), Double.class)) {
            channel.connect();
            server.suspend();
            CompletableFuture<Reading<Double>> reading = channel.getAsync();
            server.kill();

            ExecutionException error =
                    assertThrows(ExecutionException.class, () -> reading.get(60, TimeUnit.SECONDS));
            assertInstanceOf(DisconnectedException.class, error.getCause());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aContextThatIsClosedEndsWhatIsPending(Way way) throws Exception {
        try (TestServer server = TestServer.own(way.program())) {
            Context context = server.context();
            Channel<Double> channel = context.channel(server.name(way.protocol(), "ai"), Double.class);
            channel.connect();
            server.suspend();
            CompletableFuture<Reading<Double>> reading = channel.getAsync();
            Monitor<Double> monitor = channel.monitor(MonitorOptions.defaults());
            AtomicReference<Throwable> end = new AtomicReference<>();
            CountDownLatch isRunning = new CountDownLatch(1);
            Thread blocked = new Thread(() -> {
                isRunning.countDown();
                try {
                    channel.get();
                } catch (PvException error) {
                    end.set(error);
                }
            });
            blocked.start();
            isRunning.await();

            context.close();

            blocked.join(60_000);
            assertInstanceOf(ClosedException.class, end.get());
            ExecutionException error =
                    assertThrows(ExecutionException.class, () -> reading.get(60, TimeUnit.SECONDS));
            assertInstanceOf(ClosedException.class, error.getCause());
            next(monitor, Event.Closed.class);
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void anInterruptedThreadStopsWaiting(Way way) throws Exception {
        try (TestServer server = TestServer.own(way.program());
                Context context = server.context();
                Channel<Double> channel = context.channel(server.name(way.protocol(), "ai"), Double.class)) {
            channel.connect();
            server.suspend();
            AtomicReference<Throwable> end = new AtomicReference<>();
            AtomicReference<Boolean> isFlagged = new AtomicReference<>();
            Thread blocked = new Thread(() -> {
                try {
                    channel.get();
                } catch (PvException error) {
                    end.set(error);
                    isFlagged.set(Thread.currentThread().isInterrupted());
                }
            });
            blocked.start();
            blocked.interrupt();

            blocked.join(20_000);
            assertInstanceOf(InterruptedCallException.class, end.get());
            assertEquals(true, isFlagged.get());
            server.resume();
            assertEquals(2.5, channel.get().value());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aListOfAStoppedServerEndsAtItsDeadline(Way way) throws Exception {
        try (TestServer server = TestServer.own(way.program()); Context context = server.context()) {
            List<String> names =
                    List.of(server.name(way.protocol(), "ai"), server.name(way.protocol(), "absent"));
            try (Channels<Double> channels = context.channels(names, Double.class)) {
                channels.get(Duration.ofSeconds(5));
                server.suspend();
                List<Result<Reading<Double>>> results = channels.get(SHORT);

                assertInstanceOf(NoAnswerException.class, ((Result.Failure<?>) results.get(0)).error());
                assertInstanceOf(NotFoundException.class, ((Result.Failure<?>) results.get(1)).error());
                server.resume();
                assertEquals(2.5, channels.get(Duration.ofSeconds(5)).get(0).orThrow().value());
            }
        }
    }
}
