package io.github.fodopv;

/**
 * The native calls of servers and IOCs: primitives only, with the handles and the encoding of {@link Native}.
 *
 * <p>{@code buf} is the address of a direct buffer with {@code cap} bytes. Input is its first {@code in} bytes; the reply is
 * written from its start, and its length returned.
 *
 * <p>A {@code reading} is: u8 severity, u16 status, i64 seconds (the minimum: now), u32 nanoseconds, i32 user tag, str message,
 * value, u8 whether metadata follows, metadata.
 */
interface NativeServer {
    /** The put or the call is confirmed; what was put is posted. */
    int END_COMPLETE = 0;
    /** The put is confirmed, and nothing is posted. */
    int END_QUIETLY = 1;
    /** It is refused; in: str reason. */
    int END_REFUSE = 2;
    /** The record gets back its value. */
    int END_RESTORE = 3;
    /** A call has a result; in: its structure. */
    int END_RESULT = 4;

    /** A PV. flags: 1 accepts puts, 2 accepts calls. in: u8 0, reading; or u8 1, structure. reply HANDLE. */
    int pvCreate(int flags, int lengthMax, long buf, int in, int cap);

    /** in: reading. reply NOTHING or ERROR. */
    int pvPost(long pv, long buf, int in, int cap);

    /** in: u32 n, n x (str path, value). reply NOTHING or ERROR. */
    int pvPostFields(long pv, long buf, int in, int cap);

    /** reply READING or STRUCTURE. */
    int pvCurrent(long pv, long buf, int cap);

    /** in: u8 whether isolated, u32 n, n x (str variable, str text), u32 n, n x (i64 pv, i64 token, str name). reply HANDLE. */
    int serverStart(long buf, int in, int cap);

    /** in: str name. reply NOTHING or ERROR. */
    int serverAdd(long server, long pv, long token, long buf, int in, int cap);

    /** in: str name. reply NOTHING or ERROR. */
    int serverRemove(long server, long buf, int in, int cap);

    /** The variables of its clients. reply LIST: u32 n, n x (str variable, str text). */
    int serverSettings(long server, long buf, int cap);

    /** reply COUNTS: u64 puts, calls, waiting, refused, cancelled, posted, sent, merged, dropped, searches, limited. */
    int serverCounts(long server, long buf, int cap);

    /** The queue of a server. reply HANDLE. */
    int serverQueue(long server, long buf, int cap);

    /** Disconnects all clients, and refuses what waits. */
    void serverClose(long server);

    /**
     * The next task of a queue, or NOTHING after the pause, or CLOSED.
     *
     * <p>reply u8 30 (put) or 31 (call), i64 token, i64 request, str name, str user, str host, str address, u8 4
     * (READING) or 5 (STRUCTURE), value; u8 32
     * (output), i64 token, i64 request, u8 whether there is a previous value, value, previous value; u8 33 (line of the log), u8
     * level (0 error, 1 warning, 2 any other), str text.
     */
    int next(long queue, long pauseNs, long buf, int cap);

    /** Ends a request. reply NOTHING, u8 0 if it had ended, otherwise u8 1; or ERROR. */
    int requestEnd(long request, int how, long buf, int in, int cap);

    /** Whether a request has not ended: 1, otherwise 0. */
    int requestOpen(long request);

    /**
     * Builds and starts an IOC. reply HANDLE.
     *
     * <p>in: u8 whether isolated, u32 n, n x (str variable, str text), str access file ("" none), str its macros, str prefix of the
     * statistics ("" none), str autosave folder ("" none), i64 its period in nanoseconds, u32 n, n x step, u32 n, n x str output
     * (its number is its token). A step is u8 0 (file), str path, str macros; u8 1, str text, str macros; u8 2 (record), str type,
     * str name, u32 n, n x (str field, str text), u32 n, n x (str info, str text), u32 n, n x str alias, value (EMPTY: none).
     */
    int iocStart(long buf, int in, int cap);

    /** As serverSettings. */
    int iocSettings(long ioc, long buf, int cap);

    /**
     * reply COUNTS: u64 set, notSet, completed, refused, restored, waiting, lines dropped, posted, sent, merged, dropped.
     */
    int iocCounts(long ioc, long buf, int cap);

    /** As serverQueue. */
    int iocQueue(long ioc, long buf, int cap);

    /** Reads the access file again. reply LIST: u32 n, n x str warning; or ERROR. */
    int iocReloadAccess(long ioc, long buf, int cap);

    /** in: str name. reply HANDLE. */
    int iocRecord(long ioc, long buf, int in, int cap);

    /** in: u32 n, n x (i64 record, value). reply LIST: u32 n, n x (u32 index, ERROR): what is not set. */
    int iocSetMany(long ioc, long buf, int in, int cap);

    /** reply NOTHING, u32 files of autosave that could not be written. Idempotent. */
    int iocClose(long ioc, long buf, int cap);

    /**
     * in: u8 parts (1 value, 2 alarm, 4 time, 8 message), value or EMPTY, u8 severity, u16 status, i64 seconds, u32 nanoseconds, str
     * message. reply NOTHING or ERROR.
     */
    int recordSet(long record, long buf, int in, int cap);

    /** reply READING. */
    int recordGet(long record, long buf, int cap);

    /** in: u8 whether to wait, value. reply NOTHING, ERROR, or PENDING. */
    int recordPut(long record, long buf, int in, int cap);

    /** Waits for a put. reply NOTHING when it has ended, ERROR, or PENDING with 0 after the pause. */
    int putAwait(long put, long pauseNs, long buf, int cap);
}
