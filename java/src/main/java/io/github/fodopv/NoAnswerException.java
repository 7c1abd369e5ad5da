package io.github.fodopv;

/** A server has claimed the name but has not replied in time. A put may have been carried out. */
public final class NoAnswerException extends PvException {
    private static final long serialVersionUID = 1;

    NoAnswerException(String pv, String reason, String server, String advice) {
        super(pv, reason, server, advice);
    }
}
