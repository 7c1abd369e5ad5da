package io.github.fodopv;

import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.LongFunction;

/**
 * A PV that holds its value. A {@link Server} publishes it under one name or more; a PV can be on several servers.
 *
 * <p>A scalar, an array or an enum is served over Channel Access and pvAccess, a structure and a procedure over pvAccess. Any
 * thread may use it; calls never wait for clients. A client that reads slowly receives merged updates: of each subscription the
 * server keeps the last 8 posts of a scalar, 4 of a structure and 2 of an array, and counts what it merges.
 *
 * <pre>{@code
 * SharedPv pressure = SharedPv.of(1.0e-9);
 * SharedPv gap = SharedPv.builder(1.5)
 *         .onPut(put -> {
 *             if (put.value().toDouble() > 5) {
 *                 throw new IllegalArgumentException("the gap must be at most 5 mm");
 *             }
 *         })
 *         .build();
 * }</pre>
 */
public final class SharedPv {
    private static final int ACCEPTS_PUTS = 1;
    private static final int ACCEPTS_CALLS = 2;

    private final NativeObject pv;
    final Consumer<? super PutRequest> onPut;
    final Function<? super CallRequest, Value.Structure> onCall;

    private SharedPv(Builder builder) {
        onPut = builder.onPut;
        onCall = builder.onCall;
        int flags = (onPut == null ? 0 : ACCEPTS_PUTS) | (onCall == null ? 0 : ACCEPTS_CALLS);
        Value value = builder.value;
        long handle = ServerCalls.handle(
                out -> {
                    if (value instanceof Value.Structure) {
                        out.u8(1);
                        ServerCalls.value(out, value);
                    } else {
                        out.u8(0);
                        ServerCalls.reading(out, value, Alarm.NONE, null, builder.metadata);
                    }
                },
                (buf, in, cap) -> ServerCalls.NATIVE.pvCreate(flags, builder.maxLength, buf, in, cap));
        pv = new NativeObject(handle);
    }

    /**
     * A PV that clients can read and monitor.
     *
     * @param value the first value, which determines the type: a number, a text, a boolean, an array of these, or a {@link Value}
     * @return the PV
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds an array has at most as many elements as this one
     * @fails {@link MisuseException} for a value that cannot be served; {@link NullPointerException} without a value
     */
    public static SharedPv of(Object value) {
        return builder(value).build();
    }

    /**
     * Builds a PV with options.
     *
     * @param value the first value, which determines the type: a number, a text, a boolean, an array of these, or a {@link Value}
     * @return a builder
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for an object that is not a value; {@link NullPointerException} without a value
     */
    public static Builder builder(Object value) {
        return new Builder(Value.of(Objects.requireNonNull(value, "the PV has no value")));
    }

    /**
     * Builds an enum: a PV with named states.
     *
     * @param labels the names of the states, that of 0 first
     * @param index the first state
     * @return a builder
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds clients of Channel Access see 16 states
     * @fails {@link MisuseException} for a state without a label; {@link NullPointerException} without labels
     */
    public static Builder choice(List<String> labels, int index) {
        if (index < 0 || index >= labels.size()) {
            throw new MisuseException("", "there is no state " + index + ": expected 0 to " + (labels.size() - 1));
        }
        Limits none = new Limits(0, 0);
        return new Builder(new Value.Choice(index))
                .metadata(new Metadata("", 0, "", none, none, none, none, List.copyOf(labels)));
    }

    /**
     * A procedure, which clients of pvAccess call.
     *
     * @param function returns the result of a call; its exception refuses the call with its text
     * @return the PV
     * @roundTrips none
     * @thread any; the function runs on the thread or the executor of the server
     * @blocks never
     * @bounds the queue of the server: 10000 requests, or 256 MiB
     * @fails {@link NullPointerException} without a function
     */
    public static SharedPv procedure(Function<? super CallRequest, Value.Structure> function) {
        Builder builder = new Builder(Value.Structure.of("", Map.of()));
        builder.onCall = Objects.requireNonNull(function, "the function is null");
        return builder.build();
    }

    /**
     * Sets the value, with the current time and without an alarm, and sends it to all subscribers.
     *
     * @param value the value; a number, a text or a label is converted to the type of the PV
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds of each slow subscription the last posts are kept, see the class
     * @fails {@link MisuseException} for a value that the PV would make another value of, such as NaN for an integer, and for a
     *     structure with a field that the PV does not have
     */
    public void post(Object value) {
        post(value, Alarm.NONE, null);
    }

    /**
     * Sets the value and the alarm, with the current time.
     *
     * @param value the value
     * @param alarm the alarm
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds as {@link #post(Object)}
     * @fails as {@link #post(Object)}; also for a structure, whose alarm is one of its fields
     */
    public void post(Object value, Alarm alarm) {
        post(value, alarm, null);
    }

