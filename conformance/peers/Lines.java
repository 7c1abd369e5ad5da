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
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;

/** Common code of the peers in Java: one JSON request per line in, one JSON answer per line out, as in {@code lines.py}. */
final class Lines {
    /** Element {@code i} of the pattern {@code first} is {@code first + STEP * i}, wrapped to 32 bits. */
    private static final int STEP = 7919;

    /** Longer values are not printed but compared with the pattern. */
    private static final int SHOWN_MAX = 1000;

    private Lines() {
    }

    /** The operations of a client. */
    interface Verbs {
        Map<String, Object> answer(Request request) throws Exception;
    }

    /** Answers requests until the end of the input, then exits without waiting for threads. */
    static void serve(Verbs verbs) throws IOException {
        PrintStream output = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        // Prints of the library are not answers.
        System.setOut(System.err);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            Object answer;
            try {
                answer = verbs.answer(new Request((Map<?, ?>) new Json(line).value()));
            } catch (ExecutionException why) {
                answer = Map.of("error", String.valueOf(why.getCause()));
            } catch (Exception why) {
                answer = Map.of("error", why.toString());
            }
            output.println(Json.text(answer));
            output.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    static int[] pattern(Request request) {
        int[] elements = new int[request.number("count").intValue()];
        for (int index = 0; index < elements.length; index++) {
            elements[index] = STEP * index + request.number("first").intValue();
        }
        return elements;
    }

    /** An array as JSON. A long one becomes its length, first element and number of unexpected elements. */
    static Object shown(Object array, UnaryOperator<Object> element) {
        int count = Array.getLength(array);
        if (count > SHOWN_MAX && array instanceof int[] numbers) {
            int wrongCount = 0;
            for (int index = 0; index < count; index++) {
                wrongCount += numbers[index] == numbers[0] + STEP * index ? 0 : 1;
            }
            return Map.of("count", count, "first", numbers[0], "n_wrong", wrongCount);
        }
        List<Object> elements = new ArrayList<>();
        for (int index = 0; index < count; index++) {
            elements.add(element.apply(Array.get(array, index)));
        }
        return elements;
    }

    /** The next updates of a subscription that the request names, or those received in time. */
    static Map<String, Object> take(Request request, List<BlockingQueue<Map<String, Object>>> updates)
        throws InterruptedException {
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

    /** The members of a request. */
    record Request(Map<?, ?> members) {
        String text(String name) {
            return (String) members.get(name);
        }

        Number number(String name) {
            return (Number) members.get(name);
        }

        boolean is(String name) {
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
                // Not each whole number is exact as a double or within an int.
                default -> word.matches("-?\\d+") ? (Object) Long.valueOf(word) : Double.valueOf(word);
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
