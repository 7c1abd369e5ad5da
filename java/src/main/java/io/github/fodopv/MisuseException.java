package io.github.fodopv;

/** The call is invalid: a name, a value that cannot be sent, an option. */
public final class MisuseException extends PvException {
    private static final long serialVersionUID = 1;

    MisuseException(String pv, String reason, String server, String advice) {
        super(pv, reason, server, advice);
    }

    MisuseException(String pv, String reason) {
        super(pv, reason, "", "");
    }
}
