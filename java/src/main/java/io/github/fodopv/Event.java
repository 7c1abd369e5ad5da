package io.github.fodopv;

/**
 * An event of a monitor.
 *
 * @param <T> the type of the value
 */
public sealed interface Event<T> {
    /**
     * The server has sent a value.
     *
     * @param <T> the type of the value
     * @param reading the value, and what it was received with
     */
    record Update<T>(Reading<T> reading) implements Event<T> {
    }

    /**
     * The channel is connected, for the first time or again.
     *
     * @param <T> the type of the value
     * @param info what the server has reported
     */
    record Connected<T>(Info info) implements Event<T> {
    }

    /**
     * The access rights have changed.
     *
     * @param <T> the type of the value
     * @param info what the server has reported, with the new rights
     */
    record Rights<T>(Info info) implements Event<T> {
    }

    /**
     * The queue was full: updates before the next one were dropped.
     *
     * @param <T> the type of the value
     * @param updates how many
     */
    record Merged<T>(long updates) implements Event<T> {
    }

    /**
     * The server has been silent for too long; its connection is still open.
     *
     * @param <T> the type of the value
     */
    record Unresponsive<T>() implements Event<T> {
    }

    /**
     * The server replies again.
     *
     * @param <T> the type of the value
     */
    record Responsive<T>() implements Event<T> {
    }

    /**
     * The connection was lost; the client searches for the PV again.
     *
     * @param <T> the type of the value
     */
    record Disconnected<T>() implements Event<T> {
    }

    /**
     * The server has refused the subscription.
     *
     * @param <T> the type of the value
     * @param error why
     */
    record Refused<T>(RefusedException error) implements Event<T> {
    }

    /**
     * The server has sent something other than what was requested.
     *
     * @param <T> the type of the value
     * @param error what it has sent
     */
    record WrongReply<T>(PvException error) implements Event<T> {
    }

    /**
     * The monitor, its channel or its context was closed. The last event.
     *
     * @param <T> the type of the value
     */
    record Closed<T>() implements Event<T> {
    }
}
