package io.github.fodopv;

/** An error of this host or of this library: no memory, no socket, a reply that cannot be decoded. */
public final class SystemException extends PvException {
    private static final long serialVersionUID = 1;

    SystemException(String pv, String reason, String server, String advice) {
        super(pv, reason, server, advice);
    }

    SystemException(String pv, String reason) {
        super(pv, reason, "", "");
    }
}
