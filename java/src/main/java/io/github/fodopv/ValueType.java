package io.github.fodopv;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.List;

/**
 * A type of Java that values can have, and how it is read from and written to the encoding.
 *
 * @param kind the kind that is requested from the server; {@link Codec#NATIVE_KIND} for the PV's own
 * @param isArray whether all elements are requested
 */
record ValueType<T>(Class<T> type, int kind, boolean isArray, Read<T> read, Write<T> write) {
    /** Reads a value. */
    interface Read<T> {
        T read(Codec codec, ByteBuffer in);
    }

    /** Writes a value. */
    interface Write<T> {
        void write(Codec codec, Scratch out, T value);
    }

    private static final ValueType<?>[] ALL = {
        scalar(Double.class, Kind.F64, ValueType::readDouble, (codec, out, value) -> Codec.writeReal(out, Kind.F64, value)),
        scalar(Float.class, Kind.F32, (codec, in) -> (float) readDouble(codec, in),
                (codec, out, value) -> Codec.writeReal(out, Kind.F32, value)),
        scalar(Long.class, Kind.I64, ValueType::readLong, (codec, out, value) -> Codec.writeInt(out, Kind.I64, value)),
        scalar(Integer.class, Kind.I32, (codec, in) -> (int) readLong(codec, in),
                (codec, out, value) -> Codec.writeInt(out, Kind.I32, value)),
        scalar(Short.class, Kind.I16, (codec, in) -> (short) readLong(codec, in),
                (codec, out, value) -> Codec.writeInt(out, Kind.I16, value)),
        scalar(Byte.class, Kind.I8, (codec, in) -> (byte) readLong(codec, in),
                (codec, out, value) -> Codec.writeInt(out, Kind.I8, value)),
        scalar(Boolean.class, Kind.BOOL, (codec, in) -> readLong(codec, in) != 0,
                (codec, out, value) -> Codec.writeInt(out, Kind.BOOL, value ? 1 : 0)),
        scalar(String.class, Kind.TEXT, ValueType::readText,
                (codec, out, value) -> out.u8(Codec.SCALAR).u8(Kind.TEXT.ordinal()).text(value)),
        array(double[].class, Kind.F64, Arrays::doubles),
        array(float[].class, Kind.F32, Arrays::floats),
        array(long[].class, Kind.I64, Arrays::longs),
        array(int[].class, Kind.I32, Arrays::ints),
        array(short[].class, Kind.I16, Arrays::shorts),
        array(byte[].class, Kind.I8, Arrays::bytes),
        new ValueType<>(String[].class, Kind.TEXT.ordinal(), true, ValueType::readTexts,
                (codec, out, value) -> Codec.writeTexts(out, List.of(value))),
        new ValueType<>(Value.class, Codec.NATIVE_KIND, true, Codec::value, Codec::write),
    };

    /** How packed elements become an array. */
    interface OfElements<T> {
        T of(Kind kind, ByteBuffer elements);
    }

    private static <T> ValueType<T> scalar(Class<T> type, Kind kind, Read<T> read, Write<T> write) {
        return new ValueType<>(type, kind.ordinal(), false, read, write);
    }

    private static <T> ValueType<T> array(Class<T> type, Kind kind, OfElements<T> ofElements) {
        Read<T> read = (codec, in) -> readArray(codec, in, ofElements::of);
        Write<T> write =
                (codec, out, value) -> Arrays.write(value, Codec.elementsOut(out, kind, Arrays.byteLength(value)));
        return new ValueType<>(type, kind.ordinal(), true, read, write);
    }

    /** The type of this class. */
    @SuppressWarnings("unchecked")
    static <T> ValueType<T> of(Class<T> type) {
        if (type == null) {
            throw new MisuseException("", "a channel needs the class of its values, such as Double.class");
        }
        for (ValueType<?> known : ALL) {
            if (known.type == type) {
                return (ValueType<T>) known;
            }
        }
        throw new MisuseException("", "values cannot have the type " + type.getTypeName()
                + "; use Double, Float, Long, Integer, Short, Byte, Boolean, String, an array double[], float[], long[],"
                + " int[], short[], byte[] or String[], or Value for any other");
    }

    /** The number of elements to request: one for a type that is not an array. */
    int count(Request request) {
        return isArray ? request.count() : 1;
    }

    void writeRequest(Scratch out, Request request) {
        out.u8(kind).u8(request.detail().ordinal()).i32(count(request));
    }

    T decode(Codec codec, String pv, ByteBuffer in) {
        try {
            return read.read(codec, in);
        } catch (MisuseException e) {
            throw notConverted(pv, e);
        }
    }

    void encode(Codec codec, String pv, Scratch out, T value) {
        if (value == null) {
            throw new MisuseException(pv, "a value to put must not be null");
        }
        try {
            write.write(codec, out, value);
        } catch (NullPointerException e) {
            throw new MisuseException(pv, "a value to put has an element that is null");
        } catch (ClassCastException e) {
            throw new MisuseException(pv,
                    "a value to put has the type " + Arrays.typeName(value) + " instead of " + type.getTypeName());
        }
    }

    /** A structure as a value of this type. */
    T ofValue(String pv, Value.Structure structure) {
        if (type == Value.class) {
            return type.cast(structure);
        }
        throw new WrongReplyException(pv,
                "the server sent a structure where " + type.getTypeName() + " was requested", "", "use Value.class");
    }

    private WrongReplyException notConverted(String pv, MisuseException e) {
        return new WrongReplyException(pv,
                "what the server sent cannot be converted to " + type.getTypeName() + ": " + e.reason(), "", "");
    }

    private static double readDouble(Codec codec, ByteBuffer in) {
        int at = in.position();
        if (in.get(at) == Codec.SCALAR && in.get(at + 1) == Kind.F64.ordinal()) {
            in.position(at + 2);
            return in.getDouble();
        }
        Value value = codec.value(in);
        return value instanceof Value.Array array && array.length() > 0 ? array.doubleAt(0) : value.toDouble();
    }

    private static long readLong(Codec codec, ByteBuffer in) {
        Value value = codec.value(in);
        return value instanceof Value.Array array && array.length() > 0 ? array.longAt(0) : value.toLong();
    }

    private static String readText(Codec codec, ByteBuffer in) {
        Value value = codec.value(in);
        return value instanceof Value.TextArray array && !array.values().isEmpty()
                ? array.values().get(0)
                : value.toText();
    }

    private static String[] readTexts(Codec codec, ByteBuffer in) {
        Value value = codec.value(in);
        return value instanceof Value.TextArray array
                ? array.values().toArray(String[]::new)
                : new String[] {value.toText()};
    }

    /** Reads an array, or a single number as an array with one element. */
    static <R> R readArray(Codec codec, ByteBuffer in, OfElements<R> function) {
        int tag = in.get(in.position());
        if (tag == Codec.ARRAY || tag == Codec.BLOCK_ARRAY) {
            Codec.Elements elements = codec.elements(in.get(), in);
            try {
                return function.of(elements.kind(), elements.bytes());
            } finally {
                codec.release(elements);
            }
        }
        Value value = codec.value(in);
        boolean isReal = value instanceof Value.Real;
        Kind kind = isReal ? Kind.F64 : Kind.I64;
        ByteBuffer element = ByteBuffer.allocate(8).order(ByteOrder.nativeOrder());
        element = isReal ? element.putDouble(value.toDouble()) : element.putLong(value.toLong());
        return function.of(kind, element.flip());
    }
}
