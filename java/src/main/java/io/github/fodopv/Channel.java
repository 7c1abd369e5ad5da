package io.github.fodopv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Flow;
import java.util.function.Consumer;
import java.util.function.Function;

/**
 * A connection to one PV, which is searched for when it is first used, and again whenever it is lost.
 *
 * <p>Blocking methods have a timeout: their own, or that of the context. In a virtual thread they wait without a carrier.
 * They may be called within callbacks, whose thread then reads the connection itself.
 *
 * @param <T> the type of the values
 */
public final class Channel<T> implements AutoCloseable {
    // Numbers of the operations, as `java/native` has them.
    static final int CONNECT = 0;
    static final int GET = 1;
    static final int PUT = 2;
    private static final int PUT_UNCONFIRMED = 3;
    private static final int STRUCTURE_GET = 4;
    private static final int STRUCTURE_PUT = 5;
    private static final int RPC = 6;
    private static final int DESCRIBE = 7;
    private static final int PROCESS = 8;
    /** A get that reads a PV without a value of its own as a structure. */
    static final int GET_ANY = 9;

    /** Writes the input of a call. */
    interface Input {
        void write(Scratch scratch);
    }

    private static final Input NO_INPUT = scratch -> { };

    private final Context context;
    private final String name;
    private final ValueType<T> type;
    private final long handle;

    Channel(Context context, String name, ValueType<T> type, long handle) {
        this.context = context;
        this.name = name;
        this.type = type;
        this.handle = handle;
        context.library().releaseWith(this, handle);
    }

