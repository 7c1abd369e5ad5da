package io.github.fodopv;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Objects;

/**
 * Updates of a group as rows of numbers, in memory outside the heap that {@link MonitorGroup#take} fills again and again. Used
 * by one thread at a time.
 */
public final class GroupRows {
    /** The bytes of a row. */
    static final int ROW_BYTES = 32;

    private final ByteBuffer rows;
    private final long address;
    private int size;
    private List<GroupChange> changes = List.of();

    GroupRows(Library library, int capacity) {
        if (capacity < 1 || capacity > Integer.MAX_VALUE / ROW_BYTES) {
            throw new MisuseException("", "the number of rows must be between 1 and 67108863: " + capacity);
        }
        rows = ByteBuffer.allocateDirect(capacity * ROW_BYTES).order(ByteOrder.nativeOrder());
        address = library.natives().address(rows);
    }

    /**
     * The number of rows that the last call has taken.
     *
     * @return the number
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public int size() {
        return size;
    }

    /**
     * How many rows have place.
     *
     * @return the number
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public int capacity() {
        return rows.capacity() / ROW_BYTES;
    }

    /**
     * The value of a row.
     *
     * @param row from 0 to {@link #size()} exclusive
     * @return the number; of a state of an enum its index, of a boolean 0 or 1
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link IndexOutOfBoundsException} if there is no such row
     */
    public double value(int row) {
        return rows.getDouble(at(row));
    }

    /**
     * The seconds of the time stamp of a row.
     *
     * @param row from 0 to {@link #size()} exclusive
     * @return seconds since 1970-01-01 UTC
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link IndexOutOfBoundsException} if there is no such row
     */
    public long seconds(int row) {
        return rows.getLong(at(row) + 8);
    }

    /**
     * The nanoseconds of the time stamp of a row.
     *
     * @param row from 0 to {@link #size()} exclusive
     * @return nanoseconds within the second
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link IndexOutOfBoundsException} if there is no such row
     */
    public int nanos(int row) {
        return rows.getInt(at(row) + 16);
    }

    /**
     * The PV of a row.
     *
     * @param row from 0 to {@link #size()} exclusive
     * @return the index of the PV in the group
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link IndexOutOfBoundsException} if there is no such row
     */
    public int index(int row) {
        return rows.getInt(at(row) + 20);
    }

    /**
     * How many earlier updates of the PV a row has replaced.
     *
     * @param row from 0 to {@link #size()} exclusive
     * @return the number of updates that were not taken in time
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link IndexOutOfBoundsException} if there is no such row
     */
    public int merged(int row) {
        return rows.getInt(at(row) + 24);
    }

    /**
     * The severity of the alarm of a row.
     *
     * @param row from 0 to {@link #size()} exclusive
     * @return the position of the {@link Severity}
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link IndexOutOfBoundsException} if there is no such row
     */
    public int severity(int row) {
        return rows.getShort(at(row) + 28) & 0xffff;
    }

    /**
     * The status of the alarm of a row.
     *
     * @param row from 0 to {@link #size()} exclusive
     * @return the number of the reason, as in {@link Alarm#status()}
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link IndexOutOfBoundsException} if there is no such row
     */
    public int status(int row) {
        return rows.getShort(at(row) + 30) & 0xffff;
    }

    /**
     * All rows, of 32 bytes each: f64 value, i64 seconds, u32 nanoseconds, u32 index, u32 merged, u16 severity, u16 status.
     *
     * @return a new read-only buffer in native byte order, which the next call of {@link MonitorGroup#take} overwrites
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public ByteBuffer bytes() {
        return rows.slice(0, size * ROW_BYTES).asReadOnlyBuffer().order(ByteOrder.nativeOrder());
    }

    /**
     * The changes of connections among the rows.
     *
     * @return the changes, ordered by their position among the rows
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public List<GroupChange> changes() {
        return changes;
    }

    private int at(int row) {
        return Objects.checkIndex(row, size) * ROW_BYTES;
    }

    long address() {
        return address;
    }

    void clear() {
        size = 0;
        changes = List.of();
    }

    /** What the native call has filled. */
    void filled(int size, List<GroupChange> changes) {
        this.size = size;
        this.changes = changes.isEmpty() ? List.of() : Collections.unmodifiableList(new ArrayList<>(changes));
    }
}
