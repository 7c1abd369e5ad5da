package io.github.fodopv;

/**
 * An alarm.
 *
 * @param severity how bad it is
 * @param status the number of its reason, as EPICS numbers them; 0 without an alarm
 * @param message the text of the server; empty if it has sent none
 */
public record Alarm(Severity severity, int status, String message) {
    /** No alarm. */
    public static final Alarm NONE = new Alarm(Severity.NONE, 0, "");
}
