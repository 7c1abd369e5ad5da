import java.io.IOException;
import java.lang.reflect.Array;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

import org.epics.ca.Channel;
import org.epics.ca.Context;
import org.epics.ca.Monitor;
import org.epics.ca.Status;
import org.epics.ca.data.Alarm;
import org.epics.ca.data.Control;
import org.epics.ca.data.Graphic;
import org.epics.ca.data.GraphicEnum;
import org.epics.ca.data.Metadata;
import org.epics.ca.data.Timestamped;

/** PSI's {@code org.epics.ca}, driven by lines of JSON as described in {@code lines.py}. */
public final class PsiCaClient {
    private static final String[] KINDS = {"STRING", "INT", "FLOAT", "ENUM", "CHAR", "LONG", "DOUBLE"};

    /** The class of one element; several elements are an array of it. */
    private static final Class<?>[] CLASSES =
        {String.class, Short.class, Float.class, Short.class, Byte.class, Integer.class, Double.class};

    private static final Class<?>[] ARRAY_CLASSES =
        {String[].class, short[].class, float[].class, short[].class, byte[].class, int[].class, double[].class};

    private final Context context = new Context();
    private final Map<String, Channel<?>> channels = new HashMap<>();
    private final List<BlockingQueue<Map<String, Object>>> updates = new ArrayList<>();
    private final List<Monitor<?>> monitors = new ArrayList<>();

    public static void main(String[] arguments) throws IOException {
        // The default of 16 threads does not keep the order of a subscription's updates.
        System.setProperty("CA_MONITOR_NOTIFIER_IMPL", "BlockingQueueSingleWorkerMonitorNotificationServiceImpl");
        Lines.serve(new PsiCaClient()::answer);
    }

    private Map<String, Object> answer(Lines.Request request) throws Exception {
        return switch (request.text("do")) {
            case "connect" -> connect(request);
            case "get" -> get(request);
            case "put" -> put(request, request.members().get("value"));
            case "put_pattern" -> putPattern(request);
            case "monitor" -> monitor(request);
            case "take" -> Lines.take(request, updates);
            case "end_monitors" -> endMonitors();
            default -> throw new IllegalArgumentException(request.text("do"));
        };
    }

    private Map<String, Object> connect(Lines.Request request) throws Exception {
        Channel<?> channel = channel(request, Object.class);
        return Map.of(
            "kind", KINDS[kind(channel)],
            "count", count(channel),
            "may_write", channel.getAccessRights().name().contains("WRITE"));
    }

    private Map<String, Object> get(Lines.Request request) throws Exception {
        Channel<?> channel = switch (request.text("shape")) {
            case "text" -> channel(request, String.class);
            case "long" -> channel(request, byte[].class);
            default -> nativeChannel(request);
        };
        if (request.text("shape").equals("control")) {
            boolean isEnum = channel(request, Object.class).getProperties().get("nativeTypeCode").equals((short) 3);
            return sample(within(request, metadata(channel, isEnum ? GraphicEnum.class : Control.class)));
        }
        Map<String, Object> sample = sample(within(request, metadata(channel, Timestamped.class)));
        if (request.text("shape").equals("long")) {
            sample.put("value", longText((List<?>) sample.get("value")));
        }
        return sample;
    }

    private Map<String, Object> put(Lines.Request request, Object value) throws Exception {
        boolean isText = value instanceof String || value instanceof List<?> list && list.get(0) instanceof String;
        Class<?> texts = value instanceof List<?> ? String[].class : String.class;
        @SuppressWarnings("unchecked")
        Channel<Object> channel = (Channel<Object>) (isText ? channel(request, texts) : nativeChannel(request));
        Class<?> wanted = isText ? texts : nativeClass(request);
        Object typed = typed(value, wanted);
        if (!request.is("wait")) {
            channel.putNoWait(typed);
            return Map.of();
        }
        Status status = (Status) within(request, channel.putAsync(typed));
        if (!status.isSuccessful()) {
            throw new IllegalStateException(status.toString());
        }
        return Map.of();
    }

    private Map<String, Object> putPattern(Lines.Request request) throws Exception {
        @SuppressWarnings("unchecked")
        Channel<int[]> channel = (Channel<int[]>) channel(request, int[].class);
        within(request, channel.putAsync(Lines.pattern(request)));
        return Map.of();
    }

