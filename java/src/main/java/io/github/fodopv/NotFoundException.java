package io.github.fodopv;

/** No server has claimed the name in time. */
public final class NotFoundException extends PvException {
    private static final long serialVersionUID = 1;

    NotFoundException(String pv, String reason, String server, String advice) {
        super(pv, reason, server, advice);
    }
}
