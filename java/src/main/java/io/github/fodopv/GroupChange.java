package io.github.fodopv;

/**
 * A change of the connection of one PV of a group.
 *
 * @param index the index of the PV in the group
 * @param name its name
 * @param atRow the change follows this many of the rows that were taken with it
 * @param merged how many earlier changes of the PV this one has replaced because they were not taken in time
 * @param event the change: any event but an update
 */
public record GroupChange(int index, String name, int atRow, long merged, Event<Double> event) {
}
