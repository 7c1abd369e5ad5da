package io.github.fodopv;

import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.concurrent.Flow;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/** A publisher of the events of a PV, with a monitor for each subscriber. */
final class EventPublisher<T> implements Flow.Publisher<Event<T>> {
    private final Channel<T> channel;
    private final MonitorOptions options;

    EventPublisher(Channel<T> channel, MonitorOptions options) {
        this.channel = channel;
        this.options = options;
    }

    /**
     * Starts a monitor for a subscriber.
     *
     * @roundTrips none; afterwards one to subscribe
     * @thread any; the subscriber is called on it first
     * @blocks never
     * @bounds {@link MonitorOptions#queueMax()}
     * @fails {@link NullPointerException} without a subscriber; other failures are passed to the subscriber
     */
    @Override
    public void subscribe(Flow.Subscriber<? super Event<T>> subscriber) {
        Objects.requireNonNull(subscriber, "a publisher needs a subscriber");
        Demand<T> demand = new Demand<>(channel, subscriber, executor());
        subscriber.onSubscribe(demand);
        try {
            if (!demand.isCancelled) {
                Monitor.withDelivery(channel, options, demand);
            }
        } catch (PvException e) {
            demand.fail(e);
        }
    }

    /** Without an executor, signals are sent where events are reported or requested. */
    private Executor executor() {
        if (options.executor() != null) {
            return options.executor();
        }
        return channel.context().executor();
    }

    /** The subscription of one subscriber: takes as many events as were requested. */
    private static final class Demand<T> extends Monitor.TaskDelivery<T> implements Flow.Subscription {
        private final Flow.Subscriber<? super Event<T>> subscriber;
        private final AtomicLong requested = new AtomicLong();
        private volatile boolean isCancelled;
        /** What the subscriber receives instead of further events. */
        private volatile Throwable failure;
        /** Taken to learn whether events wait; passed on at the next request. {@code null} if there is none. Only for tasks. */
        private Event<T> kept;

        Demand(Channel<T> channel, Flow.Subscriber<? super Event<T>> subscriber, Executor executor) {
            this(channel, subscriber, executor, new Signals<>());
        }

        private Demand(
                Channel<T> channel, Flow.Subscriber<? super Event<T>> subscriber, Executor executor, Signals<T> signals) {
            super(channel, signals, executor);
            this.subscriber = subscriber;
            signals.demand = this;
        }

        private void signal(Event<T> event) {
            if (requested.get() != Long.MAX_VALUE) {
                requested.decrementAndGet();
            }
            try {
                subscriber.onNext(event);
            } catch (Throwable e) {
                // A subscriber that throws has cancelled, by the rules of reactive streams.
                cancel();
                throw e;
            }
            if (event instanceof Event.Closed) {
                complete();
            }
        }

        private void complete() {
            if (!isCancelled) {
                cancel();
                subscriber.onComplete();
            }
        }

        @Override
        void started(Monitor<T> monitor) {
            super.started(monitor);
            if (isCancelled) {
                monitor.close();
            }
        }

        @Override
        public void request(long n) {
            if (n <= 0) {
                fail(new IllegalArgumentException("a subscriber must request at least one event: " + n));
                return;
            }
            requested.accumulateAndGet(n, (before, more) -> before + more < 0 ? Long.MAX_VALUE : before + more);
            report();
        }

        @Override
        void beforeTake() {
            if (kept != null && failure == null && requested.get() > 0) {
                Event<T> event = kept;
                kept = null;
                deliver(event);
            }
            signalEnd();
        }

        /** Signals the end, which needs no request. */
        private void signalEnd() {
            if (isCancelled) {
                return;
            }
            Throwable failed = failure;
            if (failed != null) {
                cancel();
                subscriber.onError(failed);
            } else if (isEnded() && requested.get() == 0 && !hasWaiting()) {
                complete();
            }
        }

        @Override
        int eventsMax() {
            // A request of another thread reports, so that a task passes the kept event on first.
            return isCancelled || kept != null ? 0 : (int) Math.min(Monitor.EVENTS_MAX, requested.get());
        }

        /** Whether an event waits for a request. */
        private boolean hasWaiting() {
            Monitor<T> from = monitor();
            if (kept == null && from != null) {
                from.take(1, event -> kept = event);
            }
            return kept != null;
        }

        @Override
        public void cancel() {
            isCancelled = true;
            Monitor<T> monitor = monitor();
            if (monitor != null) {
                monitor.close();
            }
        }

        /** The failure is signalled where events are, after the one that is being signalled. */
        void fail(Throwable failure) {
            this.failure = failure;
            report();
        }
    }

    /** Passes events to the subscription, which the delivery needs before it exists. */
    private static final class Signals<T> implements Consumer<Event<T>> {
        private Demand<T> demand;

        @Override
        public void accept(Event<T> event) {
            demand.signal(event);
        }
    }
}
