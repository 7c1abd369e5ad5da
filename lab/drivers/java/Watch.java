package lab;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The watching end of a load in Java; {@code lab/src/load/worker.rs} has the requests. */
final class Watch {
    /** Maximum time until every subscription has its first update. */
    static final long FIRST_UPDATES_S_MAX = 30;
    private static final long LATENCY_NS_MAX = 60_000_000_000L;
    private static final Latencies LATENCIES = new Latencies();
    private static final Pattern WATCH =
        Pattern.compile("\\{\"watch\":\\{\"n_pvs\":(\\d+),\"n_subscriptions\":(\\d+)\\}\\}");
    private static final Pattern CONNECT =
        Pattern.compile("\\{\"connect\":\\{\"n_channels\":(\\d+),\"n_pvs\":(\\d+)\\}\\}");

    private final boolean isChecked;
    private final Watcher watcher;
    private final List<Tally> tallies = new ArrayList<>();
    private Counts countsBefore = new Counts(0, 0);

    private Watch(boolean isChecked, Watcher watcher) {
        this.isChecked = isChecked;
        this.watcher = watcher;
    }

    /** A client that subscribes. */
    interface Watcher {
        /** Subscribes to each name once for each of its tallies, to which it adds every update. */
        void watch(List<String> names, List<List<Tally>> tallies) throws Exception;

        /** Connects a further channel to each name and keeps it; returns how many channels are connected. */
        default long connect(List<String> names) throws Exception {
            throw new UnsupportedOperationException("this watcher connects no channels without subscriptions");
        }

        /** What the client has received and merged since its start; {@code null} for one that does not report it. */
        default Counts counts() {
            return null;
        }
    }

    /** Updates received from the server, and those replaced by newer ones before they were delivered. */
    record Counts(long received, long merged) {
    }

    /** Answers every line of the input, then ends this process. {@code numbers}: how values encode their number. */
    static void serve(String numbers, Watcher watcher) throws IOException {
        PrintStream output = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        // Prints of the library are not answers.
        System.setOut(System.err);
        Watch watch = new Watch(numbers.equals("checked"), watcher);
        output.println("load worker ready");
        output.flush();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.println(watch.answer(line.trim()));
            output.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String line) {
        Matcher request = WATCH.matcher(line);
        Matcher connect = CONNECT.matcher(line);
        try {
            if (connect.matches()) {
                return connect(Integer.parseInt(connect.group(1)), Integer.parseInt(connect.group(2)));
            }
            if (request.matches()) {
                return watch(Integer.parseInt(request.group(1)), Integer.parseInt(request.group(2)));
            }
            if (line.equals("{\"restart\":{}}")) {
                tallies.forEach(Tally::restart);
                LATENCIES.clear();
                countsBefore = watcher.counts() == null ? countsBefore : watcher.counts();
                return "{\"restarted\":{}}";
            }
            return line.equals("{\"count\":{}}") ? tallied() : failed("this watcher does not support the request");
        } catch (Exception why) {
            return failed(why.toString());
        }
    }

    private static String failed(String why) {
        return "{\"failed\":{\"why\":\"" + why.replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"}}";
    }

    private String connect(int channelCount, int pvCount) throws Exception {
        List<String> names = new ArrayList<>(channelCount);
        for (int index = 0; index < channelCount; index++) {
            names.add(name(index % pvCount));
        }
        return "{\"connected\":{\"n_channels\":" + watcher.connect(names) + "}}";
    }

    private static String name(int pv) {
        return String.format("load:%06d", pv);
    }

    private String watch(int pvCount, int subscriptionCount) throws Exception {
        List<String> names = new ArrayList<>(pvCount);
        List<List<Tally>> talliesOfPvs = new ArrayList<>(pvCount);
        for (int pv = 0; pv < pvCount; pv++) {
            List<Tally> ofPv = new ArrayList<>(subscriptionCount);
            for (int index = 0; index < subscriptionCount; index++) {
                ofPv.add(new Tally(pv, isChecked));
            }
            names.add(name(pv));
            talliesOfPvs.add(ofPv);
            tallies.addAll(ofPv);
        }
        watcher.watch(names, talliesOfPvs);
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(FIRST_UPDATES_S_MAX);
        while (tallies.stream().anyMatch(tally -> !tally.hasBegun())) {
            if (System.nanoTime() > deadline) {
                long begun = tallies.stream().filter(Tally::hasBegun).count();
                return failed(begun + " of " + tallies.size() + " first updates were received");
            }
            Thread.sleep(5);
        }
        return "{\"watching\":{\"n_subscriptions\":" + tallies.size() + "}}";
    }

