package io.github.fodopv;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * Monitors of many PVs, whose updates are taken together as rows of numbers: one native call serves thousands of them.
 */
public final class MonitorGroup implements AutoCloseable {
    private static final ValueType<Double> NUMBER = ValueType.of(Double.class);

    private final Context context;
    private final List<String> names;
    private final long handle;

    MonitorGroup(Context context, List<String> names, GroupOptions options) {
        this.context = context;
        this.names = names;
        int window = options.window() == null ? -1 : options.window();
        try (Scratch scratch = context.library().scratch()) {
            int length = natives().groupCreate(context.handle(), Masks.bits(options.mask()), options.rowsMax(), window,
                    scratch.address(), scratch.capacity());
            handle = decoded(scratch, length);
        }
        // From here on the group is closed with this object, also if a PV cannot be added.
        context.library().releaseWith(this, handle);
        try {
            names.forEach(this::add);
        } catch (PvException e) {
            close();
            throw e;
        } finally {
            Reference.reachabilityFence(context);
        }
    }

    private void add(String name) {
        long channel = context.channelHandle(name, 0);
        try (Scratch scratch = context.library().scratch()) {
            decoded(scratch, natives().groupAdd(handle, channel, scratch.address(), scratch.capacity()));
        } finally {
            natives().release(channel);
        }
    }

    private long decoded(Scratch scratch, int length) {
        return context.library().codec().decoded("", scratch.reply(length), Codec::handle);
    }

    private Native natives() {
        return context.natives();
    }

    /**
     * Memory for rows.
     *
     * @param capacity how many rows have place, from 1 on
     * @return memory of 32 bytes for each row, outside the heap
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds the limit of the process for memory outside the heap
     * @fails {@link MisuseException} for a capacity out of range
     */
    public GroupRows rows(int capacity) {
        return new GroupRows(context.library(), capacity);
    }

    /**
     * Waits for updates or changes of connections, and takes all that have place.
     *
     * @param into receives them in place of what it had; the rest is received by the next call
     * @param timeout how long to wait; zero only looks
     * @return whether there were any
     * @roundTrips none
     * @thread any, one at a time
     * @blocks until there are any, for at most the timeout
     * @bounds {@link GroupOptions#rowsMax()}; beyond it rows are merged and counted
     * @fails {@link ClosedException} after close when all is taken, {@link InterruptedCallException} on an interrupt, {@link
     *     MisuseException} for null
     */
    public boolean take(GroupRows into, Duration timeout) {
        if (into == null) {
            throw new MisuseException("", "the rows to fill must not be null; create them by rows(capacity)");
        }
        long timeoutNs = Context.nanos("", timeout);
        into.clear();
        try (Scratch scratch = context.library().scratch()) {
            Context.Poll poll = pauseNs -> natives().groupTake(
                    handle, pauseNs, into.address(), into.capacity(), scratch.address(), scratch.capacity());
            return context.waitFor("", timeoutNs, scratch, poll, in -> read(in, into)).isPresent();
        } finally {
            Reference.reachabilityFence(into);
            Reference.reachabilityFence(this);
        }
    }

    private GroupRows read(ByteBuffer in, GroupRows into) {
        if (Codec.successTag(in) == Codec.CLOSED) {
            throw closed();
        }
        int rows = in.getInt();
        boolean isClosed = in.get() != 0;
        int count = Codec.count(in, 17);
        if (rows == 0 && count == 0) {
            if (isClosed) {
                throw closed();
            }
            return null;
        }
        if (rows < 0 || rows > into.capacity()) {
            throw Codec.malformed(rows + " rows where " + into.capacity() + " have place");
        }
        List<GroupChange> changes = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            changes.add(change(in));
        }
        into.filled(rows, changes);
        return into;
    }

    private GroupChange change(ByteBuffer in) {
        int index = in.getInt();
        int atRow = in.getInt();
        long merged = Integer.toUnsignedLong(in.getInt());
        int bytes = Codec.count(in, 1);
        int end = in.position() + bytes;
        String name = names.get(index);
        Event<Double> event = context.library().codec().event(name, NUMBER, in);
        in.position(end);
        return new GroupChange(index, name, atRow, merged, event);
    }

    private static ClosedException closed() {
        return new ClosedException("", "the group of monitors is closed; create a new one");
    }

    /**
     * The counters of this group.
     *
     * @return the counters at this moment; after close those of what was received until then
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public GroupCounts counts() {
        try (Scratch scratch = context.library().scratch()) {
            int length = natives().groupCounts(handle, scratch.address(), scratch.capacity());
            return context.library().codec().decoded("", scratch.reply(length), Codec::groupCounts);
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    /**
     * The name of a PV.
     *
     * @param index its index in the group, as rows have it
     * @return the name
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link IndexOutOfBoundsException} if there is no such PV
     */
    public String name(int index) {
        return names.get(index);
    }

    /**
     * How many PVs the group has.
     *
     * @return the number, also of those that were removed
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public int size() {
        return names.size();
    }

    /**
     * Ends the subscription to one PV; its rows that wait are dropped and counted. Other indexes stay.
     *
     * @param index its index in the group
     * @roundTrips none; the server is informed without a reply
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link IndexOutOfBoundsException} if there is no such PV
     */
    public void remove(int index) {
        natives().groupRemove(handle, java.util.Objects.checkIndex(index, names.size()));
        Reference.reachabilityFence(this);
    }

    /**
     * Ends all subscriptions. A second call does nothing.
     *
     * @roundTrips none; servers are informed without a reply
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    @Override
    public void close() {
        natives().groupClose(handle);
        Reference.reachabilityFence(this);
    }
}
