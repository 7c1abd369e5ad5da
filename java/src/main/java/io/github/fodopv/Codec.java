package io.github.fodopv;

import java.lang.ref.Cleaner;
import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;

/**
 * The encoding of values, results and events between Java and the native library, version 1; the other side is {@code
 * java/native/src/codec.rs}. Native byte order, unaligned; {@code str} is a u32 number of bytes and UTF-8.
 *
 * <pre>
 * replies:
 *  0 NOTHING   1 ERROR u8 class, str pv, str reason, str server, str advice   2 HANDLE i64
 *  3 PENDING i64
 *  4 READING   u8 severity, u16 status, i64 unix s (i64::MIN: no time), u32 nanos, i32 user tag, str message, value,
 *              u8 hasMeta [meta]
 *  5 STRUCTURE value of tag 4
 *  6 INFO      str protocol, str server, u8 kind, u32 countMax, u8 mayRead, u8 mayWrite, str tls peer
 *  7 TEXT str  8 LIST u32 n, n x (u32 bytes, reply)   9 READY   10 CLOSED   11 COUNTS
 * events:
 * 20 UPDATE and a reply READING or STRUCTURE   21 CONNECTED and the body of INFO   22 RIGHTS and the body of INFO
 * 23 MERGED u64   24 UNRESPONSIVE   25 RESPONSIVE   26 DISCONNECTED   27 REFUSED and the body of ERROR
 * 28 WRONG_REPLY and the body of ERROR   29 CLOSED
 * meta: u16 parts, str units, i16 precision, f64 x 8 (display, alarm, warning, control; low and high of each),
 *       str description, u8 form, u32 n, n x str label
 * value:
 *  0 EMPTY   1 SCALAR u8 kind, payload   2 ARRAY u8 kind, u32 count, elements
 *  3 BLOCK_ARRAY u8 kind, i64 count, i64 address, i64 owner; for packed arrays from 4096 bytes on
 *  4 STRUCTURE str id, u32 n, n x (str name, u8 changed, value)   5 STRUCTURE_ARRAY str id, u32 n, n x value
 *  6 UNION i32 selector, str member, value   7 UNION_ARRAY u32 n, n x UNION   8 ANY value   9 ANY_ARRAY u32 n, n x value
 * </pre>
 */
final class Codec {
    /** The version of the encoding; the native library must have the same. */
    static final int VERSION = 1;

    static final int NOTHING = 0;
    static final int ERROR = 1;
    static final int HANDLE = 2;
    static final int PENDING = 3;
    static final int READING = 4;
    static final int STRUCTURE_REPLY = 5;
    static final int INFO = 6;
    static final int TEXT = 7;
    static final int LIST = 8;
    static final int READY = 9;
    static final int CLOSED = 10;
    static final int COUNTS = 11;
    static final int UPDATE = 20;

    /** The kind of a request for the PV's own kind. */
    static final int NATIVE_KIND = 255;

    static final int EMPTY = 0;
    static final int SCALAR = 1;
    static final int ARRAY = 2;
    static final int BLOCK_ARRAY = 3;
    static final int STRUCTURE = 4;
    static final int STRUCTURE_ARRAY = 5;
    static final int UNION = 6;
    static final int UNION_ARRAY = 7;
    static final int ANY = 8;
    static final int ANY_ARRAY = 9;

    /** From this number of bytes on, an array is in a block. */
    static final int BLOCK_BYTES_MIN = 4096;
    /** Structures within structures; types of pvAccess are far from it. */
    static final int DEPTH_MAX = 64;

    private final Native natives;
    private final Cleaner cleaner;

    Codec(Native natives, Cleaner cleaner) {
        this.natives = natives;
        this.cleaner = cleaner;
    }

    /** The result of a function that reads a buffer; a reply that cannot be decoded is an error of the library. */
    <R> R decoded(String pv, ByteBuffer in, Function<ByteBuffer, R> function) {
        try {
            return function.apply(in);
        } catch (BufferUnderflowException
                | IndexOutOfBoundsException
                | IllegalArgumentException
                | DateTimeException e) {
            throw new SystemException(pv, "a reply of the native library cannot be decoded: " + e);
        }
    }

