package io.github.fodopv;

import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Set;
import java.util.function.Consumer;

/**
 * The memory and the queue of the native library, in memory of Java: an address is the number of a buffer. Other functions are
 * set by the test.
 */
final class FakeNative {
    /** A native function, by its arguments. */
    interface Function {
        Object call(Object[] arguments);
    }

    private record Entry(long token, byte[] reply) {
    }

    private final Map<Long, ByteBuffer> memory = new HashMap<>();
    private final Set<Long> blocks = new HashSet<>();
    private final Map<String, Function> functions = new HashMap<>();
    private final Queue<Entry> queue = new ArrayDeque<>();
    private final List<Long> released = new ArrayList<>();
    private boolean isQueueClosed;
    private long next = 1;

    final Native natives = (Native) Proxy.newProxyInstance(
            FakeNative.class.getClassLoader(), new Class<?>[] {Native.class}, (proxy, method, arguments) ->
                    switch (method.getName()) {
                        case "address" -> add((ByteBuffer) arguments[0]);
                        case "view" -> at((Long) arguments[0]).slice(0, (int) (long) arguments[1]);
                        case "blockCreate" -> createBlock((int) (long) arguments[0]);
                        case "blockAddress" -> arguments[0];
                        case "blockBytes" -> (long) at((Long) arguments[0]).capacity();
                        case "release" -> {
                            release((Long) arguments[0]);
                            yield null;
                        }
                        case "queueDrain" -> drain((Long) arguments[2]);
                        case "queueClose" -> {
                            closeQueue();
                            yield null;
                        }
                        default -> function(method.getName()).call(arguments);
                    });

    FakeNative() {
        set("contextCreate", arguments -> reply(arguments[0], out -> out.put((byte) Codec.HANDLE).putLong(1000)));
        set("channelCreate", arguments -> reply(arguments[2], out -> out.put((byte) Codec.HANDLE).putLong(2000)));
        set("monitorStart", arguments -> reply(arguments[4], out -> out.put((byte) Codec.HANDLE).putLong(3000)));
        set("queueCreate", arguments -> 4000L);
        set("contextClose", arguments -> null);
        set("channelClose", arguments -> null);
        set("monitorClose", arguments -> null);
    }

    synchronized void set(String name, Function function) {
        functions.put(name, function);
    }

    synchronized Function function(String name) {
        Function function = functions.get(name);
        if (function == null) {
            throw new UnsupportedOperationException(name);
        }
        return function;
    }

    private synchronized ByteBuffer at(long address) {
        return memory.get(address);
    }

    /** Writes a reply to the buffer of a call; returns its length. */
    int reply(Object address, Consumer<ByteBuffer> writer) {
        ByteBuffer out = at((Long) address).duplicate().order(ByteOrder.nativeOrder()).clear();
        writer.accept(out);
        return out.position();
    }

    /** Adds a reply to the queue. */
    synchronized void push(long token, Consumer<ByteBuffer> writer) {
        ByteBuffer out = ByteBuffer.allocate(1024).order(ByteOrder.nativeOrder());
        writer.accept(out);
        queue.add(new Entry(token, java.util.Arrays.copyOf(out.array(), out.position())));
        notifyAll();
    }

    private synchronized int drain(long address) throws InterruptedException {
        while (queue.isEmpty() && !isQueueClosed) {
            wait(10_000);
        }
        if (isQueueClosed) {
            return reply(address, out -> out.put((byte) Codec.CLOSED));
        }
        return reply(address, out -> {
            out.put((byte) Codec.LIST).putInt(0);
            int count = 0;
            while (!queue.isEmpty() && out.position() < out.capacity() / 4 * 3) {
                Entry entry = queue.remove();
                out.putLong(entry.token).putInt(entry.reply.length).put(entry.reply);
                count++;
            }
            out.putInt(1, count);
        });
    }

    private synchronized void closeQueue() {
        isQueueClosed = true;
        notifyAll();
    }

    private synchronized long add(ByteBuffer buffer) {
        memory.put(next, buffer);
        return next++;
    }

    private synchronized long createBlock(int bytes) {
        long block = add(ByteBuffer.allocateDirect(bytes));
        blocks.add(block);
        return block;
    }

    private synchronized void release(long handle) {
        if (handle < 1000 && !blocks.remove(handle)) {
            throw new AssertionError("released twice: " + handle);
        }
        released.add(handle);
    }

    /** The bytes of all buffers that calls have used. */
    synchronized long bufferBytes() {
        return memory.entrySet().stream().filter(each -> !blocks.contains(each.getKey()))
                .mapToLong(each -> each.getValue().capacity()).sum();
    }

    /** How many blocks have not been released. */
    synchronized int blocks() {
        return blocks.size();
    }

    /** How often a handle was released. */
    synchronized long releases(long handle) {
        return released.stream().filter(each -> each == handle).count();
    }
}
