package io.github.fodopv;

import java.time.Duration;
import java.time.Instant;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * A record of a running {@link Ioc}, or one of its fields. Any thread may use it. It remains valid when the IOC is closed, and then
 * only reads.
 */
public final class IocRecord {
    private static final int HAS_VALUE = 1;
    private static final int HAS_ALARM = 2;
    private static final int HAS_TIME = 4;
    private static final int HAS_MESSAGE = 8;
    /** How often a wait looks whether its thread was interrupted. */
    private static final long PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(100);

    private final String name;
    private final Ioc ioc;
    final NativeObject record;

    IocRecord(String name, Ioc ioc, long handle) {
        this.name = name;
        this.ioc = ioc;
        this.record = new NativeObject(handle);
    }

    /**
     * The name.
     *
     * @return the name with which the record was requested
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public String name() {
        return name;
    }

    /**
     * The IOC of the record.
     *
     * @return the IOC
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public Ioc ioc() {
        return ioc;
    }

    /**
     * Sets the value of a record whose DTYP is Program, with the present time; the alarm is that of the limits of the record. An
     * input with SCAN I/O Intr is processed; any other input reads the newest value when it is processed. Of an output the handler
     * is not called.
     *
     * @param value a number, a text, a label, a boolean, an array of these, or a {@link Value}
     * @roundTrips none
     * @thread any; the record is processed on the calling thread
     * @blocks while other records are processed, never for a client
     * @bounds of each slow subscription the last 8 updates are kept, 2 of an array; those that are merged are counted
     * @fails {@link MisuseException} for a value that the record would store as another one, such as a fraction for an integer, and
     *     for another DTYP; {@link ClosedException} after the IOC was closed
     */
    public void set(Object value) {
        set(Objects.requireNonNull(value, "the value is null"), null, null);
    }

    /**
     * Sets value and alarm, with the present time.
     *
     * @param value the value
     * @param alarm the alarm; a higher severity of the limits of the record replaces it
     * @roundTrips none
     * @thread as {@link #set(Object)}
     * @blocks as {@link #set(Object)}
     * @bounds as {@link #set(Object)}
     * @fails as {@link #set(Object)}
     */
    public void set(Object value, Alarm alarm) {
        set(Objects.requireNonNull(value, "the value is null"), alarm, null);
    }

    /**
     * Sets value, alarm and time stamp.
     *
     * @param value the value; {@code null} for the last one
     * @param alarm the alarm; {@code null} for that of the limits of the record
     * @param time the time stamp; {@code null} for the present time
     * @roundTrips none
     * @thread as {@link #set(Object)}
     * @blocks as {@link #set(Object)}
     * @bounds as {@link #set(Object)}
     * @fails as {@link #set(Object)}
     */
    public void set(Object value, Alarm alarm, Instant time) {
        Value given = value == null ? new Value.Empty() : Value.of(value);
        Alarm shown = alarm == null ? Alarm.NONE : alarm;
        int parts = (value == null ? 0 : HAS_VALUE)
                | (alarm == null ? 0 : HAS_ALARM)
                | (time == null ? 0 : HAS_TIME)
                | (shown.message().isEmpty() ? 0 : HAS_MESSAGE);
        record.with(handle -> ServerCalls.call(
                out -> {
                    out.u8(parts);
                    ServerCalls.value(out, given);
                    ServerCalls.alarm(out, shown);
                    ServerCalls.time(out, time);
                    out.text(shown.message());
                },
                (buf, in, cap) -> ServerCalls.NATIVE.recordSet(handle, buf, in, cap),
                ServerCalls.DONE));
    }

    /**
     * The present value.
     *
     * @return the value with its alarm and its time stamp
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public Reading<Value> get() {
        return record.with(handle -> ServerCalls.reading(
                name, (buf, in, cap) -> ServerCalls.NATIVE.recordGet(handle, buf, cap)));
    }

    /**
     * Writes the record or field as a client does, without waiting: the record is processed, and the handler of an output is called.
     * Access rules do not apply.
     *
     * @param value a number, a text, a label, a boolean, an array of these, or a {@link Value}; it is converted as EPICS does
     * @roundTrips none
     * @thread any; the record is processed on the calling thread
     * @blocks while other records are processed, never for a client
     * @bounds as {@link #set(Object)}
     * @fails {@link RefusedException} if the record cannot be written, {@link ClosedException} after the IOC was closed
     */
    public void put(Object value) {
        Value given = Value.of(Objects.requireNonNull(value, "the value is null"));
        record.with(handle -> ServerCalls.call(
                out -> {
                    out.u8(0);
                    ServerCalls.value(out, given);
                },
                (buf, in, cap) -> ServerCalls.NATIVE.recordPut(handle, buf, in, cap),
                ServerCalls.DONE));
    }

    /**
     * Writes the record or field as a client does, and waits until all processing has ended, also that of an output whose handler
     * ends its request later.
     *
     * @param value as for {@link #put(Object)}
     * @param timeout for at most this time
     * @roundTrips none
     * @thread any but that of the handlers of the IOC, which would wait for itself
     * @blocks until then
     * @bounds as {@link #set(Object)}
     * @fails as {@link #put(Object)}; {@link NoAnswerException} when the time is over, {@link InterruptedCallException} when the
     *     thread is interrupted, {@link MisuseException} in a handler
     */
    public void put(Object value, Duration timeout) {
        Value given = Value.of(Objects.requireNonNull(value, "the value is null"));
        if (ioc.isHandlerThread()) {
            throw new MisuseException(name, "a handler of the IOC cannot wait for a put: it would wait for itself");
        }
        NativeObject put = record.with(handle -> ServerCalls.call(
                out -> {
                    out.u8(1);
                    ServerCalls.value(out, given);
                },
                (buf, in, cap) -> ServerCalls.NATIVE.recordPut(handle, buf, in, cap),
                (tag, in) -> tag == Codec.PENDING ? new NativeObject(in.getLong()) : null));
        if (put == null) {
            return;
        }
        waitFor(put, timeout);
    }

    private void waitFor(NativeObject put, Duration timeout) {
        boolean isVirtual = Library.isVirtualThread();
        long start = System.nanoTime();
        long limit = timeout.compareTo(Duration.ofNanos(Long.MAX_VALUE)) < 0 ? timeout.toNanos() : Long.MAX_VALUE;
        while (true) {
            long left = limit - (System.nanoTime() - start);
            long pause = isVirtual ? 0 : Math.max(0, Math.min(left, PAUSE_NS));
            boolean isPending = put.with(handle -> ServerCalls.call(
                    ServerCalls.NO_INPUT,
                    (buf, in, cap) -> ServerCalls.NATIVE.putAwait(handle, pause, buf, cap),
                    (tag, in) -> tag == Codec.PENDING));
            if (!isPending) {
                return;
            }
            if (left <= 0) {
                throw new NoAnswerException(name, "the put has not ended within " + timeout.toMillis() + " ms", "", "");
            }
            if (Thread.currentThread().isInterrupted()) {
                throw new InterruptedCallException(name, "the wait for the put was interrupted");
            }
            if (isVirtual) {
                // A native wait would hold the carrier of the virtual thread.
                LockSupport.parkNanos(Math.min(Context.VIRTUAL_PAUSE_NS, left));
            }
        }
    }

    @Override
    public String toString() {
        return "IocRecord[" + name + "]";
    }
}
