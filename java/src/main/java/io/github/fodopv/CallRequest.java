package io.github.fodopv;

/**
 * A call of a procedure, as its function receives it.
 *
 * @param pv the name of the PV
 * @param argument the argument, as the client has sent it; the arguments of an NTURI are the fields of its field {@code query}
 * @param user the name of the user, as the client has sent it
 * @param host the name of the host, as the client has sent it
 * @param address the address and the port of the client, which are reliable
 */
public record CallRequest(String pv, Value.Structure argument, String user, String host, String address) {
}
