package io.github.fodopv;

/** The thread was interrupted while it waited. Its interrupt flag is set. A put may have been carried out. */
public final class InterruptedCallException extends PvException {
    private static final long serialVersionUID = 1;

    InterruptedCallException(String pv, String reason) {
        super(pv, reason, "", "");
    }
}
