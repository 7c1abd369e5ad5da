package io.github.fodopv;

import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.function.Function;

/** An operation whose end the callback thread receives. */
final class Pending<R> extends CompletableFuture<R> implements Sink {
    private final Codec codec;
    /** Kept reachable until the operation has ended. */
    private final Object owner;
    private final String pv;
    private final Function<ByteBuffer, R> decoder;
    /** Where the future completes; {@code null}: on the callback thread. */
    private final Executor executor;

    Pending(Codec codec, Object owner, String pv, Function<ByteBuffer, R> decoder, Executor executor) {
        this.codec = codec;
        this.owner = owner;
        this.pv = pv;
        this.decoder = decoder;
        this.executor = executor;
    }

    /** The native call that starts an operation. */
    interface Start {
        int call(long queue, long token, Scratch scratch);
    }

    /** Writes the input of an operation and starts it. */
    static <R> void start(Context context, Pending<R> pending, Channel.Input input, Start start) {
        try (Scratch scratch = context.library().scratch()) {
            input.write(scratch);
            Callbacks callbacks = context.callbacks();
            long token = callbacks.add(pending);
            ByteBuffer in = scratch.reply(start.call(callbacks.queue(), token, scratch));
            if (in.get(0) == Codec.ERROR) {
                callbacks.remove(token);
                pending.accept(in);
            }
        } catch (ClosedException e) {
            pending.completeExceptionally(e);
        }
    }

    @Override
    public boolean isOnce() {
        return true;
    }

    @Override
    public void accept(ByteBuffer in) {
        try {
            R result = codec.decoded(pv, in, decoder);
            end(() -> complete(result));
        } catch (Throwable e) {
            // Not even an error may leave the future open.
            end(() -> completeExceptionally(e));
        }
    }

    @Override
    public void closed() {
        end(() -> completeExceptionally(new ClosedException(pv, "the context is closed", "", "create a new one")));
    }

    private void end(Runnable completion) {
        if (executor == null) {
            completion.run();
            return;
        }
        try {
            executor.execute(completion);
        } catch (Throwable e) {
            // The executor rejects it, or cannot start a thread. The future must not stay open.
            completion.run();
        }
    }
}
