package io.github.fodopv;

import java.util.Optional;

/**
 * Why an operation on a PV has failed. The class says which step failed; the message has the PV's name, what happened and
 * what to do.
 */
public abstract sealed class PvException extends RuntimeException
        permits NotFoundException,
                NoAnswerException,
                RefusedException,
                DisconnectedException,
                MisuseException,
                ClosedException,
                WrongReplyException,
                InterruptedCallException,
                SystemException {
    private static final long serialVersionUID = 1;

    /** The name of the PV. */
    private final String pv;
    /** What happened, without the name. */
    private final String reason;
    /** The address of the server; empty without one. */
    private final String server;
    /** What to do; empty where the reason says it. */
    private final String advice;

    PvException(String pv, String reason, String server, String advice) {
        super((pv.isEmpty() ? "" : "\"" + pv + "\": ") + reason + (advice.isEmpty() ? "" : "; " + advice));
        this.pv = pv;
        this.reason = reason;
        this.server = server;
        this.advice = advice;
    }

    /**
     * The name of the PV.
     *
     * @return the name as the caller wrote it; empty if the error concerns no PV
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public String pv() {
        return pv;
    }

    /**
     * What happened, without the name of the PV and without advice.
     *
     * @return a text
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public String reason() {
        return reason;
    }

    /**
     * The server that the error concerns.
     *
     * @return its address; empty if the error concerns no server
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public Optional<String> server() {
        return server.isEmpty() ? Optional.empty() : Optional.of(server);
    }

    /**
     * What to do about it, or what to check.
     *
     * @return a text; empty where the reason says it, or only the server can
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public Optional<String> advice() {
        return advice.isEmpty() ? Optional.empty() : Optional.of(advice);
    }

    /** The exception of this class of the encoding. */
    static PvException of(int errorClass, String pv, String reason, String server, String advice) {
        return switch (errorClass) {
            case 0 -> new NotFoundException(pv, reason, server, advice);
            case 1 -> new NoAnswerException(pv, reason, server, advice);
            case 2 -> new RefusedException(pv, reason, server, advice);
            case 3 -> new DisconnectedException(pv, reason, server, advice);
            case 4 -> new MisuseException(pv, reason, server, advice);
            case 5 -> new ClosedException(pv, reason, server, advice);
            case 6 -> new WrongReplyException(pv, reason, server, advice);
            default -> new SystemException(pv, reason, server, advice);
        };
    }
}
