package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** PVs of a program, as clients see them. */
@Timeout(120)
class ServerTest {
    private static final Limits NO_LIMITS = new Limits(0, 0);

    /** A server with one PV, and a client of it. */
    private record Pair(Server server, Context context) implements AutoCloseable {
        static Pair of(SharedPv pv) {
            return of(Server.builder().add("x", pv));
        }

        static Pair of(Server.Builder builder) {
            Server server = builder.isolated().start();
            return new Pair(server, new Context(server.settings()));
        }

        Channel<Double> number(String protocol) {
            return context.channel(protocol + "://x", Double.class);
        }

        @Override
        public void close() {
            context.close();
            server.close();
        }
    }

    @Test
    void clientsOfBothProtocolsReadAndWriteAPv() {
        SharedPv pv = SharedPv.builder(1.5).acceptPuts().build();
        try (Pair pair = Pair.of(pv)) {
            assertEquals(1.5, pair.number("ca").get().value());

            pair.number("ca").put(2.5);
            assertEquals(2.5, pair.number("pva").get().value());
            pair.number("pva").put(3.5);
            assertEquals(3.5, pv.get().value().toDouble());
            assertEquals(2, pair.server.counts().puts());
        }
    }

    @Test
    void aPvWithoutAHandlerIsReadOnly() {
        try (Pair pair = Pair.of(SharedPv.of("text"))) {
            assertFalse(pair.context.channel("ca://x", String.class).connect().mayWrite());
            for (String name : List.of("ca://x", "pva://x")) {
                Channel<String> channel = pair.context.channel(name, String.class);
                assertThrows(RefusedException.class, () -> channel.put("other"));
                assertEquals("text", channel.get().value());
            }
        }
    }

    @Test
    void aPostHasAValueAnAlarmAndATime() {
        SharedPv pv = SharedPv.of(1.0);
        try (Pair pair = Pair.of(pv)) {
            Instant time = Instant.ofEpochSecond(1_800_000_000, 500);
            pv.post(99.0, new Alarm(Severity.MAJOR, 3, "too hot"), time);

            for (String protocol : List.of("ca", "pva")) {
                Reading<Double> reading = pair.number(protocol).get();
                assertEquals(99.0, reading.value());
                assertEquals(Severity.MAJOR, reading.alarm().severity());
                assertEquals(time, reading.time());
            }
            assertEquals("too hot", pair.number("pva").get().alarm().message());
            assertEquals(new Alarm(Severity.MAJOR, 3, "too hot"), pv.get().alarm());
            pv.post(1.0);
            assertEquals(Severity.NONE, pair.number("ca").get().alarm().severity());
        }
    }

    @Test
    void metadataInformsClients() {
        Metadata metadata = new Metadata(
                "mm", 3, "the gap", new Limits(0, 10), new Limits(-1, 11), new Limits(1, 9), new Limits(0, 5), List.of());
        try (Pair pair = Pair.of(SharedPv.builder(1.5).metadata(metadata).build())) {
            Metadata received = pair.number("pva").get(Request.FULL).metadata();

            assertEquals("mm", received.units());
            assertEquals(new Limits(0, 10), received.display());
            assertEquals(new Limits(0, 5), received.control());
            assertEquals("the gap", received.description());
        }
    }

    @Test
    void aStateIsWrittenByItsLabel() {
        AtomicReference<Value> put = new AtomicReference<>();
        SharedPv pv = SharedPv.choice(List.of("Idle", "Moving"), 0).onPut(request -> put.set(request.value())).build();
        try (Pair pair = Pair.of(pv)) {
            Channel<String> channel = pair.context.channel("ca://x", String.class);

            channel.put("Moving");
            assertEquals(1, put.get().toLong());
            assertEquals("Moving", channel.get().value());
            pv.post("Idle");
            assertEquals(0, pair.number("pva").get().value());
            assertThrows(MisuseException.class, () -> SharedPv.choice(List.of("Idle"), 1));
        }
    }

