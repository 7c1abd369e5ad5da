package io.github.fodopv;

/** The server has refused: access rights, or a reason of its own. */
public final class RefusedException extends PvException {
    private static final long serialVersionUID = 1;

    RefusedException(String pv, String reason, String server, String advice) {
        super(pv, reason, server, advice);
    }
}
