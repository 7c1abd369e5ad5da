package io.github.fodopv;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * The memory of one native call: its input is written at the beginning, its reply read from there.
 *
 * <p>Used by one thread at a time, in a {@code try} block, at the end of which it returns to the pool.
 */
final class Scratch implements AutoCloseable {
    /** The bytes of a buffer of the pool: an ordinary operation needs less. */
    static final int BYTES = 8 * 1024;

    private static final long NO_BLOCK = 0;

    private final Native natives;
    private final Pool pool;
    private ByteBuffer buffer;
    private long address;
    /** The block of a reply that is longer than the buffer. */
    private long replyBlock = NO_BLOCK;
    /** Blocks of the input. */
    private long[] blocks = {};
    private int blocksLength;

    Scratch(Native natives, Pool pool, int bytes) {
        this.natives = natives;
        this.pool = pool;
        allocate(bytes);
    }

    private void allocate(int bytes) {
        buffer = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder());
        address = natives.address(buffer);
    }

    /** Doubles the buffer, which is empty afterwards. */
    void grow() {
        clear();
        allocate(2 * buffer.capacity());
    }

    /** The address of the buffer. It changes when more is written than the buffer has left. */
    long address() {
        return address;
    }

    int capacity() {
        return buffer.capacity();
    }

    /** The bytes written so far, for a call that takes them and the memory of the blocks. */
    int written() {
        return buffer.position();
    }

    /** The buffer, for a write of this many bytes at its position. */
    ByteBuffer ensure(int bytes) {
        if (buffer.remaining() < bytes) {
            ByteBuffer before = buffer.flip();
            long needed = (long) before.limit() + bytes;
            if (needed > Integer.MAX_VALUE) {
                throw new MisuseException("", "one call can take at most 2147483647 bytes: " + needed);
            }
            allocate((int) Math.min(Math.max(needed, 2L * before.capacity()), Integer.MAX_VALUE));
            buffer.put(before);
        }
        return buffer;
    }

    Scratch u8(int value) {
        ensure(1).put((byte) value);
        return this;
    }

    Scratch i32(int value) {
        ensure(4).putInt(value);
        return this;
    }

    Scratch i64(long value) {
        ensure(8).putLong(value);
        return this;
    }

    Scratch text(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        ensure(4 + bytes.length).putInt(bytes.length).put(bytes);
        return this;
    }

    /** Creates a block of native memory and writes its address and its handle. Returns the memory. */
    ByteBuffer block(int bytes) {
        long block = natives.blockCreate(bytes);
        if (block == NO_BLOCK) {
            throw new SystemException("", "there is no memory for an array of " + bytes + " bytes");
        }
        if (blocksLength == blocks.length) {
            blocks = java.util.Arrays.copyOf(blocks, blocksLength + 4);
        }
        blocks[blocksLength++] = block;
        long start = natives.blockAddress(block);
        i64(start).i64(block);
        return natives.view(start, bytes).order(ByteOrder.nativeOrder());
    }

    /** The reply of a call that has returned this length. Valid until the next call or the end of the block. */
    ByteBuffer reply(int length) {
        releaseReply();
        if (length >= 0) {
            return buffer.limit(length).position(0);
        }
        replyBlock = buffer.getLong(0);
        long bytes = natives.blockBytes(replyBlock);
        if (bytes > Integer.MAX_VALUE) {
            throw new SystemException("", "the reply has more than 2147483647 bytes: " + bytes);
        }
        return natives.view(natives.blockAddress(replyBlock), bytes).order(ByteOrder.nativeOrder());
    }

    /** Begins a new input. */
    Scratch clear() {
        releaseReply();
        while (blocksLength > 0) {
            natives.release(blocks[--blocksLength]);
        }
        buffer.clear();
        return this;
    }

    private void releaseReply() {
        if (replyBlock != NO_BLOCK) {
            natives.release(replyBlock);
            replyBlock = NO_BLOCK;
        }
    }

    @Override
    public void close() {
        clear();
        if (buffer.capacity() == BYTES) {
            pool.put(this);
        }
    }

    /** Buffers that are not in use, for all threads of the process. */
    static final class Pool {
        /** As many threads as ordinarily call at one time; further ones allocate. */
        private static final int SLOTS = 16;

        private final AtomicReferenceArray<Scratch> slots = new AtomicReferenceArray<>(SLOTS);

        Scratch take(Native natives) {
            int start = slot();
            for (int i = 0; i < SLOTS; i++) {
                int slot = (start + i) % SLOTS;
                Scratch scratch = slots.get(slot) == null ? null : slots.getAndSet(slot, null);
                if (scratch != null) {
                    return scratch;
                }
            }
            return new Scratch(natives, this, BYTES);
        }

        private void put(Scratch scratch) {
            int start = slot();
            for (int i = 0; i < SLOTS; i++) {
                if (slots.compareAndSet((start + i) % SLOTS, null, scratch)) {
                    return;
                }
            }
        }

        /** Where a thread looks first, so that threads seldom meet. */
        private static int slot() {
            return (int) (Thread.currentThread().getId() % SLOTS);
        }
    }
}
