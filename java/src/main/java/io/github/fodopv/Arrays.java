package io.github.fodopv;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.StringJoiner;

/** Conversions between packed elements, arrays of Java and values. Buffers are read from their position to their limit. */
final class Arrays {
    private Arrays() {
    }

    static double unsignedToDouble(long bits) {
        // The lowest bit is kept in the one above it, so that rounding is right.
        return ((bits >>> 1) | (bits & 1)) * 2.0;
    }

    static double toDouble(Kind kind, ByteBuffer in, int index) {
        int at = in.position() + index * kind.bytes();
        return switch (kind) {
            case F64 -> in.getDouble(at);
            case F32 -> in.getFloat(at);
            case U64 -> {
                long bits = in.getLong(at);
                yield bits >= 0 ? bits : unsignedToDouble(bits);
            }
            default -> toLong(kind, in, index);
        };
    }

    static long toLong(Kind kind, ByteBuffer in, int index) {
        int at = in.position() + index * kind.bytes();
        return switch (kind) {
            case BOOL, U8 -> in.get(at) & 0xff;
            case I8 -> in.get(at);
            case I16 -> in.getShort(at);
            case U16, ENUM -> in.getShort(at) & 0xffff;
            case I32 -> in.getInt(at);
            case U32 -> in.getInt(at) & 0xffff_ffffL;
            case I64, U64 -> in.getLong(at);
            case F32 -> (long) in.getFloat(at);
            case F64 -> (long) in.getDouble(at);
            case TEXT -> throw new IllegalStateException("texts are not packed");
        };
    }

    private static int length(Kind kind, ByteBuffer in) {
        return in.remaining() / kind.bytes();
    }

    /** Copies as many elements as both have; returns how many. */
    static int copy(Kind kind, ByteBuffer in, double[] to) {
        int length = Math.min(length(kind, in), to.length);
        if (kind == Kind.F64) {
            in.asDoubleBuffer().get(to, 0, length);
        } else {
            for (int i = 0; i < length; i++) {
                to[i] = toDouble(kind, in, i);
            }
        }
        return length;
    }

    static int copy(Kind kind, ByteBuffer in, float[] to) {
        int length = Math.min(length(kind, in), to.length);
        if (kind == Kind.F32) {
            in.asFloatBuffer().get(to, 0, length);
        } else {
            for (int i = 0; i < length; i++) {
                to[i] = (float) toDouble(kind, in, i);
            }
        }
        return length;
    }

    static int copy(Kind kind, ByteBuffer in, long[] to) {
        int length = Math.min(length(kind, in), to.length);
        if (kind == Kind.I64 || kind == Kind.U64) {
            in.asLongBuffer().get(to, 0, length);
        } else {
            for (int i = 0; i < length; i++) {
                to[i] = toLong(kind, in, i);
            }
        }
        return length;
    }

    static int copy(Kind kind, ByteBuffer in, int[] to) {
        int length = Math.min(length(kind, in), to.length);
        if (kind == Kind.I32 || kind == Kind.U32) {
            in.asIntBuffer().get(to, 0, length);
        } else {
            for (int i = 0; i < length; i++) {
                to[i] = (int) toLong(kind, in, i);
            }
        }
        return length;
    }

    static int copy(Kind kind, ByteBuffer in, short[] to) {
        int length = Math.min(length(kind, in), to.length);
        if (kind.bytes() == 2) {
            in.asShortBuffer().get(to, 0, length);
        } else {
            for (int i = 0; i < length; i++) {
                to[i] = (short) toLong(kind, in, i);
            }
        }
        return length;
    }

    static int copy(Kind kind, ByteBuffer in, byte[] to) {
        int length = Math.min(length(kind, in), to.length);
        if (kind.bytes() == 1) {
            in.get(in.position(), to, 0, length);
        } else {
            for (int i = 0; i < length; i++) {
                to[i] = (byte) toLong(kind, in, i);
            }
        }
        return length;
    }

    static double[] doubles(Kind kind, ByteBuffer in) {
        double[] array = new double[length(kind, in)];
        copy(kind, in, array);
        return array;
    }

    static float[] floats(Kind kind, ByteBuffer in) {
        float[] array = new float[length(kind, in)];
        copy(kind, in, array);
        return array;
    }

    static long[] longs(Kind kind, ByteBuffer in) {
        long[] array = new long[length(kind, in)];
        copy(kind, in, array);
        return array;
    }

    static int[] ints(Kind kind, ByteBuffer in) {
        int[] array = new int[length(kind, in)];
        copy(kind, in, array);
        return array;
    }

    static short[] shorts(Kind kind, ByteBuffer in) {
        short[] array = new short[length(kind, in)];
        copy(kind, in, array);
        return array;
    }

    static byte[] bytes(Kind kind, ByteBuffer in) {
        byte[] array = new byte[length(kind, in)];
        copy(kind, in, array);
        return array;
    }

    /** The kind of the elements of an array of a primitive type; {@code null} for another object. */
    static Kind kindOf(Object array) {
        if (array instanceof double[]) {
            return Kind.F64;
        } else if (array instanceof float[]) {
            return Kind.F32;
        } else if (array instanceof long[]) {
            return Kind.I64;
        } else if (array instanceof int[]) {
            return Kind.I32;
        } else if (array instanceof short[]) {
            return Kind.I16;
        } else if (array instanceof byte[]) {
            return Kind.I8;
        } else if (array instanceof boolean[]) {
            return Kind.BOOL;
        }
        return null;
    }

