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
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.epics.ca.Channel;
import org.epics.ca.Context;
import org.epics.ca.data.Timestamped;

/**
 * PSI's {@code org.epics.ca} under a load; {@code lab/src/load/worker.rs} has the requests.
 *
 * <p>A monitor with time stamps writes each update into the one object that it hands out. So a subscription that
 * is behind shows a later update twice and never the one before; it is counted as what a user sees.
 */
public final class PsiCaWatch {
    private static final long FIRST_UPDATES_S_MAX = 30;
    private static final long LATENCY_NS_MAX = 60_000_000_000L;
    private static final Pattern WATCH =
        Pattern.compile("\\{\"watch\":\\{\"n_pvs\":(\\d+),\"n_subscriptions\":(\\d+)\\}\\}");

    private final boolean isChecked;
    private final Context context = new Context();
    private final List<Tally> tallies = new ArrayList<>();

    private PsiCaWatch(boolean isChecked) {
        this.isChecked = isChecked;
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream output = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        // Prints of the library are not answers.
        System.setOut(System.err);
        // The default of 16 threads does not keep the order of a subscription's updates.
        System.setProperty("CA_MONITOR_NOTIFIER_IMPL", "BlockingQueueSingleWorkerMonitorNotificationServiceImpl");
        PsiCaWatch watcher = new PsiCaWatch(arguments[0].equals("checked"));
        output.println("load worker ready");
        output.flush();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            output.println(watcher.answer(line.trim()));
            output.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private String answer(String line) {
        Matcher watch = WATCH.matcher(line);
        try {
            if (watch.matches()) {
                return watch(Integer.parseInt(watch.group(1)), Integer.parseInt(watch.group(2)));
            }
            if (line.equals("{\"restart\":{}}")) {
                tallies.forEach(Tally::restart);
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

    private String watch(int pvCount, int subscriptionCount) throws Exception {
        List<Channel<Double>> channels = new ArrayList<>(pvCount);
        List<CompletableFuture<?>> connects = new ArrayList<>(pvCount);
        for (int pv = 0; pv < pvCount; pv++) {
            Channel<Double> channel = context.createChannel(String.format("load:%06d", pv), Double.class);
            channels.add(channel);
            connects.add(channel.connectAsync());
        }
        CompletableFuture.allOf(connects.toArray(new CompletableFuture<?>[0])).get(FIRST_UPDATES_S_MAX, TimeUnit.SECONDS);
        for (int pv = 0; pv < pvCount; pv++) {
            for (int index = 0; index < subscriptionCount; index++) {
                Tally tally = new Tally(pv, isChecked);
                tallies.add(tally);
                channels.get(pv).<Timestamped<Double>>addMonitor(Timestamped.class, tally::add);
            }
        }
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

    /** Counts; this client does not report what it merges. */
    private String tallied() {
        Tally sums = new Tally(0, isChecked);
        tallies.forEach(sums::take);
        StringJoiner pairs = new StringJoiner(",", "[", "]");
        sums.latencies.forEach((bound, count) -> pairs.add("[" + bound + "," + count + "]"));
        return "{\"tallied\":{\"sums\":{\"received\":" + sums.received + ",\"missing\":" + sums.missing
            + ",\"duplicates\":" + sums.duplicates + ",\"out_of_order\":" + sums.outOfOrder + ",\"wrong\":" + sums.wrong
            + ",\"longest_gap_ms\":" + sums.gapNsMax / 1e6 + "},\"merged\":0,\"received\":" + sums.received
            + ",\"latencies\":" + pairs + "}}";
    }

    /** The tally of one subscription, like {@code lab/src/load/tally.rs}. */
    private static final class Tally {
        private final int pv;
        private final boolean isChecked;
        private final TreeMap<Long, Long> latencies = new TreeMap<>();
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
            latencies.clear();
        }

        private synchronized void add(Timestamped<Double> reading) {
            long nowNs = System.nanoTime();
            gapNsMax = hasLastNs ? Math.max(gapNsMax, nowNs - lastNs) : gapNsMax;
            lastNs = nowNs;
            hasLastNs = true;
            long number = decode(reading.getValue());
            if (last < 0) {
                // The first update is the value before the load; it only sets where counting starts.
                wrong += number < 0 ? 1 : 0;
                last = number;
                return;
            }
            received++;
            note(reading);
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

        private void note(Timestamped<Double> reading) {
            Instant now = Instant.now();
            long ns = (now.getEpochSecond() - reading.getSeconds()) * 1_000_000_000L + now.getNano() - reading.getNanos();
            ns = Math.min(Math.max(ns, 1), LATENCY_NS_MAX);
            // Upper bounds of buckets: 128 per power of two.
            int shift = Math.max(64 - Long.numberOfLeadingZeros(ns) - 8, 0);
            latencies.merge((((ns >> shift) + 1) << shift) - 1, 1L, Long::sum);
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
                other.latencies.forEach((bound, count) -> latencies.merge(bound, count, Long::sum));
            }
        }
    }
}
