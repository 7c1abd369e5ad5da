package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.fodopv.ServerProgram.Way;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Flow;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

/** Monitors in each engine. Counters that follow one another prove the order and that nothing is lost. */
class MonitorTest {
    private static final int N_COUNTERS = 200;

    private static TestServer counters;

    @BeforeAll
    static void start() {
        counters = TestServer.own(
                ServerProgram.FODO, Path.of("src", "test", "resources", "counters.db").toAbsolutePath());
    }

    @AfterAll
    static void stop() {
        if (counters != null) {
            counters.close();
        }
    }

    static List<Way> ways() {
        return ServerProgram.ways();
    }

    private static List<String> names(Protocol protocol) {
        List<String> names = new ArrayList<>();
        for (int index = 0; index < N_COUNTERS; index++) {
            names.add(counters.name(protocol, String.format("n%03d", index)));
        }
        return names;
    }

    static void await(String what, BooleanSupplier isTrue) throws InterruptedException {
        long deadline = System.nanoTime() + TestServer.PATIENCE.multipliedBy(2).toNanos();
        while (!isTrue.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, () -> what);
            TimeUnit.MILLISECONDS.sleep(10);
        }
    }

    /** Monitors all counters with these options; returns the names of the threads that ran callbacks. */
    private static Set<String> followed(Protocol protocol, MonitorOptions options) throws InterruptedException {
        Set<String> threads = ConcurrentHashMap.newKeySet();
        List<Sequence> sequences = new ArrayList<>();
        List<Monitor<Double>> monitors = new ArrayList<>();
        try (Context context = counters.context()) {
            for (String name : names(protocol)) {
                Sequence sequence = new Sequence(name);
                sequences.add(sequence);
                monitors.add(context.channel(name, Double.class).monitor(options, event -> {
                    threads.add(Thread.currentThread().getName());
                    sequence.event(event);
                }));
            }
            await("each counter arrives", () -> sequences.stream().allMatch(Sequence::isComplete));
            monitors.forEach(Monitor::close);
            for (int index = 0; index < monitors.size(); index++) {
                MonitorCounts counts = monitors.get(index).counts();
                Sequence sequence = sequences.get(index);
                sequence.check();
                assertEquals(0, counts.merged() + counts.overrun(), sequence + ": " + counts);
                // What was delivered as the monitor was closed may be on its way to the callback.
                assertTrue(sequence.nUpdates() <= counts.delivered() && counts.delivered() <= counts.received());
                assertEquals(0, monitors.get(index).callbackFailures());
            }
        }
        return threads;
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void theThreadOfTheContextDeliversInOrder(Protocol protocol) throws InterruptedException {
        assertEquals(1, followed(protocol, MonitorOptions.defaults()).size());
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void anExecutorOfTheCallerDeliversInOrder(Protocol protocol) throws InterruptedException {
        ExecutorService executor = Executors.newFixedThreadPool(4);
        try {
            Set<String> threads = followed(protocol, MonitorOptions.defaults().withExecutor(executor));
            assertTrue(threads.stream().allMatch(name -> name.startsWith("pool-")), threads::toString);
        } finally {
            executor.shutdown();
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void virtualThreadsDeliverInOrder(Protocol protocol) throws Exception {
        Assumptions.assumeTrue(Runtime.version().feature() >= 21, "virtual threads need JDK 21");
        ExecutorService executor =
                (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        try {
            followed(protocol, MonitorOptions.defaults().withExecutor(executor));
        } finally {
            executor.shutdown();
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void rowsHaveEachUpdateOfAllCounters(Protocol protocol) {
        List<String> names = names(protocol);
        List<Sequence> sequences = names.stream().map(Sequence::new).toList();
        try (Context context = counters.context();
                MonitorGroup group = context.monitorGroup(names, GroupOptions.defaults())) {
            GroupRows rows = group.rows(256);
            long deadline = System.nanoTime() + TestServer.PATIENCE.multipliedBy(2).toNanos();
            long nRows = 0;
            while (!sequences.stream().allMatch(Sequence::isComplete)) {
                assertTrue(System.nanoTime() < deadline, "each counter arrives");
                assertTrue(group.take(rows, Duration.ofSeconds(1)));
                for (int row = 0; row < rows.size(); row++) {
                    sequences.get(rows.index(row)).update(rows.value(row), rows.merged(row));
                    assertEquals(0, rows.severity(row));
                    assertTrue(rows.seconds(row) > 0);
                }
                nRows += rows.size();
            }
            sequences.forEach(Sequence::check);
            assertEquals(names.get(17), group.name(17));
            GroupCounts counts = group.counts();
            assertTrue(counts.delivered() >= nRows && counts.received() >= counts.delivered(), counts::toString);
            assertEquals(0, counts.merged(), counts::toString);
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aPublisherDeliversWhatTheSubscriberRequests(Protocol protocol) throws InterruptedException {
        Sequence sequence = new Sequence("n000");
        CountDownLatch completed = new CountDownLatch(1);
        try (Context context = counters.context();
                Channel<Double> channel = context.channel(counters.name(protocol, "n000"), Double.class)) {
            channel.publisher(MonitorOptions.defaults()).subscribe(new Flow.Subscriber<Event<Double>>() {
                private Flow.Subscription subscription;

                @Override
                public void onSubscribe(Flow.Subscription subscription) {
                    this.subscription = subscription;
                    subscription.request(1);
                }

                @Override
                public void onNext(Event<Double> event) {
                    sequence.event(event);
                    subscription.request(1);
                }

                @Override
                public void onError(Throwable error) {
                    throw new AssertionError(error);
                }

                @Override
                public void onComplete() {
                    completed.countDown();
                }
            });
            await("the counter arrives", sequence::isComplete);
            sequence.check();
        }
        assertTrue(completed.await(30, TimeUnit.SECONDS), "the end of the context completes the publisher");
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aMonitorWithoutCallbackIsTakenByItsCaller(Protocol protocol) {
        Sequence sequence = new Sequence("n001");
        try (Context context = counters.context();
                Channel<Double> channel = context.channel(counters.name(protocol, "n001"), Double.class);
                Monitor<Double> monitor = channel.monitor(MonitorOptions.defaults())) {
            assertInstanceOf(Event.Connected.class, monitor.next(TestServer.PATIENCE));
            while (!sequence.isComplete()) {
                sequence.event(monitor.next(TestServer.PATIENCE));
            }
            sequence.check();
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aSlowCallbackOfANewestMonitorMergesAndCounts(Protocol protocol) throws InterruptedException {
        Sequence sequence = new Sequence("n002");
        CountDownLatch isOpen = new CountDownLatch(1);
        try (Context context = counters.context();
                Channel<Double> channel = context.channel(counters.name(protocol, "n002"), Double.class)) {
            Monitor<Double> monitor = channel.monitor(MonitorOptions.newest(), event -> {
                try {
                    isOpen.await();
                } catch (InterruptedException interrupted) {
                    throw new AssertionError(interrupted);
                }
                sequence.event(event);
            });
            await("updates are merged", () -> monitor.counts().merged() >= 5);
            isOpen.countDown();
            await("the counter arrives", sequence::isComplete);
            // A value that skips others is explained by the number of those that were merged.
            sequence.check();
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aCallbackThatThrowsIsCountedAndEndsNothing(Protocol protocol) throws InterruptedException {
        BlockingQueue<Double> values = new LinkedBlockingQueue<>();
        try (Context context = counters.context();
                Channel<Double> channel = context.channel(counters.name(protocol, "n003"), Double.class)) {
            Monitor<Double> monitor = channel.monitor(event -> {
                if (event instanceof Event.Update<Double> update) {
                    values.add(update.reading().value());
                    throw new IllegalStateException("this callback always fails");
                }
            });
            for (int count = 0; count < 3; count++) {
                assertTrue(values.poll(60, TimeUnit.SECONDS) != null, "updates continue");
            }
            assertTrue(monitor.callbackFailures() >= 2, () -> "failures: " + monitor.callbackFailures());
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aMonitorIsClosedWithinItsCallback(Protocol protocol) throws InterruptedException {
        BlockingQueue<Event<Double>> events = new LinkedBlockingQueue<>();
        BlockingQueue<Monitor<Double>> itself = new LinkedBlockingQueue<>();
        try (Context context = counters.context();
                Channel<Double> channel = context.channel(counters.name(protocol, "n004"), Double.class)) {
            itself.add(channel.monitor(event -> {
                events.add(event);
                if (event instanceof Event.Update<Double>) {
                    try {
                        itself.take().close();
                    } catch (InterruptedException interrupted) {
                        throw new AssertionError(interrupted);
                    }
                }
            }));
            assertInstanceOf(Event.Connected.class, events.poll(60, TimeUnit.SECONDS));
            assertInstanceOf(Event.Update.class, events.poll(60, TimeUnit.SECONDS));
            Event<Double> next = events.poll(1, TimeUnit.SECONDS);
            assertTrue(next == null || next instanceof Event.Closed<Double>, () -> "after the close: " + next);
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aContextIsClosedWithinACallback(Protocol protocol) throws InterruptedException {
        CountDownLatch closed = new CountDownLatch(1);
        Context context = counters.context();
        Channel<Double> channel = context.channel(counters.name(protocol, "n005"), Double.class);
        channel.monitor(event -> {
            if (event instanceof Event.Update<Double>) {
                context.close();
                closed.countDown();
            }
        });
        assertTrue(closed.await(60, TimeUnit.SECONDS));
    }

    @ParameterizedTest
    @MethodSource("ways")
    void everyServerSendsEachUpdateInOrder(Way way) throws InterruptedException {
        TestServer server = TestServer.shared(way.program());
        List<Sequence> sequences = new ArrayList<>();
        try (Context context = server.context()) {
            for (int index = 0; index < 50; index++) {
                String name = server.name(way.protocol(), String.format("count%02d", index));
                Sequence sequence = new Sequence(name);
                sequences.add(sequence);
                context.channel(name, Double.class).monitor(sequence::event);
            }
            await("each counter arrives", () -> sequences.stream().allMatch(Sequence::isComplete));
        }
        sequences.forEach(Sequence::check);
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aMonitorReportsTheConnectionThenTheValueAndItsAlarm(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<String> channel = context.channel(server.name(way.protocol(), "mbbi"), String.class);
                Monitor<String> monitor = channel.monitor(MonitorOptions.defaults())) {
            Event.Connected<String> connected = (Event.Connected<String>) monitor.next(TestServer.PATIENCE);
            Event.Update<String> update = (Event.Update<String>) monitor.next(TestServer.PATIENCE);

            assertEquals(Kind.ENUM, connected.info().kind());
            assertEquals("two", update.reading().value());
            assertEquals(Severity.NONE, update.reading().alarm().severity());
            assertNull(monitor.next(Duration.ofMillis(200)));
        }
    }
}