    @Test
    void anArrayGrowsUpToItsMaximumLength() {
        SharedPv pv = SharedPv.builder(new double[] {1, 2}).maxLength(10_000).acceptPuts().build();
        try (Pair pair = Pair.of(pv)) {
            Channel<double[]> channel = pair.context.channel("ca://x", double[].class);
            double[] long_ = new double[10_000];
            long_[9_999] = 7;

            channel.put(long_);
            assertArrayEquals(long_, pair.context.channel("pva://x", double[].class).get().value());
            pv.post(new double[] {3});
            assertArrayEquals(new double[] {3}, channel.get().value());
            assertThrows(MisuseException.class, () -> pv.post(new double[10_001]));
        }
    }

    @Test
    void aValueThatThePvWouldChangeIsRefused() {
        SharedPv pv = SharedPv.of(1);

        MisuseException error = assertThrows(MisuseException.class, () -> pv.post(Double.NaN));
        assertTrue(error.getMessage().contains("expected an integer"), error.getMessage());
        assertThrows(MisuseException.class, () -> pv.post("many"));
        assertThrows(MisuseException.class, () -> pv.post(new int[] {1, 2}));
        assertThrows(NullPointerException.class, () -> pv.post(null));
        assertThrows(MisuseException.class, () -> pv.post(new Object()));
        assertThrows(MisuseException.class, () -> pv.postFields(Map.of("value", 2)));
        assertEquals(1, pv.get().value().toLong());
    }

    @Test
    void anExceptionOfAHandlerRefusesThePutWithItsText() {
        Map<String, Throwable> failures = new java.util.concurrent.ConcurrentHashMap<>();
        SharedPv pv = SharedPv.builder(1.0)
                .onPut(put -> {
                    throw new IllegalArgumentException("must be at most 5");
                })
                .build();
        try (Pair pair = Pair.of(Server.builder().add("x", pv).onFailure(failures::put))) {
            RefusedException refusal = assertThrows(RefusedException.class, () -> pair.number("pva").put(7.0));

            assertTrue(refusal.reason().contains("must be at most 5"), refusal.reason());
            assertThrows(RefusedException.class, () -> pair.number("ca").put(7.0));
            assertEquals(1.0, pv.get().value().toDouble());
            assertEquals(2, pair.server.counts().failed());
            assertInstanceOf(IllegalArgumentException.class, failures.get("x"));
        }
    }

    @Test
    void aHandlerKnowsTheClientAndEndsItsPutItself() {
        LinkedBlockingQueue<PutRequest> puts = new LinkedBlockingQueue<>();
        SharedPv pv = SharedPv.builder(1.0)
                .onPut(put -> {
                    puts.add(put);
                    assertTrue(put.complete(5.0));
                    assertTrue(put.isEnded());
                    assertFalse(put.refuse("too late"));
                })
                .build();
        try (Pair pair = Pair.of(pv)) {
            pair.number("pva").put(7.0);

            PutRequest put = puts.remove();
            assertEquals("x", put.pv());
            assertEquals(7.0, put.value().toDouble());
            assertFalse(put.user().isEmpty());
            assertFalse(put.host().isEmpty());
            assertTrue(put.address().startsWith("127.0.0.1:"), put.address());
            assertEquals(5.0, pair.number("ca").get().value());
        }
    }

    @Test
    void anInterruptDoesNotEndTheWaitOfCloseForAHandler() throws Exception {
        CountDownLatch isRunning = new CountDownLatch(1);
        CountDownLatch mayReturn = new CountDownLatch(1);
        SharedPv pv = SharedPv.builder(0.0)
                .onPut(put -> {
                    isRunning.countDown();
                    while (mayReturn.getCount() > 0) {
                        Thread.onSpinWait();
                    }
                })
                .build();
        try (Pair pair = Pair.of(pv)) {
            pair.number("ca").putAsync(1.0);
            assertTrue(isRunning.await(20, TimeUnit.SECONDS));
            CompletableFuture<Boolean> hadToWait = new CompletableFuture<>();
            Thread closing = new Thread(() -> {
                Thread.currentThread().interrupt();
                pair.server.close();
                hadToWait.complete(mayReturn.getCount() == 0 && Thread.interrupted());
            });
            closing.start();
            MonitorTest.await("close waits", () ->
                    closing.getState() == Thread.State.TIMED_WAITING || !closing.isAlive());

            mayReturn.countDown();

            assertTrue(hadToWait.get(20, TimeUnit.SECONDS));
        }
    }

