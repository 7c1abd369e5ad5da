package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** Operations and monitors over a native library that the test plays. */
@Timeout(60)
class CallsTest {
    private static final long OPERATION = 5000;

    private final FakeNative fake = new FakeNative();
    private final Library library = new Library(fake.natives);

    private Context context(Consumer<Context.Builder> settings) {
        Context.Builder builder = Context.builder();
        settings.accept(builder);
        return new Context(builder, library);
    }

    private Channel<Double> channel(Context context) {
        return context.channel("a:pv", Double.class);
    }

    private static void reading(ByteBuffer out, double value) {
        out.put((byte) Codec.READING).put((byte) 0).putShort((short) 0).putLong(Long.MIN_VALUE).putInt(0).putInt(0).putInt(0);
        out.put((byte) Codec.SCALAR).put((byte) Kind.F64.ordinal()).putDouble(value).put((byte) 0);
    }

    private static void update(ByteBuffer out, double value) {
        out.put((byte) Codec.UPDATE);
        reading(out, value);
    }

    private static void pending(ByteBuffer out) {
        out.put((byte) Codec.PENDING).putLong(OPERATION);
    }

    @Test
    void aGetThatEndsAtOnceIsOneCall() {
        fake.set("run", arguments -> fake.reply(arguments[4], out -> reading(out, 1.5)));

        try (Context context = context(builder -> { }); Channel<Double> channel = channel(context)) {
            assertEquals(new Reading<>(1.5, Alarm.NONE, null, 0, null), channel.get());
        }
    }

    @Test
    void aGetWaitsInPausesAndIsThenEndedAsTimedOut() {
        List<Long> waited = new ArrayList<>();
        fake.set("run", arguments -> fake.reply(arguments[4], CallsTest::pending));
        fake.set("await", arguments -> {
            waited.add((Long) arguments[2]);
            boolean isLate = (Long) arguments[2] >= 0;
            return fake.reply(arguments[3], out -> {
                if (isLate) {
                    out.put((byte) Codec.ERROR).put((byte) 0).putInt(0).putInt(0).putInt(0).putInt(0);
                } else {
                    pending(out);
                }
            });
        });

        try (Context context = context(builder -> { }); Channel<Double> channel = channel(context)) {
            assertThrows(NotFoundException.class, () -> channel.get(Duration.ofMillis(1)));
        }

        long last = waited.remove(waited.size() - 1);
        assertTrue(last >= 1_000_000, "waited " + last);
        assertTrue(waited.stream().allMatch(each -> each == -1));
        assertEquals(1, fake.releases(OPERATION));
    }

    @Test
    void everyOperationMayHaveATimeoutOfItsOwn() {
        List<Long> timeouts = new ArrayList<>();
        fake.set("run", arguments -> {
            timeouts.add((Long) arguments[3]);
            return fake.reply(arguments[4], out ->
                    out.put((byte) Codec.ERROR).put((byte) 0).putInt(0).putInt(0).putInt(0).putInt(0));
        });
        Duration timeout = Duration.ofSeconds(7);

        try (Context context = context(builder -> { }); Channel<Double> channel = channel(context)) {
            List<Executable> calls = List.of(
                    () -> channel.connect(timeout),
                    () -> channel.get(timeout),
                    () -> channel.put(1.0, timeout),
                    () -> channel.putUnconfirmed(1.0, timeout),
                    () -> channel.getStructure("", timeout),
                    () -> channel.putFields(Map.of("value", 1), timeout),
                    () -> channel.rpc(Value.Structure.of("", Map.of()), timeout),
                    () -> channel.describe(timeout),
                    () -> channel.process(timeout));
            calls.forEach(call -> assertThrows(NotFoundException.class, call));
            assertEquals(Collections.nCopies(calls.size(), timeout.toNanos()), timeouts);
        }
    }

    @Test
    void anInterruptEndsTheWaitAndStaysSet() {
        fake.set("run", arguments -> fake.reply(arguments[4], CallsTest::pending));
        fake.set("await", arguments -> {
            Thread.currentThread().interrupt();
            return fake.reply(arguments[3], CallsTest::pending);
        });

        try (Context context = context(builder -> { }); Channel<Double> channel = channel(context)) {
            PvException error = assertThrows(InterruptedCallException.class, channel::get);
            assertTrue(Thread.interrupted());
            assertEquals("a:pv", error.pv());
        }
        assertEquals(1, fake.releases(OPERATION));
    }