    /**
     * The name of the PV.
     *
     * @return the name as the caller wrote it
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
     * Whether the channel is connected at this moment.
     *
     * @return false also before its first use and after close
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public boolean isConnected() {
        return info().isPresent();
    }

    /**
     * What the server has reported about the PV.
     *
     * @return empty while the channel is not connected, and after close
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public Optional<Info> info() {
        try (Scratch scratch = context.library().scratch()) {
            int length = natives().channelInfo(handle, scratch.address(), scratch.capacity());
            return context.library().codec().decoded(name, scratch.reply(length), in ->
                    in.get() == Codec.INFO ? Optional.of(Codec.info(name, in)) : Optional.empty());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Why the channel is not connected.
     *
     * @param waited how long the caller has waited, for the text
     * @return empty if it is connected; a {@link ClosedException} after close
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} if the time is null or negative
     */
    public Optional<PvException> whyNotConnected(Duration waited) {
        long waitedNs = Context.nanos(name, waited);
        try (Scratch scratch = context.library().scratch()) {
            int length = natives().whyInactive(handle, waitedNs, scratch.address(), scratch.capacity());
            return context.library().codec().decoded(name, scratch.reply(length), in ->
                    in.get() == Codec.ERROR ? Optional.of(Codec.error(name, in)) : Optional.empty());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Waits until the channel is connected. A second call returns at once.
     *
     * @return what the server has reported
     * @roundTrips the search, the connection to the server and the creation of the channel; none if it is connected
     * @thread any; the calling thread reads the connection itself
     * @blocks until the channel is connected, for at most the timeout of the context
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public Info connect() {
        return connect(context.timeoutNs());
    }

    /**
     * Waits until the channel is connected. A second call returns at once.
     *
     * @param timeout how long to wait
     * @return what the server has reported
     * @roundTrips the search, the connection to the server and the creation of the channel; none if it is connected
     * @thread any; the calling thread reads the connection itself
     * @blocks until the channel is connected, for at most the timeout
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public Info connect(Duration timeout) {
        return connect(Context.nanos(name, timeout));
    }

    /**
     * Connects the channel.
     *
     * @return what the server has reported
     * @roundTrips the search, the connection to the server and the creation of the channel; none if it is connected
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails the future with {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException}
     */
    public CompletableFuture<Info> connectAsync() {
        return start(CONNECT, NO_INPUT, this::readInfo);
    }

    /**
     * Reads the value, its alarm and its time stamp.
     *
     * @return the value, and what was requested with it
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public Reading<T> get() {
        return get(Request.TIME, context.timeoutNs());
    }

    /**
     * Reads the value, its alarm and its time stamp.
     *
     * @param timeout how long to wait
     * @return the value, and what was requested with it
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public Reading<T> get(Duration timeout) {
        return get(Request.TIME, Context.nanos(name, timeout));
    }

    /**
     * Reads the value.
     *
     * @param request what is requested with the value, and how many elements
     * @return the value, and what was requested with it
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public Reading<T> get(Request request) {
        return get(request, context.timeoutNs());
    }

    /**
     * Reads the value.
     *
     * @param request what is requested with the value, and how many elements
     * @param timeout how long to wait
     * @return the value, and what was requested with it
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public Reading<T> get(Request request, Duration timeout) {
        return get(request, Context.nanos(name, timeout));
    }

    /**
     * Reads the value, its alarm and its time stamp.
     *
     * @return the value, and what it was received with
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails the future with {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException}
     */
    public CompletableFuture<Reading<T>> getAsync() {
        return getAsync(Request.TIME);
    }

    /**
     * Reads the value.
     *
     * @param request what is requested with the value, and how many elements
     * @return the value, and what was requested with it
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails the future with {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException}
     */
    public CompletableFuture<Reading<T>> getAsync(Request request) {
        requireRequest(request);
        return start(getCode(), scratch -> writeRequest(scratch, request), this::readReading);
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(double[] target) {
        int length = required(target).length;
        return getInto(Kind.F64, length, context.timeoutNs(), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @param timeout how long to wait
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(double[] target, Duration timeout) {
        int length = required(target).length;
        return getInto(Kind.F64, length, Context.nanos(name, timeout), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(float[] target) {
        int length = required(target).length;
        return getInto(Kind.F32, length, context.timeoutNs(), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @param timeout how long to wait
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(float[] target, Duration timeout) {
        int length = required(target).length;
        return getInto(Kind.F32, length, Context.nanos(name, timeout), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(long[] target) {
        int length = required(target).length;
        return getInto(Kind.I64, length, context.timeoutNs(), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @param timeout how long to wait
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(long[] target, Duration timeout) {
        int length = required(target).length;
        return getInto(Kind.I64, length, Context.nanos(name, timeout), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(int[] target) {
        int length = required(target).length;
        return getInto(Kind.I32, length, context.timeoutNs(), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @param timeout how long to wait
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(int[] target, Duration timeout) {
        int length = required(target).length;
        return getInto(Kind.I32, length, Context.nanos(name, timeout), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(short[] target) {
        int length = required(target).length;
        return getInto(Kind.I16, length, context.timeoutNs(), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @param timeout how long to wait
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(short[] target, Duration timeout) {
        int length = required(target).length;
        return getInto(Kind.I16, length, Context.nanos(name, timeout), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(byte[] target) {
        int length = required(target).length;
        return getInto(Kind.I8, length, context.timeoutNs(), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Reads the elements into an array of the caller.
     *
     * @param target receives the elements; those that have no place are dropped, although the server has sent them
     * @param timeout how long to wait
     * @return how many elements were received; the others are unchanged
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds the elements that the server sends
     * @fails {@link MisuseException} if the array is null or empty; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public int getInto(byte[] target, Duration timeout) {
        int length = required(target).length;
        return getInto(Kind.I8, length, Context.nanos(name, timeout), (kind, in) -> Arrays.copy(kind, in, target));
    }

    /**
     * Writes a value, and waits until the server has processed it.
     *
     * @param value the value; the server converts it to the PV's type
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds none
     * @fails {@link MisuseException} for null or a value of another type; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public void put(T value) {
        put(value, context.timeoutNs());
    }

    /**
     * Writes a value, and waits until the server has processed it.
     *
     * @param value the value; the server converts it to the PV's type
     * @param timeout how long to wait
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds none
     * @fails {@link MisuseException} for null or a value of another type; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public void put(T value, Duration timeout) {
        put(value, Context.nanos(name, timeout));
    }

    /**
     * Writes a value.
     *
     * @param value the value; it may be changed as soon as the method returns
     * @return completes when the server has processed it
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for null or a value of another type; the future with {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}
     */
    public CompletableFuture<Void> putAsync(T value) {
        return start(PUT, scratch -> writeValue(scratch, value), this::readNothing);
    }

    /**
     * Writes a value without a reply of the server: whether it was processed is unknown.
     *
     * @param value the value
     * @roundTrips none on a connected channel; otherwise the search, the connection and the creation of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the channel is connected, for at most the timeout of the context
     * @bounds none
     * @fails {@link MisuseException} for null or a value of another type; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public void putUnconfirmed(T value) {
        call(PUT_UNCONFIRMED, context.timeoutNs(), scratch -> writeValue(scratch, value), this::readNothing);
    }

    /**
     * Writes a value without a reply of the server: whether it was processed is unknown.
     *
     * @param value the value
     * @param timeout how long to wait
     * @roundTrips none on a connected channel; otherwise the search, the connection and the creation of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the channel is connected, for at most the timeout
     * @bounds none
     * @fails {@link MisuseException} for null or a value of another type; {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public void putUnconfirmed(T value, Duration timeout) {
        call(PUT_UNCONFIRMED, Context.nanos(name, timeout), scratch -> writeValue(scratch, value), this::readNothing);
    }

    /**
     * Reads a structure. Only over pvAccess.
     *
     * @param pvRequest what is selected, such as {@code field(value,alarm)}; empty for all fields
     * @return the structure; fields that are not selected have the initial value of their type
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds none
     * @fails {@link MisuseException} for an invalid request; {@link NotFoundException}, {@link NoAnswerException},
     *     {@link RefusedException}, {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public Value.Structure getStructure(String pvRequest) {
        return call(STRUCTURE_GET, context.timeoutNs(), scratch -> writePvRequest(scratch, pvRequest),
                this::readStructure);
    }

    /**
     * Reads a structure. Only over pvAccess.
     *
     * @param pvRequest what is selected, such as {@code field(value,alarm)}; empty for all fields
     * @param timeout how long to wait
     * @return the structure; fields that are not selected have the initial value of their type
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds none
     * @fails {@link MisuseException} for an invalid request; {@link NotFoundException}, {@link NoAnswerException},
     *     {@link RefusedException}, {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public Value.Structure getStructure(String pvRequest, Duration timeout) {
        return call(STRUCTURE_GET, Context.nanos(name, timeout), scratch -> writePvRequest(scratch, pvRequest),
                this::readStructure);
    }

    /**
     * Reads a structure. Only over pvAccess.
     *
     * @param pvRequest what is selected, such as {@code field(value,alarm)}; empty for all fields
     * @return the structure; fields that are not selected have the initial value of their type
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for an invalid request; the future with {@link NotFoundException},
     *     {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}
     */
    public CompletableFuture<Value.Structure> getStructureAsync(String pvRequest) {
        return start(STRUCTURE_GET, scratch -> writePvRequest(scratch, pvRequest), this::readStructure);
    }

    /**
     * Writes some fields of a structure, and waits until the server has processed them. Only over pvAccess.
     *
     * @param fields values by their paths, such as {@code alarm.severity}; converted by {@link Value#of(Object)}
     * @roundTrips two: the type, and the put; before the first one of a channel also the search, the connection to the
     *     server and the creation of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds none
     * @fails {@link MisuseException} for an empty map, an unknown field or a value of another type;
     *     {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public void putFields(Map<String, ?> fields) {
        call(STRUCTURE_PUT, context.timeoutNs(), scratch -> writeFields(scratch, fields), this::readNothing);
    }

    /**
     * Writes some fields of a structure, and waits until the server has processed them. Only over pvAccess.
     *
     * @param fields values by their paths, such as {@code alarm.severity}; converted by {@link Value#of(Object)}
     * @param timeout how long to wait
     * @roundTrips two: the type, and the put; before the first one of a channel also the search, the connection to the
     *     server and the creation of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds none
     * @fails {@link MisuseException} for an empty map, an unknown field or a value of another type;
     *     {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}, {@link InterruptedCallException}
     */
    public void putFields(Map<String, ?> fields, Duration timeout) {
        call(STRUCTURE_PUT, Context.nanos(name, timeout), scratch -> writeFields(scratch, fields), this::readNothing);
    }

    /**
     * Writes some fields of a structure. Only over pvAccess.
     *
     * @param fields values by their paths, such as {@code alarm.severity}; converted by {@link Value#of(Object)}
     * @return completes when the server has processed them
     * @roundTrips two: the type, and the put; before the first one of a channel also the search, the connection to the
     *     server and the creation of the channel
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for an empty map or a value of another type; the future with
     *     {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException}, {@link DisconnectedException},
     *     {@link WrongReplyException}, {@link ClosedException}
     */
    public CompletableFuture<Void> putFieldsAsync(Map<String, ?> fields) {
        return start(STRUCTURE_PUT, scratch -> writeFields(scratch, fields), this::readNothing);
    }

    /**
     * Calls the PV as a function. Only over pvAccess.
     *
     * @param argument the argument, such as an {@code epics:nt/NTURI:1.0}
     * @return the result
     * @roundTrips two: the creation of the call, and the call; before the first one of a channel also the search, the
     *     connection to the server and the creation of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public Value.Structure rpc(Value.Structure argument) {
        return rpc(argument, context.timeoutNs());
    }

    /**
     * Calls the PV as a function. Only over pvAccess.
     *
     * @param argument the argument, such as an {@code epics:nt/NTURI:1.0}
     * @param timeout how long to wait
     * @return the result
     * @roundTrips two: the creation of the call, and the call; before the first one of a channel also the search, the
     *     connection to the server and the creation of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public Value.Structure rpc(Value.Structure argument, Duration timeout) {
        return rpc(argument, Context.nanos(name, timeout));
    }

    /**
     * Calls the PV as a function. Only over pvAccess.
     *
     * @param argument the argument, such as an {@code epics:nt/NTURI:1.0}
     * @return the result
     * @roundTrips two: the creation of the call, and the call; before the first one of a channel also the search, the
     *     connection to the server and the creation of the channel
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails the future with {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException}
     */
    public CompletableFuture<Value.Structure> rpcAsync(Value.Structure argument) {
        return start(RPC, scratch -> writeArgument(scratch, argument), this::readStructure);
    }

    /**
     * The type of the PV with all fields. Only over pvAccess.
     *
     * @return one line for each field
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public String describe() {
        return call(DESCRIBE, context.timeoutNs(), scratch -> scratch.text(""), this::readText);
    }

    /**
     * The type of the PV with all fields. Only over pvAccess.
     *
     * @param timeout how long to wait
     * @return one line for each field
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public String describe(Duration timeout) {
        return call(DESCRIBE, Context.nanos(name, timeout), scratch -> scratch.text(""), this::readText);
    }

    /**
     * The type of the PV with all fields. Only over pvAccess.
     *
     * @return one line for each field
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails the future with {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException}
     */
    public CompletableFuture<String> describeAsync() {
        return start(DESCRIBE, scratch -> scratch.text(""), this::readText);
    }

    /**
     * Processes the record of the PV, without a value. Only over pvAccess.
     *
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout of the context
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public void process() {
        call(PROCESS, context.timeoutNs(), NO_INPUT, this::readNothing);
    }

    /**
     * Processes the record of the PV, without a value. Only over pvAccess.
     *
     * @param timeout how long to wait
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the calling thread reads the connection itself
     * @blocks until the reply, for at most the timeout
     * @bounds none
     * @fails {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException},
     *     {@link InterruptedCallException}
     */
    public void process(Duration timeout) {
        call(PROCESS, Context.nanos(name, timeout), NO_INPUT, this::readNothing);
    }

    /**
     * Processes the record of the PV, without a value. Only over pvAccess.
     *
     * @return completes when the server has processed it
     * @roundTrips one; before the first one of a channel also the search, the connection to the server and the creation
     *     of the channel
     * @thread any; the future completes on the executor of the context, or on its callback thread
     * @blocks never
     * @bounds none
     * @fails the future with {@link NotFoundException}, {@link NoAnswerException}, {@link RefusedException},
     *     {@link DisconnectedException}, {@link WrongReplyException}, {@link ClosedException}
     */
    public CompletableFuture<Void> processAsync() {
        return start(PROCESS, NO_INPUT, this::readNothing);
    }

    /**
     * Subscribes to the PV, also before it is connected, and subscribes again after each connection.
     *
     * @param on receives each event
     * @return the monitor, which lasts until it is closed
     * @roundTrips none; afterwards one to subscribe, again after each connection
     * @thread callbacks run one after another, in order: on the executor of the options or of the context, otherwise on
     *     the callback thread of the context
     * @blocks never
     * @bounds updates that find the queue of {@link MonitorOptions#queueMax()} full are merged, counted and reported
     * @fails {@link MisuseException} without a callback, {@link ClosedException} after close; later failures are events
     */
    public Monitor<T> monitor(Consumer<? super Event<T>> on) {
        return monitor(MonitorOptions.defaults(), on);
    }

    /**
     * Subscribes to the PV, also before it is connected, and subscribes again after each connection.
     *
     * @param options what is requested, the queue and the executor
     * @param on receives each event
     * @return the monitor, which lasts until it is closed
     * @roundTrips none; afterwards one to subscribe, again after each connection
     * @thread callbacks run one after another, in order: on the executor of the options or of the context, otherwise on
     *     the callback thread of the context
     * @blocks never
     * @bounds updates that find the queue of {@link MonitorOptions#queueMax()} full are merged, counted and reported
     * @fails {@link MisuseException} without a callback, {@link ClosedException} after close; later failures are events
     */
    public Monitor<T> monitor(MonitorOptions options, Consumer<? super Event<T>> on) {
        if (on == null) {
            throw new MisuseException(name, "a monitor needs a callback; use monitor(options) and next() without one");
        }
        return Monitor.withCallback(this, requireOptions(options), on);
    }

    /**
     * Subscribes to the PV; the caller takes the events with {@link Monitor#next}.
     *
     * @param options what is requested, and the queue; an executor is not used
     * @return the monitor, which lasts until it is closed or unreachable
     * @roundTrips none; afterwards one to subscribe, again after each connection
     * @thread any
     * @blocks never
     * @bounds updates that find the queue of {@link MonitorOptions#queueMax()} full are merged, counted and reported
     * @fails {@link ClosedException} after close; later failures are events
     */
    public Monitor<T> monitor(MonitorOptions options) {
        return Monitor.withoutCallback(this, requireOptions(options));
    }

    /**
     * A publisher of the events: each subscriber has a monitor of its own, from which as many events are taken as it
     *     requests. It completes after {@link Event.Closed}; without that event if none is requested. A subscriber that
     *     throws has cancelled.
     *
     * @param options what is requested, the queue and the executor
     * @return the publisher; nothing is subscribed before it has a subscriber
     * @roundTrips none; with a subscriber as {@link #monitor(Consumer)}
     * @thread signals come one after another: on the executor of the options or of the context, otherwise on the
     *     callback thread, or on the thread that requests more
     * @blocks never
     * @bounds updates that find the queue of {@link MonitorOptions#queueMax()} full are merged, counted and reported
     * @fails {@link MisuseException} without options
     */
    public Flow.Publisher<Event<T>> publisher(MonitorOptions options) {
        return new EventPublisher<>(this, requireOptions(options));
    }

    /**
     * Closes the channel: operations end with {@link ClosedException}. Its monitors last until they are closed
     *     themselves. A second call does nothing.
     *
     * @roundTrips none
     * @thread any, also within a callback
     * @blocks never
     * @bounds none
     * @fails never
     */
    @Override
    public void close() {
        natives().channelClose(handle);
        Reference.reachabilityFence(this);
    }

    // Operations.

    private Native natives() {
        return context.natives();
    }

    Context context() {
        return context;
    }

    ValueType<T> type() {
        return type;
    }

    long handle() {
        return handle;
    }

    /** Starts an operation, and waits for its end. */
    private <R> R call(int what, long timeoutNs, Input input, Function<ByteBuffer, R> decoder) {
        if (Library.isVirtualThread()) {
            return Context.join(name, start(what, Math.max(timeoutNs, 1), input, decoder, false), timeoutNs);
        }
        try (Scratch scratch = context.library().scratch()) {
            input.write(scratch);
            long startedNs = System.nanoTime();
            int length = natives().run(handle, what, Math.min(Context.PAUSE_NS, timeoutNs), timeoutNs,
                    scratch.address(), scratch.written(), scratch.capacity());
            ByteBuffer in = context.ended(scratch, length, name, startedNs, timeoutNs);
            return context.library().codec().decoded(name, in, decoder);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** Starts an operation with the timeout of the context. */
    private <R> CompletableFuture<R> start(int what, Input input, Function<ByteBuffer, R> decoder) {
        return start(what, 0, input, decoder, true);
    }

    /** Starts an operation; {@code timeoutNs} 0 for that of the context. */
    private <R> CompletableFuture<R> start(
            int what, long timeoutNs, Input input, Function<ByteBuffer, R> decoder, boolean useExecutor) {
        Pending<R> pending = new Pending<>(
                context.library().codec(), this, name, decoder, useExecutor ? context.executor() : null);
        Pending.start(context, pending, input, (queue, token, scratch) -> natives().start(
                handle, what, queue, token, timeoutNs, scratch.address(), scratch.written(), scratch.capacity()));
        Reference.reachabilityFence(this);
        return pending;
    }

    private Info connect(long timeoutNs) {
        return call(CONNECT, timeoutNs, NO_INPUT, this::readInfo);
    }

    private Reading<T> get(Request request, long timeoutNs) {
        requireRequest(request);
        return call(getCode(), timeoutNs, scratch -> writeRequest(scratch, request), this::readReading);
    }

    private int getInto(Kind kind, int length, long timeoutNs, ValueType.OfElements<Integer> copy) {
        if (length == 0) {
            throw new MisuseException(name, "the array that receives the elements must not be empty");
        }
        ValueType<Integer> into = new ValueType<>(
                Integer.class, kind.ordinal(), true, (codec, in) -> ValueType.readArray(codec, in, copy), null);
        return call(GET, timeoutNs,
                scratch -> into.writeRequest(scratch, Request.VALUE),
                in -> context.library().codec().reading(name, into, in).value());
    }

    private void put(T value, long timeoutNs) {
        call(PUT, timeoutNs, scratch -> writeValue(scratch, value), this::readNothing);
    }

    private Value.Structure rpc(Value.Structure argument, long timeoutNs) {
        return call(RPC, timeoutNs, scratch -> writeArgument(scratch, argument), this::readStructure);
    }

    // Their input and their results.

    private int getCode() {
        return type.kind() == Codec.NATIVE_KIND ? GET_ANY : GET;
    }

    private void writeRequest(Scratch scratch, Request request) {
        type.writeRequest(scratch, request);
    }

    private void writeValue(Scratch scratch, T value) {
        type.encode(context.library().codec(), name, scratch, value);
    }

    private void writePvRequest(Scratch scratch, String pvRequest) {
        if (pvRequest == null) {
            throw new MisuseException(name, "the request must not be null; use \"\" for all fields");
        }
        scratch.text(pvRequest);
    }

    private void writeFields(Scratch scratch, Map<String, ?> fields) {
        if (fields == null || fields.isEmpty()) {
            throw new MisuseException(name, "there must be at least one field to put");
        }
        scratch.text("").i32(fields.size());
        fields.forEach((path, value) -> {
            if (path == null || path.isEmpty()) {
                throw new MisuseException(name, "the path of a field must not be " + (path == null ? "null" : "empty"));
            }
            context.library().codec().write(scratch.text(path), Value.of(value));
        });
    }

    private void writeArgument(Scratch scratch, Value.Structure argument) {
        if (argument == null) {
            throw new MisuseException(name, "the argument of a call must not be null");
        }
        context.library().codec().write(scratch, argument);
    }

    private Info readInfo(ByteBuffer in) {
        Codec.expect(name, Codec.INFO, in);
        return Codec.info(name, in);
    }

    private Reading<T> readReading(ByteBuffer in) {
        return context.library().codec().reading(name, type, in);
    }

    private Value.Structure readStructure(ByteBuffer in) {
        Codec.expect(name, Codec.STRUCTURE_REPLY, in);
        return context.library().codec().structure(in);
    }

    private String readText(ByteBuffer in) {
        Codec.expect(name, Codec.TEXT, in);
        return Codec.text(in);
    }

    private Void readNothing(ByteBuffer in) {
        Codec.expect(name, Codec.NOTHING, in);
        return null;
    }

    private void requireRequest(Request request) {
        if (request == null) {
            throw new MisuseException(name, "the request must not be null; use Request.TIME");
        }
    }

    private MonitorOptions requireOptions(MonitorOptions options) {
        if (options == null) {
            throw new MisuseException(name, "the options of a monitor must not be null; use MonitorOptions.defaults()");
        }
        return options;
    }

    private <A> A required(A target) {
        if (target == null) {
            throw new MisuseException(name, "the array that receives the elements must not be null");
        }
        return target;
    }
}
