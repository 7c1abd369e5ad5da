package io.github.fodopv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BiConsumer;

/**
 * A client with its own configuration: where it searches for PVs and how long its operations wait.
 *
 * <p>A context is cheap. It has no thread of its own until the first future or callback is used; then it has one,
 * {@code fodo-callbacks}. The network is the work of the process's reactor. All threads are daemons.
 *
 * <p>Objects of this package may be used by several threads at once, except {@link GroupRows}.
 */
public final class Context implements AutoCloseable {
    /** How long an operation waits unless the call or the builder says otherwise. */
    static final Duration DEFAULT_TIMEOUT = Duration.ofSeconds(5);

    /** How long a native call waits before it looks at the thread's interrupt flag. */
    static final long PAUSE_NS = 100_000_000;

    /** How long a virtual thread sleeps before it looks again, where only a platform thread could wait. */
    static final long VIRTUAL_PAUSE_NS = 500_000;

    /** How much later than the timeout of its operation a wait ends by itself: the thread of the callbacks ends it earlier. */
    private static final long JOIN_MARGIN_NS = 1_000_000_000;

    private static final int PRIORITY_MAX = 99;

    private final Library library;
    private final long handle;
    private final long timeoutNs;
    private final Executor executor;
    private final BiConsumer<String, Throwable> onFailure;
    /** {@code null} until it is needed. Also known to the cleaner. */
    private final AtomicReference<Callbacks> callbacks = new AtomicReference<>();
    private volatile boolean isClosed;

    /**
     * A context with the configuration of the environment: {@code EPICS_CA_*}, {@code EPICS_PVA_*}, {@code FODO_*}.
     *
     * @roundTrips none
     * @thread any; the first context of the process loads the native library
     * @blocks never
     * @bounds 8 KiB outside the heap for each thread that calls at the same time, at most 16 kept; 8 KiB for the thread of
     *     the callbacks, and up to 256 KiB after many results at once
     * @fails {@link SystemException} if the native library cannot be loaded, {@link MisuseException} for a setting that is
     *     invalid
     */
    public Context() {
        this(new Builder());
    }

    /**
     * A context with these settings; what they do not name is taken from the environment.
     *
     * @param settings values of {@code EPICS_CA_*}, {@code EPICS_PVA_*} and {@code FODO_*}
     * @roundTrips none
     * @thread any; the first context of the process loads the native library
     * @blocks never
     * @bounds 8 KiB outside the heap for each thread that calls at the same time, at most 16 kept; 8 KiB for the thread of
     *     the callbacks, and up to 256 KiB after many results at once
     * @fails as {@link #Context()}; {@link MisuseException} for a name or a value that is null
     */
    public Context(Map<String, String> settings) {
        this(new Builder().settings(settings));
    }

    private Context(Builder builder) {
        this(builder, Library.get());
    }

    /** A context of this library. */
    Context(Builder builder, Library library) {
        this.library = library;
        timeoutNs = builder.timeoutNs;
        executor = builder.executor;
        onFailure = builder.onFailure;
        try (Scratch scratch = library.scratch()) {
            scratch.i32(builder.settings.size());
            builder.settings.forEach((name, value) -> scratch.text(name).text(value));
            scratch.i64(timeoutNs);
            int length = natives().contextCreate(scratch.address(), scratch.written(), scratch.capacity());
            handle = library.codec().decoded("", scratch.reply(length), Codec::handle);
        }
        long context = handle;
        Library of = library;
        AtomicReference<Callbacks> thread = callbacks;
        library.cleaner().register(this, () -> {
            close(of.natives(), context, thread.get());
            of.natives().release(context);
        });
    }

    /**
     * A builder of a context.
     *
     * @return a new builder
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public static Builder builder() {
        return new Builder();
    }

    /** What a context is created with. Used by one thread. */
    public static final class Builder {
        private final Map<String, String> settings = new LinkedHashMap<>();
        private long timeoutNs = DEFAULT_TIMEOUT.toNanos();
        private Executor executor;
        private BiConsumer<String, Throwable> onFailure = Context::logFailure;

        private Builder() {
        }

