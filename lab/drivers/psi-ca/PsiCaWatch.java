package lab;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

import org.epics.ca.Channel;
import org.epics.ca.Context;
import org.epics.ca.data.Timestamped;

/**
 * PSI's {@code org.epics.ca} under a load.
 *
 * <p>A monitor with time stamps writes each update into the one object that it hands out. So a subscription that
 * is behind shows a later update twice and never the one before; it is counted as what a user sees.
 */
public final class PsiCaWatch implements Watch.Watcher {
    private final Context context = new Context();

    private PsiCaWatch() {
    }

    public static void main(String[] arguments) throws IOException {
        if (System.getProperty("CA_MONITOR_NOTIFIER_IMPL") == null) {
            // The default of 16 threads does not keep the order of a subscription's updates.
            System.setProperty("CA_MONITOR_NOTIFIER_IMPL", "BlockingQueueSingleWorkerMonitorNotificationServiceImpl");
        }
        Watch.serve(arguments[0], new PsiCaWatch());
    }

    @Override
    public void watch(List<String> names, List<List<Watch.Tally>> tallies) throws Exception {
        List<Channel<Double>> channels = new ArrayList<>(names.size());
        List<CompletableFuture<?>> connects = new ArrayList<>(names.size());
        for (String name : names) {
            Channel<Double> channel = context.createChannel(name, Double.class);
            channels.add(channel);
            connects.add(channel.connectAsync());
        }
        CompletableFuture<Void> all = CompletableFuture.allOf(connects.toArray(new CompletableFuture<?>[0]));
        all.get(Watch.FIRST_UPDATES_S_MAX, TimeUnit.SECONDS);
        for (int pv = 0; pv < channels.size(); pv++) {
            for (Watch.Tally tally : tallies.get(pv)) {
                channels.get(pv).<Timestamped<Double>>addMonitor(
                    Timestamped.class,
                    reading -> tally.add(reading.getValue(), reading.getSeconds(), reading.getNanos()));
            }
        }
    }
}
