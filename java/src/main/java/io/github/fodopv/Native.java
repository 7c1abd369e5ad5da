package io.github.fodopv;

import java.nio.ByteBuffer;

/**
 * The functions of the native library: {@link Jni} calls them by the Java Native Interface.
 *
 * <p>A handle is the address of a slot in native memory. Closing takes the object out of its slot, after which every call
 * replies CLOSED; {@link #release} frees the slot, once the object of Java that has the handle is unreachable. So no call can
 * use freed memory. No native thread enters the Java virtual machine.
 *
 * <p>Input and replies are in a direct buffer of the caller, as {@link Codec} describes: {@code buf} is its address, {@code in}
 * the bytes of input in it, {@code cap} its capacity. A function with a {@code buf} returns the length of its reply; a longer
 * reply than {@code cap} is in a block, whose handle is then in the buffer, and -1 is returned. A reply may always be ERROR.
 */
interface Native {
    /** The version of the encoding. */
    int version();

    /** The address of a direct buffer. */
    long address(ByteBuffer direct);

    /** A direct buffer over native memory, which the caller keeps. */
    ByteBuffer view(long address, long bytes);

    /** Frees the slot of a handle. */
    void release(long handle);

    /** Memory for the elements of an array; 0 if there is none. */
    long blockCreate(long bytes);

    /** The address of a block. */
    long blockAddress(long block);

    /** The size of a block. */
    long blockBytes(long block);

    /** Input: u32 n, n x (str name, str value), u64 default timeout in ns. Reply: HANDLE. */
    int contextCreate(long buf, int in, int cap);

    /** Ends everything of a context; may be called again. */
    void contextClose(long context);

    /** Reply: TEXT, or NOTHING after the pause. */
    int noticeNext(long context, long pauseNs, long buf, int cap);

    /** Input: str name. Reply: HANDLE. */
    int channelCreate(long context, int priority, long buf, int in, int cap);

    /** Closes a channel or a list of channels. */
    void channelClose(long channel);

    /** Reply: INFO, or NOTHING while the channel is not connected. */
    int channelInfo(long channel, long buf, int cap);

    /** Reply: the ERROR that a wait of this time would have ended with, or NOTHING. */
    int whyInactive(long channel, long waitedNs, long buf, int cap);

    /**
     * Starts an operation and waits for it on the calling thread, for at most the pause.
     *
     * <p>Input: of a get u8 kind, u8 detail, u32 count; of a put a value; of a get of a structure str pvRequest; of a put of
     * fields str pvRequest, u32 n, n x (str path, value); of a call a value STRUCTURE; of a description str sub-field. Reply:
     * the result (of a put NOTHING), or PENDING with the handle of the operation.
     *
     * @param what a number of {@link Channel}: connect, get, put and so on
     */
    int run(long channel, int what, long pauseNs, long timeoutNs, long buf, int in, int cap);

    /**
     * Waits for a pending operation of {@link #run} or {@link #listRun}. Reply: the same.
     *
     * @param waitedNs from 0 on: ends the operation as timed out after this time; -1: does not
     */
    int await(long operation, long pauseNs, long waitedNs, long buf, int cap);

    /** Starts an operation, whose result is an entry of the queue with this token. Timeout 0: that of the context. */
    int start(long channel, int what, long queue, long token, long timeoutNs, long buf, int in, int cap);

    /** Input: u32 n, n x i64 handle of a channel. Reply: HANDLE of a list, which does not need these handles any more. */
    int listCreate(long context, long buf, int in, int cap);

    /** As {@link #run} for all channels of a list; the input of a put is n values. Reply: LIST or PENDING. */
    int listRun(long list, int what, long pauseNs, long timeoutNs, long buf, int in, int cap);

    /** As {@link #start} for all channels of a list. */
    int listStart(long list, int what, long queue, long token, long timeoutNs, long buf, int in, int cap);

    /** The queue of results and events of a context; 0 if the context is closed. */
    long queueCreate(long context);

    /** Waits for entries. Reply: LIST of n x (i64 token, u32 bytes, reply), with n = 0 after the pause; CLOSED at its end. */
    int queueDrain(long queue, long pauseNs, long buf, int cap);

    /** Lets {@link #queueDrain} reply CLOSED when the queue is empty. */
    void queueClose(long queue);

    /**
     * Starts a monitor. Input: u8 kind, u8 detail, u32 count, u8 mask, u32 queueMax, u8 whenFull, i32 window (-1: none), str
     * pvRequest. Reply: HANDLE.
     *
     * @param mode 0: events are entries of the queue; 1: READY is an entry when there are events for {@link #monitorTake}; 2:
     *     {@link #monitorNext} waits for events, without a queue
     */
    int monitorStart(long channel, long queue, long token, int mode, long buf, int in, int cap);

    /** Reply: LIST of n x (u32 bytes, event). After fewer than requested, the queue reports READY again. */
    int monitorTake(long monitor, int eventsMax, long buf, int cap);

    /** Reply: an event, or NOTHING after the pause. */
    int monitorNext(long monitor, long pauseNs, long buf, int cap);

    /** Reply: COUNTS, u64 received, merged, overrun, delivered, disconnects, longest gap in ns. */
    int monitorCounts(long monitor, long buf, int cap);

    /** Ends a monitor; may be called again. */
    void monitorClose(long monitor);

    /** Reply: HANDLE of a group. Window -1: none. */
    int groupCreate(long context, int mask, long rowsMax, int window, long buf, int cap);

    /** Adds a channel, whose handle the group does not need any more. Reply: HANDLE with the index. */
    int groupAdd(long group, long channel, long buf, int cap);

    /**
     * Waits for rows, and copies as many as have place to the address {@code rows}. Reply: LIST, u32 rows, u8 isClosed, u32 n, n
     * x (u32 index, u32 atRow, u32 merged, u32 bytes, event).
     */
    int groupTake(long group, long pauseNs, long rows, int rowsMax, long buf, int cap);

    /** Reply: COUNTS, u64 received, merged, removed, delivered, waiting. */
    int groupCounts(long group, long buf, int cap);

    /** Removes the channel with this index. */
    void groupRemove(long group, int index);

    /** Ends a group; may be called again. */
    void groupClose(long group);
}
