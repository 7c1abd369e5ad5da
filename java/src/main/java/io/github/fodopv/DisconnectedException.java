package io.github.fodopv;

/** The connection was lost during the operation. A put may have been carried out. */
public final class DisconnectedException extends PvException {
    private static final long serialVersionUID = 1;

    DisconnectedException(String pv, String reason, String server, String advice) {
        super(pv, reason, server, advice);
    }
}
