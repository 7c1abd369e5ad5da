package io.github.fodopv;

import java.lang.ref.Reference;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/**
 * A soft IOC in the JVM: records, served over Channel Access and pvAccess. They come from {@code .db} files or from definitions, and
 * are complete records: with alarm limits, links, scans, metadata and access rules, as in an IOC of EPICS Base. A record with DTYP
 * Program has the program as its device.
 *
 * <p>The IOC runs until it is closed, or the JVM ends. Any number of IOCs run in a JVM.
 *
 * <pre>{@code
 * try (Ioc ioc = Ioc.builder()
 *         .load(Path.of("plant.db"), Map.of("P", "X:"))
 *         .define(RecordDefinition.input("ai", "X:temperature").field("HIGH", 30).field("HSV", "MINOR"))
 *         .onPut("X:gap", put -> move(put.value().toDouble()))
 *         .start()) {
 *     ioc.record("X:temperature").set(21.5);
 * }
 * }</pre>
 */
public final class Ioc implements AutoCloseable {
    private static final System.Logger LOG = System.getLogger("io.github.fodopv");

    private final NativeObject ioc;
    private final HandlerThread handlers;
    private final Thread hook;

    private Ioc(Builder builder) {
        handlers = new HandlerThread(builder.executor, builder.onFailure);
        List<String> outputs = new ArrayList<>(builder.outputs.keySet());
        for (int token = 0; token < outputs.size(); token++) {
            String name = outputs.get(token);
            handlers.add(token, name, builder.outputs.get(name));
        }
        long handle = ServerCalls.handle(out -> builder.write(out, outputs), ServerCalls.NATIVE::iocStart);
        ioc = new NativeObject(handle);
        handlers.setQueue(
                ServerCalls.handle(ServerCalls.NO_INPUT, (buf, in, cap) -> ServerCalls.NATIVE.iocQueue(handle, buf, cap)));
        hook = ServerCalls.closeAtExit(this::end);
        handlers.start();
    }

    /**
     * Builds an IOC.
     *
     * @return a builder
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * A record or a field of this IOC.
     *
     * @param name the whole name of a record, such as {@code X:gap}, or of a field, such as {@code X:gap.DRVH}
     * @return the record
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} if there is none, with a suggestion; {@link ClosedException} after {@link #close}
     */
    public IocRecord record(String name) {
        ServerCalls.checkName(name);
        return new IocRecord(name, this, ioc.with(handle -> ServerCalls.handle(
                out -> out.text(name), (buf, in, cap) -> ServerCalls.NATIVE.iocRecord(handle, buf, in, cap))));
    }

    /**
     * Sets many records as {@link IocRecord#set(Object)} does, with one call and one present time. A value that cannot be set does
     * not affect the others.
     *
     * @param records records of this IOC whose DTYP is Program
     * @param values as many values
     * @return for each record whether it is set
     * @roundTrips none
     * @thread any; the records are processed on the calling thread
     * @blocks while other records are processed, never for a client
     * @bounds as {@link IocRecord#set(Object)}
     * @fails {@link MisuseException} if the lists differ in length or a record is of another IOC; {@link ClosedException} after
     *     {@link #close}
     */
    public List<Result<Void>> setMany(List<IocRecord> records, List<?> values) {
        // Lists of the caller may create their elements when they are read: this one keeps the records until the call returns.
        List<IocRecord> set = List.copyOf(records);
        List<?> given = new ArrayList<>(values);
        if (set.size() != given.size()) {
            throw new MisuseException("", "there are " + set.size() + " records and " + given.size() + " values");
        }
        List<Result<Void>> results = new ArrayList<>();
        set.forEach(record -> results.add(new Result.Success<>(null)));
        try {
            return ioc.with(handle -> ServerCalls.call(
                    out -> {
                        out.i32(set.size());
                        for (int i = 0; i < set.size(); i++) {
                            out.i64(set.get(i).record.with(number -> number));
                            ServerCalls.value(out, Value.of(given.get(i)));
                        }
                    },
                    (buf, in, cap) -> ServerCalls.NATIVE.iocSetMany(handle, buf, in, cap),
                    (tag, in) -> {
                        for (int left = Codec.count(in, 5); left > 0; left--) {
                            int index = in.getInt();
                            in.get();
                            results.set(index, new Result.Failure<>(Codec.error(in)));
                        }
                        return results;
                    }));
        } finally {
            Reference.reachabilityFence(set);
        }
    }