    static RuntimeException malformed(String what) {
        return new SystemException("", "a reply of the native library cannot be decoded: " + what);
    }

    // Replies.

    static String text(ByteBuffer in) {
        int bytes = count(in, 1);
        if (bytes == 0) {
            return "";
        }
        byte[] text = new byte[bytes];
        in.get(text);
        return new String(text, StandardCharsets.UTF_8);
    }

    /** A number of items of at least this many bytes each. */
    static int count(ByteBuffer in, int bytesMin) {
        int count = in.getInt();
        if (count < 0 || count > in.remaining() / bytesMin) {
            throw malformed("a length of " + Integer.toUnsignedString(count) + " with " + in.remaining() + " bytes left");
        }
        return count;
    }

    /** The body of ERROR. */
    static PvException error(ByteBuffer in) {
        return error("", in);
    }

    /** The body of ERROR, about a PV with this name; empty for the name that the error has. */
    static PvException error(String pv, ByteBuffer in) {
        int errorClass = in.get() & 0xff;
        String name = text(in);
        return PvException.of(errorClass, pv.isEmpty() ? name : pv, text(in), text(in), text(in));
    }

    /** The tag of a reply; throws the error that an ERROR contains. */
    static int successTag(ByteBuffer in) {
        return successTag("", in);
    }

    private static int successTag(String pv, ByteBuffer in) {
        int tag = in.get();
        if (tag == ERROR) {
            throw error(pv, in);
        }
        return tag;
    }

    /** Checks the tag of a reply; throws the error that an ERROR contains. */
    static void expect(int expected, ByteBuffer in) {
        expect("", expected, in);
    }

    /** The same for a PV with this name. */
    static void expect(String pv, int expected, ByteBuffer in) {
        int tag = successTag(pv, in);
        if (tag != expected) {
            throw malformed("the tag " + tag + " where " + expected + " was expected");
        }
    }

    static long handle(ByteBuffer in) {
        expect(HANDLE, in);
        return in.getLong();
    }

    /** The body of INFO. */
    static Info info(String pv, ByteBuffer in) {
        Protocol protocol = text(in).equals("pva") ? Protocol.PVA : Protocol.CA;
        String server = text(in);
        Kind kind = kind(in);
        return new Info(pv, protocol, server, kind, in.getInt(), in.get() != 0, in.get() != 0, text(in));
    }

    /** A reply READING or STRUCTURE. */
    <T> Reading<T> reading(String pv, ValueType<T> type, ByteBuffer in) {
        int tag = successTag(pv, in);
        if (tag == STRUCTURE_REPLY) {
            return structureReading(pv, type, structure(in));
        } else if (tag != READING) {
            throw malformed("the tag " + tag + " instead of a reading");
        }
        int severity = in.get();
        int status = in.getShort() & 0xffff;
        long unixS = in.getLong();
        int nanos = in.getInt();
        int userTag = in.getInt();
        String message = text(in);
        T value = type.decode(this, pv, in);
        boolean isAlarm = severity != 0 || status != 0 || !message.isEmpty();
        Alarm alarm = isAlarm ? new Alarm(Severity.of(severity), status, message) : Alarm.NONE;
        Instant time = unixS == Long.MIN_VALUE ? null : instant(unixS, nanos);
        return new Reading<>(value, alarm, time, userTag, in.get() != 0 ? metadata(in) : null);
    }

    /** A structure with the alarm and the time stamp that are among its fields. */
    private <T> Reading<T> structureReading(String pv, ValueType<T> type, Value.Structure structure) {
        T value = type.ofValue(pv, structure);
        Alarm alarm = Alarm.NONE;
        if (structure.fields().get("alarm") instanceof Value.Structure fields) {
            int severity = (int) number(fields, "severity");
            String message = fields.fields().get("message") instanceof Value.Text text ? text.value() : "";
            if (severity != 0 || !message.isEmpty()) {
                alarm = new Alarm(Severity.of(severity), (int) number(fields, "status"), message);
            }
        }
        Instant time = null;
        int userTag = 0;
        if (structure.fields().get("timeStamp") instanceof Value.Structure fields) {
            time = instant(number(fields, "secondsPastEpoch"), number(fields, "nanoseconds"));
            userTag = (int) number(fields, "userTag");
        }
        return new Reading<>(value, alarm, time, userTag, null);
    }

