package io.github.fodopv;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BiConsumer;
import java.util.function.Consumer;

/** The thread that takes the requests to one server or IOC from their native queue, and calls the handlers of the program. */
final class HandlerThread {
    private static final System.Logger LOG = System.getLogger("io.github.fodopv");

    /** How long one call waits for a request; the close of the queue ends it. */
    private static final long PAUSE_NS = TimeUnit.SECONDS.toNanos(1);
    /** Requests that are with an executor; the queue of an executor may have no bound. */
    private static final int WITH_EXECUTOR_MAX = 1000;
    /** How often a wait for the executor looks whether the server was closed. */
    private static final long EXECUTOR_PAUSE_MS = 100;
    /** How long a handler has to return when its server is closed. */
    private static final long CLOSE_MS = 5000;

    private static final int PUT = 30;
    private static final int CALL = 31;
    private static final int OUTPUT = 32;
    private static final int LINE = 33;

    private final Executor executor;
    private final BiConsumer<? super String, ? super Throwable> onFailure;
    private final Map<Long, Target> targets = new ConcurrentHashMap<>();
    private final Semaphore withExecutor = new Semaphore(WITH_EXECUTOR_MAX);
    private final CountDownLatch closed = new CountDownLatch(1);
    private final AtomicLong failed = new AtomicLong();
    private NativeObject queue;
    private Thread thread;
    private volatile String busy = "";

    /** A PV or an output, with the handlers of its requests. */
    private record Target(String name, SharedPv pv, Consumer<? super PutRequest> onPut) {
    }

    /** @param executor may be null, as may onFailure */
    HandlerThread(Executor executor, BiConsumer<? super String, ? super Throwable> onFailure) {
        this.executor = executor;
        this.onFailure = onFailure;
    }

    /** The handlers of a PV. */
    void add(long token, String name, SharedPv pv) {
        targets.put(token, new Target(name, pv, pv.onPut));
    }

    /** The handler of an output. */
    void add(long token, String name, Consumer<? super PutRequest> onPut) {
        targets.put(token, new Target(name, null, onPut));
    }

    void remove(long token) {
        targets.remove(token);
    }

    long failed() {
        return failed.get();
    }

    void setQueue(long handle) {
        queue = new NativeObject(handle);
    }

    /** Starts the thread, unless it runs or the server is closed. */
    synchronized void start() {
        if (thread == null && closed.getCount() > 0) {
            thread = new Thread(this::run, "fodo-server");
            thread.setDaemon(true);
            thread.start();
        }
    }

    boolean isCurrent() {
        return Thread.currentThread() == thread;
    }

    /** The queue is closed: waits for the server end, and requests that are with an executor are refused. */
    void end() {
        closed.countDown();
    }