    /**
     * The variables of a client on this host that searches only this IOC: {@code new Context(ioc.settings())}.
     *
     * @return the texts by the names of the variables
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link ClosedException} after {@link #close}
     */
    public Map<String, String> settings() {
        return ioc.with(handle -> ServerCalls.call(
                ServerCalls.NO_INPUT,
                (buf, in, cap) -> ServerCalls.NATIVE.iocSettings(handle, buf, cap),
                ServerCalls.TEXTS));
    }

    /**
     * The counters.
     *
     * @return counters since the start; also after {@link #close}
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public IocCounts counts() {
        long[] n = ioc.with(handle -> ServerCalls.call(
                ServerCalls.NO_INPUT,
                (buf, in, cap) -> ServerCalls.NATIVE.iocCounts(handle, buf, cap),
                ServerCalls.counts(11)));
        return new IocCounts(n[0], n[1], n[2], n[3], n[4], handlers.failed(), n[5], n[6], n[7], n[8], n[9], n[10]);
    }

    /**
     * Reads the access file again and applies its rules, also to connected clients.
     *
     * @return warnings about parts that have no effect
     * @roundTrips none
     * @thread any
     * @blocks while the file is read
     * @bounds none
     * @fails {@link MisuseException} if the file cannot be read or contains errors; the rules before it stay in force. {@link
     *     ClosedException} after {@link #close}
     */
    public List<String> reloadAccess() {
        return ioc.with(handle -> ServerCalls.call(
                ServerCalls.NO_INPUT,
                (buf, in, cap) -> ServerCalls.NATIVE.iocReloadAccess(handle, buf, cap),
                ServerCalls.LINES));
    }

    /**
     * Waits until the IOC is closed, for a program that only serves.
     *
     * @param timeout for at most this time
     * @return whether it was closed
     * @roundTrips none
     * @thread any
     * @blocks until then
     * @bounds none
     * @fails {@link InterruptedCallException} when the thread is interrupted
     */
    public boolean await(Duration timeout) {
        return handlers.await(timeout);
    }

    /**
     * Disconnects all clients, refuses the puts that wait for handlers, saves values one last time, and waits until the thread of the
     * IOC runs no handler; logs the name of the record whose handler is still busy after 5 s. Handlers on an executor may run on. Does
     * nothing the second time. The end of the JVM does the same, but waits for no handler.
     *
     * @roundTrips none
     * @thread any, also a handler, which it does not wait for
     * @blocks until the values are saved, and for at most 5 s for a handler
     * @bounds none
     * @fails never; files of autosave that cannot be written are logged
     */
    @Override
    public void close() {
        end();
        handlers.close();
        ServerCalls.forgetExit(hook);
    }

    /** Closes the IOC without waiting for a handler, which may be what ends the JVM and waits for this. */
    private void end() {
        int unsaved = ioc.with(handle -> ServerCalls.call(
                ServerCalls.NO_INPUT,
                (buf, in, cap) -> ServerCalls.NATIVE.iocClose(handle, buf, cap),
                (tag, in) -> in.getInt()));
        if (unsaved > 0) {
            LOG.log(System.Logger.Level.ERROR, "{0} files of autosave could not be written", unsaved);
        }
        handlers.end();
    }

    boolean isHandlerThread() {
        return handlers.isCurrent();
    }

