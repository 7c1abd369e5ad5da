package io.github.fodopv;

/** What is requested with a value. */
public enum Detail {
    /** The value alone. */
    VALUE,
    /** The value and its alarm. */
    ALARM,
    /** The value, its alarm and its time stamp. */
    TIME,
    /** The value, its alarm, units, precision, display and alarm limits. */
    GRAPHIC,
    /** As {@link #GRAPHIC}, and the control limits. */
    CONTROL,
    /** Everything, the time stamp included; over Channel Access two requests in one message. */
    FULL
}
