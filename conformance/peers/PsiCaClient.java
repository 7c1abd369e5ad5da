import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
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

    /** Element {@code i} of the pattern {@code first} is {@code first + STEP * i}, wrapped to 32 bits. */
    private static final int STEP = 7919;

    /** Longer values are not printed but compared with the pattern. */
    private static final int SHOWN_MAX = 1000;

    private final Context context = new Context();
    private final Map<String, Channel<?>> channels = new HashMap<>();
    private final List<BlockingQueue<Map<String, Object>>> updates = new ArrayList<>();
    private final List<Monitor<?>> monitors = new ArrayList<>();

    public static void main(String[] arguments) throws IOException {
        PrintStream output = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        // Prints of the library are not answers.
        System.setOut(System.err);
        // The default of 16 threads does not keep the order of a subscription's updates.
        System.setProperty("CA_MONITOR_NOTIFIER_IMPL", "BlockingQueueSingleWorkerMonitorNotificationServiceImpl");
        PsiCaClient client = new PsiCaClient();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Object answer;
            try {
                answer = client.answer(new Request((Map<?, ?>) new Json(line).value()));
            } catch (ExecutionException why) {
                answer = Map.of("error", String.valueOf(why.getCause()));
            } catch (Exception why) {
                answer = Map.of("error", why.toString());
            }
            output.println(Json.text(answer));
            output.flush();
        }
        // The library's threads would keep the process alive.
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> answer(Request request) throws Exception {
        return switch (request.text("do")) {
            case "connect" -> connect(request);
            case "get" -> get(request);
            case "put" -> put(request, request.members().get("value"));
            case "put_pattern" -> putPattern(request);
            case "monitor" -> monitor(request);
            case "take" -> take(request);
            case "end_monitors" -> endMonitors();
            default -> throw new IllegalArgumentException(request.text("do"));
        };
    }

    private Map<String, Object> connect(Request request) throws Exception {
        Channel<?> channel = channel(request, Object.class);
        return Map.of(
            "kind", KINDS[kind(channel)],
            "count", count(channel),
            "may_write", channel.getAccessRights().name().contains("WRITE"));
    }

    private Map<String, Object> get(Request request) throws Exception {
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

    private Map<String, Object> put(Request request, Object value) throws Exception {
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

    private Map<String, Object> putPattern(Request request) throws Exception {
        int[] elements = new int[request.number("count").intValue()];
        for (int index = 0; index < elements.length; index++) {
            elements[index] = STEP * index + request.number("first").intValue();
        }
        @SuppressWarnings("unchecked")
        Channel<int[]> channel = (Channel<int[]>) channel(request, int[].class);
        within(request, channel.putAsync(elements));
        return Map.of();
    }

    private Map<String, Object> monitor(Request request) throws Exception {
        BlockingQueue<Map<String, Object>> queue = new LinkedBlockingQueue<>();
        updates.add(queue);
        @SuppressWarnings("unchecked")
        Channel<Object> channel = (Channel<Object>) nativeChannel(request);
        // The library reuses one object for all updates, so it is copied at once.
        monitors.add(channel.<Timestamped<Object>>addMonitor(
            Timestamped.class, update -> queue.add(sample(update)), request.number("mask").intValue()));
        return Map.of("monitor", updates.size() - 1);
    }

    private Map<String, Object> take(Request request) throws Exception {
        BlockingQueue<Map<String, Object>> queue = updates.get(request.number("monitor").intValue());
        long deadline = System.nanoTime() + (long) (request.number("timeout").doubleValue() * 1e9);
        List<Object> taken = new ArrayList<>();
        while (taken.size() < request.number("count").intValue()) {
            Map<String, Object> update = queue.poll(Math.max(0, deadline - System.nanoTime()), TimeUnit.NANOSECONDS);
            if (update == null) {
                break;
            }
            taken.add(update);
        }
        return Map.of("updates", taken);
    }

    private Map<String, Object> endMonitors() {
        monitors.forEach(Monitor::close);
        monitors.clear();
        return Map.of();
    }

    private Channel<?> channel(Request request, Class<?> type) throws Exception {
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
    private Channel<?> nativeChannel(Request request) throws Exception {
        return channel(request, nativeClass(request));
    }

    private Class<?> nativeClass(Request request) throws Exception {
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

    private static Object within(Request request, CompletableFuture<?> future) throws Exception {
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
        if (!value.getClass().isArray()) {
            return value instanceof Byte octet ? (Object) (octet & 0xff) : value;
        }
        int count = Array.getLength(value);
        if (count > SHOWN_MAX && value instanceof int[] numbers) {
            int wrongCount = 0;
            for (int index = 0; index < count; index++) {
                wrongCount += numbers[index] == numbers[0] + STEP * index ? 0 : 1;
            }
            return Map.of("count", count, "first", numbers[0], "n_wrong", wrongCount);
        }
        List<Object> elements = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            elements.add(shown(Array.get(value, index)));
        }
        return elements;
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

    /** The members of a request. */
    private record Request(Map<?, ?> members) {
        private String text(String name) {
            return (String) members.get(name);
        }

        private Number number(String name) {
            return (Number) members.get(name);
        }

        private boolean is(String name) {
            return Boolean.TRUE.equals(members.get(name));
        }
    }

    /** The part of JSON that requests and answers use. */
    private static final class Json {
        private final String text;
        private int at;

        private Json(String text) {
            this.text = text;
        }

        private Object value() {
            char first = next();
            if (first == '{' || first == '[') {
                return first == '{' ? members() : elements();
            }
            if (first == '"') {
                return string();
            }
            int start = at - 1;
            while (at < text.length() && ",]} ".indexOf(text.charAt(at)) < 0) {
                at++;
            }
            String word = text.substring(start, at);
            return switch (word) {
                case "true", "false" -> Boolean.valueOf(word);
                case "null" -> null;
                default -> Double.valueOf(word);
            };
        }

        private char next() {
            while (text.charAt(at) == ' ') {
                at++;
            }
            return text.charAt(at++);
        }

        private Map<String, Object> members() {
            Map<String, Object> members = new HashMap<>();
            while (next() != '}') {
                // A comma or the quotation mark of the first key has been consumed.
                if (text.charAt(at - 1) == ',') {
                    next();
                }
                String key = string();
                next();
                members.put(key, value());
            }
            return members;
        }

        private List<Object> elements() {
            List<Object> elements = new ArrayList<>();
            while (next() != ']') {
                if (text.charAt(at - 1) != ',') {
                    at--;
                }
                elements.add(value());
            }
            return elements;
        }

        private String string() {
            StringBuilder string = new StringBuilder();
            for (char letter = text.charAt(at++); letter != '"'; letter = text.charAt(at++)) {
                string.append(letter == '\\' ? text.charAt(at++) : letter);
            }
            return string.toString();
        }

        private static String text(Object value) {
            if (value instanceof Map<?, ?> members) {
                List<String> pairs = new ArrayList<>();
                members.forEach((key, member) -> pairs.add(text(key) + ":" + text(member)));
                return "{" + String.join(",", pairs) + "}";
            }
            if (value instanceof List<?> elements) {
                return "[" + String.join(",", elements.stream().map(Json::text).toList()) + "]";
            }
            if (value instanceof String || value instanceof Number number && !Double.isFinite(number.doubleValue())) {
                String letters = value.toString().replace("\\", "\\\\").replace("\"", "\\\"");
                return "\"" + letters.replaceAll("\\p{Cntrl}", " ") + "\"";
            }
            // Converts a float to a double, so that both print the same number.
            return String.valueOf(value instanceof Float number ? (Object) number.doubleValue() : value);
        }
    }
}
