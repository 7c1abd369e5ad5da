package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.fodopv.ServerProgram.Way;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Puts of every kind, to every server. Only this class writes to these PVs of the shared servers. */
class PutTest {
    static List<Way> ways() {
        return ServerProgram.ways();
    }

    static List<Way> waysOfRecords() {
        return ways().stream().filter(way -> way.program().servesRecords()).toList();
    }

    private static <T> T putAndGot(Way way, Context context, String pv, Class<T> type, T value) {
        TestServer server = TestServer.shared(way.program());
        try (Channel<T> channel = context.channel(server.name(way.protocol(), pv), type)) {
            channel.put(value);
            return channel.get().value();
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aPutStoresAValueOfEachType(Way way) {
        try (Context context = TestServer.shared(way.program()).context()) {
            assertEquals(3.25, putAndGot(way, context, "ao", Double.class, 3.25));
            assertEquals(-1.5f, putAndGot(way, context, "ao", Float.class, -1.5f));
            assertEquals(42, putAndGot(way, context, "longout", Integer.class, 42));
            assertEquals((short) -3, putAndGot(way, context, "longout", Short.class, (short) -3));
            assertEquals((byte) 5, putAndGot(way, context, "longout", Byte.class, (byte) 5));
            assertEquals(-70_000L, putAndGot(way, context, "longout", Long.class, -70_000L));
            assertEquals("twelve", putAndGot(way, context, "stringout", String.class, "twelve"));
            assertEquals("", putAndGot(way, context, "stringout", String.class, ""));
            assertEquals(new Value.Int(Kind.I32, 9),
                    putAndGot(way, context, "longout", Value.class, new Value.Int(Kind.I32, 9)));
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aTextBeyondAsciiArrivesAndEverythingAfterItToo(Way way) {
        try (Context context = TestServer.shared(way.program()).context()) {
            assertEquals("12 µm", putAndGot(way, context, "stringout", String.class, "12 µm"));
            assertEquals("after", putAndGot(way, context, "stringout", String.class, "after"));
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aPutToAnEnumTakesAnIndexAndALabel(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Integer> index = context.channel(server.name(way.protocol(), "bo"), Integer.class);
                Channel<String> label = context.channel(server.name(way.protocol(), "bo"), String.class)) {
            label.put("on");
            assertEquals(1, index.get().value());
            index.put(0);
            assertEquals("off", label.get().value());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void arraysOfEachTypeArriveWhole(Way way) {
        try (Context context = TestServer.shared(way.program()).context()) {
            byte[] bytes = {1, -2, 3};
            assertArrayEquals(bytes, putAndGot(way, context, "wf_CHAR", byte[].class, bytes));
            assertArrayEquals(bytes, putAndGot(way, context, "wf_UCHAR", byte[].class, bytes));
            short[] shorts = {1, -2, Short.MAX_VALUE};
            assertArrayEquals(shorts, putAndGot(way, context, "wf_SHORT", short[].class, shorts));
            int[] ints = {1, -2, Integer.MIN_VALUE};
            assertArrayEquals(ints, putAndGot(way, context, "wf_LONG", int[].class, ints));
            long[] longs = {1, -2, 1L << 40};
            assertArrayEquals(longs, putAndGot(way, context, "wf_INT64", long[].class, longs));
            float[] floats = {1.5f, -2, Float.MAX_VALUE};
            assertArrayEquals(floats, putAndGot(way, context, "wf_FLOAT", float[].class, floats));
            double[] doubles = {1.5, Double.NaN, Double.NEGATIVE_INFINITY};
            assertArrayEquals(doubles, putAndGot(way, context, "wf_DOUBLE", double[].class, doubles));
            String[] texts = {"left", "", "right"};
            assertArrayEquals(texts, putAndGot(way, context, "wf_STRING", String[].class, texts));
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aGetIntoAnArrayReturnsTheNumberOfElements(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<short[]> channel = context.channel(server.name(way.protocol(), "wf_USHORT"), short[].class)) {
            channel.put(new short[] {4, 5, 6});

            short[] shorts = {9, 9, 9, 9};
            assertEquals(3, channel.getInto(shorts));
            assertArrayEquals(new short[] {4, 5, 6, 9}, shorts);
            double[] doubles = new double[4];
            assertEquals(3, channel.getInto(doubles));
            assertArrayEquals(new double[] {4, 5, 6, 0}, doubles);
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void anArrayOfMegabytesArrivesWholeByEveryWayOut(Way way) {
        TestServer server = TestServer.shared(way.program());
        String pv = way.program() == ServerProgram.SOFT_IOC || way.protocol() == Protocol.CA ? "big" : "huge";
        int[] elements = new int[1_000_000];
        for (int index = 0; index < elements.length; index++) {
            elements[index] = 7919 * index;
        }
        try (Context context = server.context();
                Channel<int[]> channel = context.channel(server.name(way.protocol(), pv), int[].class);
                Channel<Value> raw = context.channel(server.name(way.protocol(), pv))) {
            channel.put(elements);

            assertArrayEquals(elements, channel.get().value());
            int[] target = new int[elements.length];
            assertEquals(elements.length, channel.getInto(target));
            assertArrayEquals(elements, target);
            Value.Array array = (Value.Array) raw.get().value();
            assertTrue(array.bytes().isDirect() && array.bytes().isReadOnly());
            assertEquals(elements.length, array.length());
            assertEquals(elements[999_999], array.longAt(999_999));
            assertArrayEquals(elements, array.toIntArray());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aPutEndsAfterTheServerHasProcessedIt(Way way) throws Exception {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Double> slow = context.channel(server.name(way.protocol(), "slow"), Double.class);
                Channel<Double> done = context.channel(server.name(way.protocol(), "slow:done"), Double.class)) {
            done.connect();
            slow.put(11.0);
            assertEquals(11.0, done.get().value());

            slow.putAsync(12.0).get(60, TimeUnit.SECONDS);
            assertEquals(12.0, done.get().value());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aPutWithoutConfirmationIsBeforeTheNextGetOfTheChannel(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Double> channel = context.channel(server.name(way.protocol(), "ao"), Double.class)) {
            channel.connect();
            channel.putUnconfirmed(4.5);
            // The put that follows ends after it.
            channel.put(4.75);

            assertEquals(4.75, channel.get().value());
        }
    }

    @ParameterizedTest
    @MethodSource("waysOfRecords")
    void aPutThatTheServerRefusesNamesThePv(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Integer> channel = context.channel(server.name(way.protocol(), "locked"), Integer.class)) {
            RefusedException error = assertThrows(RefusedException.class, () -> channel.put(6));

            assertEquals(channel.name(), error.pv());
            assertTrue(error.getMessage().contains(channel.name()), error.getMessage());
            assertEquals(5, channel.get().value());
            ExecutionException failed = assertThrows(
                    ExecutionException.class, () -> channel.putAsync(6).get(60, TimeUnit.SECONDS));
            assertEquals(RefusedException.class, failed.getCause().getClass());
        }
    }

    @ParameterizedTest
    @MethodSource("waysOfRecords")
    void anAlarmLimitGivesTheReadingItsSeverity(Way way) {
        TestServer server = TestServer.shared(way.program());
        try (Context context = server.context();
                Channel<Double> channel = context.channel(server.name(way.protocol(), "alarmed"), Double.class)) {
            channel.put(7.0);
            assertEquals(Severity.MINOR, channel.get().alarm().severity());
            channel.put(9.0);
            assertEquals(Severity.MAJOR, channel.get(Request.ALARM).alarm().severity());
            channel.put(0.0);
            assertEquals(Severity.NONE, channel.get().alarm().severity());
        }
    }
}
