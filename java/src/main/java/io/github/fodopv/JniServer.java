package io.github.fodopv;

/** {@link NativeServer} over JNI. */
final class JniServer implements NativeServer {
    @Override
    public native int pvCreate(int flags, int lengthMax, long buf, int in, int cap);

    @Override
    public native int pvPost(long pv, long buf, int in, int cap);

    @Override
    public native int pvPostFields(long pv, long buf, int in, int cap);

    @Override
    public native int pvCurrent(long pv, long buf, int cap);

    @Override
    public native int serverStart(long buf, int in, int cap);

    @Override
    public native int serverAdd(long server, long pv, long token, long buf, int in, int cap);

    @Override
    public native int serverRemove(long server, long buf, int in, int cap);

    @Override
    public native int serverSettings(long server, long buf, int cap);

    @Override
    public native int serverCounts(long server, long buf, int cap);

    @Override
    public native int serverQueue(long server, long buf, int cap);

    @Override
    public native void serverClose(long server);

    @Override
    public native int next(long queue, long pauseNs, long buf, int cap);

    @Override
    public native int requestEnd(long request, int how, long buf, int in, int cap);

    @Override
    public native int requestOpen(long request);

    @Override
    public native int iocStart(long buf, int in, int cap);

    @Override
    public native int iocSettings(long ioc, long buf, int cap);

    @Override
    public native int iocCounts(long ioc, long buf, int cap);

    @Override
    public native int iocQueue(long ioc, long buf, int cap);

    @Override
    public native int iocReloadAccess(long ioc, long buf, int cap);

    @Override
    public native int iocRecord(long ioc, long buf, int in, int cap);

    @Override
    public native int iocSetMany(long ioc, long buf, int in, int cap);

    @Override
    public native int iocClose(long ioc, long buf, int cap);

    @Override
    public native int recordSet(long record, long buf, int in, int cap);

    @Override
    public native int recordGet(long record, long buf, int cap);

    @Override
    public native int recordPut(long record, long buf, int in, int cap);

    @Override
    public native int putAwait(long put, long pauseNs, long buf, int cap);
}