    @Test
    void aPutThatIsRefusedIsNeverPosted() throws Exception {
        LinkedBlockingQueue<PutRequest> puts = new LinkedBlockingQueue<>();
        SharedPv pv = SharedPv.builder(0.0).onPut(put -> puts.add(put.defer())).build();
        try (Pair pair = Pair.of(pv)) {
            for (double turn = 1; turn <= 300; turn++) {
                double posted = turn;
                CompletableFuture<Void> put = pair.number("ca").putAsync(-1.0);
                PutRequest request = puts.poll(20, TimeUnit.SECONDS);
                CompletableFuture<Boolean> completed = CompletableFuture.supplyAsync(() -> request.complete(posted));
                boolean isRefused = request.refuse("no");

                assertTrue(completed.get(20, TimeUnit.SECONDS) != isRefused);
                assertEquals(!isRefused, pv.get().value().toDouble() == posted);
                put.handle((done, refusal) -> done).get(20, TimeUnit.SECONDS);
            }
        }
    }

    @Test
    void aDeferredPutEndsLater() throws Exception {
        LinkedBlockingQueue<PutRequest> puts = new LinkedBlockingQueue<>();
        SharedPv pv = SharedPv.builder(1.0).onPut(put -> puts.add(put.defer())).build();
        try (Pair pair = Pair.of(pv)) {
            CompletableFuture<Void> put = pair.number("ca").putAsync(2.0);
            PutRequest request = puts.poll(20, TimeUnit.SECONDS);

            assertFalse(put.isDone());
            assertEquals(1.0, pair.number("pva").get().value());
            request.complete();
            put.get(20, TimeUnit.SECONDS);
            assertEquals(2.0, pair.number("pva").get().value());
        }
    }

    @Test
    void aDeferredPutThatIsUnreachableIsRefused() throws Exception {
        CountDownLatch handled = new CountDownLatch(1);
        SharedPv pv = SharedPv.builder(1.0)
                .onPut(put -> {
                    put.defer();
                    handled.countDown();
                })
                .build();
        try (Pair pair = Pair.of(pv)) {
            Channel<Double> channel = pair.number("pva");
            CompletableFuture<Void> put = CompletableFuture.runAsync(() -> channel.put(2.0, Duration.ofSeconds(60)));
            assertTrue(handled.await(20, TimeUnit.SECONDS));

            Throwable refusal = null;
            for (int turn = 0; turn < 400 && refusal == null; turn++) {
                System.gc();
                try {
                    put.get(50, TimeUnit.MILLISECONDS);
                    fail("the put was confirmed");
                } catch (TimeoutException e) {
                    // The collector has not found it yet.
                } catch (ExecutionException e) {
                    refusal = e.getCause();
                }
            }
            assertInstanceOf(RefusedException.class, refusal);
        }
    }

    @Test
    void aStructureIsPostedAndPutFieldByField() {
        AtomicReference<Set<String>> changed = new AtomicReference<>();
        Value.Structure point = Value.Structure.of("point_t", Map.of("x", 1.0, "name", "first"));
        SharedPv pv = SharedPv.builder(point)
                .onPut(put -> changed.set(((Value.Structure) put.value()).changed()))
                .build();
        try (Pair pair = Pair.of(pv)) {
            Channel<Value> channel = pair.context.channel("pva://x");

            pv.postFields(Map.of("x", 2.5));
            assertEquals(2.5, channel.getStructure("").get("x").toDouble());
            channel.putFields(Map.of("name", "second"));
            assertEquals(Set.of("name"), changed.get());
            assertEquals("second", ((Value.Structure) pv.get().value()).get("name").toText());
            assertThrows(MisuseException.class, () -> pv.postFields(Map.of("z", 1)));
        }
    }

