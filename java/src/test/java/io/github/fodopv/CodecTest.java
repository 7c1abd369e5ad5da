package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.ref.Cleaner;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.junit.jupiter.api.Test;

class CodecTest {
    private final FakeNative fake = new FakeNative();
    private final Codec codec = new Codec(fake.natives, Cleaner.create());

    private Scratch scratch() {
        return new Scratch(fake.natives, new Scratch.Pool(), Scratch.BYTES);
    }

    /** The value after it was written and read again. */
    private Value again(Value value) {
        Scratch scratch = scratch();
        codec.write(scratch, value);
        ByteBuffer in = scratch.reply(scratch.written());
        Value read = codec.value(in);
        assertEquals(0, in.remaining());
        return read;
    }

    private static Value.Structure scalarStructure() {
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("value", 1.5);
        fields.put("alarm", Map.of("severity", 2, "status", 3, "message", "HIHI"));
        fields.put("timeStamp", Map.of("secondsPastEpoch", 1_000_000_000L, "nanoseconds", 7, "userTag", 9));
        return Value.Structure.of("epics:nt/NTScalar:1.0", fields);
    }

    static List<Value> values() {
        List<Value> values = new ArrayList<>(List.of(
                new Value.Empty(),
                new Value.Bool(true),
                new Value.Real(Kind.F64, -0.0),
                new Value.Real(Kind.F64, Double.NaN),
                new Value.Real(Kind.F32, 1.5),
                new Value.Text(""),
                new Value.Text("µm \uD83D\uDE00"),
                new Value.Choice(65535),
                new Value.TextArray(List.of()),
                new Value.TextArray(List.of("a", "", "ä")),
                scalarStructure(),
                new Value.StructureArray("point", List.of(new Value.Empty(), scalarStructure())),
                new Value.Union(1, "text", new Value.Text("x")),
                new Value.Union(-1, "", new Value.Empty()),
                new Value.UnionArray(List.of(new Value.Union(0, "n", new Value.Int(Kind.I8, -1)))),
                new Value.Any(Value.of(new int[] {1, 2})),
                new Value.AnyArray(List.of(new Value.Empty(), new Value.Text("b")))));
        for (Kind kind : Kind.values()) {
            if (kind.ordinal() >= Kind.I8.ordinal() && kind.ordinal() <= Kind.U64.ordinal()) {
                values.add(new Value.Int(kind, 100));
            }
        }
        values.add(new Value.Int(Kind.I16, -5));
        values.add(new Value.Int(Kind.U64, -1));
        values.add(Value.of(new byte[] {-1, 0, 1}));
        values.add(Value.of(new boolean[] {true, false}));
        values.add(Value.of(new short[0]));
        values.add(Value.of(new float[] {1.5f}));
        values.add(Value.of(new long[] {Long.MIN_VALUE}));
        values.add(Value.of(new double[511]));
        return values;
    }

    @Test
    void aValueOfEachTypeIsTheSameAfterWritingAndReading() {
        for (Value value : values()) {
            assertEquals(value, again(value));
        }
        assertEquals(0, fake.blocks());
    }

    @Test
    void arraysFrom4096BytesOnCrossInABlockThatIsReleasedAfterTheyWereCopied() {
        double[] elements = new Random(1).doubles(512).toArray();
        ValueType<double[]> type = ValueType.of(double[].class);
        Scratch scratch = scratch();

        type.encode(codec, "pv", scratch, elements);
        ByteBuffer in = scratch.reply(scratch.written());

        assertEquals(Codec.BLOCK_ARRAY, in.get(0));
        assertEquals(1, fake.blocks());
        assertArrayEquals(elements, type.decode(codec, "pv", in));
        assertEquals(0, fake.blocks());
    }

    @Test
    void aBlockOfAnInputThatNoCallHasTakenIsReleased() {
        Scratch scratch = scratch();
        ValueType.of(double[].class).encode(codec, "pv", scratch, new double[512]);
        assertEquals(1, fake.blocks());

        scratch.close();

        assertEquals(0, fake.blocks());
    }

    @Test
    void aReceivedArrayIsReadOnlyAndInNativeByteOrder() {
        Value.Array array = (Value.Array) again(Value.of(new int[] {1, 2, 3}));

        assertTrue(array.bytes().isReadOnly());
        assertEquals(ByteOrder.nativeOrder(), array.bytes().order());
        assertEquals(3, array.bytes().asIntBuffer().get(2));
        assertArrayEquals(new double[] {1, 2, 3}, array.toDoubleArray());
    }

