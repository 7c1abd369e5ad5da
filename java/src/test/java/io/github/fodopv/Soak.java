package io.github.fodopv;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Stream;

/**
 * Opens 10 000 contexts and closes them, then receives 50 000 updates per second with a small heap: {@code Soak SECONDS}.
 * Threads, descriptors and memory must stay constant, and every update must be explained.
 */
final class Soak {
    private static final int N_CONTEXTS = 10_000;
    /** Each counts ten times a second. */
    private static final int N_COUNTERS = 5_000;
    private static final int N_CALLBACKS = N_COUNTERS / 2;
    private static final long WARM_S = 10;
    private static final long REPORT_S = 10;
    /** Growth that is not a leak: the compilers of the JVM and its heap, which may grow up to its limit. */
    private static final long RSS_GROWTH_MAX_KIB = 64 * 1024;
    private static final long COUNT_GROWTH_MAX = 8;

    private final AtomicLong nCallbacks = new AtomicLong();
    private final AtomicLong nMerged = new AtomicLong();
    private final AtomicLong nRows = new AtomicLong();
    private volatile boolean isRunning = true;
    private volatile String fault;

    private Soak() {
    }

    public static void main(String[] arguments) throws Exception {
        long seconds = Long.parseLong(arguments[0]);
        Path database = Files.createTempFile("soak", ".db");
        try {
            Files.writeString(database, counters());
            try (TestServer server = TestServer.own(ServerProgram.FODO, database)) {
                boolean isConstant = contexts(server) & new Soak().updates(server, seconds);
                System.out.println(isConstant ? "constant" : "NOT CONSTANT");
                // Without the hooks, the server ends with the JVM as well.
                System.exit(isConstant ? 0 : 1);
            }
        } finally {
            Files.deleteIfExists(database);
        }
    }

    private static String counters() {
        StringBuilder text = new StringBuilder();
        for (int index = 0; index < N_COUNTERS; index++) {
            text.append(String.format(
                    "record(calc, \"$(P)n%d\") { field(SCAN, \".1 second\") field(CALC, \"VAL+1\") }%n", index));
        }
        return text.toString();
    }

    /** What a process holds. */
    private record Held(long threads, long descriptors, long rssKib) {
        static Held now() throws IOException {
            String status = Files.readString(Path.of("/proc/self/status"));
            return new Held(entries("task"), entries("fd"), number(status, "VmRSS:"));
        }

        private static long entries(String folder) throws IOException {
            try (Stream<Path> entries = Files.list(Path.of("/proc/self").resolve(folder))) {
                return entries.count();
            }
        }

        private static long number(String status, String name) {
            String rest = status.substring(status.indexOf(name) + name.length()).strip();
            return Long.parseLong(rest.split("\\s")[0]);
        }

        boolean isConstantSince(Held before) {
            return threads <= before.threads + COUNT_GROWTH_MAX
                    && descriptors <= before.descriptors + COUNT_GROWTH_MAX
                    && rssKib <= before.rssKib + RSS_GROWTH_MAX_KIB;
        }
    }

    /** Opens contexts one after another, each with a get, and then as many at once. */
    private static boolean contexts(TestServer server) throws IOException, InterruptedException {
        Held before = null;
        for (int count = 0; count < N_CONTEXTS; count++) {
            if (count == N_CONTEXTS / 10) {
                before = settled();
                System.out.println("contexts after " + count + ": " + before);
            }
            try (Context context = server.context()) {
                if (count % 10 == 0) {
                    context.channel(server.name(Protocol.values()[count / 10 % 2], "n0"), Double.class).get();
                }
            }
        }
        Held after = settled();
        System.out.println("contexts after " + N_CONTEXTS + ": " + after);
        List<Context> open = new ArrayList<>();
        for (int count = 0; count < N_CONTEXTS; count++) {
            open.add(server.context());
        }
        Held atOnce = settled();
        System.out.println("contexts open at once, " + N_CONTEXTS + ": " + atOnce);
        open.forEach(Context::close);
        open.clear();
        Held closed = settled();
        System.out.println("contexts closed: " + closed);
        return after.isConstantSince(before)
                && closed.isConstantSince(before)
                && atOnce.threads() <= before.threads() + COUNT_GROWTH_MAX;
    }

    private static Held settled() throws IOException, InterruptedException {
        System.gc();
        TimeUnit.SECONDS.sleep(1);
        return Held.now();
    }

