package io.github.fodopv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;

/**
 * Channels to many PVs that are connected, read or written together: all requests to one server are sent at once, one
 * deadline holds for all, and each PV has a result or an error.
 *
 * @param <T> the type of the values
 */
public final class Channels<T> implements AutoCloseable {
    private final Context context;
    private final List<String> names;
    private final ValueType<T> type;
    /** 0 for an empty list, which needs no native object. */
    private final long handle;

    Channels(Context context, List<String> names, ValueType<T> type) {
        this.context = context;
        this.names = names;
        this.type = type;
        if (names.isEmpty()) {
            handle = 0;
            return;
        }
        long[] channels = new long[names.size()];
        int created = 0;
        try (Scratch scratch = context.library().scratch()) {
            for (String name : names) {
                channels[created++] = context.channelHandle(name, 0);
            }
            scratch.i32(created);
            for (long channel : channels) {
                scratch.i64(channel);
            }
            int length = context.natives().listCreate(
                    context.handle(), scratch.address(), scratch.written(), scratch.capacity());
            handle = context.library().codec().decoded("", scratch.reply(length), Codec::handle);
        } finally {
            // The list has channels of its own.
            for (long channel : channels) {
                if (channel != 0) {
                    context.natives().release(channel);
                }
            }
            Reference.reachabilityFence(context);
        }
        context.library().releaseWith(this, handle);
    }

    /**
     * The names of the PVs.
     *
     * @return the names in the order of all results
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public List<String> names() {
        return names;
    }

    /**
     * Waits until all are connected.
     *
     * @return what the servers have reported, in the order of the names
     * @roundTrips the search, one connection to each server and the creation of the channels, for all at once
     * @thread any; the calling thread waits
     * @blocks until all have ended, for at most the timeout of the context
     * @bounds none
     * @fails {@link ClosedException}, {@link InterruptedCallException}; the failure of a PV is in its result
     */
    public List<Result<Info>> connect() {
        return connect(context.timeoutNs());
    }

    /**
     * Waits until all are connected.
     *
     * @param timeout how long to wait for all
     * @return what the servers have reported, in the order of the names
     * @roundTrips the search, one connection to each server and the creation of the channels, for all at once
     * @thread any; the calling thread waits
     * @blocks until all have ended, for at most the timeout
     * @bounds none
     * @fails {@link ClosedException}, {@link InterruptedCallException}; the failure of a PV is in its result
     */
    public List<Result<Info>> connect(Duration timeout) {
        return connect(Context.nanos("", timeout));
    }

    /**
     * Connects all.
     *
     * @return what the servers have reported, in the order of the names, when all have ended or after the timeout of the
     *     context
     * @roundTrips the search, one connection to each server and the creation of the channels, for all at once
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails the future with {@link ClosedException}; the failure of a PV is in its result
     */
    public CompletableFuture<List<Result<Info>>> connectAsync() {
        return start(Channel.CONNECT, 0, scratch -> { }, this::readInfo, true);
    }

    private List<Result<Info>> connect(long timeoutNs) {
        return call(Channel.CONNECT, timeoutNs, scratch -> { }, this::readInfo);
    }

    /**
     * Reads all values, with alarm and time stamp.
     *
     * @return the values in the order of the names
     * @roundTrips one for all; before the first one also the search, the connections and the creation of the channels
     * @thread any; the calling thread waits
     * @blocks until all have ended, for at most the timeout of the context
     * @bounds none
     * @fails {@link ClosedException}, {@link InterruptedCallException}; the failure of a PV is in its result
     */
    public List<Result<Reading<T>>> get() {
        return get(Request.TIME, context.timeoutNs());
    }

    /**
     * Reads all values, with alarm and time stamp.
     *
     * @param timeout how long to wait for all
     * @return the values in the order of the names
     * @roundTrips one for all; before the first one also the search, the connections and the creation of the channels
     * @thread any; the calling thread waits
     * @blocks until all have ended, for at most the timeout
     * @bounds none
     * @fails {@link ClosedException}, {@link InterruptedCallException}; the failure of a PV is in its result
     */
    public List<Result<Reading<T>>> get(Duration timeout) {
        return get(Request.TIME, Context.nanos("", timeout));
    }

    /**
     * Reads all values.
     *
     * @param request what is requested with each value, and how many elements
     * @param timeout how long to wait for all
     * @return the values in the order of the names
     * @roundTrips one for all; before the first one also the search, the connections and the creation of the channels
     * @thread any; the calling thread waits
     * @blocks until all have ended, for at most the timeout
     * @bounds none
     * @fails {@link ClosedException}, {@link InterruptedCallException}; the failure of a PV is in its result
     */
    public List<Result<Reading<T>>> get(Request request, Duration timeout) {
        return get(required(request), Context.nanos("", timeout));
    }

    private List<Result<Reading<T>>> get(Request request, long timeoutNs) {
        return call(Channel.GET_ANY, timeoutNs, scratch -> type.writeRequest(scratch, request), this::readReading);
    }

    /**
     * Reads all values, with alarm and time stamp.
     *
     * @return the values in the order of the names, when all have ended or after the timeout of the context
     * @roundTrips one for all; before the first one also the search, the connections and the creation of the channels
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails the future with {@link ClosedException}; the failure of a PV is in its result
     */
    public CompletableFuture<List<Result<Reading<T>>>> getAsync() {
        return start(Channel.GET_ANY, 0, scratch -> type.writeRequest(scratch, Request.TIME), this::readReading, true);
    }

