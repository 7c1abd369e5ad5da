package io.github.fodopv;

import java.util.ArrayList;
import java.util.List;

/** Sinks by their tokens. A token is used once: a late reply to a sink that was removed finds none. */
final class SinkTable {
    private Sink[] sinks = new Sink[16];
    /** The token of each place while it is in use. */
    private long[] tokens = new long[16];
    /** Places that are free, the first {@code freeLength} of them. */
    private int[] free = new int[16];
    private int freeLength;
    private int usedLength;
    private long nUses;
    private boolean isClosed;

    synchronized long add(Sink sink) {
        if (isClosed) {
            throw new ClosedException("", "the context is closed", "", "create a new one");
        }
        int place = freeLength > 0 ? free[--freeLength] : newPlace();
        nUses++;
        sinks[place] = sink;
        tokens[place] = nUses << 32 | place;
        return tokens[place];
    }

    private int newPlace() {
        if (usedLength == sinks.length) {
            int length = 2 * usedLength;
            sinks = java.util.Arrays.copyOf(sinks, length);
            tokens = java.util.Arrays.copyOf(tokens, length);
            free = java.util.Arrays.copyOf(free, length);
        }
        return usedLength++;
    }

    /** The sink of a reply, which is removed if it expects one only; {@code null} if it was removed before. */
    synchronized Sink take(long token) {
        int place = (int) token;
        if (place < 0 || place >= usedLength || tokens[place] != token) {
            return null;
        }
        Sink sink = sinks[place];
        if (sink.isOnce()) {
            remove(token);
        }
        return sink;
    }

    synchronized void remove(long token) {
        int place = (int) token;
        if (place >= 0 && place < usedLength && tokens[place] == token) {
            sinks[place] = null;
            tokens[place] = -1;
            free[freeLength++] = place;
        }
    }

    /** Accepts no sink any more; returns those that are left. */
    synchronized List<Sink> close() {
        isClosed = true;
        List<Sink> left = new ArrayList<>();
        for (int place = 0; place < usedLength; place++) {
            if (sinks[place] != null) {
                left.add(sinks[place]);
            }
        }
        return left;
    }
}
