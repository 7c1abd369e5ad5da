package io.github.fodopv;

import java.util.Objects;
import java.util.Optional;

/**
 * A put of a client to a {@link SharedPv}, or a value that an output of an {@link Ioc} has to write.
 *
 * <p>The handler receives it. When the handler returns, the request is completed, unless the handler has ended it or has called
 * {@link #defer}; when the handler throws an exception, it is refused with the text of the exception. A deferred request is ended
 * later, by any thread. A request that is deferred and then unreachable is refused.
 */
public final class PutRequest {
    private final String pv;
    private final Value value;
    private final Value previous;
    private final String user;
    private final String host;
    private final String address;
    private final SharedPv owner;
    private final NativeObject request;
    private volatile boolean isDeferred;

    private PutRequest(
            String pv,
            Value value,
            Value previous,
            String user,
            String host,
            String address,
            SharedPv owner,
            NativeObject request) {
        this.pv = pv;
        this.value = value;
        this.previous = previous;
        this.user = user;
        this.host = host;
        this.address = address;
        this.owner = owner;
        this.request = request;
    }

    /** A put of a client. */
    static PutRequest ofClient(
            String pv, Value value, String user, String host, String address, SharedPv owner, NativeObject request) {
        return new PutRequest(pv, value, null, user, host, address, owner, request);
    }

    /** What an output has to write. */
    static PutRequest ofRecord(String pv, Value value, Value previous, NativeObject request) {
        return new PutRequest(pv, value, previous, "", "", "", null, request);
    }

    /**
     * The name of the PV.
     *
     * @return the name under which the client has written it, or the name of the record
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
     * The value to write, of the type of the PV.
     *
     * @return the value; of a structure a {@link Value.Structure} of which the fields of the put are changed
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public Value value() {
        return value;
    }

    /**
     * The value that the program has accepted or set before.
     *
     * @return that of a record; empty for the first one, and of a SharedPv, which has it itself
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public Optional<Value> previous() {
        return Optional.ofNullable(previous);
    }

    /**
     * The user.
     *
     * @return the name, as the client has sent it; empty for a record, which links and scans may process as well
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public String user() {
        return user;
    }

    /**
     * The host of the client.
     *
     * @return the name, as the client has sent it; empty for a record
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public String host() {
        return host;
    }

    /**
     * The address of the client.
     *
     * @return the address and the port, which are reliable; empty for a record
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public String address() {
        return address;
    }

    /**
     * Whether the request has ended.
     *
     * @return true after the first call that has ended it
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public boolean isEnded() {
        return request.with(handle -> ServerCalls.NATIVE.requestOpen(handle) == 0);
    }

    /**
     * Lets the request go on after its handler has returned.
     *
     * @return this request
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none; the client waits until the request ends
     * @fails never
     */
    public PutRequest defer() {
        isDeferred = true;
        return this;
    }

    /**
     * Ends the request: the value is written. A SharedPv has it from now on, with the current time and without an alarm, and sends
     * it to all subscribers.
     *
     * @return whether this call has ended the request; false if it had ended
     * @roundTrips none; the client receives the end
     * @thread any
     * @blocks never for a client
     * @bounds none
     * @fails never
     */
    public boolean complete() {
        return end(NativeServer.END_COMPLETE, null);
    }

    /**
     * Ends the put to a SharedPv, which has another value from now on.
     *
     * @param posted the value that the PV has instead of that of the put
     * @return whether this call has ended the request; false if it had ended
     * @roundTrips none; the client receives the end
     * @thread any
     * @blocks never for a client
     * @bounds none
     * @fails {@link MisuseException} for a value that the PV cannot have, and for a record, which the program sets itself
     */
    public boolean complete(Object posted) {
        if (owner == null) {
            throw new MisuseException(pv, "the request is of a record: set the record, and complete the request without a value");
        }
        // A put that another thread ends must not be posted as well.
        synchronized (this) {
            if (isEnded()) {
                return false;
            }
            owner.post(posted);
            return end(NativeServer.END_QUIETLY, null);
        }
    }

    /**
     * Ends the request: the value is not written. A client receives the text; a record keeps the value, with the alarm WRITE,
     * severity INVALID, and the text in AMSG.
     *
     * @param reason why; a record stores 39 bytes of it
     * @return whether this call has ended the request; false if it had ended
     * @roundTrips none; the client receives the end
     * @thread any
     * @blocks never for a client
     * @bounds none
     * @fails {@link NullPointerException} without a reason
     */
    public boolean refuse(String reason) {
        return end(NativeServer.END_REFUSE, Objects.requireNonNull(reason, "the reason is null"));
    }

    /**
     * Ends the request without an error: the PV keeps the value that it had before the put.
     *
     * @return whether this call has ended the request; false if it had ended
     * @roundTrips none; the client receives the end
     * @thread any
     * @blocks never for a client
     * @bounds none
     * @fails never
     */
    public boolean restore() {
        return end(NativeServer.END_RESTORE, null);
    }

    private synchronized boolean end(int how, String reason) {
        return request.with(handle -> ServerCalls.end(handle, how, out -> {
            if (reason != null) {
                out.text(reason);
            }
        }));
    }

    /** The handler has returned. */
    void returned() {
        if (!isDeferred) {
            complete();
        }
    }
}
