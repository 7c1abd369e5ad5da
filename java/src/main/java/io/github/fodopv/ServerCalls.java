package io.github.fodopv;

import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/** Calls of {@link NativeServer} with their input and reply. */
final class ServerCalls {
    static final NativeServer NATIVE = new JniServer();

    /** Without input. */
    static final Input NO_INPUT = out -> { };

    /** A reply without content. */
    static final Reply<Void> DONE = (tag, in) -> null;

    static final Reply<Map<String, String>> TEXTS = (tag, in) -> {
        Map<String, String> texts = new LinkedHashMap<>();
        for (int left = Codec.count(in, 8); left > 0; left--) {
            texts.put(Codec.text(in), Codec.text(in));
        }
        return texts;
    };

    static final Reply<List<String>> LINES = (tag, in) -> {
        List<String> lines = new ArrayList<>();
        for (int left = Codec.count(in, 4); left > 0; left--) {
            lines.add(Codec.text(in));
        }
        return lines;
    };

    /** The bits of meta for everything that Java has of it. */
    private static final int ALL_PARTS = 0xffff;
    private static final long NOW = Long.MIN_VALUE;

    private ServerCalls() {
    }

    /** Writes the input of a call. */
    interface Input {
        void write(Scratch out);
    }

    /** Makes a call; returns the length of its reply. */
    interface Call {
        int run(long buf, int in, int cap);
    }

    /** Reads a reply behind its tag. */
    interface Reply<T> {
        T read(int tag, ByteBuffer in);
    }

    /** Makes a call; throws the error of its reply. */
    static <T> T call(Input input, Call call, Reply<T> reply) {
        Library library = Library.get();
        try (Scratch scratch = library.scratch()) {
            input.write(scratch.clear());
            int length = call.run(scratch.address(), scratch.written(), scratch.capacity());
            ByteBuffer in = scratch.reply(length);
            return library.codec().decoded("", in, bytes -> reply.read(Codec.successTag(bytes), bytes));
        }
    }

    /** A call that returns a handle. */
    static long handle(Input input, Call call) {
        return call(input, call, (tag, in) -> in.getLong());
    }

    static Reply<long[]> counts(int length) {
        return (tag, in) -> {
            long[] counts = new long[length];
            for (int i = 0; i < length; i++) {
                counts[i] = in.getLong();
            }
            return counts;
        };
    }

    /** The reading with which a call replies. */
    static Reading<Value> reading(String pv, Call call) {
        Library library = Library.get();
        try (Scratch scratch = library.scratch()) {
            int length = call.run(scratch.clear().address(), 0, scratch.capacity());
            return library.codec().decoded(
                    pv, scratch.reply(length), in -> library.codec().reading(pv, ValueType.of(Value.class), in));
        }
    }

    /** Ends a request; returns false if it had ended. */
    static boolean end(long request, int how, Input input) {
        return call(input, (buf, in, cap) -> NATIVE.requestEnd(request, how, buf, in, cap), (tag, in) -> in.get() != 0);
    }

    static void value(Scratch out, Value value) {
        Library.get().codec().write(out, value);
    }

    /** The body of READING; time and metadata may be missing. */
    static void reading(Scratch out, Value value, Alarm alarm, Instant time, Metadata metadata) {
        alarm(out, alarm);
        time(out, time);
        out.i32(0).text(alarm.message());
        value(out, value);
        out.u8(metadata == null ? 0 : 1);
        if (metadata != null) {
            metadata(out, metadata);
        }
    }

    static void alarm(Scratch out, Alarm alarm) {
        out.u8(alarm.severity().ordinal()).ensure(2).putShort((short) alarm.status());
    }

    static void time(Scratch out, Instant time) {
        out.i64(time == null ? NOW : time.getEpochSecond()).i32(time == null ? 0 : time.getNano());
    }

    private static void metadata(Scratch out, Metadata metadata) {
        out.ensure(2).putShort((short) ALL_PARTS);
        out.text(metadata.units()).ensure(2).putShort((short) metadata.precision());
        for (Limits limits : List.of(metadata.display(), metadata.alarm(), metadata.warning(), metadata.control())) {
            out.ensure(16).putDouble(limits.low()).putDouble(limits.high());
        }
        out.text(metadata.description()).u8(0).i32(metadata.labels().size());
        metadata.labels().forEach(out::text);
    }

    static void texts(Scratch out, Map<String, String> texts) {
        out.i32(texts.size());
        texts.forEach((name, text) -> out.text(name).text(text));
    }

    /** The values of fields by their paths; a map is a structure. */
    static Map<String, Value> leaves(Map<String, ?> fields) {
        Map<String, Value> leaves = new LinkedHashMap<>();
        fields.forEach((name, value) -> addLeaves(
                Objects.requireNonNull(name, "a field has no name"),
                Value.of(Objects.requireNonNull(value, () -> "the field " + name + " is null")),
                leaves));
        return leaves;
    }

    private static void addLeaves(String path, Value value, Map<String, Value> leaves) {
        if (value instanceof Value.Structure structure) {
            structure.fields().forEach((name, field) -> addLeaves(path + "." + name, field, leaves));
        } else {
            leaves.put(path, value);
        }
    }

    static void checkName(String name) {
        if (Objects.requireNonNull(name, "the name is null").isEmpty()) {
            throw new MisuseException("", "the name of a PV is empty");
        }
    }

    /** Calls the function when the JVM ends. Until {@link #forgetExit}, this keeps what the function uses reachable. */
    static Thread closeAtExit(Runnable close) {
        Thread hook = new Thread(close, "fodo-exit");
        try {
            Runtime.getRuntime().addShutdownHook(hook);
        } catch (IllegalStateException e) {
            close.run();
            throw new MisuseException("", "the JVM is ending: no server can be started");
        }
        return hook;
    }

    static void forgetExit(Thread hook) {
        try {
            Runtime.getRuntime().removeShutdownHook(hook);
        } catch (IllegalStateException e) {
            // The JVM is ending, and runs it.
        }
    }
}
