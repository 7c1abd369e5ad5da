package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What closing an object ends, at the server and in the program, without a garbage collection. */
class CloseTest {
    /** The timeout of operations that only closing may end. */
    private static final Duration LONG = Duration.ofMinutes(10);

    private static TestServer server;

    @BeforeAll
    static void start() {
        server = TestServer.own(ServerProgram.FODO);
    }

    @AfterAll
    static void stop() {
        if (server != null) {
            server.close();
        }
    }

    /** Waits until the server has so many channels of this protocol, one of which counts them. */
    private static void awaitChannels(Channel<Double> channels, int expected) throws InterruptedException {
        MonitorTest.await("the server has " + expected + " channels", () -> channels.get().value() == expected);
        assertEquals(expected, channels.get().value());
    }

    private static Channel<Double> count(Context context, Protocol protocol) {
        return context.channel(server.name(protocol, "status:CHANNELS"), Double.class);
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aClosedMonitorReleasesItsChannel(Protocol protocol) throws Exception {
        try (Context observer = server.context(); Context context = server.context();
                Channel<Double> channels = count(observer, protocol)) {
            Channel<Double> channel = context.channel(server.name(protocol, "ai"), Double.class);
            Monitor<Double> monitor = channel.monitor(MonitorOptions.defaults());
            channel.close();
            awaitChannels(channels, 2);

            monitor.close();

            awaitChannels(channels, 1);
            assertEquals(0, monitor.counts().disconnects());
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aGroupReleasesTheChannelsOfRemovedPvsAndAllWhenItIsClosed(Protocol protocol) throws Exception {
        List<String> names = List.of(server.name(protocol, "ai"), server.name(protocol, "count00"));
        try (Context observer = server.context(); Context context = server.context();
                Channel<Double> channels = count(observer, protocol)) {
            MonitorGroup group = context.monitorGroup(names, GroupOptions.defaults());
            awaitChannels(channels, 3);

            group.remove(0);
            awaitChannels(channels, 2);
            GroupRows rows = group.rows(100);
            group.take(rows, TestServer.PATIENCE);
            group.close();

            awaitChannels(channels, 1);
            assertEquals(0, group.counts().merged());
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aGroupThatIsClosedDuringATakeReleasesItsChannels(Protocol protocol) throws Exception {
        List<String> names = List.of(server.name(protocol, "ai"), server.name(protocol, "count00"));
        try (Context observer = server.context(); Context context = server.context();
                Channel<Double> channels = count(observer, protocol)) {
            MonitorGroup group = context.monitorGroup(names, GroupOptions.defaults());
            Call takes = started(() -> {
                GroupRows rows = group.rows(100);
                while (true) {
                    group.take(rows, LONG);
                }
            });
            MonitorTest.await("rows are taken", () -> group.counts().delivered() > 0);

            group.close();

            takes.checkClosed();
            awaitChannels(channels, 1);
        }
    }

    @Test
    void theCountersOfAGroupNeverExceedWhatWasReceivedWhileRowsAreTaken() throws Exception {
        List<String> names = List.of(server.name(Protocol.CA, "ai"), server.name(Protocol.CA, "count00"));
        try (Context context = server.context()) {
            for (int turn = 0; turn < 20; turn++) {
                try (MonitorGroup group = context.monitorGroup(names, GroupOptions.defaults())) {
                    MonitorTest.await("both PVs have a value", () -> group.counts().waiting() >= 2);
                    Call takes = started(() -> {
                        GroupRows rows = group.rows(1);
                        while (group.take(rows, Duration.ZERO)) {
                            Thread.onSpinWait();
                        }
                    });
                    long delivered = 0;
                    while (!takes.end().isDone()) {
                        GroupCounts counts = group.counts();
                        assertTrue(delivered <= counts.delivered() && counts.delivered() <= counts.received(), counts::toString);
                        delivered = counts.delivered();
                    }
                    assertNull(takes.end().join());
                }
            }
        }
    }

    /** A call on a thread of its own; the end is the error with which it ends, {@code null} without one. */
    private record Call(Thread thread, CompletableFuture<Throwable> end) {
        /** Waits until the call waits for the end of its operation. */
        Call awaitBlocked() throws InterruptedException {
            MonitorTest.await("the call waits", () -> Stream.of(thread.getStackTrace()).anyMatch(frame ->
                    frame.getClassName().equals(Jni.class.getName()) && frame.getMethodName().equals("await")));
            return this;
        }

        void checkClosed() throws Exception {
            assertInstanceOf(ClosedException.class, end.get(60, TimeUnit.SECONDS));
        }
    }

    private static Call started(Runnable call) {
        CompletableFuture<Throwable> end = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                call.run();
                end.complete(null);
            } catch (Throwable error) {
                end.complete(error);
            }
        });
        thread.setDaemon(true);
        thread.start();
        return new Call(thread, end);
    }

    private static void checkClosed(CompletableFuture<?> future) {
        ExecutionException error = assertThrows(ExecutionException.class, () -> future.get(60, TimeUnit.SECONDS));
        assertInstanceOf(ClosedException.class, error.getCause());
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void closingAChannelEndsItsOperations(Protocol protocol) throws Exception {
        try (TestServer silent = TestServer.own(ServerProgram.FODO);
                Context context = Context.builder().settings(silent.settings()).timeout(LONG).build();
                Channel<Double> other = context.channel(silent.name(protocol, "count00"), Double.class)) {
            Channel<Double> channel = context.channel(silent.name(protocol, "ai"), Double.class);
            Channel<Double> absent = context.channel(silent.name(protocol, "absent"), Double.class);
            other.connect();
            channel.connect();
            silent.suspend();
            CompletableFuture<Reading<Double>> stays = other.getAsync();
            CompletableFuture<Reading<Double>> future = channel.getAsync();
            CompletableFuture<Reading<Double>> search = absent.getAsync();
            Call get = started(channel::get).awaitBlocked();

            channel.close();
            absent.close();

            checkClosed(future);
            checkClosed(search);
            get.checkClosed();
            assertFalse(stays.isDone());
            silent.resume();
            stays.get(60, TimeUnit.SECONDS);
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void closingAListEndsItsOperations(Protocol protocol) throws Exception {
        try (Context context = Context.builder().settings(server.settings()).timeout(LONG).build()) {
            List<String> names = List.of(server.name(protocol, "ai"), server.name(protocol, "absent"));
            Channels<Double> channels = context.channels(names, Double.class);
            CompletableFuture<List<Result<Reading<Double>>>> future = channels.getAsync();
            Call get = started(channels::get).awaitBlocked();
            Call connect = started(channels::connect).awaitBlocked();

            channels.close();

            checkClosed(future);
            get.checkClosed();
            connect.checkClosed();
        }
    }
}
