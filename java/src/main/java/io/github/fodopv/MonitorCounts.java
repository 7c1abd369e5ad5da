package io.github.fodopv;

import java.time.Duration;

/**
 * Counters of a monitor, taken at one moment.
 *
 * @param received updates received from the server
 * @param merged updates dropped because the queue was full
 * @param overrun updates that the server has reported as dropped by itself; only over pvAccess
 * @param delivered updates taken from the queue
 * @param disconnects how often the connection was lost
 * @param longestGap the longest time between two updates
 */
public record MonitorCounts(
        long received, long merged, long overrun, long delivered, long disconnects, Duration longestGap) {
}