    /** Half of the counters by callbacks, half as rows. */
    private boolean updates(TestServer server, long seconds) throws Exception {
        Context context = server.context();
        List<Monitor<Double>> monitors = new ArrayList<>();
        List<Sequence> sequences = new ArrayList<>();
        List<String> grouped = new ArrayList<>();
        for (int index = 0; index < N_COUNTERS; index++) {
            String name = server.name(Protocol.values()[index % 2], "n" + index);
            Sequence sequence = new Sequence(name);
            sequences.add(sequence);
            if (index < N_CALLBACKS) {
                monitors.add(context.channel(name, Double.class).monitor(event -> delivered(sequence, event)));
            } else {
                grouped.add(name);
            }
        }
        MonitorGroup group = context.monitorGroup(grouped, GroupOptions.defaults());
        Thread rows = new Thread(() -> takeRows(group, sequences));
        rows.start();

        TimeUnit.SECONDS.sleep(Math.min(WARM_S, seconds));
        Held before = settled();
        boolean isConstant = true;
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        while (System.nanoTime() < end && fault == null) {
            long start = nCallbacks.get() + nRows.get();
            TimeUnit.SECONDS.sleep(Math.min(REPORT_S, seconds));
            Held now = Held.now();
            isConstant &= now.isConstantSince(before);
            long rate = (nCallbacks.get() + nRows.get() - start) / Math.min(REPORT_S, seconds);
            System.out.println(rate + " updates/s, " + now + (now.isConstantSince(before) ? "" : " GROWS"));
        }
        isRunning = false;
        rows.join();
        return ledger(monitors, group, sequences) & isConstant;
    }

    private void delivered(Sequence sequence, Event<Double> event) {
        sequence.event(event);
        if (event instanceof Event.Update<Double>) {
            nCallbacks.incrementAndGet();
        } else if (event instanceof Event.Merged<Double> merged) {
            nMerged.addAndGet(merged.updates());
        } else if (!(event instanceof Event.Connected<Double>) && isRunning) {
            fault = "unexpected: " + event;
        }
    }

    private void takeRows(MonitorGroup group, List<Sequence> sequences) {
        GroupRows rows = group.rows(4096);
        while (isRunning && group.take(rows, Duration.ofMillis(200))) {
            for (int row = 0; row < rows.size(); row++) {
                sequences.get(N_CALLBACKS + rows.index(row)).update(rows.value(row), rows.merged(row));
            }
            nRows.addAndGet(rows.size());
        }
    }

    /** Compares what arrived with the counters of the library, after everything has been closed. */
    private boolean ledger(List<Monitor<Double>> monitors, MonitorGroup group, List<Sequence> sequences)
            throws InterruptedException {
        monitors.forEach(Monitor::close);
        // A callback that runs at this moment ends.
        TimeUnit.SECONDS.sleep(1);
        long received = 0;
        long delivered = 0;
        long merged = 0;
        long overrun = 0;
        for (Monitor<Double> monitor : monitors) {
            MonitorCounts counts = monitor.counts();
            received += counts.received();
            delivered += counts.delivered();
            merged += counts.merged();
            overrun += counts.overrun();
        }
        GroupCounts rows = group.counts();
        long waiting = received - delivered - merged;
        System.out.printf(
                "callbacks: received %d = delivered %d + merged %d + dropped by close %d; overrun %d; callbacks ran %d%n",
                received, delivered, merged, waiting, overrun, nCallbacks.get());
        long unexplained = rows.received() - rows.delivered() - rows.merged() - rows.removed() - rows.waiting();
        System.out.printf("rows: %s; rows taken %d; unexplained %d%n", rows, nRows.get(), unexplained);
        List<String> faults = new ArrayList<>();
        for (Sequence sequence : sequences) {
            try {
                sequence.check();
            } catch (AssertionError error) {
                faults.add(error.getMessage());
            }
        }
        System.out.println("counters out of sequence: " + faults.size() + " " + faults.stream().limit(5).toList());
        if (fault != null) {
            System.out.println(fault);
        }
        boolean isExplained = unexplained == 0
                && waiting >= 0
                && nRows.get() == rows.delivered()
                && nCallbacks.get() <= delivered
                && delivered <= nCallbacks.get() + waiting + monitors.size() * 64L;
        return isExplained && faults.isEmpty() && fault == null;
    }
}