    @Test
    void aProcedureReturnsAResultOrRefuses() {
        SharedPv pv = SharedPv.procedure(call -> {
            double a = call.argument().get("a").toDouble();
            if (a < 0) {
                throw new IllegalArgumentException("a is negative");
            }
            return Value.Structure.of("", Map.of("root", Math.sqrt(a)));
        });
        try (Pair pair = Pair.of(pv)) {
            Channel<Value> channel = pair.context.channel("pva://x");

            assertEquals(3.0, channel.rpc(Value.Structure.of("", Map.of("a", 9.0))).get("root").toDouble());
            Value.Structure negative = Value.Structure.of("", Map.of("a", -1.0));
            RefusedException refusal = assertThrows(RefusedException.class, () -> channel.rpc(negative));
            assertTrue(refusal.reason().contains("a is negative"), refusal.reason());
            assertEquals(2, pair.server.counts().calls());
            assertEquals(1, pair.server.counts().failed());
        }
    }

    @Test
    void aFullQueueRefusesAndCounts() throws Exception {
        CountDownLatch entered = new CountDownLatch(1);
        CountDownLatch release = new CountDownLatch(1);
        SharedPv pv = SharedPv.builder(0.0)
                .onPut(put -> {
                    entered.countDown();
                    await(release);
                })
                .build();
        try (Pair pair = Pair.of(pv)) {
            Channel<Double> channel = pair.number("ca");
            channel.connect();
            channel.putUnconfirmed(0.0);
            assertTrue(entered.await(20, TimeUnit.SECONDS));

            for (int i = 0; i < 10_100; i++) {
                channel.putUnconfirmed((double) i);
            }
            // The circuit carries requests in their order.
            channel.get();
            ServerCounts counts = pair.server.counts();
            release.countDown();
            assertEquals(10_000, counts.waiting());
            assertEquals(100, counts.handlersBusy());
            assertEquals(10_001, counts.puts());
        } finally {
            release.countDown();
        }
    }

    @Test
    void namesComeAndGo() {
        SharedPv pv = SharedPv.builder(1.0).acceptPuts().build();
        try (Pair pair = Pair.of(Server.builder().add("y", SharedPv.of(0)))) {
            pair.server.add("x", pv);
            pair.server.add("z", pv);
            pair.number("ca").put(2.0);

            assertEquals(2.0, pair.context.channel("z", Double.class).get().value());
            assertEquals(List.of("y", "x", "z"), pair.server.names());
            assertThrows(MisuseException.class, () -> pair.server.add("x", pv));
            Monitor<Double> monitor = pair.number("pva").monitor(MonitorOptions.defaults());
            awaitEvent(monitor, Event.Update.class);
            assertEquals(pv, pair.server.remove("x"));
            awaitEvent(monitor, Event.Disconnected.class);
            assertThrows(MisuseException.class, () -> pair.server.remove("x"));
            assertThrows(NotFoundException.class, () -> pair.number("pva").get(Duration.ofMillis(500)));
            pair.server.add("x", SharedPv.of(7.0));
            assertEquals(7.0, pair.number("pva").get(Duration.ofSeconds(30)).value());
        }
    }

    @Test
    void twoServersShareAPv() {
        SharedPv pv = SharedPv.builder(1.0).acceptPuts().build();
        try (Pair one = Pair.of(pv); Pair other = Pair.of(pv)) {
            one.number("ca").put(2.0);

            assertEquals(2.0, other.number("pva").get().value());
            assertEquals(0, other.server.counts().puts());
            one.server.close();
            other.number("ca").put(3.0);
            assertEquals(3.0, pv.get().value().toDouble());
        }
    }

