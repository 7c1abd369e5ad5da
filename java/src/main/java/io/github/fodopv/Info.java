package io.github.fodopv;

/**
 * What a server has reported about a PV.
 *
 * @param name the name as the caller wrote it
 * @param protocol the protocol of the channel
 * @param server the address of the server
 * @param kind the kind of an element; over pvAccess {@link Kind#TEXT} also for a structure without a value of its own
 * @param countMax the maximum number of elements: 1 for a scalar; over pvAccess 0 for an array of any length and for a
 *     structure without a value of its own
 * @param mayRead whether this client may read; servers of pvAccess do not report it: always true
 * @param mayWrite whether this client may write; servers of pvAccess do not report it: always true
 * @param tlsPeer the name in the certificate of the server; empty for a plain connection
 */
public record Info(
        String name,
        Protocol protocol,
        String server,
        Kind kind,
        int countMax,
        boolean mayRead,
        boolean mayWrite,
        String tlsPeer) {
}
