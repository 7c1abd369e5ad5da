package io.github.fodopv;

/**
 * Counters of a server since it was started.
 *
 * @param puts puts that were queued for handlers
 * @param calls calls that were queued for handlers
 * @param failed handlers that threw an exception
 * @param waiting requests that wait for handlers now
 * @param handlersBusy puts and calls refused because too many waited, or because the server was closed
 * @param cancelled puts dropped because their clients disconnected while they waited
 * @param posted updates, once for each subscription; each is sent, merged or dropped, or waits
 * @param sent updates passed to the connections
 * @param merged updates that later ones replaced before they were sent, because their clients are slow
 * @param dropped updates that waited when their subscriptions ended
 * @param searches names searched for
 * @param refused requests refused because a client or its host exceeded a limit
 */
public record ServerCounts(
        long puts,
        long calls,
        long failed,
        long waiting,
        long handlersBusy,
        long cancelled,
        long posted,
        long sent,
        long merged,
        long dropped,
        long searches,
        long refused) {
}
