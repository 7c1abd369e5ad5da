package io.github.fodopv;

import java.util.EnumSet;
import java.util.Set;

/**
 * The options of a group of monitors.
 *
 * @param mask for which changes servers send an update
 * @param rowsMax the maximum number of rows that wait to be taken; beyond it the newest row of each PV is replaced
 * @param window over pvAccess, the number of updates that a server may send before it waits for the client; {@code null} for
 *     as many as it likes
 */
public record GroupOptions(Set<Mask> mask, long rowsMax, Integer window) {
    private static final long ROWS_MAX = 65536;

    /**
     * Checks and copies the parts.
     *
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for an empty mask, and for rows below 0 or a window below 1
     */
    public GroupOptions {
        mask = Masks.copy(mask);
        if (rowsMax < 0) {
            throw new MisuseException("", "the number of rows of a group must not be negative: " + rowsMax);
        }
        if (window != null && window < 1) {
            throw new MisuseException("", "the window of a group must be at least 1: " + window);
        }
    }

    /**
     * Updates at each change of value or alarm, of which 65536 may wait.
     *
     * @return the options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public static GroupOptions defaults() {
        return new GroupOptions(EnumSet.of(Mask.VALUE, Mask.ALARM), ROWS_MAX, null);
    }

    /**
     * The same options with another mask.
     *
     * @param mask for which changes servers send an update
     * @return new options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for an empty mask
     */
    public GroupOptions withMask(Set<Mask> mask) {
        return new GroupOptions(mask, rowsMax, window);
    }

    /**
     * The same options with another number of rows.
     *
     * @param rowsMax the maximum number of rows that wait to be taken; 0: the newest one of each PV
     * @return new options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} below 0
     */
    public GroupOptions withRowsMax(long rowsMax) {
        return new GroupOptions(mask, rowsMax, window);
    }

    /**
     * The same options with another window; only over pvAccess.
     *
     * @param window the number of updates that a server may send before it waits for the client; {@code null} for as many as
     *     it likes
     * @return new options
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} below 1
     */
    public GroupOptions withWindow(Integer window) {
        return new GroupOptions(mask, rowsMax, window);
    }
}
