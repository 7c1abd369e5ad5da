import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

import org.epics.pva.client.ClientChannelState;
import org.epics.pva.client.PVAChannel;
import org.epics.pva.client.PVAClient;
import org.epics.pva.data.PVAData;
import org.epics.pva.data.PVADouble;
import org.epics.pva.data.PVAString;
import org.epics.pva.data.PVAStringArray;
import org.epics.pva.data.PVAStructure;
import org.epics.pva.data.PVAny;

/** Phoebus' core-pva, driven by lines of JSON as described in {@code lines.py}. */
public final class CorePvaClient {
    private static final List<List<String>> LIMITS = List.of(
        List.of("display.limitLow", "display.limitHigh"),
        List.of("valueAlarm.lowAlarmLimit", "valueAlarm.highAlarmLimit"),
        List.of("valueAlarm.lowWarningLimit", "valueAlarm.highWarningLimit"),
        List.of("control.limitLow", "control.limitHigh"));

    private final PVAClient client = new PVAClient();
    private final Map<String, PVAChannel> channels = new HashMap<>();
    private final List<BlockingQueue<Map<String, Object>>> updates = new ArrayList<>();
    private final List<PVAChannel> monitored = new ArrayList<>();

    private CorePvaClient() throws Exception {
    }

    public static void main(String[] arguments) throws Exception {
        Lines.serve(new CorePvaClient()::answer);
    }

    private Map<String, Object> answer(Lines.Request request) throws Exception {
        return switch (request.text("do")) {
            case "connect" -> connect(request);
            case "get" -> sample(read(request), request.text("shape").equals("control"));
            case "put" -> put(request);
            case "put_pattern" -> write(request, "value", Lines.pattern(request), true);
            case "monitor" -> monitor(request);
            case "take" -> Lines.take(request, updates);
            case "end_monitors" -> endMonitors();
            case "describe" -> describe(request);
            case "get_structure" -> Map.of("result", CorePva.shown(read(request)));
            case "put_fields" -> putFields(request);
            case "call" -> call(request);
            default -> throw new IllegalArgumentException("core-pva has no request for " + request.text("do"));
        };
    }

    private Map<String, Object> connect(Lines.Request request) throws Exception {
        PVAStructure type = type(request);
        PVAData value = type.get("value");
        String kind = value instanceof PVAStructure ? "enum" : value.getType();
        // The protocol does not report the maximum number of elements.
        return Map.of(
            "id", type.getStructureName(),
            "kind", kind.replace("[]", ""),
            "count", kind.endsWith("[]") ? 0 : 1,
            "may_write", channel(request).isWritable());
    }

    private Map<String, Object> describe(Lines.Request request) throws Exception {
        PVAStructure type = type(request);
        return Map.of("result", Map.of("id", type.getStructureName(), "members", CorePva.types(type.get())));
    }

    private Map<String, Object> put(Lines.Request request) throws Exception {
        Object value = request.members().get("value");
        PVAData target = type(request).get("value");
        if (value instanceof String label && target instanceof PVAStructure) {
            // The library writes indices only; Phoebus looks up the label as well.
            PVAStructure states = read(request).get("value");
            PVAStringArray choices = states.get("choices");
            value = List.of(choices.get()).indexOf(label);
        }
        return write(request, "value", value, request.is("wait"));
    }

    private Map<String, Object> putFields(Lines.Request request) throws Exception {
        for (Map.Entry<?, ?> field : ((Map<?, ?>) request.members().get("fields")).entrySet()) {
            String path = (String) field.getKey();
            PVAData target = type(request).locate(path);
            Object value = target instanceof PVAny ? variant(field.getValue()) : field.getValue();
            write(request, path, value, true);
        }
        return Map.of();
    }

    private Map<String, Object> write(Lines.Request request, String path, Object value, boolean wait)
        throws Exception {
        CompletableFuture<Void> written = channel(request).write(wait, "field(" + path + ")", value);
        if (wait) {
            within(request, written);
        }
        return Map.of();
    }