    @Test
    void eachTypeOfAChannelReadsWhatItWrites() {
        checkType(Double.class, 1.5);
        checkType(Float.class, 1.5f);
        checkType(Long.class, Long.MIN_VALUE);
        checkType(Integer.class, -7);
        checkType(Short.class, (short) -7);
        checkType(Byte.class, (byte) -7);
        checkType(Boolean.class, true);
        checkType(String.class, "µm");
        checkType(Value.class, new Value.Choice(3));
        assertArrayEquals(new String[] {"a", "b"}, typed(String[].class, new String[] {"a", "b"}));
        assertArrayEquals(new short[] {1, -1}, typed(short[].class, new short[] {1, -1}));
        assertArrayEquals(new byte[5000], typed(byte[].class, new byte[5000]));
    }

    private <T> void checkType(Class<T> type, T value) {
        assertEquals(value, typed(type, value));
    }

    private <T> T typed(Class<T> type, T value) {
        Scratch scratch = scratch();
        ValueType.of(type).encode(codec, "pv", scratch, value);
        return ValueType.of(type).decode(codec, "pv", scratch.reply(scratch.written()));
    }

    @Test
    void numbersOfAnotherKindAreConverted() {
        Scratch scratch = scratch();
        codec.write(scratch, new Value.Int(Kind.U64, -1));
        ByteBuffer in = scratch.reply(scratch.written());

        assertEquals(18446744073709551615.0, ValueType.of(Double.class).decode(codec, "pv", in.duplicate().order(in.order())));
        assertEquals(-1L, ValueType.of(Long.class).decode(codec, "pv", in.duplicate().order(in.order())));
        assertEquals("18446744073709551615", ValueType.of(String.class).decode(codec, "pv", in));
    }

    @Test
    void aReadingHasAlarmTimeAndMetadata() {
        Scratch scratch = scratch();
        ByteBuffer out = scratch.u8(Codec.READING).u8(2).ensure(100);
        out.putShort((short) 4).putLong(1_700_000_000).putInt(5).putInt(6);
        scratch.text("too hot");
        codec.write(scratch, new Value.Real(Kind.F64, 99));
        scratch.u8(1).ensure(100).putShort((short) 0x7f);
        scratch.text("C").ensure(100).putShort((short) 2);
        for (int i = 1; i <= 8; i++) {
            scratch.ensure(8).putDouble(i);
        }
        scratch.text("oven").u8(0).i32(1).text("Off");

        Reading<Double> reading = codec.reading("pv", ValueType.of(Double.class), scratch.reply(scratch.written()));

        assertEquals(99, reading.value());
        assertEquals(new Alarm(Severity.MAJOR, 4, "too hot"), reading.alarm());
        assertEquals(Instant.ofEpochSecond(1_700_000_000, 5), reading.time());
        assertEquals(6, reading.userTag());
        Metadata expected = new Metadata("C", 2, "oven", new Limits(1, 2), new Limits(3, 4), new Limits(5, 6),
                new Limits(7, 8), List.of("Off"));
        assertEquals(expected, reading.metadata());
    }

    @Test
    void aTimeStampOutOfRangeIsClampedAndTheValueIsRead() {
        for (long unixS : new long[] {Long.MAX_VALUE, Long.MIN_VALUE + 1}) {
            Scratch scratch = scratch();
            scratch.u8(Codec.READING).u8(0).ensure(100).putShort((short) 0).putLong(unixS).putInt(-1).putInt(0);
            scratch.text("");
            codec.write(scratch, new Value.Real(Kind.F64, 99));
            scratch.u8(0);

            Reading<Double> reading = codec.reading("pv", ValueType.of(Double.class), scratch.reply(scratch.written()));

            assertEquals(99, reading.value());
            assertEquals(unixS < 0 ? Instant.MIN : Instant.MAX, reading.time());
        }

        Scratch scratch = scratch();
        Value.Structure time = Value.Structure.of("", Map.of("secondsPastEpoch", Long.MAX_VALUE, "nanoseconds", 1));
        codec.write(scratch.u8(Codec.STRUCTURE_REPLY), Value.Structure.of("", Map.of("timeStamp", time)));
        assertEquals(Instant.MAX, codec.reading("pv", ValueType.of(Value.class), scratch.reply(scratch.written())).time());
    }

    @Test
    void aStructureIsAReadingWithItsAlarmAndTimeStamp() {
        Scratch scratch = scratch();
        codec.write(scratch.u8(Codec.STRUCTURE_REPLY), scalarStructure());

        Reading<Value> reading = codec.reading("pv", ValueType.of(Value.class), scratch.reply(scratch.written()));

        assertEquals(scalarStructure(), reading.value());
        assertEquals(new Alarm(Severity.MAJOR, 3, "HIHI"), reading.alarm());
        assertEquals(Instant.ofEpochSecond(1_000_000_000, 7), reading.time());
        assertEquals(9, reading.userTag());
        assertNull(reading.metadata());
    }