    @Test
    void invalidTimeoutsAndArgumentsAreRefused() {
        try (Context context = context(builder -> { }); Channel<Double> channel = channel(context)) {
            assertThrows(MisuseException.class, () -> channel.get((Duration) null));
            assertThrows(MisuseException.class, () -> channel.get((Request) null));
            assertThrows(MisuseException.class, () -> channel.get(Duration.ofSeconds(-1)));
            assertThrows(MisuseException.class, () -> channel.put(null));
            assertThrows(MisuseException.class, () -> channel.putAsync(null));
            assertThrows(MisuseException.class, () -> channel.getInto((double[]) null));
            assertThrows(MisuseException.class, () -> channel.getInto(new int[0]));
            assertThrows(MisuseException.class, () -> channel.monitor((MonitorOptions) null));
            assertThrows(MisuseException.class, () -> channel.monitor((Consumer<Event<Double>>) null));
            assertThrows(MisuseException.class, () -> context.channel(""));
            assertThrows(MisuseException.class, () -> context.channel(null));
            assertThrows(MisuseException.class, () -> context.channel("pav://a"));
            assertThrows(MisuseException.class, () -> context.channel("a", Double.class, 100));
            assertThrows(MisuseException.class, () -> context.channels(null, Double.class));
            assertThrows(MisuseException.class, () -> context.monitorGroup(List.of("a"), null));
            assertThrows(MisuseException.class, () -> channel.whyNotConnected(null));
            assertThrows(MisuseException.class, () -> Context.builder().timeout(Duration.ZERO));
        }
    }

    @Test
    void aFutureCompletesOnTheThreadOfTheContext() {
        fake.set("start", arguments -> {
            fake.push((Long) arguments[3], out -> reading(out, 2));
            return fake.reply(arguments[5], out -> out.put((byte) Codec.NOTHING));
        });

        try (Context context = context(builder -> { }); Channel<Double> channel = channel(context)) {
            CountDownLatch isRegistered = new CountDownLatch(1);
            CompletableFuture<Reading<Double>> future = channel.getAsync();
            assertEquals(2, future.join().value());
            CompletableFuture<String> thread = new CompletableFuture<>();
            fake.set("start", arguments -> {
                long token = (Long) arguments[3];
                new Thread(() -> {
                    awaitLatch(isRegistered);
                    fake.push(token, out -> reading(out, 3));
                }).start();
                return fake.reply(arguments[5], out -> out.put((byte) Codec.NOTHING));
            });
            channel.getAsync().thenRun(() -> thread.complete(Thread.currentThread().getName()));
            isRegistered.countDown();
            assertEquals("fodo-callbacks", thread.join());
        }
    }