    /**
     * Writes a value to each PV, and waits until the servers have processed all.
     *
     * @param values as many values as names, in their order
     * @return a success or a failure for each, in the order of the names
     * @roundTrips one for all; before the first one also the search, the connections and the creation of the channels
     * @thread any; the calling thread waits
     * @blocks until all have ended, for at most the timeout of the context
     * @bounds none
     * @fails {@link MisuseException} for another number of values, null, or a value of another type; {@link
     *     ClosedException}, {@link InterruptedCallException}; the failure of a PV is in its result
     */
    public List<Result<Void>> put(List<T> values) {
        return put(values, context.timeoutNs());
    }

    /**
     * Writes a value to each PV, and waits until the servers have processed all.
     *
     * @param values as many values as names, in their order
     * @param timeout how long to wait for all
     * @return a success or a failure for each, in the order of the names
     * @roundTrips one for all; before the first one also the search, the connections and the creation of the channels
     * @thread any; the calling thread waits
     * @blocks until all have ended, for at most the timeout
     * @bounds none
     * @fails {@link MisuseException} for another number of values, null, or a value of another type; {@link
     *     ClosedException}, {@link InterruptedCallException}; the failure of a PV is in its result
     */
    public List<Result<Void>> put(List<T> values, Duration timeout) {
        return put(values, Context.nanos("", timeout));
    }

    /**
     * Writes a value to each PV.
     *
     * @param values as many values as names, in their order; they may be changed as soon as the method returns
     * @return a success or a failure for each, in the order of the names, when the servers have processed all or after the
     *     timeout of the context
     * @roundTrips one for all; before the first one also the search, the connections and the creation of the channels
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for another number of values, null, or a value of another type; the future with {@link
     *     ClosedException}; the failure of a PV is in its result
     */
    public CompletableFuture<List<Result<Void>>> putAsync(List<T> values) {
        return start(Channel.PUT, 0, valuesInput(values), Channels::readNothing, true);
    }

    private List<Result<Void>> put(List<T> values, long timeoutNs) {
        return call(Channel.PUT, timeoutNs, valuesInput(values), Channels::readNothing);
    }

    private Channel.Input valuesInput(List<T> values) {
        if (values == null || values.size() != names.size()) {
            throw new MisuseException("", "a put needs one value for each of the " + names.size() + " PVs; there are "
                    + (values == null ? "none" : String.valueOf(values.size())));
        }
        return scratch -> {
            for (int i = 0; i < names.size(); i++) {
                type.encode(context.library().codec(), names.get(i), scratch, values.get(i));
            }
        };
    }

    private static Void readNothing(String name, ByteBuffer in) {
        Codec.expect(name, Codec.NOTHING, in);
        return null;
    }

    /**
     * Closes the channels: operations end with {@link ClosedException}. A second call does nothing.
     *
     * @roundTrips none
     * @thread any, also within a callback
     * @blocks never
     * @bounds none
     * @fails never
     */
    @Override
    public void close() {
        if (handle != 0) {
            context.natives().channelClose(handle);
        }
        Reference.reachabilityFence(this);
    }

    /** Reads the reply of one PV. */
    private interface ReadOne<R> {
        R read(String name, ByteBuffer in);
    }

    private <R> List<Result<R>> call(int what, long timeoutNs, Channel.Input input, ReadOne<R> one) {
        if (handle == 0) {
            return List.of();
        }
        if (Library.isVirtualThread()) {
            return Context.join("", start(what, Math.max(timeoutNs, 1), input, one, false), timeoutNs);
        }
        try (Scratch scratch = context.library().scratch()) {
            input.write(scratch);
            long startedNs = System.nanoTime();
            int length = context.natives().listRun(handle, what, Math.min(Context.PAUSE_NS, timeoutNs), timeoutNs,
                    scratch.address(), scratch.written(), scratch.capacity());
            ByteBuffer in = context.ended(scratch, length, "", startedNs, timeoutNs);
            return context.library().codec().decoded("", in, reply -> results(reply, one));
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private <R> CompletableFuture<List<Result<R>>> start(
            int what, long timeoutNs, Channel.Input input, ReadOne<R> one, boolean useExecutor) {
        if (handle == 0) {
            return CompletableFuture.completedFuture(List.of());
        }
        Function<ByteBuffer, List<Result<R>>> decoder = in -> results(in, one);
        Pending<List<Result<R>>> pending =
                new Pending<>(context.library().codec(), this, "", decoder, useExecutor ? context.executor() : null);
        Pending.start(context, pending, input, (queue, token, scratch) -> context.natives().listStart(
                handle, what, queue, token, timeoutNs, scratch.address(), scratch.written(), scratch.capacity()));
        Reference.reachabilityFence(this);
        return pending;
    }

    private <R> List<Result<R>> results(ByteBuffer in, ReadOne<R> one) {
        Codec.expect(Codec.LIST, in);
        int count = Codec.count(in, 5);
        if (count != names.size()) {
            throw Codec.malformed(count + " results of " + names.size() + " PVs");
        }
        List<Result<R>> results = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            int bytes = Codec.count(in, 1);
            int end = in.position() + bytes;
            try {
                results.add(new Result.Success<>(one.read(names.get(i), in)));
            } catch (PvException e) {
                results.add(new Result.Failure<>(e));
            }
            in.position(end);
        }
        return Collections.unmodifiableList(results);
    }

    private Info readInfo(String name, ByteBuffer in) {
        Codec.expect(name, Codec.INFO, in);
        return Codec.info(name, in);
    }

    private Reading<T> readReading(String name, ByteBuffer in) {
        return context.library().codec().reading(name, type, in);
    }

    private static Request required(Request request) {
        if (request == null) {
            throw new MisuseException("", "the request must not be null; use Request.TIME");
        }
        return request;
    }
}
