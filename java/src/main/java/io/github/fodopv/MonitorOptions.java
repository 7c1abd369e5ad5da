package io.github.fodopv;

import java.util.EnumSet;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.Executor;

/**
 * What a monitor requests, what its queue does, and where its callbacks run.
 *
 * @param request what is requested with each update, and how many elements
 * @param mask for which changes the server sends an update; over pvAccess only {@link Mask#PROPERTY} has a meaning
 * @param queueMax the maximum number of updates in the queue, from 1 on
 * @param whenFull what happens to an update that finds the queue full
 * @param window over pvAccess, the number of updates that the server may send before it waits for the client; {@code null} for
 *     as many as it likes
 * @param pvRequest over pvAccess, what is selected of a structure, such as {@code field(value,alarm)}; empty for the value
 *     with what {@code request} names
 * @param executor where callbacks run; {@code null} for that of the context
 */
public record MonitorOptions(
        Request request,
        Set<Mask> mask,
        int queueMax,
        WhenFull whenFull,
        Integer window,
        String pvRequest,
        Executor executor) {
    private static final int QUEUE_MAX = 1024;

    /**
     * Checks and copies the parts.
     *
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for an empty mask, and for a queue or a window below 1; {@link NullPointerException}
     */
    public MonitorOptions {
        Objects.requireNonNull(request, "a monitor needs a request");
        Objects.requireNonNull(whenFull, "a monitor needs a rule for a full queue");
        Objects.requireNonNull(pvRequest, "the pvRequest of a monitor must not be null; use \"\" for none");
        mask = Masks.copy(mask);
        if (queueMax < 1) {
            throw new MisuseException("", "the queue of a monitor must have place for at least 1 update: " + queueMax);
        }
        if (window != null && window < 1) {
            throw new MisuseException("", "the window of a monitor must be at least 1: " + window);
        }
    }

    /**
     * Value, alarm and time stamp at each change of value or alarm, in a queue of 1024 updates that replaces the newest one
     * when it is full.
     *
     * @return the options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public static MonitorOptions defaults() {
        return new MonitorOptions(Request.TIME, EnumSet.of(Mask.VALUE, Mask.ALARM), QUEUE_MAX, WhenFull.REPLACE_LAST, null,
                "", null);
    }

    /**
     * As {@link #defaults()}, but only the newest update is queued, for a display or a control loop.
     *
     * @return the options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public static MonitorOptions newest() {
        return defaults().withQueueMax(1);
    }

    /**
     * The same options with another request.
     *
     * @param request what is requested with each update
     * @return new options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} without a request
     */
    public MonitorOptions withRequest(Request request) {
        return new MonitorOptions(request, mask, queueMax, whenFull, window, pvRequest, executor);
    }

    /**
     * The same options with another mask.
     *
     * @param mask for which changes the server sends an update
     * @return new options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for an empty mask
     */
    public MonitorOptions withMask(Set<Mask> mask) {
        return new MonitorOptions(request, mask, queueMax, whenFull, window, pvRequest, executor);
    }

    /**
     * The same options with another length of the queue.
     *
     * @param queueMax the maximum number of updates in the queue
     * @return new options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} below 1
     */
    public MonitorOptions withQueueMax(int queueMax) {
        return new MonitorOptions(request, mask, queueMax, whenFull, window, pvRequest, executor);
    }

    /**
     * The same options with another rule for a full queue.
     *
     * @param whenFull what happens to an update that finds the queue full
     * @return new options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} without a rule
     */
    public MonitorOptions withWhenFull(WhenFull whenFull) {
        return new MonitorOptions(request, mask, queueMax, whenFull, window, pvRequest, executor);
    }

    /**
     * The same options with another window; only over pvAccess.
     *
     * @param window the number of updates that the server may send before it waits for the client; {@code null} for as many
     *     as it likes
     * @return new options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} below 1
     */
    public MonitorOptions withWindow(Integer window) {
        return new MonitorOptions(request, mask, queueMax, whenFull, window, pvRequest, executor);
    }

    /**
     * The same options with another selection of a structure; only over pvAccess.
     *
     * @param pvRequest such as {@code field(value,alarm)}; empty for none
     * @return new options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} for null
     */
    public MonitorOptions withPvRequest(String pvRequest) {
        return new MonitorOptions(request, mask, queueMax, whenFull, window, pvRequest, executor);
    }

    /**
     * The same options with another executor.
     *
     * @param executor where callbacks run; {@code null} for that of the context
     * @return new options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public MonitorOptions withExecutor(Executor executor) {
        return new MonitorOptions(request, mask, queueMax, whenFull, window, pvRequest, executor);
    }

    /** Writes the options for a monitor of values of this type. */
    void write(Scratch out, ValueType<?> type) {
        type.writeRequest(out, request);
        out.u8(Masks.bits(mask)).i32(queueMax).u8(whenFull.ordinal()).i32(window == null ? -1 : window).text(pvRequest);
    }
}
