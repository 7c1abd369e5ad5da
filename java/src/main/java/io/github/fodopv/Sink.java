package io.github.fodopv;

import java.nio.ByteBuffer;

/** What the callback thread passes the replies of one token to. */
interface Sink {
    /** Whether the first reply is the last one. */
    boolean isOnce();

    /** Receives a reply. */
    void accept(ByteBuffer in);

    /** The context was closed: no reply follows. */
    void closed();
}