    /** Waits for the thread, whose queue is closed, unless this is it. An interrupt does not end the wait. */
    void close() {
        end();
        Thread ending;
        synchronized (this) {
            ending = thread;
        }
        if (ending == null || ending == Thread.currentThread()) {
            return;
        }
        boolean isInterrupted = false;
        long start = System.nanoTime();
        long leftMs = CLOSE_MS;
        while (leftMs > 0 && ending.isAlive()) {
            try {
                ending.join(leftMs);
            } catch (InterruptedException e) {
                isInterrupted = true;
            }
            leftMs = CLOSE_MS - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
        if (ending.isAlive()) {
            LOG.log(System.Logger.Level.ERROR, "the server is closed, but the handler of \"{0}\" has not returned", busy);
        }
    }

    boolean await(Duration timeout) {
        try {
            return closed.await(timeout.toNanos(), TimeUnit.NANOSECONDS);
        } catch (ArithmeticException e) {
            // Longer than 292 years.
            return await(Duration.ofNanos(Long.MAX_VALUE));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedCallException("", "the wait for the end of the server was interrupted");
        }
    }

    private void run() {
        Library library = Library.get();
        try (Scratch scratch = library.ownScratch(Scratch.BYTES)) {
            while (true) {
                int length = queue.with(handle ->
                        ServerCalls.NATIVE.next(handle, PAUSE_NS, scratch.clear().address(), scratch.capacity()));
                ByteBuffer in = scratch.reply(length);
                int tag = in.get();
                if (tag == Codec.CLOSED) {
                    return;
                }
                if (tag != Codec.NOTHING) {
                    handle(library.codec(), tag, in);
                    // An interrupt is for the handler that ran; it must not end waits of the next one.
                    Thread.interrupted();
                }
            }
        }
    }

    /** Decodes a task and has its handler called. Not even an error may end the thread. */
    private void handle(Codec codec, int tag, ByteBuffer in) {
        String name = "";
        try {
            if (tag == LINE) {
                int level = in.get();
                LOG.log(level == 0 ? System.Logger.Level.ERROR
                        : level == 1 ? System.Logger.Level.WARNING : System.Logger.Level.INFO, Codec.text(in));
                return;
            }
            Target target = targets.get(in.getLong());
            NativeObject request = new NativeObject(in.getLong());
            if (target == null) {
                // Its name was removed; the request is refused when it is unreachable, but now is better.
                refuse(request, "the PV was removed from the server");
                return;
            }
            name = target.name;
            pass(name, request, task(codec, tag, in, target, request));
        } catch (Throwable error) {
            failed.incrementAndGet();
            report(name, error);
        }
    }

    private Runnable task(Codec codec, int tag, ByteBuffer in, Target target, NativeObject request) {
        if (tag == OUTPUT) {
            boolean hasPrevious = in.get() != 0;
            Value value = codec.value(in);
            Value previous = hasPrevious ? codec.value(in) : null;
            PutRequest put = PutRequest.ofRecord(target.name, value, previous, request);
            return () -> callPut(target, put, request);
        }
        String name = Codec.text(in);
        String user = Codec.text(in);
        String host = Codec.text(in);
        String address = Codec.text(in);
        // Whether a value or a structure follows.
        in.get();
        if (tag == PUT) {
            PutRequest put = PutRequest.ofClient(name, codec.value(in), user, host, address, target.pv, request);
            return () -> callPut(target, put, request);
        }
        if (tag != CALL) {
            throw Codec.malformed("the tag " + tag + " instead of a request");
        }
        CallRequest call = new CallRequest(name, codec.structure(in), user, host, address);
        return () -> callProcedure(target, call, request);
    }

    /** Runs the task here or with the executor. */
    private void pass(String name, NativeObject request, Runnable task) {
        if (executor == null) {
            task.run();
            return;
        }
        if (!acquired()) {
            refuse(request, "the server is stopping");
            return;
        }
        try {
            executor.execute(() -> {
                try {
                    task.run();
                } finally {
                    withExecutor.release();
                }
            });
        } catch (Throwable error) {
            withExecutor.release();
            failed.incrementAndGet();
            refuse(request, "the executor of the server has rejected the request");
            report(name, error);
        }
    }

    /** Waits until the executor may have one more request; false if the server is closed before. */
    private boolean acquired() {
        try {
            while (closed.getCount() > 0) {
                if (withExecutor.tryAcquire(EXECUTOR_PAUSE_MS, TimeUnit.MILLISECONDS)) {
                    return true;
                }
            }
        } catch (InterruptedException e) {
            // Only a handler could do this to its thread, and an executor runs handlers elsewhere.
            return false;
        }
        return false;
    }

    private void callPut(Target target, PutRequest put, NativeObject request) {
        if (closed.getCount() == 0) {
            refuse(request, "the server is stopping");
            return;
        }
        busy = target.name;
        try {
            target.onPut.accept(put);
            put.returned();
        } catch (Throwable error) {
            // Counted first, so that a client which is refused finds the count.
            failed.incrementAndGet();
            put.refuse(reason(error));
            report(target.name, error);
        }
    }

    private void callProcedure(Target target, CallRequest call, NativeObject request) {
        busy = target.name;
        try {
            Value.Structure result = target.pv.onCall.apply(call);
            request.with(handle -> ServerCalls.end(
                    handle,
                    result == null ? NativeServer.END_COMPLETE : NativeServer.END_RESULT,
                    out -> {
                        if (result != null) {
                            ServerCalls.value(out, result);
                        }
                    }));
        } catch (Throwable error) {
            // Counted first, so that a client which is refused finds the count.
            failed.incrementAndGet();
            refuse(request, reason(error));
            report(target.name, error);
        }
    }

    private static void refuse(NativeObject request, String reason) {
        request.with(handle -> ServerCalls.end(handle, NativeServer.END_REFUSE, out -> out.text(reason)));
    }

    /** What a client receives. */
    private static String reason(Throwable error) {
        String message = error instanceof PvException known ? known.reason() : error.getMessage();
        return message == null || message.isEmpty() ? error.getClass().getSimpleName() : message;
    }

    private void report(String name, Throwable error) {
        if (onFailure == null) {
            LOG.log(System.Logger.Level.ERROR, "the handler of \"" + name + "\" has failed", error);
            return;
        }
        try {
            onFailure.accept(name, error);
        } catch (Throwable second) {
            LOG.log(System.Logger.Level.ERROR, "the handler of failures has failed for \"" + name + "\"", second);
        }
    }
}