    private static void awaitLatch(CountDownLatch latch) {
        try {
            latch.await();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void aFutureWhoseExecutorRejectsCompletesAllTheSame() {
        fake.set("start", arguments -> {
            fake.push((Long) arguments[3], out -> reading(out, 2));
            return fake.reply(arguments[5], out -> out.put((byte) Codec.NOTHING));
        });
        ExecutorService executor = Executors.newSingleThreadExecutor();
        executor.shutdown();

        try (Context context = context(builder -> builder.executor(executor)); Channel<Double> channel = channel(context)) {
            assertEquals(2, channel.getAsync().join().value());
        }
    }

    @Test
    void aFutureEndsAlthoughItsExecutorOrItsDecoderFailsWithAnError() {
        Executor failing = task -> {
            throw new OutOfMemoryError("unable to create native thread");
        };
        fake.set("start", arguments -> {
            fake.push((Long) arguments[3], out -> reading(out, 2));
            return fake.reply(arguments[5], out -> out.put((byte) Codec.NOTHING));
        });
        Pending<Void> pending = new Pending<>(library.codec(), this, "a:pv", in -> {
            throw new OutOfMemoryError("Java heap space");
        }, failing);

        try (Context context = context(builder -> builder.executor(failing)); Channel<Double> channel = channel(context)) {
            assertEquals(2, channel.getAsync().join().value());
        }
        pending.accept(ByteBuffer.allocate(1));
        assertInstanceOf(OutOfMemoryError.class, assertThrows(CompletionException.class, pending::join).getCause());
    }

    @Test
    void anInterruptOfOneCallbackDoesNotReachTheNext() throws InterruptedException {
        AtomicLong token = new AtomicLong();
        fake.set("monitorStart", arguments -> {
            token.set((Long) arguments[2]);
            return fake.reply(arguments[4], out -> out.put((byte) Codec.HANDLE).putLong(3000));
        });
        LinkedBlockingQueue<Boolean> areInterrupted = new LinkedBlockingQueue<>();

        try (Context context = context(builder -> { }); Channel<Double> channel = channel(context)) {
            channel.monitor(event -> {
                areInterrupted.add(Thread.currentThread().isInterrupted());
                Thread.currentThread().interrupt();
            });
            fake.push(token.get(), out -> update(out, 1));
            fake.push(token.get(), out -> update(out, 2));

            assertEquals(false, areInterrupted.poll(30, TimeUnit.SECONDS));
            assertEquals(false, areInterrupted.poll(30, TimeUnit.SECONDS));
        }
    }

    @Test
    void theBufferOfTheCallbacksIsSmallAndGrowsWithManyResults() {
        List<Long> tokens = new ArrayList<>();
        fake.set("start", arguments -> {
            tokens.add((Long) arguments[3]);
            return fake.reply(arguments[5], out -> out.put((byte) Codec.NOTHING));
        });

        try (Context context = context(builder -> { }); Channel<Double> channel = channel(context)) {
            CompletableFuture<?> first = channel.getAsync();
            fake.push(tokens.get(0), out -> reading(out, 1));
            first.join();
            assertTrue(fake.bufferBytes() <= 32 * 1024, "one future uses " + fake.bufferBytes());

            List<CompletableFuture<?>> many = new ArrayList<>();
            for (int i = 0; i < 20_000; i++) {
                many.add(channel.getAsync());
            }
            synchronized (fake) {
                tokens.subList(1, tokens.size()).forEach(token -> fake.push(token, out -> reading(out, 2)));
            }
            many.forEach(CompletableFuture::join);
            assertTrue(fake.bufferBytes() > 256 * 1024, "many futures use " + fake.bufferBytes());
        }
    }

    @Test
    void aVirtualThreadWaitsNotMuchLongerThanTheTimeout() {
        CompletableFuture<Void> neverEnds = new CompletableFuture<>();

        assertThrows(NoAnswerException.class, () -> Context.join("a:pv", neverEnds, 1));
        assertTrue(neverEnds.isCancelled());
        CompletableFuture<Integer> hasEnded = CompletableFuture.completedFuture(3);
        assertEquals(3, Context.join("a:pv", hasEnded, Long.MAX_VALUE));
    }

    @Test
    void aFutureThatCannotStartFailsWithTheReason() {
        fake.set("start", arguments -> fake.reply(arguments[5], out ->
                out.put((byte) Codec.ERROR).put((byte) 5).putInt(0).putInt(0).putInt(0).putInt(0)));

        try (Context context = context(builder -> { }); Channel<Double> channel = channel(context)) {
            CompletionException error = assertThrows(CompletionException.class, () -> channel.getAsync().join());
            assertInstanceOf(ClosedException.class, error.getCause());
        }
    }

    @Test
    void closingAContextEndsItsFuturesAndMonitors() {
        fake.set("start", arguments -> fake.reply(arguments[5], out -> out.put((byte) Codec.NOTHING)));
        Context context = context(builder -> { });
        Channel<Double> channel = channel(context);
        CompletableFuture<Reading<Double>> future = channel.getAsync();
        CompletableFuture<Event<Double>> event = new CompletableFuture<>();
        channel.monitor(event::complete);

        context.close();
        context.close();

        CompletionException error = assertThrows(CompletionException.class, future::join);
        assertInstanceOf(ClosedException.class, error.getCause());
        assertInstanceOf(Event.Closed.class, event.join());
        assertTrue(channel.getAsync().isCompletedExceptionally());
        assertThrows(ClosedException.class, () -> channel.monitor(each -> { }));
    }

    @Test
    void aCallbackThatThrowsIsCountedAndReportedAndEndsNothing() throws InterruptedException {
        LinkedBlockingQueue<String> reports = new LinkedBlockingQueue<>();
        LinkedBlockingQueue<Double> values = new LinkedBlockingQueue<>();
        AtomicLong token = new AtomicLong();
        fake.set("monitorStart", arguments -> {
            token.set((Long) arguments[2]);
            return fake.reply(arguments[4], out -> out.put((byte) Codec.HANDLE).putLong(3000));
        });

        try (Context context = context(builder -> builder.onCallbackFailure((pv, failure) ->
                        reports.add(pv + ": " + failure.getMessage())));
                Channel<Double> channel = channel(context)) {
            Monitor<Double> monitor = channel.monitor(event -> {
                double value = ((Event.Update<Double>) event).reading().value();
                if (value == 1) {
                    throw new IllegalStateException("no");
                }
                values.add(value);
            });
            fake.push(token.get(), out -> update(out, 1));
            fake.push(token.get(), out -> update(out, 2));

            assertEquals(2, values.poll(30, TimeUnit.SECONDS));
            assertEquals("a:pv: no", reports.poll(30, TimeUnit.SECONDS));
            assertEquals(1, monitor.callbackFailures());
        }
    }

    /** The number of the next event that the monitor has, below `max`. */
    private final AtomicInteger taken = new AtomicInteger();
    private final AtomicInteger produced = new AtomicInteger();
    private volatile long monitorToken;

    /** A monitor that reports an event whenever it has more than were taken. */
    private void playMonitor() {
        fake.set("monitorStart", arguments -> {
            monitorToken = (Long) arguments[2];
            return fake.reply(arguments[4], out -> out.put((byte) Codec.HANDLE).putLong(3000));
        });
        fake.set("monitorTake", arguments -> {
            int n = Math.min((Integer) arguments[1], produced.get() - taken.get());
            return fake.reply(arguments[2], out -> {
                out.put((byte) Codec.LIST).putInt(n);
                for (int i = 0; i < n; i++) {
                    int at = out.position();
                    out.putInt(0);
                    update(out, taken.getAndIncrement());
                    out.putInt(at, out.position() - at - 4);
                }
            });
        });
    }

    private void produce(int n) {
        produced.addAndGet(n);
        fake.push(monitorToken, out -> out.put((byte) Codec.READY));
    }

    /** Waits until the thread of the callbacks has passed on what was produced before. */
    private void awaitCallbacks(Channel<Double> channel) {
        fake.set("start", arguments -> {
            fake.push((Long) arguments[3], out -> reading(out, 0));
            return fake.reply(arguments[5], out -> out.put((byte) Codec.NOTHING));
        });
        channel.getAsync().join();
    }

    @Test
    void anExecutorOfManyThreadsReceivesTheEventsInOrderAndOneAtATime() throws InterruptedException {
        playMonitor();
        ExecutorService executor = Executors.newFixedThreadPool(8);
        AtomicInteger running = new AtomicInteger();
        List<Double> values = new ArrayList<>();
        CountDownLatch isDone = new CountDownLatch(20_000);

        try (Context context = context(builder -> builder.executor(executor)); Channel<Double> channel = channel(context)) {
            channel.monitor(event -> {
                assertEquals(1, running.incrementAndGet());
                if (event instanceof Event.Update<Double> update) {
                    values.add(update.reading().value());
                }
                running.decrementAndGet();
                isDone.countDown();
            });
            for (int i = 0; i < 2000; i++) {
                produce(10);
            }
            assertTrue(isDone.await(30, TimeUnit.SECONDS));
        }
        executor.shutdown();

        for (int i = 0; i < values.size(); i++) {
            assertEquals(i, values.get(i));
        }
        assertEquals(20_000, values.size());
    }

    @Test
    void anExecutorThatRunsTasksAtOnceNeedsNoDeepStack() throws InterruptedException {
        playMonitor();
        produced.set(1_000_000);
        AtomicInteger received = new AtomicInteger();

        try (Context context = context(builder -> builder.executor(Runnable::run)); Channel<Double> channel = channel(context)) {
            Monitor<Double> monitor = channel.monitor(event -> received.incrementAndGet());

            assertEquals(1_000_000, received.get());
            assertEquals(0, monitor.callbackFailures());
        }
    }

    @Test
    void errorsOfAnExecutorAndOfATakeEndNoMonitor() throws InterruptedException {
        playMonitor();
        FakeNative.Function take = fake.function("monitorTake");
        AtomicBoolean hasFailed = new AtomicBoolean();
        fake.set("monitorTake", arguments -> {
            if (!hasFailed.getAndSet(true)) {
                throw new OutOfMemoryError("Java heap space");
            }
            return take.call(arguments);
        });
        LinkedBlockingQueue<Double> values = new LinkedBlockingQueue<>();
        LinkedBlockingQueue<Throwable> failures = new LinkedBlockingQueue<>();
        Executor executor = task -> {
            throw new OutOfMemoryError("unable to create native thread");
        };

        try (Context context = context(builder ->
                        builder.executor(executor).onCallbackFailure((pv, failure) -> failures.add(failure)));
                Channel<Double> channel = channel(context)) {
            Monitor<Double> monitor = channel.monitor(event ->
                    values.add(((Event.Update<Double>) event).reading().value()));
            produce(100);

            for (int i = 0; i < 100; i++) {
                assertEquals(i, values.poll(30, TimeUnit.SECONDS));
            }
            assertInstanceOf(OutOfMemoryError.class, failures.poll(30, TimeUnit.SECONDS));
            assertTrue(monitor.callbackFailures() > 1);
        }
    }

    @Test
    void aTakeThatKeepsFailingIsRepeatedWithPauses() throws InterruptedException {
        playMonitor();
        FakeNative.Function take = fake.function("monitorTake");
        AtomicInteger nFailed = new AtomicInteger();
        fake.set("monitorTake", arguments -> {
            if (nFailed.get() < 20) {
                nFailed.incrementAndGet();
                // As the executor's shutdownNow does.
                Thread.currentThread().interrupt();
                throw new OutOfMemoryError("Java heap space");
            }
            return take.call(arguments);
        });
        LinkedBlockingQueue<Event<Double>> events = new LinkedBlockingQueue<>();
        ExecutorService executor = Executors.newSingleThreadExecutor();

        try (Context context = context(builder ->
                        builder.executor(executor).onCallbackFailure((pv, failure) -> { }));
                Channel<Double> channel = channel(context)) {
            long start = System.nanoTime();
            Monitor<Double> monitor = channel.monitor(events::add);
            produce(1);

            assertInstanceOf(Event.Update.class, events.poll(30, TimeUnit.SECONDS));
            long elapsedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            assertTrue(elapsedMs >= 190, "20 failures within " + elapsedMs + " ms");
            assertEquals(20, monitor.callbackFailures());
        }
        executor.shutdown();
    }

    @Test
    void aSubscriberReceivesAsManyEventsAsItRequests() throws InterruptedException {
        playMonitor();
        LinkedBlockingQueue<Double> values = new LinkedBlockingQueue<>();
        CompletableFuture<Flow.Subscription> subscription = new CompletableFuture<>();
        CompletableFuture<Throwable> failure = new CompletableFuture<>();
        Flow.Subscriber<Event<Double>> subscriber = new Flow.Subscriber<>() {
            @Override
            public void onSubscribe(Flow.Subscription given) {
                subscription.complete(given);
            }

            @Override
            public void onNext(Event<Double> event) {
                values.add(((Event.Update<Double>) event).reading().value());
            }

            @Override
            public void onError(Throwable error) {
                failure.complete(error);
            }

            @Override
            public void onComplete() {
            }
        };

        try (Context context = context(builder -> { }); Channel<Double> channel = channel(context)) {
            channel.publisher(MonitorOptions.defaults()).subscribe(subscriber);
            produce(100);
            awaitCallbacks(channel);
            assertTrue(values.isEmpty());
            subscription.join().request(3);
            for (int i = 0; i < 3; i++) {
                assertEquals(i, values.poll(30, TimeUnit.SECONDS));
            }
            assertEquals(3, taken.get());
            subscription.join().request(97);
            for (int i = 3; i < 100; i++) {
                assertEquals(i, values.poll(30, TimeUnit.SECONDS));
            }
            assertFalse(failure.isDone());
            subscription.join().request(0);
            assertInstanceOf(IllegalArgumentException.class, failure.join());
        }
    }

    /** Passes events to a function; the other signals complete futures. */
    private static final class Listening implements Flow.Subscriber<Event<Double>> {
        private final CompletableFuture<Flow.Subscription> subscription = new CompletableFuture<>();
        private final CompletableFuture<Throwable> failure = new CompletableFuture<>();
        private final CompletableFuture<Void> end = new CompletableFuture<>();
        private final Consumer<Event<Double>> next;

        Listening(Consumer<Event<Double>> next) {
            this.next = next;
        }

        @Override
        public void onSubscribe(Flow.Subscription given) {
            subscription.complete(given);
        }

        @Override
        public void onNext(Event<Double> event) {
            next.accept(event);
        }

        @Override
        public void onError(Throwable error) {
            failure.complete(error);
        }

        @Override
        public void onComplete() {
            end.complete(null);
        }
    }

    @Test
    void aPublisherCompletesWithoutARequest() throws Exception {
        playMonitor();
        Listening subscriber = new Listening(event -> { });
        Context context = context(builder -> { });
        channel(context).publisher(MonitorOptions.defaults()).subscribe(subscriber);

        context.close();

        subscriber.end.get(30, TimeUnit.SECONDS);
        assertFalse(subscriber.failure.isDone());
    }

    @Test
    void aPublisherCompletesOnlyAfterAllEventsThatWaited() throws Exception {
        playMonitor();
        LinkedBlockingQueue<Double> values = new LinkedBlockingQueue<>();
        Listening subscriber = new Listening(event -> values.add(((Event.Update<Double>) event).reading().value()));
        Context context = context(builder -> { });
        channel(context).publisher(MonitorOptions.defaults()).subscribe(subscriber);
        Flow.Subscription subscription = subscriber.subscription.join();
        subscription.request(1);
        produce(10);
        assertEquals(0, values.poll(30, TimeUnit.SECONDS));

        context.close();
        MonitorTest.await("the publisher looks for events", () -> taken.get() == 2 || subscriber.end.isDone());
        assertFalse(subscriber.end.isDone());
        subscription.request(9);

        for (int i = 1; i < 10; i++) {
            assertEquals(i, values.poll(30, TimeUnit.SECONDS));
        }
        subscriber.end.get(30, TimeUnit.SECONDS);
    }

    @Test
    void aSubscriberThatThrowsHasCancelled() throws Exception {
        playMonitor();
        LinkedBlockingQueue<String> reports = new LinkedBlockingQueue<>();
        AtomicInteger received = new AtomicInteger();
        Listening subscriber = new Listening(event -> {
            received.incrementAndGet();
            throw new IllegalStateException("no");
        });
        try (Context context = context(builder ->
                        builder.onCallbackFailure((pv, failure) -> reports.add(failure.getMessage())));
                Channel<Double> channel = channel(context)) {
            channel.publisher(MonitorOptions.defaults()).subscribe(subscriber);
            subscriber.subscription.join().request(Long.MAX_VALUE);
            produce(100);

            assertEquals("no", reports.poll(30, TimeUnit.SECONDS));
            produce(100);
            awaitCallbacks(channel);
            assertEquals(1, received.get());
            assertTrue(reports.isEmpty());
        }
    }

    @Test
    void anErrorIsNotSignalledDuringAnEvent() throws Exception {
        playMonitor();
        CountDownLatch isRunning = new CountDownLatch(1);
        CountDownLatch mayReturn = new CountDownLatch(1);
        Listening subscriber = new Listening(event -> {
            isRunning.countDown();
            awaitLatch(mayReturn);
        });
        try (Context context = context(builder -> { }); Channel<Double> channel = channel(context)) {
            channel.publisher(MonitorOptions.defaults()).subscribe(subscriber);
            subscriber.subscription.join().request(1);
            produce(1);
            awaitLatch(isRunning);

            subscriber.subscription.join().request(0);

            assertFalse(subscriber.failure.isDone());
            mayReturn.countDown();
            assertInstanceOf(IllegalArgumentException.class, subscriber.failure.get(30, TimeUnit.SECONDS));
        }
    }

    @Test
    void noCallbackStartsAfterCloseWithinACallback() throws InterruptedException {
        playMonitor();
        ExecutorService executor = Executors.newSingleThreadExecutor();
        AtomicInteger received = new AtomicInteger();
        CompletableFuture<Monitor<Double>> self = new CompletableFuture<>();

        try (Context context = context(builder -> builder.executor(executor)); Channel<Double> channel = channel(context)) {
            self.complete(channel.monitor(event -> {
                received.incrementAndGet();
                self.join().close();
                self.join().close();
            }));
            produce(50);
            executor.shutdown();
            assertTrue(executor.awaitTermination(30, TimeUnit.SECONDS));
        }

        assertTrue(received.get() <= 1, "received " + received.get());
    }
}