    /**
     * Builds an {@link Ioc}. What is wrong in files and definitions is reported by {@link #start}. A builder can start several IOCs,
     * one after another or at the same time.
     */
    public static final class Builder {
        private static final int FILE = 0;
        private static final int DB_TEXT = 1;
        private static final int RECORD = 2;

        private final List<Consumer<Scratch>> steps = new ArrayList<>();
        private final Map<String, Consumer<? super PutRequest>> outputs = new LinkedHashMap<>();
        private Map<String, String> settings = Map.of();
        private boolean isIsolated;
        private String access = "";
        private String accessMacros = "";
        private String statistics = "";
        private String saved = "";
        private Duration savePeriod = Duration.ofSeconds(5);
        private Executor executor;
        private BiConsumer<? super String, ? super Throwable> onFailure;

        private Builder() {
        }

        /**
         * Loads a {@code .db} or {@code .substitutions} file.
         *
         * @param file the path
         * @param macros texts by the names of the macros
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never; {@link #start} reads the file
         * @bounds none
         * @fails {@link NullPointerException} for null; what is wrong in the file is reported by {@link #start}, with its line
         */
        public Builder load(Path file, Map<String, String> macros) {
            return source(FILE, file.toString(), macros);
        }

        /**
         * Loads the text of a {@code .db} file.
         *
         * @param text the text; it may include files
         * @param macros texts by the names of the macros
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} for null; what is wrong in the text is reported by {@link #start}, with its line
         */
        public Builder loadText(String text, Map<String, String> macros) {
            return source(DB_TEXT, Objects.requireNonNull(text, "the text is null"), macros);
        }

        private Builder source(int kind, String content, Map<String, String> macros) {
            String text = macros(macros);
            steps.add(out -> out.u8(kind).text(content).text(text));
            return this;
        }

        private static String macros(Map<String, String> macros) {
            List<String> texts = new ArrayList<>();
            macros.forEach((name, text) ->
                    texts.add(name + "=\"" + text.replace("\\", "\\\\").replace("\"", "\\\"") + "\""));
            return String.join(",", texts);
        }

        /**
         * Adds a record.
         *
         * @param definition what the record is created from
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} for an initial value that is not a value; what else is invalid is reported by {@link #start}
         */
        public Builder define(RecordDefinition definition) {
            Value initial = definition.initial == null ? new Value.Empty() : Value.of(definition.initial);
            Map<String, String> fields = new LinkedHashMap<>(definition.fields);
            Map<String, String> infos = new LinkedHashMap<>(definition.infos);
            List<String> aliases = List.copyOf(definition.aliases);
            steps.add(out -> {
                out.u8(RECORD).text(definition.type).text(definition.name);
                ServerCalls.texts(out, fields);
                ServerCalls.texts(out, infos);
                out.i32(aliases.size());
                aliases.forEach(out::text);
                ServerCalls.value(out, initial);
            });
            if (definition.onPut != null) {
                onPut(definition.name, definition.onPut);
            }
            return this;
        }

        /**
         * Receives the values that an output with DTYP Program has to write. The record is busy until the request ends: a handler that
         * returns completes it, an exception refuses it, and {@link PutRequest#defer} lets it go on. An output without a handler keeps
         * every value that is written to it.
         *
         * @param name the whole name of the record; a second handler replaces the first
         * @param handler called with each value
         * @return this builder
         * @roundTrips none
         * @thread one at a time; handlers run one after another on the thread {@code fodo-server} of the IOC, or on its executor
         * @blocks never
         * @bounds one request of each record at a time; newer values wait in the record
         * @fails {@link NullPointerException} without a handler; a record that is not such an output is reported by {@link #start}
         */
        public Builder onPut(String name, Consumer<? super PutRequest> handler) {
            ServerCalls.checkName(name);
            outputs.put(name, Objects.requireNonNull(handler, "the handler is null"));
            return this;
        }

