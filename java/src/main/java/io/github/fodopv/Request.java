package io.github.fodopv;

import java.util.Objects;

/**
 * What a get or a monitor requests.
 *
 * @param detail what is requested with the value
 * @param count the maximum number of elements; 0 for all that the PV has at that moment
 */
public record Request(Detail detail, int count) {
    /** The value alone. */
    public static final Request VALUE = new Request(Detail.VALUE, 0);
    /** The value and its alarm. */
    public static final Request ALARM = new Request(Detail.ALARM, 0);
    /** The value, its alarm and its time stamp. */
    public static final Request TIME = new Request(Detail.TIME, 0);
    /** Everything: time stamp, units, limits and labels. */
    public static final Request FULL = new Request(Detail.FULL, 0);

    /**
     * Checks the two.
     *
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} if the count is negative, {@link NullPointerException} without a detail
     */
    public Request {
        Objects.requireNonNull(detail, "a request needs a detail");
        if (count < 0) {
            throw new MisuseException("", "the number of elements of a request must not be negative: " + count);
        }
    }

    /**
     * The same request for at most this many elements.
     *
     * @param count the maximum number of elements; 0 for all
     * @return a new request
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} if the count is negative
     */
    public Request withCount(int count) {
        return new Request(detail, count);
    }
}
