package io.github.fodopv;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Collections;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.StringJoiner;

/**
 * A value of a PV, of any kind. Immutable.
 *
 * <p>A {@code switch} or {@code instanceof} over the permitted types finds out what a PV has; {@link #toDouble()}, {@link
 * #toLong()} and {@link #toText()} convert.
 */
public sealed interface Value {
    /**
     * A boolean.
     *
     * @param value the boolean
     */
    record Bool(boolean value) implements Value {
    }

    /**
     * An integer.
     *
     * @param kind its kind, from {@link Kind#I8} to {@link Kind#U64}
     * @param value the integer; of {@link Kind#U64} its 64 bits, as {@link Long#toUnsignedString(long)} reads them
     */
    record Int(Kind kind, long value) implements Value {
        /**
         * Checks the kind.
         *
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} if the kind is not an integer
         */
        public Int {
            if (kind.ordinal() < Kind.I8.ordinal() || kind.ordinal() > Kind.U64.ordinal()) {
                throw new MisuseException("", "an integer cannot have the kind " + kind);
            }
        }
    }

    /**
     * A floating point number.
     *
     * @param kind {@link Kind#F32} or {@link Kind#F64}
     * @param value the number
     */
    record Real(Kind kind, double value) implements Value {
        /**
         * Checks the kind.
         *
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} if the kind is not a floating point number
         */
        public Real {
            if (kind != Kind.F32 && kind != Kind.F64) {
                throw new MisuseException("", "a floating point number cannot have the kind " + kind);
            }
        }
    }

    /**
     * A text.
     *
     * @param value the text
     */
    record Text(String value) implements Value {
        /**
         * Checks the text.
         *
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} without a text
         */
        public Text {
            Objects.requireNonNull(value, "a text must not be null");
        }
    }

    /**
     * A state of an enum.
     *
     * @param index its index, from 0 to 65535; {@link Metadata#labels()} has the names
     */
    record Choice(int index) implements Value {
        /**
         * Checks the index.
         *
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} if the index is out of range
         */
        public Choice {
            if (index < 0 || index > 0xffff) {
                throw new MisuseException("", "the index of a state must be between 0 and 65535: " + index);
            }
        }
    }

    /**
     * An array of texts.
     *
     * @param values the texts
     */
    record TextArray(List<String> values) implements Value {
        /**
         * Copies the list.
         *
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} if the list or a text is null
         */
        public TextArray {
            values = List.copyOf(values);
        }
    }

    /**
     * An array of structures.
     *
     * @param id the identifier of their type; may be empty
     * @param elements a {@link Structure}, or {@link Empty} where the array has none
     */
    record StructureArray(String id, List<Value> elements) implements Value {
        /**
         * Copies the list.
         *
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} if the list or an element is null
         */
        public StructureArray {
            Objects.requireNonNull(id, "the identifier of a type must not be null");
            elements = List.copyOf(elements);
        }
    }

    /**
     * A union: one of several members.
     *
     * @param selector the index of the member; -1 if none is selected
     * @param member the name of the member; empty if none is selected
     * @param value its value; {@link Empty} if none is selected
     */
    record Union(int selector, String member, Value value) implements Value {
        /**
         * Checks the parts.
         *
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} if a part is null
         */
        public Union {
            Objects.requireNonNull(member, "the name of a member must not be null");
            Objects.requireNonNull(value, "the value of a member must not be null");
        }
    }

    /**
     * An array of unions.
     *
     * @param elements the unions
     */
    record UnionArray(List<Union> elements) implements Value {
        /**
         * Copies the list.
         *
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} if the list or an element is null
         */
        public UnionArray {
            elements = List.copyOf(elements);
        }
    }

    /**
     * A field that may contain a value of any type.
     *
     * @param value what it contains; {@link Empty} for nothing
     */
    record Any(Value value) implements Value {
        /**
         * Checks the value.
         *
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} without a value
         */
        public Any {
            Objects.requireNonNull(value, "the content of a variant must not be null");
        }
    }

    /**
     * An array of values of any type.
     *
     * @param elements the values; {@link Empty} for nothing
     */
    record AnyArray(List<Value> elements) implements Value {
        /**
         * Copies the list.
         *
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} if the list or an element is null
         */
        public AnyArray {
            elements = List.copyOf(elements);
        }
    }

    /** No value. */
    record Empty() implements Value {
    }

    /**
     * An array of numbers or booleans.
     *
     * <p>From 4096 bytes on, a received array is in memory outside the heap, which is freed with the last buffer of it.
     */
    final class Array implements Value {
        private final Kind kind;
        private final ByteBuffer bytes;

