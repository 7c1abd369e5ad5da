package io.github.fodopv;

import java.nio.ByteBuffer;

/** The native library by the Java Native Interface; {@link Loader} has loaded it. */
final class Jni implements Native {
    @Override
    public native int version();

    @Override
    public native long address(ByteBuffer direct);

    @Override
    public native ByteBuffer view(long address, long bytes);

    @Override
    public native void release(long handle);

    @Override
    public native long blockCreate(long bytes);

    @Override
    public native long blockAddress(long block);

    @Override
    public native long blockBytes(long block);

    @Override
    public native int contextCreate(long buf, int in, int cap);

    @Override
    public native void contextClose(long context);

    @Override
    public native int noticeNext(long context, long pauseNs, long buf, int cap);

    @Override
    public native int channelCreate(long context, int priority, long buf, int in, int cap);

    @Override
    public native void channelClose(long channel);

    @Override
    public native int channelInfo(long channel, long buf, int cap);

    @Override
    public native int whyInactive(long channel, long waitedNs, long buf, int cap);

    @Override
    public native int run(long channel, int what, long pauseNs, long timeoutNs, long buf, int in, int cap);

    @Override
    public native int await(long operation, long pauseNs, long waitedNs, long buf, int cap);

    @Override
    public native int start(long channel, int what, long queue, long token, long timeoutNs, long buf, int in, int cap);

    @Override
    public native int listCreate(long context, long buf, int in, int cap);

    @Override
    public native int listRun(long list, int what, long pauseNs, long timeoutNs, long buf, int in, int cap);

    @Override
    public native int listStart(long list, int what, long queue, long token, long timeoutNs, long buf, int in, int cap);

    @Override
    public native long queueCreate(long context);

    @Override
    public native int queueDrain(long queue, long pauseNs, long buf, int cap);

    @Override
    public native void queueClose(long queue);

    @Override
    public native int monitorStart(long channel, long queue, long token, int mode, long buf, int in, int cap);

    @Override
    public native int monitorTake(long monitor, int eventsMax, long buf, int cap);

    @Override
    public native int monitorNext(long monitor, long pauseNs, long buf, int cap);

    @Override
    public native int monitorCounts(long monitor, long buf, int cap);

    @Override
    public native void monitorClose(long monitor);

    @Override
    public native int groupCreate(long context, int mask, long rowsMax, int window, long buf, int cap);

    @Override
    public native int groupAdd(long group, long channel, long buf, int cap);

    @Override
    public native int groupTake(long group, long pauseNs, long rows, int rowsMax, long buf, int cap);

    @Override
    public native int groupCounts(long group, long buf, int cap);

    @Override
    public native void groupRemove(long group, int index);

    @Override
    public native void groupClose(long group);
}
