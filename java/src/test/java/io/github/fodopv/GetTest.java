package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.fodopv.ServerProgram.Way;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Gets of every kind, from every server. No test writes to these PVs. */
class GetTest {
    static List<Way> ways() {
        return ServerProgram.ways();
    }


    static List<Way> waysOfRecords() {
        return ways().stream().filter(way -> way.program().servesRecords()).toList();
    }

    private static <T> T got(Way way, Context context, String pv, Class<T> type) {
        TestServer server = TestServer.shared(way.program());
        try (Channel<T> channel = context.channel(server.name(way.protocol(), pv), type)) {
            return channel.get().value();
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aGetReturnsTheRequestedType(Way way) {
        try (Context context = TestServer.shared(way.program()).context()) {
            assertEquals(2.5, got(way, context, "ai", Double.class));
            assertEquals(2.5f, got(way, context, "ai", Float.class));
            assertEquals(7, got(way, context, "longin", Integer.class));
            assertEquals((short) 7, got(way, context, "longin", Short.class));
            assertEquals((byte) 7, got(way, context, "longin", Byte.class));
            assertEquals(7L, got(way, context, "longin", Long.class));
            assertEquals("hello", got(way, context, "stringin", String.class));
            assertEquals(7.0, got(way, context, "longin", Double.class));
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aStateIsItsIndexOrItsLabel(Way way) {
        try (Context context = TestServer.shared(way.program()).context()) {
            assertEquals(2, got(way, context, "mbbi", Integer.class));
            assertEquals("two", got(way, context, "mbbi", String.class));
            assertEquals("on", got(way, context, "bi", String.class));
            assertEquals(new Value.Choice(2), got(way, context, "mbbi", Value.class));
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void theTypeValueReturnsTheKindOfThePv(Way way) {
        try (Context context = TestServer.shared(way.program()).context()) {
            assertEquals(new Value.Real(Kind.F64, 2.5), got(way, context, "ai", Value.class));
            assertEquals(new Value.Int(Kind.I32, 7), got(way, context, "longin", Value.class));
            assertEquals(new Value.Text("hello"), got(way, context, "stringin", Value.class));
        }
    }

    /** Servers that send all fields, whichever a pvRequest selects. */
    private static boolean sendsAll(Way way) {
        return way.program() == ServerProgram.CORE_PVA;
    }

    @ParameterizedTest
    @MethodSource("ways")
    void metadataIsSentOnRequest(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Double> channel = context.channel(server.name(way.protocol(), "ai"), Double.class)) {
            Metadata metadata = channel.get(Request.FULL).metadata();

            assertEquals("mm", metadata.units());
            assertEquals(3, metadata.precision());
            assertEquals(new Limits(-10, 10), metadata.display());
            assertEquals(new Limits(-10, 10), metadata.control());
            assertEquals(new Limits(-8, 8), metadata.alarm());
            assertEquals(new Limits(-6, 6), metadata.warning());
            assertTrue(sendsAll(way) || channel.get().metadata() == null);
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void theLabelsOfAnEnumAreMetadata(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Value> channel = context.channel(server.name(way.protocol(), "mbbi"))) {
            Reading<Value> reading = channel.get(Request.FULL);

            assertEquals(List.of("zero", "one", "two"), reading.metadata().labels());
            assertEquals(2, reading.value().toLong());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aReadingHasTheTimeAndTheAlarmOfItsServer(Way way) throws InterruptedException {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Double> channel = context.channel(server.name(way.protocol(), "count00"), Double.class)) {
            MonitorTest.await("it has counted", () -> channel.get().alarm().severity() == Severity.NONE);
            Reading<Double> reading = channel.get();

            assertTrue(Duration.between(reading.time(), Instant.now()).abs().compareTo(Duration.ofMinutes(1)) < 0);
            assertTrue(sendsAll(way) || channel.get(Request.VALUE).time() == null);
        }
    }

    @ParameterizedTest
    @MethodSource("waysOfRecords")
    void anUndefinedRecordHasASevereAlarm(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Double> channel = context.channel(server.name(way.protocol(), "chain:more"), Double.class)) {
            assertEquals(Severity.INVALID, channel.get().alarm().severity());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void infoIsLocalAfterConnecting(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Value> channel = context.channel(server.name(way.protocol(), "ai"))) {
            Info info = channel.connect();

            assertTrue(channel.isConnected());
            assertEquals(info, channel.info().orElseThrow());
            assertEquals(way.protocol(), info.protocol());
            assertEquals(Kind.F64, info.kind());
            assertEquals(1, info.countMax());
            assertTrue(info.mayRead() && info.mayWrite());
            assertTrue(info.server().startsWith("127.0.0.1:"), info.server());
            assertEquals(channel.name(), info.name());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aFutureReturnsTheSame(Way way) throws Exception {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Double> channel = context.channel(server.name(way.protocol(), "ai"), Double.class)) {
            assertEquals(way.protocol(), channel.connectAsync().get(60, TimeUnit.SECONDS).protocol());
            assertEquals(2.5, channel.getAsync().get(60, TimeUnit.SECONDS).value());
            assertEquals("mm", channel.getAsync(Request.FULL).get(60, TimeUnit.SECONDS).metadata().units());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aContinuationMayBlockOnTheThreadOfCallbacks(Way way) throws Exception {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Double> first = context.channel(server.name(way.protocol(), "ai"), Double.class);
                Channel<Integer> second = context.channel(server.name(way.protocol(), "longin"), Integer.class)) {
            double sum = first.getAsync().thenApply(reading -> reading.value() + second.get().value())
                    .get(60, TimeUnit.SECONDS);

            assertEquals(9.5, sum);
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void anUnknownNameIsNotFound(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Double> channel = context.channel(server.name(way.protocol(), "absent"), Double.class)) {
            NotFoundException error =
                    assertThrows(NotFoundException.class, () -> channel.get(Duration.ofMillis(300)));

            assertEquals(channel.name(), error.pv());
            assertTrue(error.getMessage().contains(channel.name()), error.getMessage());
            String advice = error.advice().orElseThrow();
            String variable = "EPICS_" + way.protocol() + "_ADDR_LIST";
            assertTrue(advice.contains(variable) && error.getMessage().endsWith("; " + advice), error.getMessage());
            assertFalse(channel.isConnected());
            assertTrue(channel.info().isEmpty());
        }
    }

    @ParameterizedTest
    @MethodSource("waysOfRecords")
    void aCountLimitsTheElements(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<byte[]> channel = context.channel(server.name(way.protocol(), "calc.CALC$"), byte[].class)) {
            assertEquals("A+1", new String(channel.get().value(), java.nio.charset.StandardCharsets.US_ASCII).trim());
            byte[] target = new byte[40];
            int count = channel.getInto(target);
            assertArrayEquals(new byte[] {'A', '+', '1'}, java.util.Arrays.copyOf(target, 3));
            assertTrue(count >= 3, () -> "elements: " + count);
            if (way.protocol() == Protocol.CA) {
                assertEquals(2, channel.get(Request.TIME.withCount(2)).value().length);
            }
        }
    }
}