    /** A time stamp. Servers send any number; one that is out of range is clamped. */
    private static Instant instant(long unixS, long nanos) {
        try {
            return Instant.ofEpochSecond(unixS, nanos);
        } catch (DateTimeException | ArithmeticException e) {
            return unixS < 0 ? Instant.MIN : Instant.MAX;
        }
    }

    private static long number(Value.Structure structure, String field) {
        return structure.fields().get(field) instanceof Value.Int number ? number.value() : 0;
    }

    private static Metadata metadata(ByteBuffer in) {
        in.getShort();
        String units = text(in);
        int precision = in.getShort();
        Limits display = new Limits(in.getDouble(), in.getDouble());
        Limits alarm = new Limits(in.getDouble(), in.getDouble());
        Limits warning = new Limits(in.getDouble(), in.getDouble());
        Limits control = new Limits(in.getDouble(), in.getDouble());
        String description = text(in);
        in.get();
        return new Metadata(units, precision, description, display, alarm, warning, control, texts(in));
    }

    /** An event of a monitor. */
    <T> Event<T> event(String pv, ValueType<T> type, ByteBuffer in) {
        int tag = in.get();
        return switch (tag) {
            case UPDATE -> new Event.Update<>(reading(pv, type, in));
            case 21 -> new Event.Connected<>(info(pv, in));
            case 22 -> new Event.Rights<>(info(pv, in));
            case 23 -> new Event.Merged<>(in.getLong());
            case 24 -> new Event.Unresponsive<>();
            case 25 -> new Event.Responsive<>();
            case 26 -> new Event.Disconnected<>();
            case 27 -> new Event.Refused<>(refused(pv, in));
            case 28 -> new Event.WrongReply<>(error(pv, in));
            case 29 -> new Event.Closed<>();
            default -> throw malformed("the tag " + tag + " instead of an event");
        };
    }

    private static RefusedException refused(String pv, ByteBuffer in) {
        PvException error = error(pv, in);
        return error instanceof RefusedException refused
                ? refused
                : new RefusedException(error.pv(), error.reason(), error.server().orElse(""), error.advice().orElse(""));
    }

    static MonitorCounts monitorCounts(ByteBuffer in) {
        expect(COUNTS, in);
        return new MonitorCounts(
                in.getLong(), in.getLong(), in.getLong(), in.getLong(), in.getLong(), Duration.ofNanos(in.getLong()));
    }

    static GroupCounts groupCounts(ByteBuffer in) {
        expect(COUNTS, in);
        return new GroupCounts(in.getLong(), in.getLong(), in.getLong(), in.getLong(), in.getLong());
    }

    // Values.

    static Kind kind(ByteBuffer in) {
        int code = in.get() & 0xff;
        Kind kind = Kind.of(code);
        if (kind == null) {
            throw malformed("the kind " + code);
        }
        return kind;
    }