    private String tallied() {
        Counts counts = watcher.counts();
        Tally sums = new Tally(0, isChecked);
        tallies.forEach(sums::take);
        StringJoiner pairs = new StringJoiner(",", "[", "]");
        LATENCIES.forEach((bound, count) -> pairs.add("[" + bound + "," + count + "]"));
        long received = counts == null ? sums.received : counts.received() - countsBefore.received();
        long merged = counts == null ? 0 : counts.merged() - countsBefore.merged();
        return "{\"tallied\":{\"sums\":{\"received\":" + sums.received + ",\"missing\":" + sums.missing
            + ",\"duplicates\":" + sums.duplicates + ",\"out_of_order\":" + sums.outOfOrder + ",\"wrong\":" + sums.wrong
            + ",\"longest_gap_ms\":" + sums.gapNsMax / 1e6 + "},\"merged\":" + merged + ",\"received\":" + received
            + ",\"latencies\":" + pairs + "}}";
    }

    /** Nanoseconds since 1970. */
    static long unixNs() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000_000L + now.getNano();
    }

    /** The latencies of all subscriptions: counts of buckets, 128 for each power of two. */
    private static final class Latencies {
        private static final int SHIFT_MAX = Long.SIZE - Long.numberOfLeadingZeros(LATENCY_NS_MAX) - 8;
        private static final int BUCKETS = 256;

        private final AtomicLongArray counts = new AtomicLongArray((SHIFT_MAX + 1) * BUCKETS);

        private void add(long latencyNs) {
            long ns = Math.min(Math.max(latencyNs, 1), LATENCY_NS_MAX);
            int shift = Math.max(Long.SIZE - Long.numberOfLeadingZeros(ns) - 8, 0);
            counts.getAndIncrement(shift * BUCKETS + (int) (ns >> shift));
        }

        private void clear() {
            for (int index = 0; index < counts.length(); index++) {
                counts.set(index, 0);
            }
        }

        /** Calls with the upper bound and the count of each bucket that is not empty, ascending. */
        private void forEach(LongBinary pair) {
            for (int index = 0; index < counts.length(); index++) {
                long count = counts.get(index);
                if (count > 0) {
                    pair.accept((((long) (index % BUCKETS) + 1) << (index / BUCKETS)) - 1, count);
                }
            }
        }
    }

    private interface LongBinary {
        void accept(long bound, long count);
    }

    /** The value that an array encodes by its ends, see {@code lab/src/load/tally.rs}; NaN for any other array. */
    static double encoded(double[] elements) {
        int n = elements.length;
        return n > 0 && elements[n - 1] == elements[0] + n ? elements[0] : Double.NaN;
    }

    /** The tally of one subscription, like {@code lab/src/load/tally.rs}. */
    static final class Tally {
        private final int pv;
        private final boolean isChecked;
        private long last = -1;
        private long lastNs;
        private boolean hasLastNs;
        private long received;
        private long missing;
        private long duplicates;
        private long outOfOrder;
        private long wrong;
        private long gapNsMax;

        private Tally(int pv, boolean isChecked) {
            this.pv = pv;
            this.isChecked = isChecked;
        }

        private synchronized boolean hasBegun() {
            return last >= 0;
        }

        private synchronized void restart() {
            received = missing = duplicates = outOfOrder = wrong = gapNsMax = 0;
            hasLastNs = false;
        }

        /** Counts an update on arrival, with its time stamp. */
        void add(double value, long seconds, long nanos) {
            add(value, seconds * 1_000_000_000L + nanos, System.nanoTime(), unixNs());
        }

        /** The same for an update whose arrival was read from both clocks. */
        synchronized void add(double value, long stampNs, long nowNs, long unixNs) {
            gapNsMax = hasLastNs ? Math.max(gapNsMax, nowNs - lastNs) : gapNsMax;
            lastNs = nowNs;
            hasLastNs = true;
            long number = decode(value);
            if (last < 0) {
                // The first update is the value before the load; it only sets where counting starts.
                wrong += number < 0 ? 1 : 0;
                last = number;
                return;
            }
            received++;
            LATENCIES.add(unixNs - stampNs);
            if (number < 0) {
                wrong++;
            } else if (number == last) {
                duplicates++;
            } else if (number < last) {
                outOfOrder++;
            } else {
                missing += number - last - 1;
                last = number;
            }
        }

        /** The number that a value encodes; -1 for a value that its PV never had. */
        private long decode(double value) {
            if (!(value >= 0 && value < 9e15 && value == Math.rint(value))) {
                return -1;
            }
            long whole = (long) value;
            if (!isChecked) {
                return whole;
            }
            long number = whole / 256;
            long mixed = (((long) pv << 32) ^ number) * 0x9E3779B97F4A7C15L;
            return mixed >>> 56 == whole % 256 ? number : -1;
        }

        private void take(Tally other) {
            synchronized (other) {
                received += other.received;
                missing += other.missing;
                duplicates += other.duplicates;
                outOfOrder += other.outOfOrder;
                wrong += other.wrong;
                gapNsMax = Math.max(gapNsMax, other.gapNsMax);
            }
        }
    }
}
