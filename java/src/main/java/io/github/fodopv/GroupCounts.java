package io.github.fodopv;

/**
 * Counters of a group, taken at one moment: {@code received} is the sum of the other four.
 *
 * @param received updates received from servers
 * @param merged updates replaced by newer ones of the same PV before they were taken
 * @param removed updates dropped because their PV was removed
 * @param delivered updates taken
 * @param waiting updates that wait to be taken
 */
public record GroupCounts(long received, long merged, long removed, long delivered, long waiting) {
}
