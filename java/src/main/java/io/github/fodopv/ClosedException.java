package io.github.fodopv;

/** The context, the channel or the monitor is closed. */
public final class ClosedException extends PvException {
    private static final long serialVersionUID = 1;

    ClosedException(String pv, String reason, String server, String advice) {
        super(pv, reason, server, advice);
    }

    ClosedException(String pv, String reason) {
        super(pv, reason, "", "");
    }
}