        /**
         * Applies an access file ({@code .acf}), which says which clients may read and write.
         *
         * @param file the path
         * @param macros texts by the names of the macros
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never; {@link #start} reads the file
         * @bounds none
         * @fails {@link NullPointerException} for null; what is wrong in the file is reported by {@link #start}
         */
        public Builder access(Path file, Map<String, String> macros) {
            access = file.toString();
            accessMacros = macros(macros);
            return this;
        }

        /**
         * Publishes statistics of the IOC, such as its load and the number of its clients, under the names of iocStats.
         *
         * @param prefix what their names begin with; a colon and the name follow, such as {@code X:HEARTBEAT}
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} for null
         */
        public Builder statistics(String prefix) {
            statistics = Objects.requireNonNull(prefix, "the prefix is null");
            return this;
        }

        /**
         * Saves the fields that records name with {@link RecordDefinition#autosave} or in info items {@code autosaveFields}, and
         * restores them at the start. They are also saved at the end.
         *
         * @param folder where the files are
         * @param period the time between two checks for changes, such as 5 s
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} for a period below 1 s
         */
        public Builder autosave(Path folder, Duration period) {
            if (period.compareTo(Duration.ofSeconds(1)) < 0) {
                throw new MisuseException("", "the period of autosave is " + period + ": expected at least 1 s");
            }
            saved = folder.toString();
            savePeriod = period;
            return this;
        }

        /**
         * Sets variables such as {@code EPICS_CAS_INTF_ADDR_LIST}, which take precedence over those of the environment.
         *
         * @param settings texts by the names of the variables
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} for null; what is invalid is reported by {@link #start}
         */
        public Builder settings(Map<String, String> settings) {
            this.settings = Map.copyOf(settings);
            return this;
        }

        /**
         * Serves on loopback and on free ports only, for tests. Clients find the IOC with {@link Ioc#settings}. Links do not leave the
         * IOC.
         *
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails never
         */
        public Builder isolated() {
            isIsolated = true;
            return this;
        }

        /**
         * Calls handlers on an executor instead of the IOC's own thread. With several threads, handlers of different records run at the
         * same time.
         *
         * @param executor for example {@code Executors.newFixedThreadPool(4)}; what it rejects is refused and counted
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds 1000 requests are with the executor; others wait in the queue of the IOC
         * @fails {@link NullPointerException} without an executor
         */
        public Builder executor(Executor executor) {
            this.executor = Objects.requireNonNull(executor, "the executor is null");
            return this;
        }

        /**
         * Receives the exceptions of handlers; without it, they are logged by the {@link System.Logger} {@code io.github.fodopv}.
         *
         * @param handler called with the name of the record and the exception
         * @return this builder
         * @roundTrips none
         * @thread one at a time; the function runs where the handler has run
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} without a function
         */
        public Builder onFailure(BiConsumer<? super String, ? super Throwable> handler) {
            onFailure = Objects.requireNonNull(handler, "the handler is null");
            return this;
        }

        /**
         * Builds and starts the IOC. Its log is written by the {@link System.Logger} {@code io.github.fodopv}, on the thread {@code
         * fodo-server} of the IOC.
         *
         * @return the running IOC
         * @roundTrips none
         * @thread one at a time
         * @blocks while files are read and sockets are opened
         * @bounds 1000 lines of the log wait for the thread; more are counted, and left out
         * @fails {@link MisuseException} with all errors of the files and definitions, each with its file and line; for an invalid
         *     variable; and if a port or an address is not available
         */
        public Ioc start() {
            return new Ioc(this);
        }

        private void write(Scratch out, List<String> names) {
            out.u8(isIsolated ? 1 : 0);
            ServerCalls.texts(out, settings);
            out.text(access).text(accessMacros).text(statistics).text(saved);
            out.i64(savePeriod.compareTo(Duration.ofDays(365)) < 0 ? savePeriod.toNanos() : Duration.ofDays(365).toNanos());
            out.i32(steps.size());
            steps.forEach(step -> step.accept(out));
            out.i32(names.size());
            names.forEach(out::text);
        }
    }
}