        /** The array in this buffer, from its position to its limit; the buffer must not be changed afterwards. */
        Array(Kind kind, ByteBuffer bytes) {
            this.kind = kind;
            this.bytes = bytes.slice().asReadOnlyBuffer();
        }

        /**
         * The kind of the elements.
         *
         * @return any kind except {@link Kind#TEXT}
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public Kind kind() {
            return kind;
        }

        /**
         * The number of elements.
         *
         * @return the number
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public int length() {
            return bytes.limit() / kind.bytes();
        }

        /**
         * The elements, without a copy.
         *
         * @return a new read-only buffer in native byte order
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public ByteBuffer bytes() {
            return bytes.duplicate().order(ByteOrder.nativeOrder());
        }

        /**
         * An element as a number.
         *
         * @param index its index
         * @return the number; integers beyond 2<sup>53</sup> are rounded
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link IndexOutOfBoundsException} if the array has no such element
         */
        public double doubleAt(int index) {
            return Arrays.toDouble(kind, bytes(), Objects.checkIndex(index, length()));
        }

        /**
         * An element as an integer.
         *
         * @param index its index
         * @return the integer; a floating point number is truncated as by a cast; of a variant or a union that of its value
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link IndexOutOfBoundsException} if the array has no such element
         */
        public long longAt(int index) {
            return Arrays.toLong(kind, bytes(), Objects.checkIndex(index, length()));
        }

        /**
         * The elements as numbers.
         *
         * @return a new array, converted as by {@link #doubleAt(int)}
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public double[] toDoubleArray() {
            return Arrays.doubles(kind, bytes());
        }

        /**
         * The elements as numbers.
         *
         * @return a new array, converted as by a cast
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public float[] toFloatArray() {
            return Arrays.floats(kind, bytes());
        }

        /**
         * The elements as integers.
         *
         * @return a new array, converted as by {@link #longAt(int)}
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public long[] toLongArray() {
            return Arrays.longs(kind, bytes());
        }

        /**
         * The elements as integers.
         *
         * @return a new array, converted as by a cast
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public int[] toIntArray() {
            return Arrays.ints(kind, bytes());
        }

        /**
         * The elements as integers.
         *
         * @return a new array, converted as by a cast
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public short[] toShortArray() {
            return Arrays.shorts(kind, bytes());
        }

        /**
         * The elements as integers.
         *
         * @return a new array, converted as by a cast
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public byte[] toByteArray() {
            return Arrays.bytes(kind, bytes());
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Array array && kind == array.kind && bytes.equals(array.bytes);
        }

        @Override
        public int hashCode() {
            return 31 * kind.hashCode() + bytes.hashCode();
        }

        @Override
        public String toString() {
            return "Array[" + kind + " x " + length() + "]";
        }
    }

    /** A structure: fields with names. */
    final class Structure implements Value {
        private final String id;
        private final Map<String, Value> fields;
        private final Set<String> marked;

        /** A structure with these fields, of which some have changed. Both collections are kept. */
        Structure(String id, Map<String, Value> fields, Set<String> marked) {
            this.id = id;
            this.fields = Collections.unmodifiableMap(fields);
            this.marked = marked;
        }

        /**
         * A structure, for the argument of a call.
         *
         * @param id the identifier of its type; may be empty
         * @param fields the fields in their order; a value that is not a {@link Value} is converted by {@link
         *     Value#of(Object)}
         * @return the structure
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} for an empty name of a field and for a value of another type
         */
        public static Structure of(String id, Map<String, ?> fields) {
            Objects.requireNonNull(id, "the identifier of a type must not be null");
            return Arrays.structureOf(id, fields, 0);
        }

        /**
         * The identifier of the type, such as {@code epics:nt/NTScalar:1.0}.
         *
         * @return the identifier; may be empty
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public String id() {
            return id;
        }

        /**
         * The fields.
         *
         * @return a map in the order of the type, which cannot be changed
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public Map<String, Value> fields() {
            return fields;
        }

        /**
         * A field of this structure, or of one within it.
         *
         * @param path names separated by dots, such as {@code alarm.severity}; also through a union or a variant
         * @return the value
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} if there is no such field; it has the names of the fields that exist
         */
        public Value get(String path) {
            Value value = this;
            for (String name : path.split("\\.", -1)) {
                while (value instanceof Any || value instanceof Union) {
                    value = value instanceof Any any ? any.value() : ((Union) value).value();
                }
                Value field = value instanceof Structure structure ? structure.fields.get(name) : null;
                if (field == null) {
                    String names = value instanceof Structure structure
                            ? "the fields here are " + String.join(", ", structure.fields.keySet())
                            : "what is before it is not a structure";
                    throw new MisuseException("", "there is no field \"" + name + "\" in \"" + path + "\"; " + names);
                }
                value = field;
            }
            return value;
        }

