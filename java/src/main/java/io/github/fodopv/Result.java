package io.github.fodopv;

import java.util.Objects;

/**
 * What an operation of a list has ended with, for one PV.
 *
 * @param <T> the type of the result
 */
public sealed interface Result<T> {
    /**
     * The operation has succeeded.
     *
     * @param <T> the type of the result
     * @param value the result; {@code null} for a put
     */
    record Success<T>(T value) implements Result<T> {
    }

    /**
     * The operation has failed.
     *
     * @param <T> the type of the result
     * @param error why
     */
    record Failure<T>(PvException error) implements Result<T> {
        /**
         * Checks the error.
         *
         * @roundTrips none
         * @thread any
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} without an error
         */
        public Failure {
            Objects.requireNonNull(error, "a failure needs an error");
        }
    }

    /**
     * The result of an operation that has succeeded.
     *
     * @return the result; {@code null} for a put
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails the {@link PvException} of an operation that has failed
     */
    default T orThrow() {
        if (this instanceof Failure<T> failure) {
            throw failure.error();
        }
        return ((Success<T>) this).value();
    }
}