        /**
         * Adds settings, which are preferred to the environment.
         *
         * @param settings values of {@code EPICS_CA_*}, {@code EPICS_PVA_*} and {@code FODO_*}
         * @return this builder
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} for a name or a value that is null
         */
        public Builder settings(Map<String, String> settings) {
            if (settings == null) {
                throw new MisuseException("", "the settings of a context must not be null; use new Context()");
            }
            settings.forEach((name, value) -> {
                if (name == null || value == null) {
                    throw new MisuseException("", "a setting of a context must not be null: " + name + "=" + value);
                }
                this.settings.put(name, value);
            });
            return this;
        }

        /**
         * Sets how long operations wait that have no timeout of their own.
         *
         * @param timeout a positive time; 5 s unless set
         * @return this builder
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} if the time is null, zero or negative
         */
        public Builder timeout(Duration timeout) {
            timeoutNs = nanos("", timeout);
            if (timeoutNs == 0) {
                throw new MisuseException("", "the timeout of a context must be positive");
            }
            return this;
        }

        /**
         * Sets where futures complete and callbacks run, instead of the thread of the context.
         *
         * @param executor such as one of virtual threads; if it rejects a task, the thread of the context runs it
         * @return this builder
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} if the executor is null
         */
        public Builder executor(Executor executor) {
            if (executor == null) {
                throw new MisuseException("", "the executor of a context must not be null");
            }
            this.executor = executor;
            return this;
        }

        /**
         * Sets what receives the exceptions of callbacks.
         *
         * @param onFailure receives the name of the PV and the exception, on the thread of the callback; unless set, they are
         *     logged by {@link System.Logger} under the name of this package
         * @return this builder
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} if it is null
         */
        public Builder onCallbackFailure(BiConsumer<String, Throwable> onFailure) {
            if (onFailure == null) {
                throw new MisuseException("", "the receiver of callbacks' exceptions must not be null");
            }
            this.onFailure = onFailure;
            return this;
        }

        /**
         * Creates the context.
         *
         * @return a new context
         * @roundTrips none
         * @thread any; the first context of the process loads the native library
         * @blocks never
         * @bounds as {@link Context#Context()}
         * @fails as {@link Context#Context()}
         */
        public Context build() {
            return new Context(this);
        }
    }

    /**
     * A channel to a PV, with values of the PV's own type.
     *
     * @param name the name of the PV, also with {@code ca://} or {@code pva://} before it
     * @return a new channel; the client searches for the PV when the channel is first used
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds 300 bytes outside the heap
     * @fails {@link MisuseException} for an empty name, {@link ClosedException} after close
     */
    public Channel<Value> channel(String name) {
        return channel(name, Value.class, 0);
    }

    /**
     * A channel to a PV, with values of a type.
     *
     * @param <T> the type of the values
     * @param name the name of the PV, also with {@code ca://} or {@code pva://} before it
     * @param type {@link Double}, {@link Float}, {@link Long}, {@link Integer}, {@link Short}, {@link Byte}, {@link Boolean},
     *     {@link String}, an array of a primitive type of these or of texts, or {@link Value}
     * @return a new channel; the client searches for the PV when the channel is first used
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds 300 bytes outside the heap
     * @fails {@link MisuseException} for an empty name or another type, {@link ClosedException} after close
     */
    public <T> Channel<T> channel(String name, Class<T> type) {
        return channel(name, type, 0);
    }

    /**
     * A channel to a PV, on a connection of this priority.
     *
     * @param <T> the type of the values
     * @param name the name of the PV, also with {@code ca://} or {@code pva://} before it
     * @param type as in {@link #channel(String, Class)}
     * @param priority from 0 to 99; channels of one priority share a connection to their server
     * @return a new channel; the client searches for the PV when the channel is first used
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds 300 bytes outside the heap
     * @fails {@link MisuseException} for an empty name, another type or a priority out of range, {@link ClosedException}
     *     after close
     */
    public <T> Channel<T> channel(String name, Class<T> type, int priority) {
        ValueType<T> valueType = ValueType.of(type);
        return new Channel<>(this, name, valueType, channelHandle(name, priority));
    }