    /** The bytes of all elements of an array of a primitive type, packed. */
    static int byteLength(Object array) {
        long bytes;
        if (array instanceof double[] elements) {
            bytes = 8L * elements.length;
        } else if (array instanceof float[] elements) {
            bytes = 4L * elements.length;
        } else if (array instanceof long[] elements) {
            bytes = 8L * elements.length;
        } else if (array instanceof int[] elements) {
            bytes = 4L * elements.length;
        } else if (array instanceof short[] elements) {
            bytes = 2L * elements.length;
        } else if (array instanceof byte[] elements) {
            bytes = elements.length;
        } else {
            bytes = ((boolean[]) array).length;
        }
        if (bytes > Integer.MAX_VALUE) {
            throw new MisuseException("", "an array must have at most 2147483647 bytes: " + bytes);
        }
        return (int) bytes;
    }

    /** Writes all elements of an array of a primitive type at the position of the buffer, and advances it. */
    static void write(Object array, ByteBuffer out) {
        int start = out.position();
        if (array instanceof double[] elements) {
            out.asDoubleBuffer().put(elements);
            out.position(start + 8 * elements.length);
        } else if (array instanceof float[] elements) {
            out.asFloatBuffer().put(elements);
            out.position(start + 4 * elements.length);
        } else if (array instanceof long[] elements) {
            out.asLongBuffer().put(elements);
            out.position(start + 8 * elements.length);
        } else if (array instanceof int[] elements) {
            out.asIntBuffer().put(elements);
            out.position(start + 4 * elements.length);
        } else if (array instanceof short[] elements) {
            out.asShortBuffer().put(elements);
            out.position(start + 2 * elements.length);
        } else if (array instanceof byte[] elements) {
            out.put(elements);
        } else {
            for (boolean element : (boolean[]) array) {
                out.put(element ? (byte) 1 : 0);
            }
        }
    }

    /** The value of an object of Java; see {@link Value#of(Object)}. */
    static Value valueOf(Object object) {
        return valueOf(object, 0);
    }

    /** The value of an object within so many maps. */
    private static Value valueOf(Object object, int depth) {
        if (depth > Codec.DEPTH_MAX) {
            throw new MisuseException("", "a value can have at most " + Codec.DEPTH_MAX + " structures within each other");
        }
        if (object instanceof Value value) {
            return value;
        } else if (object instanceof Double number) {
            return new Value.Real(Kind.F64, number);
        } else if (object instanceof Float number) {
            return new Value.Real(Kind.F32, number);
        } else if (object instanceof Long number) {
            return new Value.Int(Kind.I64, number);
        } else if (object instanceof Integer number) {
            return new Value.Int(Kind.I32, number);
        } else if (object instanceof Short number) {
            return new Value.Int(Kind.I16, number);
        } else if (object instanceof Byte number) {
            return new Value.Int(Kind.I8, number);
        } else if (object instanceof Boolean bool) {
            return new Value.Bool(bool);
        } else if (object instanceof String text) {
            return new Value.Text(text);
        } else if (object instanceof Enum<?> state) {
            return new Value.Choice(state.ordinal());
        } else if (object instanceof String[] texts) {
            return new Value.TextArray(List.of(texts));
        } else if (object instanceof List<?> list && list.stream().allMatch(element -> element instanceof String)) {
            return new Value.TextArray(list.stream().map(element -> (String) element).toList());
        } else if (object instanceof Map<?, ?> map && map.keySet().stream().allMatch(key -> key instanceof String)) {
            return structureOf("", map, depth);
        }
        Kind kind = kindOf(object);
        if (kind == null) {
            throw new MisuseException("", "an object of the type " + typeName(object) + " is not a value of a PV");
        }
        ByteBuffer bytes = ByteBuffer.allocate(byteLength(object));
        write(object, bytes.order(ByteOrder.nativeOrder()));
        return new Value.Array(kind, bytes.flip());
    }

    /** A structure with the values of a map. */
    static Value.Structure structureOf(String id, Map<?, ?> map, int depth) {
        Map<String, Value> fields = new LinkedHashMap<>();
        map.forEach((name, value) -> {
            if (name == null || name.equals("")) {
                throw new MisuseException("", "a field of a structure needs a name");
            }
            fields.put((String) name, valueOf(value, depth + 1));
        });
        return new Value.Structure(id, fields, Set.of());
    }

    static String typeName(Object object) {
        return object == null ? "null" : object.getClass().getTypeName();
    }

    /** The text of an array. */
    static String toText(Value value) {
        StringJoiner text = new StringJoiner(", ", "[", "]");
        if (value instanceof Value.TextArray array) {
            array.values().forEach(text::add);
        } else if (value instanceof Value.StructureArray array) {
            array.elements().forEach(element -> text.add(element.toText()));
        } else if (value instanceof Value.UnionArray array) {
            array.elements().forEach(element -> text.add(element.toText()));
        } else if (value instanceof Value.AnyArray array) {
            array.elements().forEach(element -> text.add(element.toText()));
        } else if (value instanceof Value.Array array) {
            ByteBuffer bytes = array.bytes();
            for (int i = 0; i < array.length(); i++) {
                text.add(element(array.kind(), bytes, i));
            }
        } else {
            return "";
        }
        return text.toString();
    }

    private static String element(Kind kind, ByteBuffer in, int index) {
        return switch (kind) {
            case F64 -> Double.toString(toDouble(kind, in, index));
            case F32 -> Float.toString((float) toDouble(kind, in, index));
            case U64 -> Long.toUnsignedString(toLong(kind, in, index));
            case BOOL -> Boolean.toString(toLong(kind, in, index) != 0);
            default -> Long.toString(toLong(kind, in, index));
        };
    }
}