    private Map<String, Object> call(Lines.Request request) throws Exception {
        List<PVAData> query = new ArrayList<>();
        ((Map<?, ?>) request.members().get("query")).forEach(
            (name, value) -> query.add(new PVADouble((String) name, ((Number) value).doubleValue())));
        PVAStructure argument = new PVAStructure(
            "", "epics:nt/NTURI:1.0",
            new PVAString("scheme", "pva"),
            new PVAString("path", request.text("pv")),
            new PVAStructure("query", "", query));
        return Map.of("result", CorePva.shown(within(request, channel(request).invoke(argument))));
    }

    /** Every subscription has its own channel: the library ends subscriptions with the connection. */
    private Map<String, Object> monitor(Lines.Request request) {
        BlockingQueue<Map<String, Object>> queue = new LinkedBlockingQueue<>();
        updates.add(queue);
        int window = request.members().get("window") == null ? 0 : request.number("window").intValue();
        boolean isStructure = request.is("structure");
        monitored.add(client.getChannel(request.text("pv"), (channel, state) -> {
            if (state != ClientChannelState.CONNECTED) {
                return;
            }
            try {
                channel.subscribe("", window, (source, changes, overruns, structure) ->
                    queue.add(update(structure, isStructure)));
            } catch (Exception why) {
                queue.add(Map.of("value", why.toString()));
            }
        }));
        return Map.of("monitor", updates.size() - 1);
    }

    private Map<String, Object> update(PVAStructure structure, boolean isStructure) {
        try {
            return isStructure ? Map.of("value", CorePva.shown(structure)) : sample(structure, false);
        } catch (Exception why) {
            return Map.of("value", why.toString());
        }
    }

    private Map<String, Object> endMonitors() {
        monitored.forEach(PVAChannel::close);
        monitored.clear();
        return Map.of();
    }

    private PVAChannel channel(Lines.Request request) throws Exception {
        PVAChannel channel = channels.computeIfAbsent(request.text("pv"), client::getChannel);
        within(request, channel.connect());
        return channel;
    }

    private PVAStructure type(Lines.Request request) throws Exception {
        return within(request, channel(request).info(""));
    }

    private PVAStructure read(Lines.Request request) throws Exception {
        return within(request, channel(request).read(""));
    }

    private static <T> T within(Lines.Request request, CompletableFuture<T> future) throws Exception {
        return future.get(request.number("timeout").longValue(), TimeUnit.SECONDS);
    }

    private static PVAData variant(Object value) {
        return value instanceof Number number
            ? new PVADouble("", number.doubleValue()) : new PVAString("", (String) value);
    }

    private static Map<String, Object> sample(PVAStructure found, boolean isWhole) throws Exception {
        Map<String, Object> sample = new LinkedHashMap<>();
        sample.put("severity", CorePva.shown(found.locate("alarm.severity")));
        sample.put("seconds", CorePva.shown(found.locate("timeStamp.secondsPastEpoch")));
        sample.put("nanos", CorePva.shown(found.locate("timeStamp.nanoseconds")));
        PVAData value = found.get("value");
        if (value instanceof PVAStructure states) {
            sample.put("value", CorePva.shown(states.get("index")));
            sample.put("labels", CorePva.shown(states.get("choices")));
        } else {
            sample.put("value", CorePva.shown(value));
        }
        if (isWhole && found.get("valueAlarm") != null) {
            sample.put("units", CorePva.shown(found.locate("display.units")));
            sample.put("precision", CorePva.shown(found.locate("display.precision")));
            List<Object> limits = new ArrayList<>();
            for (List<String> pair : LIMITS) {
                limits.add(List.of(CorePva.shown(found.locate(pair.get(0))), CorePva.shown(found.locate(pair.get(1)))));
            }
            sample.put("limits", limits);
        }
        return sample;
    }
}