        /**
         * The fields that the server has marked as changed, without structures: those have changed where their fields have.
         *
         * @return their paths, such as {@code alarm.severity}, in the order of the type
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails never
         */
        public Set<String> changed() {
            Set<String> paths = new LinkedHashSet<>();
            addChanged("", paths);
            return Collections.unmodifiableSet(paths);
        }

        private void addChanged(String prefix, Set<String> paths) {
            fields.forEach((name, value) -> {
                if (value instanceof Structure structure) {
                    structure.addChanged(prefix + name + ".", paths);
                } else if (marked.contains(name)) {
                    paths.add(prefix + name);
                }
            });
        }

        /** Whether this field itself is marked as changed. */
        boolean isMarked(String name) {
            return marked.contains(name);
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Structure structure && id.equals(structure.id) && fields.equals(structure.fields);
        }

        @Override
        public int hashCode() {
            return 31 * id.hashCode() + fields.hashCode();
        }

        @Override
        public String toString() {
            return "Structure[" + id + " " + fields + "]";
        }
    }

    /**
     * The value of an object of Java.
     *
     * @param object a {@link Value}, {@link Boolean}, {@link Number} of a primitive type, {@link String}, {@link Enum} (its
     *     ordinal), an array of these primitive types or of texts, a list of texts, or a map (a structure)
     * @return the value; arrays are copied
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for another type and for null
     */
    static Value of(Object object) {
        return Arrays.valueOf(object);
    }

    /**
     * The value as a number.
     *
     * @return the number; of a boolean 0 or 1, of a state its index, of a variant or a union that of its value; integers
     *     beyond 2<sup>53</sup> are rounded
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} if the value is an array, a structure, or a text that is not a number
     */
    default double toDouble() {
        if (this instanceof Real real) {
            return real.value();
        }
        if (this instanceof Int integer && integer.kind() == Kind.U64 && integer.value() < 0) {
            return Arrays.unsignedToDouble(integer.value());
        }
        if (this instanceof Text text) {
            try {
                return Double.parseDouble(text.value());
            } catch (NumberFormatException e) {
                throw new MisuseException("", "the text \"" + text.value() + "\" is not a number");
            }
        }
        if (this instanceof Any any) {
            return any.value().toDouble();
        }
        if (this instanceof Union union) {
            return union.value().toDouble();
        }
        return toLong();
    }

    /**
     * The value as an integer.
     *
     * @return the integer; a floating point number is truncated as by a cast; of a variant or a union that of its value
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} if the value is an array, a structure, or a text that is not a number
     */
    default long toLong() {
        if (this instanceof Int integer) {
            return integer.value();
        } else if (this instanceof Bool bool) {
            return bool.value() ? 1 : 0;
        } else if (this instanceof Choice choice) {
            return choice.index();
        } else if (this instanceof Real real) {
            return (long) real.value();
        } else if (this instanceof Any any) {
            return any.value().toLong();
        } else if (this instanceof Union union) {
            return union.value().toLong();
        } else if (this instanceof Text) {
            return (long) toDouble();
        }
        throw new MisuseException("", "a value of the type " + getClass().getSimpleName() + " is not a number");
    }

    /**
     * The value as a text.
     *
     * @return the text; numbers in decimal digits, arrays in brackets, structures with the names of their fields
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    default String toText() {
        if (this instanceof Text text) {
            return text.value();
        } else if (this instanceof Int integer) {
            return integer.kind() == Kind.U64 ? Long.toUnsignedString(integer.value()) : Long.toString(integer.value());
        } else if (this instanceof Real real) {
            return real.kind() == Kind.F32 ? Float.toString((float) real.value()) : Double.toString(real.value());
        } else if (this instanceof Bool bool) {
            return Boolean.toString(bool.value());
        } else if (this instanceof Choice choice) {
            return Integer.toString(choice.index());
        } else if (this instanceof Any any) {
            return any.value().toText();
        } else if (this instanceof Union union) {
            return union.value().toText();
        } else if (this instanceof Structure structure) {
            StringJoiner text = new StringJoiner(", ", structure.id() + "{", "}");
            structure.fields().forEach((name, value) -> text.add(name + ": " + value.toText()));
            return text.toString();
        }
        return Arrays.toText(this);
    }
}