    private static List<String> texts(ByteBuffer in) {
        int count = count(in, 4);
        List<String> texts = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            texts.add(text(in));
        }
        return texts.isEmpty() ? List.of() : java.util.Collections.unmodifiableList(texts);
    }

    /** A value of any type. */
    Value value(ByteBuffer in) {
        return value(in, 0);
    }

    /** A value that is a structure. */
    Value.Structure structure(ByteBuffer in) {
        if (value(in) instanceof Value.Structure structure) {
            return structure;
        }
        throw malformed("a value that is not a structure");
    }

    private Value value(ByteBuffer in, int depth) {
        if (depth > DEPTH_MAX) {
            throw malformed("more than " + DEPTH_MAX + " structures within each other");
        }
        int tag = in.get();
        return switch (tag) {
            case EMPTY -> new Value.Empty();
            case SCALAR -> scalar(in);
            case ARRAY, BLOCK_ARRAY -> array(tag, in);
            case STRUCTURE -> structure(in, depth);
            case STRUCTURE_ARRAY -> new Value.StructureArray(text(in), values(in, depth));
            case UNION -> union(in, depth);
            case UNION_ARRAY -> unions(in, depth);
            case ANY -> new Value.Any(value(in, depth + 1));
            case ANY_ARRAY -> new Value.AnyArray(values(in, depth));
            default -> throw malformed("the tag " + tag + " instead of a value");
        };
    }

    private static Value scalar(ByteBuffer in) {
        Kind kind = kind(in);
        return switch (kind) {
            case BOOL -> new Value.Bool(in.get() != 0);
            case TEXT -> new Value.Text(text(in));
            case ENUM -> new Value.Choice(in.getShort() & 0xffff);
            case F32 -> new Value.Real(kind, in.getFloat());
            case F64 -> new Value.Real(kind, in.getDouble());
            default -> new Value.Int(kind, packed(kind, in));
        };
    }

    /** An integer of this kind. */
    private static long packed(Kind kind, ByteBuffer in) {
        in.position(in.position() + kind.bytes());
        return Arrays.toLong(kind, in, -1);
    }

    private Value array(int tag, ByteBuffer in) {
        if (tag == ARRAY && in.get(in.position()) == Kind.TEXT.ordinal()) {
            in.get();
            return new Value.TextArray(texts(in));
        }
        Elements elements = elements(tag, in);
        if (elements.owner == 0) {
            // The memory of the reply is used again.
            return new Value.Array(elements.kind, ByteBuffer.allocate(elements.bytes.remaining()).put(elements.bytes).flip());
        }
        long owner = elements.owner;
        Native library = natives;
        // Buffers made of this one keep it reachable.
        cleaner.register(elements.bytes, () -> library.release(owner));
        return new Value.Array(elements.kind, elements.bytes);
    }

    /** Packed elements of a reply. */
    record Elements(Kind kind, ByteBuffer bytes, long owner) {
    }

    /** The elements of ARRAY or BLOCK_ARRAY; the caller releases the owner unless it is 0. */
    Elements elements(int tag, ByteBuffer in) {
        Kind kind = kind(in);
        if (kind == Kind.TEXT) {
            throw malformed("an array of texts where numbers were expected");
        }
        if (tag == ARRAY) {
            int bytes = count(in, kind.bytes()) * kind.bytes();
            ByteBuffer elements = in.slice(in.position(), bytes).order(ByteOrder.nativeOrder());
            in.position(in.position() + bytes);
            return new Elements(kind, elements, 0);
        }
        long count = in.getLong();
        long address = in.getLong();
        long owner = in.getLong();
        if (count < 0 || count > Integer.MAX_VALUE / kind.bytes()) {
            natives.release(owner);
            throw new SystemException("", "an array of Java has at most 2147483647 bytes; this one has " + count + " elements");
        }
        ByteBuffer bytes = natives.view(address, count * kind.bytes()).order(ByteOrder.nativeOrder());
        return new Elements(kind, bytes, owner);
    }

    void release(Elements elements) {
        if (elements.owner != 0) {
            natives.release(elements.owner);
        }
    }

    private Value.Structure structure(ByteBuffer in, int depth) {
        String id = text(in);
        int count = count(in, 6);
        Map<String, Value> fields = new LinkedHashMap<>(count * 2);
        Set<String> marked = new HashSet<>();
        for (int i = 0; i < count; i++) {
            String name = text(in);
            if (in.get() != 0) {
                marked.add(name);
            }
            fields.put(name, value(in, depth + 1));
        }
        return new Value.Structure(id, fields, marked);
    }

    private List<Value> values(ByteBuffer in, int depth) {
        int count = count(in, 1);
        List<Value> values = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            values.add(value(in, depth + 1));
        }
        return values;
    }

    private Value.Union union(ByteBuffer in, int depth) {
        return new Value.Union(in.getInt(), text(in), value(in, depth + 1));
    }

    private Value unions(ByteBuffer in, int depth) {
        int count = count(in, 10);
        List<Value.Union> unions = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            if (in.get() != UNION) {
                throw malformed("an array of unions with another value");
            }
            unions.add(union(in, depth + 1));
        }
        return new Value.UnionArray(unions);
    }

    /** Writes a value of any type. */
    void write(Scratch out, Value value) {
        write(out, value, 0);
    }

    private void write(Scratch out, Value value, int depth) {
        if (depth > DEPTH_MAX) {
            throw new MisuseException("", "a value can have at most " + DEPTH_MAX + " structures within each other");
        }
        if (value instanceof Value.Empty) {
            out.u8(EMPTY);
        } else if (value instanceof Value.Real real) {
            writeReal(out, real.kind(), real.value());
        } else if (value instanceof Value.Int integer) {
            writeInt(out, integer.kind(), integer.value());
        } else if (value instanceof Value.Bool bool) {
            writeInt(out, Kind.BOOL, bool.value() ? 1 : 0);
        } else if (value instanceof Value.Choice choice) {
            writeInt(out, Kind.ENUM, choice.index());
        } else if (value instanceof Value.Text text) {
            out.u8(SCALAR).u8(Kind.TEXT.ordinal()).text(text.value());
        } else if (value instanceof Value.Array array) {
            ByteBuffer bytes = array.bytes();
            elementsOut(out, array.kind(), bytes.remaining()).put(bytes);
        } else if (value instanceof Value.TextArray array) {
            writeTexts(out, array.values());
        } else if (value instanceof Value.Structure structure) {
            out.u8(STRUCTURE).text(structure.id()).i32(structure.fields().size());
            structure.fields().forEach((name, field) -> {
                out.text(name).u8(structure.isMarked(name) ? 1 : 0);
                write(out, field, depth + 1);
            });
        } else if (value instanceof Value.StructureArray array) {
            out.u8(STRUCTURE_ARRAY).text(array.id());
            writeAll(out, array.elements(), depth);
        } else if (value instanceof Value.Union union) {
            out.u8(UNION).i32(union.selector()).text(union.member());
            write(out, union.value(), depth + 1);
        } else if (value instanceof Value.UnionArray array) {
            writeAll(out.u8(UNION_ARRAY), array.elements(), depth);
        } else if (value instanceof Value.Any any) {
            write(out.u8(ANY), any.value(), depth + 1);
        } else if (value instanceof Value.AnyArray array) {
            writeAll(out.u8(ANY_ARRAY), array.elements(), depth);
        }
    }

    private void writeAll(Scratch out, List<? extends Value> values, int depth) {
        out.i32(values.size());
        values.forEach(value -> write(out, value, depth + 1));
    }

    static void writeReal(Scratch out, Kind kind, double value) {
        ByteBuffer to = out.ensure(10).put((byte) SCALAR).put((byte) kind.ordinal());
        if (kind == Kind.F64) {
            to.putDouble(value);
        } else {
            to.putFloat((float) value);
        }
    }

    static void writeInt(Scratch out, Kind kind, long value) {
        ByteBuffer to = out.ensure(10).put((byte) SCALAR).put((byte) kind.ordinal());
        switch (kind.bytes()) {
            case 1 -> to.put((byte) value);
            case 2 -> to.putShort((short) value);
            case 4 -> to.putInt((int) value);
            default -> to.putLong(value);
        }
    }

    static void writeTexts(Scratch out, List<String> texts) {
        out.u8(ARRAY).u8(Kind.TEXT.ordinal()).i32(texts.size());
        texts.forEach(out::text);
    }

    /** Writes the head of an array of this many bytes. Returns where its elements belong. */
    static ByteBuffer elementsOut(Scratch out, Kind kind, int bytes) {
        int count = bytes / kind.bytes();
        if (bytes < BLOCK_BYTES_MIN) {
            return out.u8(ARRAY).u8(kind.ordinal()).i32(count).ensure(bytes);
        }
        return out.u8(BLOCK_ARRAY).u8(kind.ordinal()).i64(count).block(bytes);
    }
}
