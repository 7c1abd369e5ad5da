package io.github.fodopv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.util.function.BiConsumer;

/**
 * The queue of a context, and the thread that drains it: {@code fodo-callbacks}. It does not keep the context reachable
 * unless an operation or a monitor does.
 */
final class Callbacks implements Runnable {
    /** At first one crossing takes about 100 results; most contexts never have more at once, and there may be thousands. */
    private static final int BUFFER_BYTES_MIN = Scratch.BYTES;
    /** About 4000 results, beyond which a crossing costs nothing beside them. */
    private static final int BUFFER_BYTES_MAX = 256 * 1024;
    /** Closing the queue ends the wait, so that this only bounds it. */
    private static final long PAUSE_NS = 10_000_000_000L;

    private static final ValueType<Value> ANY_TYPE = ValueType.of(Value.class);

    private final Library library;
    private final long queue;
    private final BiConsumer<String, Throwable> onFailure;
    private final SinkTable sinks = new SinkTable();

    private Callbacks(Library library, long queue, BiConsumer<String, Throwable> onFailure) {
        this.library = library;
        this.queue = queue;
        this.onFailure = onFailure;
    }

    /** Creates the queue of a context and starts its thread. */
    static Callbacks start(Library library, long context, BiConsumer<String, Throwable> onFailure) {
        long queue = library.natives().queueCreate(context);
        if (queue == 0) {
            throw new ClosedException("", "the context is closed", "", "create a new one");
        }
        Callbacks callbacks = new Callbacks(library, queue, onFailure);
        library.releaseWith(callbacks, queue);
        Thread thread = new Thread(callbacks, "fodo-callbacks");
        thread.setDaemon(true);
        thread.start();
        return callbacks;
    }

    long queue() {
        return queue;
    }

    /** The token by which native calls name this sink in the queue. */
    long add(Sink sink) {
        return sinks.add(sink);
    }

    void remove(long token) {
        sinks.remove(token);
    }

    /** Ends the thread after what it does now. */
    void close() {
        library.natives().queueClose(queue);
        Reference.reachabilityFence(this);
    }

    /** Reports what a callback has thrown. */
    void report(String pv, Throwable failure) {
        try {
            onFailure.accept(pv, failure);
        } catch (Throwable e) {
            // The default cannot fail, and a handler of the user must not end the thread.
            Context.logFailure(pv, e);
        }
    }

    @Override
    public void run() {
        Native natives = library.natives();
        try (Scratch scratch = library.ownScratch(BUFFER_BYTES_MIN)) {
            boolean isOpen = true;
            while (isOpen) {
                scratch.clear();
                int length = natives.queueDrain(queue, PAUSE_NS, scratch.address(), scratch.capacity());
                isOpen = dispatch(scratch.reply(length));
                boolean isFull = length < 0 || length > scratch.capacity() / 2;
                if (isFull && scratch.capacity() < BUFFER_BYTES_MAX) {
                    scratch.grow();
                }
            }
        } catch (Throwable e) {
            report("", e);
        } finally {
            sinks.close().forEach(this::closed);
            Reference.reachabilityFence(this);
        }
    }

    private void closed(Sink sink) {
        try {
            sink.closed();
        } catch (Throwable e) {
            report("", e);
        }
    }

    /** Passes the replies on; returns whether the queue is open. */
    private boolean dispatch(ByteBuffer in) {
        if (Codec.successTag(in) == Codec.CLOSED) {
            return false;
        }
        int count = Codec.count(in, 12);
        for (int i = 0; i < count; i++) {
            long token = in.getLong();
            int end = Codec.count(in, 1) + in.position();
            int limit = in.limit();
            Sink sink = sinks.take(token);
            try {
                if (sink != null) {
                    sink.accept(in.limit(end));
                } else if (in.get(in.position()) != Codec.READY) {
                    // An event of a monitor that was closed: its arrays are freed.
                    library.codec().event("", ANY_TYPE, in.limit(end));
                }
            } catch (Throwable e) {
                report("", e);
            }
            // An interrupt is for the callback that ran; it must not end waits of the next one.
            Thread.interrupted();
            in.limit(limit).position(end);
        }
        return true;
    }
}