    @Test
    void handlersRunOnAnExecutorOrOnOneDaemonThread() {
        AtomicReference<Thread> ran = new AtomicReference<>();
        SharedPv pv = SharedPv.builder(1.0).onPut(put -> ran.set(Thread.currentThread())).build();
        try (Pair pair = Pair.of(pv)) {
            pair.number("ca").put(2.0);
            assertEquals("fodo-server", ran.get().getName());
            assertTrue(ran.get().isDaemon());
        }
        ExecutorService executor = Executors.newSingleThreadExecutor(work -> new Thread(work, "of the program"));
        try (Pair pair = Pair.of(Server.builder().add("x", pv).executor(executor))) {
            pair.number("ca").put(3.0);
            assertEquals("of the program", ran.get().getName());
            executor.shutdown();
            assertThrows(RefusedException.class, () -> pair.number("pva").put(4.0));
            assertEquals(1, pair.server.counts().failed());
        }
        assertThrows(RejectedExecutionException.class, () -> executor.execute(() -> { }));
    }

    @Test
    void aServerIsClosedInsideAHandler() {
        AtomicReference<Server> server = new AtomicReference<>();
        SharedPv pv = SharedPv.builder(1.0).onPut(put -> server.get().close()).build();
        try (Pair pair = Pair.of(pv)) {
            server.set(pair.server);

            assertThrows(PvException.class, () -> pair.number("ca").put(2.0, Duration.ofSeconds(20)));
            assertTrue(pair.server.await(Duration.ofSeconds(20)));
            pair.server.close();
        }
    }

    @Test
    void aClosedServerRefusesWhatWaits() throws Exception {
        CountDownLatch entered = new CountDownLatch(1);
        CountDownLatch release = new CountDownLatch(1);
        SharedPv pv = SharedPv.builder(1.0)
                .onPut(put -> {
                    entered.countDown();
                    await(release);
                })
                .build();
        try (Pair pair = Pair.of(pv)) {
            CompletableFuture<Void> first = pair.number("ca").putAsync(2.0);
            assertTrue(entered.await(20, TimeUnit.SECONDS));
            CompletableFuture<Void> second = pair.number("pva").putAsync(3.0);
            while (pair.server.counts().waiting() == 0) {
                Thread.onSpinWait();
            }

            Thread closing = new Thread(pair.server::close);
            closing.start();
            assertThrows(ExecutionException.class, () -> second.get(20, TimeUnit.SECONDS));
            assertThrows(ExecutionException.class, () -> first.get(20, TimeUnit.SECONDS));
            release.countDown();
            closing.join(20_000);
            assertFalse(closing.isAlive());
            assertThrows(ClosedException.class, () -> pair.server.add("y", pv));
            assertThrows(ClosedException.class, pair.server::settings);
            assertEquals(2.0, pv.get().value().toDouble());
        } finally {
            release.countDown();
        }
    }

    @Test
    void invalidArgumentsAreReported() {
        assertThrows(MisuseException.class, () -> Server.builder().add("", SharedPv.of(1)));
        assertThrows(NullPointerException.class, () -> Server.builder().add(null, SharedPv.of(1)));
        assertThrows(NullPointerException.class, () -> Server.builder().add("x", null));
        assertThrows(NullPointerException.class, () -> SharedPv.of(null));
        assertThrows(MisuseException.class, () -> SharedPv.of(new Thread()));
        assertThrows(MisuseException.class, () -> SharedPv.builder(1).maxLength(0));
        Map<String, String> settings = Map.of("EPICS_CAS_SERVER_PORT", "many");
        MisuseException error = assertThrows(MisuseException.class, () -> Server.builder().settings(settings).start());
        assertTrue(error.getMessage().contains("EPICS_CAS_SERVER_PORT"), error.getMessage());
    }

    private static void awaitEvent(Monitor<?> monitor, Class<?> expected) {
        List<Object> seen = new ArrayList<>();
        while (true) {
            Event<?> event = monitor.next(Duration.ofSeconds(20));
            if (expected.isInstance(event)) {
                return;
            }
            seen.add(event);
            assertTrue(event != null && seen.size() < 100, () -> "there was no " + expected + " among " + seen);
        }
    }

    private static void await(CountDownLatch latch) {
        try {
            assertTrue(latch.await(60, TimeUnit.SECONDS));
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
