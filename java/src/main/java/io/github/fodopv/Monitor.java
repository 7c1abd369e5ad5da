package io.github.fodopv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;

/**
 * A subscription to a PV, which lasts until it is closed: it is repeated after each connection.
 *
 * @param <T> the type of the values
 */
public final class Monitor<T> implements AutoCloseable {
    /** A task takes at most this many events, so that other monitors have their turn. */
    static final int EVENTS_MAX = 64;
    /**
     * The pause of a delivery after an error. An error that persists, such as a lack of memory, then costs little and is
     * reported at most 100 times per second, and events are hardly late when it ends.
     */
    private static final long ERROR_PAUSE_MS = 10;

    // The modes of the native library.
    private static final int EVENTS_IN_QUEUE = 0;
    private static final int READY_IN_QUEUE = 1;
    private static final int NO_QUEUE = 2;

    private final Channel<T> channel;
    /** {@code null} without a callback. */
    private final Delivery<T> delivery;
    private final long handle;
    /** Whether the last event was taken; only without a callback. */
    private volatile boolean isEnded;

    private Monitor(Channel<T> channel, MonitorOptions options, Delivery<T> delivery, int mode) {
        this.channel = channel;
        this.delivery = delivery;
        Context context = channel.context();
        long queue = delivery == null ? 0 : context.callbacks().queue();
        long token = delivery == null ? 0 : delivery.token;
        try (Scratch scratch = context.library().scratch()) {
            options.write(scratch, channel.type());
            int length = context.natives().monitorStart(
                    channel.handle(), queue, token, mode, scratch.address(), scratch.written(), scratch.capacity());
            handle = context.library().codec().decoded(channel.name(), scratch.reply(length), Codec::handle);
        } finally {
            Reference.reachabilityFence(channel);
        }
        context.library().releaseWith(this, handle);
    }

    static <T> Monitor<T> withoutCallback(Channel<T> channel, MonitorOptions options) {
        return new Monitor<>(channel, options, null, NO_QUEUE);
    }

    static <T> Monitor<T> withCallback(Channel<T> channel, MonitorOptions options, Consumer<? super Event<T>> on) {
        Executor executor = options.executor() != null ? options.executor() : channel.context().executor();
        Delivery<T> delivery =
                executor == null ? new Delivery<>(channel, on) : new TaskDelivery<>(channel, on, executor);
        return started(channel, options, delivery, executor == null ? EVENTS_IN_QUEUE : READY_IN_QUEUE);
    }

    /** A monitor whose events are taken by this delivery when the queue reports it. */
    static <T> Monitor<T> withDelivery(Channel<T> channel, MonitorOptions options, Delivery<T> delivery) {
        return started(channel, options, delivery, READY_IN_QUEUE);
    }

    private static <T> Monitor<T> started(Channel<T> channel, MonitorOptions options, Delivery<T> delivery, int mode) {
        Callbacks callbacks = channel.context().callbacks();
        delivery.token = callbacks.add(delivery);
        try {
            Monitor<T> monitor = new Monitor<>(channel, options, delivery, mode);
            delivery.started(monitor);
            return monitor;
        } catch (RuntimeException e) {
            callbacks.remove(delivery.token);
            throw e;
        }
    }

