package lab;

import io.github.fodopv.Channel;
import io.github.fodopv.Context;
import io.github.fodopv.Event;
import io.github.fodopv.GroupCounts;
import io.github.fodopv.GroupOptions;
import io.github.fodopv.GroupRows;
import io.github.fodopv.Info;
import io.github.fodopv.Monitor;
import io.github.fodopv.MonitorCounts;
import io.github.fodopv.MonitorGroup;
import io.github.fodopv.MonitorOptions;
import io.github.fodopv.Reading;
import io.github.fodopv.Value;

import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;

/** Fodo in Java under a load: callbacks, on a thread that the variant selects, or rows of a group. */
public final class FodoJavaWatch implements Watch.Watcher {
    private static final int ROWS = 4096;
    private static final Duration TAKE_MAX = Duration.ofMillis(100);

    private final Context context = new Context();
    private final String variant;
    private final List<Monitor<Value>> monitors = new ArrayList<>();
    private final List<Channel<Value>> idle = new ArrayList<>();
    private MonitorGroup group;

    private FodoJavaWatch(String variant) {
        this.variant = variant;
    }

    public static void main(String[] arguments) throws Exception {
        Watch.serve(arguments[0], new FodoJavaWatch(arguments[2]));
    }

    @Override
    public void watch(List<String> names, List<List<Watch.Tally>> tallies) throws Exception {
        if (variant.equals("rows")) {
            watchRows(names, tallies);
            return;
        }
        MonitorOptions options = FodoJava.monitorOptions(variant);
        for (int pv = 0; pv < names.size(); pv++) {
            Channel<Value> channel = context.channel(names.get(pv));
            for (Watch.Tally tally : tallies.get(pv)) {
                monitors.add(channel.monitor(options, event -> {
                    if (event instanceof Event.Update<Value> update) {
                        add(tally, update.reading());
                    }
                }));
            }
        }
    }

    @Override
    public long connect(List<String> names) {
        List<CompletableFuture<Info>> connects = new ArrayList<>(names.size());
        for (String name : names) {
            Channel<Value> channel = context.channel(name);
            idle.add(channel);
            connects.add(channel.connectAsync());
        }
        connects.forEach(CompletableFuture::join);
        return idle.stream().filter(Channel::isConnected).count();
    }

    private static void add(Watch.Tally tally, Reading<Value> reading) {
        Value value = reading.value();
        double encoded = value instanceof Value.Array array ? Watch.encoded(array.toDoubleArray()) : value.toDouble();
        Instant time = reading.time();
        tally.add(encoded, time == null ? 0 : time.getEpochSecond(), time == null ? 0 : time.getNano());
    }

    private void watchRows(List<String> names, List<List<Watch.Tally>> tallies) {
        List<String> members = new ArrayList<>();
        List<Watch.Tally> ofMembers = new ArrayList<>();
        for (int pv = 0; pv < names.size(); pv++) {
            for (Watch.Tally tally : tallies.get(pv)) {
                members.add(names.get(pv));
                ofMembers.add(tally);
            }
        }
        group = context.monitorGroup(members, GroupOptions.defaults());
        Watch.Tally[] byIndex = ofMembers.toArray(new Watch.Tally[0]);
        Thread taking = new Thread(() -> take(byIndex), "lab-rows");
        taking.setDaemon(true);
        taking.start();
    }

    private void take(Watch.Tally[] byIndex) {
        GroupRows rows = group.rows(ROWS);
        while (true) {
            group.take(rows, TAKE_MAX);
            int n = rows.size();
            long nowNs = System.nanoTime();
            long unixNs = Watch.unixNs();
            for (int row = 0; row < n; row++) {
                long stampNs = rows.seconds(row) * 1_000_000_000L + rows.nanos(row);
                byIndex[rows.index(row)].add(rows.value(row), stampNs, nowNs, unixNs);
            }
        }
    }

    @Override
    public Watch.Counts counts() {
        if (group != null) {
            GroupCounts counts = group.counts();
            return new Watch.Counts(counts.received(), counts.merged());
        }
        long received = 0;
        long merged = 0;
        for (Monitor<Value> monitor : monitors) {
            MonitorCounts counts = monitor.counts();
            received += counts.received();
            merged += counts.merged();
        }
        return new Watch.Counts(received, merged);
    }
}
