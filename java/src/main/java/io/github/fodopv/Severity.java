package io.github.fodopv;

/** How bad an alarm is. */
public enum Severity {
    /** No alarm. */
    NONE,
    /** A warning. */
    MINOR,
    /** An alarm. */
    MAJOR,
    /** The value must not be used. */
    INVALID;

    private static final Severity[] ALL = values();

    /** The severity of this number; {@link #INVALID} for one that EPICS does not define. */
    static Severity of(int code) {
        return code >= 0 && code < ALL.length ? ALL[code] : INVALID;
    }
}
