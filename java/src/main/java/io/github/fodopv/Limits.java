package io.github.fodopv;

/**
 * The two ends of a range, in the units of the value.
 *
 * @param low the lower end
 * @param high the upper end
 */
public record Limits(double low, double high) {
}