    /**
     * Sets the value, the alarm and the time stamp.
     *
     * @param value the value
     * @param alarm the alarm
     * @param time the time stamp; {@code null} for the current time
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds as {@link #post(Object)}
     * @fails as {@link #post(Object)}; also for a structure, whose alarm and time stamp are fields
     */
    public void post(Object value, Alarm alarm, Instant time) {
        Value posted = Value.of(Objects.requireNonNull(value, "the value is null"));
        Objects.requireNonNull(alarm, "the alarm is null: use Alarm.NONE");
        if (posted instanceof Value.Structure structure) {
            if (alarm != Alarm.NONE || time != null) {
                throw new MisuseException("", "alarm and time stamp of a structure are fields: post them with postFields");
            }
            postFields(structure.fields());
            return;
        }
        pv.with(handle -> ServerCalls.call(
                out -> ServerCalls.reading(out, posted, alarm, time, null),
                (buf, in, cap) -> ServerCalls.NATIVE.pvPost(handle, buf, in, cap),
                ServerCalls.DONE));
    }

    /**
     * Changes fields of a structure, and sends them to all subscribers. The field {@code timeStamp} is set to the current time,
     * unless it is among them.
     *
     * @param fields values by the paths of fields, such as {@code alarm.severity}; a map is a structure, of which the fields are set
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds as {@link #post(Object)}
     * @fails {@link MisuseException} if there is no such field or it would make another value of one, and if the PV is not a
     *     structure
     */
    public void postFields(Map<String, ?> fields) {
        Map<String, Value> leaves = ServerCalls.leaves(fields);
        pv.with(handle -> ServerCalls.call(
                out -> {
                    out.i32(leaves.size());
                    leaves.forEach((path, value) -> {
                        out.text(path);
                        ServerCalls.value(out, value);
                    });
                },
                (buf, in, cap) -> ServerCalls.NATIVE.pvPostFields(handle, buf, in, cap),
                ServerCalls.DONE));
    }

    /**
     * The current value.
     *
     * @return the value with alarm, time stamp and metadata; of a structure the whole one, with alarm and time as its fields
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public Reading<Value> get() {
        return pv.with(handle -> ServerCalls.reading(
                "", (buf, in, cap) -> ServerCalls.NATIVE.pvCurrent(handle, buf, cap)));
    }

    /** Calls the function with the handle. */
    <T> T with(LongFunction<T> function) {
        return pv.with(function);
    }

    /** Whether it needs a thread. */
    boolean hasHandler() {
        return onPut != null || onCall != null;
    }

    /** Builds a {@link SharedPv}. */
    public static final class Builder {
        private final Value value;
        private Metadata metadata;
        private int maxLength;
        private Consumer<? super PutRequest> onPut;
        private Function<? super CallRequest, Value.Structure> onCall;

        private Builder(Value value) {
            this.value = value;
        }

        /**
         * Sets units, precision, limits and labels. They inform clients: the server raises no alarm at a limit and accepts puts
         * beyond it.
         *
         * @param metadata the metadata; of a structure they are fields instead
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} without metadata
         */
        public Builder metadata(Metadata metadata) {
            this.metadata = Objects.requireNonNull(metadata, "the metadata is null");
            return this;
        }

        /**
         * Sets the maximum length of an array, which clients of Channel Access need when they connect.
         *
         * @param elements the number of elements; by default that of the first value, and at least 2
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} for a number below 1
         */
        public Builder maxLength(int elements) {
            if (elements < 1) {
                throw new MisuseException("", "the maximum length is " + elements + ": expected at least 1");
            }
            maxLength = elements;
            return this;
        }

        /**
         * Accepts every put of a client, and posts it. Without this and {@link #onPut}, clients cannot write the PV.
         *
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds the queue of the server: 10000 requests, or 256 MiB
         * @fails never
         */
        public Builder acceptPuts() {
            return onPut(PutRequest::complete);
        }

        /**
         * Receives the puts of clients. A handler that returns completes the put, and thereby posts its value; see {@link
         * PutRequest} for other ends.
         *
         * @param handler called with each put, in the order in which they arrive
         * @return this builder
         * @roundTrips none
         * @thread one at a time; the handler runs on the thread {@code fodo-server} of the server, or on its executor
         * @blocks never
         * @bounds the queue of the server: 10000 requests, or 256 MiB; more are refused and counted
         * @fails {@link NullPointerException} without a handler
         */
        public Builder onPut(Consumer<? super PutRequest> handler) {
            onPut = Objects.requireNonNull(handler, "the handler is null");
            return this;
        }

        /**
         * Builds the PV.
         *
         * @return the PV
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} for a value that cannot be served
         */
        public SharedPv build() {
            return new SharedPv(this);
        }
    }
}