    /** Creates the native channel; the caller releases it. */
    long channelHandle(String name, int priority) {
        if (name == null || name.isEmpty()) {
            throw new MisuseException("", "the name of a PV must not be " + (name == null ? "null" : "empty"));
        }
        if (name.indexOf("://") > 0 && !name.startsWith("ca://") && !name.startsWith("pva://")) {
            throw new MisuseException(name, "the protocol before the name of a PV must be ca:// or pva://");
        }
        if (priority < 0 || priority > PRIORITY_MAX) {
            throw new MisuseException(name, "the priority must be between 0 and 99: " + priority);
        }
        try (Scratch scratch = library.scratch()) {
            scratch.text(name);
            int length =
                    natives().channelCreate(handle, priority, scratch.address(), scratch.written(), scratch.capacity());
            return library.codec().decoded(name, scratch.reply(length), Codec::handle);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Channels to many PVs that are connected, read or written together.
     *
     * @param <T> the type of the values
     * @param names the names of the PVs, in the order of the results; a name may occur twice
     * @param type as in {@link #channel(String, Class)}
     * @return the channels
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds 300 bytes outside the heap for each PV
     * @fails {@link MisuseException} for an empty name or another type, {@link ClosedException} after close
     */
    public <T> Channels<T> channels(List<String> names, Class<T> type) {
        return new Channels<>(this, names(names), ValueType.of(type));
    }

    /**
     * Monitors of many PVs, whose updates are taken together as rows of numbers.
     *
     * @param names the names of the PVs; their places are the indexes of the rows
     * @param options the options
     * @return the group; subscriptions start at once
     * @roundTrips none; afterwards one search, one connection for each server and one subscription for each PV
     * @thread any
     * @blocks never
     * @bounds as {@link GroupOptions} say
     * @fails {@link MisuseException} for an empty name and without options, {@link ClosedException} after close
     */
    public MonitorGroup monitorGroup(List<String> names, GroupOptions options) {
        if (options == null) {
            throw new MisuseException("", "the options of a group must not be null; use GroupOptions.defaults()");
        }
        return new MonitorGroup(this, names(names), options);
    }

    private static List<String> names(List<String> names) {
        if (names == null) {
            throw new MisuseException("", "the list of names must not be null");
        }
        List<String> copy = new ArrayList<>(names);
        if (copy.contains(null)) {
            throw new MisuseException("", "the name of a PV must not be null");
        }
        return java.util.Collections.unmodifiableList(copy);
    }

    /**
     * The next notice of this context, such as one PV name that two servers claim.
     *
     * @param timeout how long to wait; zero only looks
     * @return the text; empty if there was none in time
     * @roundTrips none
     * @thread any
     * @blocks for at most the timeout
     * @bounds the queue of notices is bounded by the native client
     * @fails {@link ClosedException} after close, {@link InterruptedCallException} on an interrupt
     */
    public Optional<String> nextNotice(Duration timeout) {
        try (Scratch scratch = library.scratch()) {
            Poll poll = pauseNs -> natives().noticeNext(handle, pauseNs, scratch.address(), scratch.capacity());
            return waitFor("", nanos("", timeout), scratch, poll, in -> switch (Codec.successTag(in)) {
                case Codec.TEXT -> Optional.of(Codec.text(in));
                case Codec.CLOSED -> throw new ClosedException("", "the context is closed", "", "create a new one");
                default -> null;
            }).orElse(Optional.empty());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Ends everything of this context: futures and blocking calls end with {@link ClosedException}, monitors receive {@link
     * Event.Closed}. A second call does nothing.
     *
     * @roundTrips none; servers are informed by the closing of connections
     * @thread any, also within a callback
     * @blocks never; the callback thread ends after what it does now
     * @bounds none
     * @fails never
     */
    @Override
    public void close() {
        isClosed = true;
        close(natives(), handle, callbacks.get());
        Reference.reachabilityFence(this);
    }

    private static void close(Native natives, long context, Callbacks callbacks) {
        natives.contextClose(context);
        if (callbacks != null) {
            callbacks.close();
        }
    }

    // For the other classes of this package.

    Library library() {
        return library;
    }

    Native natives() {
        return library.natives();
    }

    long handle() {
        return handle;
    }

    long timeoutNs() {
        return timeoutNs;
    }

    Executor executor() {
        return executor;
    }

    /** The queue and its thread, which are started by the first call. */
    Callbacks callbacks() {
        Callbacks started = callbacks.get();
        if (started != null) {
            return started;
        }
        synchronized (callbacks) {
            if (callbacks.get() == null) {
                callbacks.set(Callbacks.start(library, handle, onFailure));
            }
            if (isClosed) {
                // Closed meanwhile, perhaps before the queue was known.
                callbacks.get().close();
            }
            return callbacks.get();
        }
    }

    /** Reports what a callback has thrown where no callback thread runs. */
    void report(String pv, Throwable failure) {
        callbacks().report(pv, failure);
    }

    /** The default receiver of callbacks' exceptions. */
    static void logFailure(String pv, Throwable failure) {
        System.getLogger("io.github.fodopv")
                .log(System.Logger.Level.ERROR, pv.isEmpty() ? "a callback failed" : "a callback of \"" + pv + "\" failed", failure);
    }

    /** A time in nanoseconds. */
    static long nanos(String pv, Duration timeout) {
        if (timeout == null) {
            throw new MisuseException(pv, "a timeout must not be null; leave it out for that of the context");
        }
        if (timeout.isNegative()) {
            throw new MisuseException(pv, "a timeout must not be negative: " + timeout);
        }
        return timeout.getSeconds() > Long.MAX_VALUE / 2_000_000_000 ? Long.MAX_VALUE : timeout.toNanos();
    }

    static void failIfInterrupted(String pv) {
        if (Thread.currentThread().isInterrupted()) {
            throw interrupted(pv);
        }
    }

    static InterruptedCallException interrupted(String pv) {
        return new InterruptedCallException(pv, "the thread was interrupted while it waited");
    }

    /**
     * The reply of an operation, for which the calling thread waits.
     *
     * @param length what the call that started the operation has returned
     * @param startedNs when it began
     */
    ByteBuffer ended(Scratch scratch, int length, String pv, long startedNs, long timeoutNs) {
        ByteBuffer in = scratch.reply(length);
        if (in.get(0) != Codec.PENDING) {
            return in;
        }
        long operation = in.getLong(1);
        try {
            do {
                failIfInterrupted(pv);
                long waitedNs = System.nanoTime() - startedNs;
                boolean isLate = waitedNs >= timeoutNs;
                long pauseNs = isLate ? 0 : Math.min(PAUSE_NS, timeoutNs - waitedNs);
                scratch.clear();
                in = scratch.reply(natives().await(
                        operation, pauseNs, isLate ? waitedNs : -1, scratch.address(), scratch.capacity()));
            } while (in.get(0) == Codec.PENDING);
            return in;
        } finally {
            natives().release(operation);
        }
    }

    /** A native call that waits for at most this time. */
    interface Poll {
        int call(long pauseNs);
    }

    /** Reads a reply; {@code null}: nothing was received. */
    interface Taken<R> {
        R read(ByteBuffer in);
    }

    /** Repeats a native call until it has received something; empty if the time is over before. */
    <R> Optional<R> waitFor(String pv, long timeoutNs, Scratch scratch, Poll poll, Taken<R> taken) {
        boolean isVirtual = Library.isVirtualThread();
        long startedNs = System.nanoTime();
        long leftNs = timeoutNs;
        while (true) {
            long pauseNs = isVirtual ? 0 : Math.min(PAUSE_NS, leftNs);
            R result = library.codec().decoded(pv, scratch.clear().reply(poll.call(pauseNs)), taken::read);
            if (result != null) {
                return Optional.of(result);
            }
            leftNs = timeoutNs - (System.nanoTime() - startedNs);
            if (leftNs <= 0) {
                return Optional.empty();
            }
            failIfInterrupted(pv);
            if (isVirtual) {
                // A native wait would hold the carrier of the virtual thread.
                LockSupport.parkNanos(Math.min(VIRTUAL_PAUSE_NS, leftNs));
            }
        }
    }

    /** The result of a future with this timeout, for which a virtual thread waits. */
    static <R> R join(String pv, CompletableFuture<R> future, long timeoutNs) {
        try {
            return future.get(Math.min(timeoutNs, Long.MAX_VALUE - JOIN_MARGIN_NS) + JOIN_MARGIN_NS, TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            future.cancel(false);
            throw new NoAnswerException(
                    pv, "the operation has not ended in time: a callback keeps the thread fodo-callbacks busy", "", "");
        } catch (InterruptedException e) {
            future.cancel(false);
            Thread.currentThread().interrupt();
            throw interrupted(pv);
        } catch (java.util.concurrent.ExecutionException e) {
            if (e.getCause() instanceof PvException failure) {
                throw failure;
            }
            throw new SystemException(pv, "the operation has failed: " + e.getCause());
        }
    }
}
