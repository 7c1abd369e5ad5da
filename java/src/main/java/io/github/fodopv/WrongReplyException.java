package io.github.fodopv;

/** The server has sent something other than what was requested. */
public final class WrongReplyException extends PvException {
    private static final long serialVersionUID = 1;

    WrongReplyException(String pv, String reason, String server, String advice) {
        super(pv, reason, server, advice);
    }
}
