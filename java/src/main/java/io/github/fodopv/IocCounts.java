package io.github.fodopv;

/**
 * Counters of an IOC since it was started.
 *
 * @param set values that the program has set
 * @param setRefused values that could not be set; the call has thrown an exception
 * @param completed puts to outputs that the program has carried out
 * @param refused puts to outputs that were refused, also by exceptions
 * @param restored puts to outputs after which the record has the previous value again
 * @param failed handlers that threw an exception
 * @param waiting puts to outputs, and lines of the log, that wait for the thread of the IOC now
 * @param linesDropped lines of the log that were left out, because too many waited
 * @param posted updates of values, once for each subscription of a client; each is sent, merged or dropped, or waits
 * @param sent updates passed to the connections of the clients
 * @param merged updates that later ones replaced before they were sent: a record changes faster than the client reads
 * @param dropped updates that waited when their subscriptions ended
 */
public record IocCounts(
        long set,
        long setRefused,
        long completed,
        long refused,
        long restored,
        long failed,
        long waiting,
        long linesDropped,
        long posted,
        long sent,
        long merged,
        long dropped) {
}