    private Map<String, Object> monitor(Lines.Request request) throws Exception {
        BlockingQueue<Map<String, Object>> queue = new LinkedBlockingQueue<>();
        updates.add(queue);
        @SuppressWarnings("unchecked")
        Channel<Object> channel = (Channel<Object>) nativeChannel(request);
        // The library reuses one object for all updates, so it is copied at once.
        monitors.add(channel.<Timestamped<Object>>addMonitor(
            Timestamped.class, update -> queue.add(sample(update)), request.number("mask").intValue()));
        return Map.of("monitor", updates.size() - 1);
    }

    private Map<String, Object> endMonitors() {
        monitors.forEach(Monitor::close);
        monitors.clear();
        return Map.of();
    }

    private Channel<?> channel(Lines.Request request, Class<?> type) throws Exception {
        String key = type.getName() + " " + request.text("pv");
        Channel<?> channel = channels.get(key);
        if (channel == null) {
            channel = context.createChannel(request.text("pv"), type);
            within(request, channel.connectAsync());
            channels.put(key, channel);
        }
        return channel;
    }

    /** A channel of the server's type; an enum as its number. */
    private Channel<?> nativeChannel(Lines.Request request) throws Exception {
        return channel(request, nativeClass(request));
    }

    private Class<?> nativeClass(Lines.Request request) throws Exception {
        Channel<?> channel = channel(request, Object.class);
        return (count(channel) == 1 ? CLASSES : ARRAY_CLASSES)[kind(channel)];
    }

    private static int kind(Channel<?> channel) {
        return (Short) channel.getProperties().get("nativeTypeCode");
    }

    private static int count(Channel<?> channel) {
        return (Integer) channel.getProperties().get("nativeElementCount");
    }

    @SuppressWarnings("unchecked")
    private static CompletableFuture<?> metadata(Channel<?> channel, Class<? extends Metadata> kind) {
        return ((Channel<Object>) channel).getAsync(kind);
    }

    private static Object within(Lines.Request request, CompletableFuture<?> future) throws Exception {
        return future.get(request.number("timeout").longValue(), TimeUnit.SECONDS);
    }

    private static Map<String, Object> sample(Object found) {
        Map<String, Object> sample = new LinkedHashMap<>();
        sample.put("value", shown(((Metadata<?>) found).getValue()));
        if (found instanceof Alarm<?> alarm) {
            sample.put("severity", alarm.getAlarmSeverity().ordinal());
        }
        if (found instanceof Timestamped<?> timestamped) {
            sample.put("seconds", timestamped.getSeconds());
            sample.put("nanos", timestamped.getNanos());
        }
        if (found instanceof GraphicEnum states) {
            sample.put("labels", List.of(states.getLabels()));
        }
        if (found instanceof Graphic<?, ?> graphic) {
            sample.put("units", graphic.getUnits());
            sample.put("precision", graphic.getPrecision());
            Control<?, ?> control = (Control<?, ?>) found;
            sample.put("limits", List.of(
                List.of(graphic.getLowerDisplay(), graphic.getUpperDisplay()),
                List.of(graphic.getLowerAlarm(), graphic.getUpperAlarm()),
                List.of(graphic.getLowerWarning(), graphic.getUpperWarning()),
                List.of(control.getLowerControl(), control.getUpperControl())));
        }
        return sample;
    }

    private static Object shown(Object value) {
        if (value.getClass().isArray()) {
            return Lines.shown(value, PsiCaClient::shown);
        }
        return value instanceof Byte octet ? (Object) (octet & 0xff) : value;
    }

    private static String longText(List<?> octets) {
        StringBuilder text = new StringBuilder();
        for (Object octet : octets) {
            if (octet.equals(0)) {
                break;
            }
            text.append((char) ((Integer) octet).intValue());
        }
        return text.toString();
    }

    private static Object typed(Object value, Class<?> wanted) {
        if (!(value instanceof List<?> elements)) {
            return element(value, wanted);
        }
        Object array = Array.newInstance(wanted.getComponentType(), elements.size());
        for (int index = 0; index < elements.size(); index++) {
            Array.set(array, index, element(elements.get(index), wanted.getComponentType()));
        }
        return array;
    }

    private static Object element(Object value, Class<?> wanted) {
        if (value instanceof String) {
            return value;
        }
        Double number = ((Number) value).doubleValue();
        return switch (wanted.getSimpleName()) {
            case "Short", "short" -> (short) number.intValue();
            case "Byte", "byte" -> (byte) number.intValue();
            case "Integer", "int" -> number.intValue();
            case "Float", "float" -> number.floatValue();
            case "String" -> value.toString();
            default -> number;
        };
    }
}
