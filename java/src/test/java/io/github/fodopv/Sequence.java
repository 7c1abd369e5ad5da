package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.fail;

import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The updates of one counter, whose values follow one another: proves their order, that none is lost or repeated, and that
 * no two arrive at once.
 */
final class Sequence {
    /** The number of updates after which a counter has shown enough. */
    static final int N_UPDATES = 15;

    private final String name;
    private final AtomicBoolean isBusy = new AtomicBoolean();
    private final AtomicLong nUpdates = new AtomicLong();
    /** Set by the callback alone, one at a time. */
    private volatile double last = Double.NaN;
    private volatile long mergedBefore;
    private volatile long merged;
    private volatile String fault;

    Sequence(String name) {
        this.name = name;
    }

    /** An event of the monitor, in the order of delivery. */
    void event(Event<Double> event) {
        if (!isBusy.compareAndSet(false, true)) {
            fault = "two events of " + name + " arrived at once";
        }
        if (event instanceof Event.Merged<Double> dropped) {
            mergedBefore += dropped.updates();
        } else if (event instanceof Event.Update<Double> update) {
            update(update.reading().value(), mergedBefore);
            mergedBefore = 0;
        }
        isBusy.set(false);
    }

    /** An update of this value, before which this number were dropped and counted. */
    void update(double value, long dropped) {
        if (!Double.isNaN(last) && value != last + 1 + dropped && fault == null) {
            fault = name + ": " + value + " follows " + last + " with " + dropped + " dropped";
        }
        last = value;
        merged += dropped;
        nUpdates.incrementAndGet();
    }

    boolean isComplete() {
        return nUpdates.get() >= N_UPDATES || fault != null;
    }

    long nUpdates() {
        return nUpdates.get();
    }

    /** Checks that every update was explained. */
    void check() {
        if (fault != null) {
            fail(fault);
        }
    }

    /** Compares what arrived with the counters of the monitor, which is closed. */
    void check(MonitorCounts counts) {
        check();
        assertEquals(counts.delivered(), nUpdates.get(), name + ": delivered " + counts);
        assertEquals(counts.received(), counts.delivered() + counts.merged(), name + ": received " + counts);
        assertEquals(0, counts.overrun(), name + ": overrun " + counts);
    }
}
