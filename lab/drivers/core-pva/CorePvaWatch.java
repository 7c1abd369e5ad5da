package lab;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.logging.Level;

import org.epics.pva.PVASettings;
import org.epics.pva.client.PVAChannel;
import org.epics.pva.client.PVAClient;
import org.epics.pva.data.PVAData;
import org.epics.pva.data.PVADoubleArray;
import org.epics.pva.data.PVAInt;
import org.epics.pva.data.PVALong;
import org.epics.pva.data.PVANumber;
import org.epics.pva.data.PVAStructure;

/** Phoebus' core-pva under a load; its thread that receives a connection calls back. */
public final class CorePvaWatch implements Watch.Watcher {
    /** By default 4 updates are queued before they are merged; more are requested by flow control only. */
    private static final int QUEUE_SIZE = 100;

    private final PVAClient client = new PVAClient();

    private CorePvaWatch() throws Exception {
    }

    public static void main(String[] arguments) throws Exception {
        PVASettings.logger.setLevel(Level.WARNING);
        Watch.serve(arguments[0], new CorePvaWatch());
    }

    @Override
    public void watch(List<String> names, List<List<Watch.Tally>> tallies) throws Exception {
        List<PVAChannel> channels = new ArrayList<>(names.size());
        for (String name : names) {
            channels.add(client.getChannel(name, (channel, state) -> { }));
        }
        CompletableFuture<?>[] connects = channels.stream().map(PVAChannel::connect).toArray(CompletableFuture<?>[]::new);
        CompletableFuture.allOf(connects).get(Watch.FIRST_UPDATES_S_MAX, TimeUnit.SECONDS);
        for (int pv = 0; pv < channels.size(); pv++) {
            for (Watch.Tally tally : tallies.get(pv)) {
                channels.get(pv).subscribe("field(value, timeStamp)", QUEUE_SIZE, (channel, changes, overruns, update) -> {
                    // The end of a subscription has no value.
                    if (update != null) {
                        add(tally, update);
                    }
                });
            }
        }
    }

    private static void add(Watch.Tally tally, PVAStructure update) {
        PVAStructure stamp = update.get("timeStamp");
        PVALong seconds = stamp.get("secondsPastEpoch");
        PVAInt nanos = stamp.get("nanoseconds");
        PVAData value = update.get("value");
        double encoded = value instanceof PVADoubleArray array
            ? Watch.encoded(array.get()) : ((PVANumber) value).getNumber().doubleValue();
        tally.add(encoded, seconds.get(), nanos.get());
    }
}