    /**
     * Waits for the next event; only of a monitor without a callback.
     *
     * @param timeout how long to wait; zero only looks
     * @return the event; {@code null} if there was none in time; after the last one {@link Event.Closed} again
     * @roundTrips none
     * @thread any; of several threads that wait, each event reaches one
     * @blocks until the next event, for at most the timeout
     * @bounds {@link MonitorOptions#queueMax()}
     * @fails {@link MisuseException} for a monitor with a callback, {@link InterruptedCallException} on an interrupt
     */
    public Event<T> next(Duration timeout) {
        String pv = channel.name();
        long timeoutNs = Context.nanos(pv, timeout);
        if (delivery != null) {
            throw new MisuseException(pv, "the events of this monitor are passed to its callback; create one without");
        }
        Context context = channel.context();
        try (Scratch scratch = context.library().scratch()) {
            Context.Poll poll = pauseNs ->
                    context.natives().monitorNext(handle, pauseNs, scratch.address(), scratch.capacity());
            return context.<Event<T>>waitFor(pv, timeoutNs, scratch, poll, this::readEvent).orElse(null);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private Event<T> readEvent(ByteBuffer in) {
        int tag = in.get(0);
        if (tag == Codec.ERROR) {
            in.get();
            PvException error = Codec.error(channel.name(), in);
            if (!(error instanceof ClosedException)) {
                throw error;
            }
            isEnded = true;
        }
        if (isEnded) {
            return new Event.Closed<>();
        }
        if (tag == Codec.NOTHING) {
            return null;
        }
        Event<T> event = channel.context().library().codec().event(channel.name(), channel.type(), in);
        isEnded = event instanceof Event.Closed;
        return event;
    }

    /**
     * The counters of this monitor.
     *
     * @return the counters at this moment; after close those at that moment
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public MonitorCounts counts() {
        Context context = channel.context();
        try (Scratch scratch = context.library().scratch()) {
            int length = context.natives().monitorCounts(handle, scratch.address(), scratch.capacity());
            return context.library().codec().decoded(channel.name(), scratch.reply(length), Codec::monitorCounts);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * How many calls of the callback have thrown an exception, and how many tasks the executor has rejected or not started.
     * Exceptions are also reported to the context; the events of such a task are passed on all the same.
     *
     * @return the number
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public long callbackFailures() {
        return delivery == null ? 0 : delivery.nFailures;
    }

    /**
     * Ends the subscription. Events that wait are dropped; a callback that another thread has begun or is about to begin is the
     * last one. A second call does nothing.
     *
     * @roundTrips none; the server is informed without a reply
     * @thread any, also within the callback
     * @blocks never
     * @bounds none
     * @fails never
     */
    @Override
    public void close() {
        if (delivery != null) {
            delivery.isClosed = true;
            channel.context().callbacks().remove(delivery.token);
        }
        channel.context().natives().monitorClose(handle);
        Reference.reachabilityFence(this);
    }

    /** Passes the events of at most one task on; returns how many there were. */
    int take(int eventsMax, Consumer<Event<T>> on) {
        Context context = channel.context();
        try (Scratch scratch = context.library().scratch()) {
            int length = context.natives().monitorTake(handle, eventsMax, scratch.address(), scratch.capacity());
            ByteBuffer in = scratch.reply(length);
            if (in.get() != Codec.LIST) {
                // Closed meanwhile.
                return 0;
            }
            int count = Codec.count(in, 5);
            for (int i = 0; i < count; i++) {
                int bytes = Codec.count(in, 1);
                int end = in.position() + bytes;
                int limit = in.limit();
                on.accept(decoded(channel, in.limit(end)));
                in.limit(limit).position(end);
            }
            return count;
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /** An event; one that cannot be decoded is an event with the error. */
    private static <T> Event<T> decoded(Channel<T> channel, ByteBuffer in) {
        Codec codec = channel.context().library().codec();
        try {
            return codec.decoded(channel.name(), in, reply -> codec.event(channel.name(), channel.type(), reply));
        } catch (PvException e) {
            return new Event.WrongReply<>(e);
        } catch (Throwable e) {
            // Such as no memory for an array; the other events are passed on.
            return new Event.WrongReply<>(new SystemException(channel.name(), "an event cannot be decoded: " + e));
        }
    }

    /** Passes events to a callback on the callback thread. */
    static class Delivery<T> implements Sink {
        final Channel<T> channel;
        private final Consumer<? super Event<T>> on;
        private long token;
        /** Kept reachable until it is closed, also if the caller drops it. */
        private volatile Monitor<T> monitor;
        private volatile boolean isClosed;
        /** Written by the thread of the callback, of which there is one at a time. */
        private volatile long nFailures;

        Delivery(Channel<T> channel, Consumer<? super Event<T>> on) {
            this.channel = channel;
            this.on = on;
        }

        /** The native subscription has started. */
        void started(Monitor<T> monitor) {
            this.monitor = monitor;
        }

        /** {@code null} before the native subscription has started. */
        final Monitor<T> monitor() {
            return monitor;
        }

        @Override
        public boolean isOnce() {
            return false;
        }

        @Override
        public void accept(ByteBuffer in) {
            deliver(decoded(channel, in));
        }

        @Override
        public void closed() {
            deliver(new Event.Closed<>());
        }

        boolean isClosed() {
            return isClosed;
        }

        /** Called by the thread of the callback. */
        final void countFailure() {
            nFailures = nFailures + 1;
        }

        void deliver(Event<T> event) {
            if (isClosed) {
                return;
            }
            if (event instanceof Event.Closed) {
                isClosed = true;
                channel.context().callbacks().remove(token);
            }
            try {
                on.accept(event);
            } catch (Throwable e) {
                countFailure();
                channel.context().report(channel.name(), e);
            }
        }
    }

    /** Passes events to a callback in tasks of an executor, one at a time, so that their order holds. */
    static class TaskDelivery<T> extends Delivery<T> implements Runnable {
        /** {@code null}: tasks run where events are reported. */
        private final Executor executor;
        /** How often the queue has reported events since the last task has ended; not 0 while a task runs or waits. */
        private final AtomicInteger reports = new AtomicInteger();
        /** The thread that passes a task to the executor. */
        private final AtomicReference<Thread> executing = new AtomicReference<>();
        /** The thread within whose task the executor has called the next one. */
        private volatile Thread nested;
        private volatile boolean isEnded;

        TaskDelivery(Channel<T> channel, Consumer<? super Event<T>> on, Executor executor) {
            super(channel, on);
            this.executor = executor;
        }

        @Override
        void started(Monitor<T> monitor) {
            super.started(monitor);
            report();
        }

        @Override
        public void accept(ByteBuffer in) {
            report();
        }

        @Override
        public void closed() {
            isEnded = true;
            report();
        }

        /** Starts a task unless one runs, which then looks again. */
        final void report() {
            if (reports.getAndIncrement() == 0 && !isAccepted()) {
                run();
            }
        }

        /**
         * Passes a task to the executor. If it rejects it, or would run it within this call, the events are passed on by the
         * caller: nothing is lost, and the stack does not grow.
         */
        private boolean isAccepted() {
            if (executor == null) {
                return false;
            }
            Thread thread = Thread.currentThread();
            nested = null;
            executing.set(thread);
            try {
                executor.execute(this);
                return nested != thread;
            } catch (Throwable e) {
                // Rejected, or the executor cannot start a thread.
                countFailure();
                return false;
            } finally {
                // Another thread may run the task already, and pass on the next one.
                executing.compareAndSet(thread, null);
            }
        }

        @Override
        public void run() {
            Thread thread = Thread.currentThread();
            if (executing.get() == thread) {
                nested = thread;
                return;
            }
            do {
                int before = reports.get();
                if (!deliverSome() && reports.addAndGet(-before) == 0) {
                    return;
                }
            } while (!isAccepted());
        }

        /** Passes some events on; returns whether there may be more. Not even an error may end the delivery. */
        private boolean deliverSome() {
            try {
                return deliverTaken();
            } catch (Throwable e) {
                countFailure();
                channel.context().report(channel.name(), e);
                pause();
                return true;
            }
        }

        /** Waits for {@link #ERROR_PAUSE_MS}, also if the thread is interrupted, which it stays. */
        private static void pause() {
            boolean isInterrupted = Thread.interrupted();
            try {
                Thread.sleep(ERROR_PAUSE_MS);
            } catch (InterruptedException e) {
                isInterrupted = true;
            }
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }

        private boolean deliverTaken() {
            Monitor<T> from = monitor();
            beforeTake();
            int max = eventsMax();
            if (isClosed() || from == null || max == 0) {
                return false;
            }
            int taken = from.take(max, this::deliver);
            if (isEnded && taken == 0) {
                deliver(new Event.Closed<>());
            }
            return taken == max;
        }

        /** What a task does before it takes events. */
        void beforeTake() {
        }

        /** How many events may be passed on now. */
        int eventsMax() {
            return EVENTS_MAX;
        }

        /** Whether the context was closed, so that no events follow those that wait. */
        final boolean isEnded() {
            return isEnded;
        }
    }
}
