package io.github.fodopv;

import java.time.Instant;

/**
 * A value of a PV, and what it was received with.
 *
 * @param <T> the type of the value
 * @param value the value
 * @param alarm the alarm; {@link Alarm#NONE} if it was not requested
 * @param time the time stamp of the server; {@code null} if it was not requested or not sent
 * @param userTag the user tag of the time stamp; 0 unless the source sets one
 * @param metadata units, limits and labels; {@code null} unless they were requested
 */
public record Reading<T>(T value, Alarm alarm, Instant time, int userTag, Metadata metadata) {
}