    @Test
    void aStructureWhereANumberWasRequestedIsAWrongReply() {
        Scratch scratch = scratch();
        codec.write(scratch.u8(Codec.STRUCTURE_REPLY), scalarStructure());

        PvException error = assertThrows(WrongReplyException.class,
                () -> codec.reading("pv", ValueType.of(Double.class), scratch.reply(scratch.written())));

        assertEquals("\"pv\": the server sent a structure where java.lang.Double was requested; use Value.class",
                error.getMessage());
    }

    @Test
    void changedFieldsHavePaths() {
        Value.Structure inner =
                new Value.Structure("", new LinkedHashMap<>(Map.of("severity", Value.of(1))), Set.of("severity"));
        Map<String, Value> fields = new LinkedHashMap<>();
        fields.put("value", Value.of(1));
        fields.put("alarm", inner);
        Value.Structure structure = (Value.Structure) again(new Value.Structure("", fields, Set.of("value")));

        assertEquals(List.of("value", "alarm.severity"), List.copyOf(structure.changed()));
    }

    @Test
    void everyTruncatedValueIsRefusedWithAText() {
        for (Value value : values()) {
            Scratch scratch = scratch();
            codec.write(scratch, value);
            int length = scratch.written();
            for (int shorter = 0; shorter < length; shorter++) {
                ByteBuffer in = scratch.reply(shorter);
                SystemException error = assertThrows(SystemException.class, () -> codec.decoded("pv", in, codec::value));
                assertTrue(error.getMessage().contains("cannot be decoded"), error.getMessage());
            }
        }
    }

    @Test
    void randomBytesAreAValueOrRefusedWithAText() {
        Random random = new Random(7);
        int nValues = 0;
        for (int i = 0; i < 50_000; i++) {
            byte[] bytes = new byte[random.nextInt(40)];
            random.nextBytes(bytes);
            if (bytes.length > 0) {
                // No block: its address would be random.
                bytes[0] = (byte) (random.nextBoolean() ? Codec.ARRAY : Codec.STRUCTURE);
            }
            for (int at = 0; at < bytes.length; at++) {
                bytes[at] = bytes[at] == Codec.BLOCK_ARRAY ? Codec.ARRAY : bytes[at];
                bytes[at] = random.nextInt(3) > 0 ? 0 : bytes[at];
            }
            try {
                codec.decoded("pv", ByteBuffer.wrap(bytes).order(ByteOrder.nativeOrder()), codec::value);
                nValues++;
            } catch (SystemException e) {
                assertTrue(e.getMessage().contains("cannot be decoded"), e.getMessage());
            }
        }
        assertTrue(nValues > 0);
    }

    @Test
    void valuesWithinEachOtherWithoutEndAreRefused() {
        byte[] bytes = new byte[100_000];
        java.util.Arrays.fill(bytes, (byte) Codec.ANY);
        assertThrows(SystemException.class, () -> codec.value(ByteBuffer.wrap(bytes)));

        Value deep = new Value.Empty();
        for (int i = 0; i < 100_000; i++) {
            deep = new Value.Any(deep);
        }
        Value value = deep;
        assertThrows(MisuseException.class, () -> codec.write(scratch(), value));
    }

    @Test
    void anErrorIsAnExceptionOfItsClass() {
        Class<?>[] classes = {NotFoundException.class, NoAnswerException.class, RefusedException.class,
                DisconnectedException.class, MisuseException.class, ClosedException.class, WrongReplyException.class,
                SystemException.class, SystemException.class};
        for (int errorClass = 0; errorClass < classes.length; errorClass++) {
            Scratch scratch = scratch();
            scratch.u8(Codec.ERROR).u8(errorClass).text("a:pv").text("what happened").text("127.0.0.1:5064").text("try again");

            PvException error = assertThrows(PvException.class,
                    () -> Codec.expect(Codec.NOTHING, scratch.reply(scratch.written())));

            assertEquals(classes[errorClass], error.getClass());
            assertEquals("\"a:pv\": what happened; try again", error.getMessage());
            assertEquals("a:pv", error.pv());
            assertEquals("what happened", error.reason());
            assertEquals("try again", error.advice().orElseThrow());
            assertEquals("127.0.0.1:5064", error.server().orElseThrow());
        }
    }

    @Test
    void unknownTagsAreRefused() {
        Scratch scratch = scratch();
        scratch.u8(77);
        int length = scratch.written();

        assertThrows(SystemException.class, () -> codec.reading("pv", ValueType.of(Double.class), scratch.reply(length)));
        assertThrows(SystemException.class, () -> codec.event("pv", ValueType.of(Double.class), scratch.reply(length)));
        assertThrows(SystemException.class, () -> Codec.expect(Codec.NOTHING, scratch.reply(length)));
    }
}
