package io.github.fodopv;

import java.util.List;

/**
 * What describes a value. What the server has not sent is empty, 0 or a range of 0 to 0.
 *
 * @param units engineering units
 * @param precision digits to show after the decimal point
 * @param description what the value is; only over pvAccess
 * @param display the range to display
 * @param alarm the limits beyond which the alarm is major
 * @param warning the limits beyond which the alarm is minor
 * @param control the range to which puts are limited
 * @param labels the names of the states of an enum; over Channel Access at most 16, a get of a text has that of any state
 */
public record Metadata(
        String units,
        int precision,
        String description,
        Limits display,
        Limits alarm,
        Limits warning,
        Limits control,
        List<String> labels) {
}
