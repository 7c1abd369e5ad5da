import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import org.epics.ca.Channel;
import org.epics.ca.ConnectionState;
import org.epics.ca.Context;
import org.epics.ca.Monitor;
import org.epics.ca.Status;
import org.epics.ca.data.Timestamped;

/** Drives PSI's {@code org.epics.ca} for the laboratory; {@code lab/src/driver/mod.rs} describes the protocol. */
public final class PsiCa {
    /** Maximum time of one operation, or of many concurrent ones. The laboratory ends a slower driver earlier. */
    private static final long OPERATION_S_MAX = 600;

    private static final Pattern REQUEST = Pattern.compile("\\s*\\{\\s*\"(\\w+)\"\\s*:\\s*\\{(.*)\\}\\s*\\}\\s*");
    private static final Pattern MEMBER = Pattern.compile("\"(\\w+)\"\\s*:\\s*(?:\"([^\"\\\\]*)\"|(\\d+))");
    private static final Pattern PLACE = Pattern.compile("\\{(?::0(\\d+))?\\}");

    private final String version;
    private final Context context = new Context();
    private final List<Channel<Double>> scalars = new ArrayList<>();
    private Channel<int[]> array;

    private PsiCa(String version) {
        this.version = version;
    }

    public static void main(String[] arguments) throws IOException {
        PrintStream output = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        // Prints of the library are not answers.
        System.setOut(System.err);
        String version = arguments.length > 0 ? arguments[0] : "";
        String runtime = "Java " + System.getProperty("java.version") + ", " + System.getProperty("java.vm.name");
        say(output, "{\"hello\":{\"client\":\"psi-ca\",\"version\":" + quoted(version) + ",\"runtime\":" + quoted(runtime) + "}}");
        PsiCa driver = new PsiCa(version);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            say(output, driver.answerLine(line));
        }
        // The library's threads would keep the process alive, and closing 100 000 channels is pointless now.
        Runtime.getRuntime().halt(0);
    }

    private static void say(PrintStream output, String line) {
        output.println(line);
        output.flush();
    }

    private String answerLine(String line) {
        try {
            return answer(line);
        } catch (Failed failed) {
            return failed.answer;
        } catch (Exception | OutOfMemoryError | StackOverflowError why) {
            // Any error is the answer; a failure to create a thread is an OutOfMemoryError.
            return unable(line, why.toString()).answer;
        }
    }

    private String answer(String line) throws Exception {
        Matcher matcher = REQUEST.matcher(line);
        if (!matcher.matches()) {
            throw new Failed("{\"failed\":{\"protocol\":{\"line\":" + quoted(line) + "}}}");
        }
        Map<String, String> members = new HashMap<>();
        Matcher member = MEMBER.matcher(matcher.group(2));
        while (member.find()) {
            members.put(member.group(1), member.group(2) != null ? member.group(2) : member.group(3));
        }
        Request request = new Request(members);
        return switch (matcher.group(1)) {
            case "open" -> open(request.text("pv"), request.number("n_channels"));
            case "get_scalars" -> getScalars(request.number("n"));
            case "move_array" -> moveArray(request.number("n_elements"), request.number("salt"), request.number("n_gets"));
            case "create_contexts" -> createContexts(request.number("n"), request.text("pv")).answer(request.number("n"));
            case "context_close" -> contextClose(request.text("pv"), request.text("how"));
            case "create_channels" -> createChannels(request).answer(request.number("n"));
            case "connect_one_by_one" -> connectOneByOne(request).answer(request.number("n"));
            case "connect_at_once" -> connectAtOnce(request).answer(request.number("n"));
            case "get_at_once" -> getAtOnce(request).answer(request.number("n"));
            case "put_at_once" -> putAtOnce(request).answer(request.number("n"));
            case "monitor_at_once" -> monitorAtOnce(request).answer(request.number("n"));
            default -> throw new Failed("{\"failed\":{\"protocol\":{\"line\":" + quoted(line) + "}}}");
        };
    }

    private String open(String pv, int channelCount) throws Exception {
        closeAll(scalars);
        if (array != null) {
            array.close();
            array = null;
        }
        List<Channel<Double>> opened = connected(context, new ArrayList<>(java.util.Collections.nCopies(channelCount, pv)));
        scalars.addAll(opened);
        int countMax = 0;
        for (Channel<Double> channel : opened) {
            countMax = (Integer) channel.getProperties().get("nativeElementCount");
        }
        if (countMax > 1) {
            array = context.createChannel(pv, int[].class);
            within(array.connectAsync(), "connecting");
        }
        return "{\"opened\":{\"version\":" + quoted("psi-ca " + version) + ",\"n_channels\":" + channelCount
            + ",\"element_count_max\":" + countMax + "}}";
    }

    private String getScalars(int n) {
        long[] latencies = new long[n];
        double first = 0;
        double last = Double.NEGATIVE_INFINITY;
        for (int index = 0; index < n; index++) {
            Channel<Double> channel = scalars.get(index % scalars.size());
            long start = System.nanoTime();
            Timestamped<Double> reading = channel.get(Timestamped.class);
            latencies[index] = System.nanoTime() - start;
            double value = reading.getValue();
            if (!Double.isFinite(value) || value < last || reading.getSeconds() <= 0) {
                throw wrongValue(value, "a counter at " + last + " or beyond, with its time");
            }
            first = index == 0 ? value : first;
            last = value;
        }
        return "{\"scalars\":{\"latencies_ns\":" + Arrays.toString(latencies) + ",\"first\":" + first + ",\"last\":"
            + Math.max(first, last) + "}}";
    }

    private String moveArray(int elementCount, int salt, int getCount) {
        long[] latencies = new long[getCount];
        for (int round = 0; round < getCount; round++) {
            int[] put = pattern(elementCount, salt + round);
            array.put(put);
            long start = System.nanoTime();
            int[] came = array.get();
            latencies[round] = System.nanoTime() - start;
            if (came.length != elementCount) {
                throw wrongCount(came.length, elementCount);
            }
            int index = Arrays.mismatch(came, put);
            if (index >= 0) {
                throw new Failed("{\"failed\":{\"wrong_element\":{\"index\":" + index + ",\"value\":" + came[index]
                    + ",\"expected\":" + put[index] + "}}}");
            }
        }
        return "{\"array\":{\"latencies_ns\":" + Arrays.toString(latencies) + ",\"n_elements\":" + elementCount + "}}";
    }

    private Timed createContexts(int n, String pv) throws Exception {
        List<Context> contexts = new ArrayList<>(n);
        try {
            long start = System.nanoTime();
            for (int index = 0; index < n; index++) {
                contexts.add(new Context());
            }
            long ns = System.nanoTime() - start;
            for (int index : n == 0 ? new int[0] : new int[] {0, n - 1}) {
                connected(contexts.get(index), List.of(pv));
            }
            return new Timed(ns, -1, distinct(contexts), closeContexts(contexts));
        } catch (OutOfMemoryError why) {
            int made = contexts.size();
            closeContexts(contexts);
            throw unable("making a context", "after " + made + ": " + why.getMessage());
        }
    }

    private String contextClose(String pv, String how) throws Exception {
        Channel<Double> channel;
        if (how.equals("explicit")) {
            Context closed = new Context();
            channel = closed.createChannel(pv, Double.class);
            within(channel.connectAsync(), "connecting");
            closed.close();
        } else {
            try (Context scope = new Context()) {
                channel = scope.createChannel(pv, Double.class);
                within(channel.connectAsync(), "connecting");
            }
        }
        return "{\"answered\":{\"yes\":" + (channel.getConnectionState() == ConnectionState.CLOSED) + "}}";
    }

    private Timed createChannels(Request request) {
        List<String> names = request.names();
        List<Channel<Double>> channels = new ArrayList<>(names.size());
        long start = System.nanoTime();
        for (String name : names) {
            channels.add(context.createChannel(name, Double.class));
        }
        long ns = System.nanoTime() - start;
        return new Timed(ns, -1, distinct(channels), closeAll(channels));
    }

    private Timed connectOneByOne(Request request) throws Exception {
        List<String> names = request.names();
        List<Channel<Double>> channels = new ArrayList<>(names.size());
        long start = System.nanoTime();
        for (String name : names) {
            Channel<Double> channel = context.createChannel(name, Double.class);
            channels.add(channel);
            within(channel.connectAsync(), "connecting");
        }
        long ns = System.nanoTime() - start;
        return new Timed(ns, -1, connectedCount(channels), closeAll(channels));
    }

    private Timed connectAtOnce(Request request) throws Exception {
        List<String> names = request.names();
        List<Channel<Double>> channels = new ArrayList<>(names.size());
        CompletableFuture<?>[] futures = new CompletableFuture<?>[names.size()];
        long start = System.nanoTime();
        for (int index = 0; index < futures.length; index++) {
            Channel<Double> channel = context.createChannel(names.get(index), Double.class);
            channels.add(channel);
            futures[index] = channel.connectAsync();
        }
        long created = System.nanoTime();
        within(CompletableFuture.allOf(futures), "connecting");
        long ns = System.nanoTime() - start;
        return new Timed(ns, created - start, connectedCount(channels), closeAll(channels));
    }

    private Timed getAtOnce(Request request) throws Exception {
        List<Channel<Double>> channels = connected(context, request.names());
        List<CompletableFuture<Timestamped<Double>>> gets = new ArrayList<>(channels.size());
        long start = System.nanoTime();
        for (Channel<Double> channel : channels) {
            gets.add(channel.getAsync(Timestamped.class));
        }
        within(CompletableFuture.allOf(gets.toArray(new CompletableFuture<?>[0])), "get");
        long ns = System.nanoTime() - start;
        request.check(gets.stream().map(get -> get.join().getValue()).toList());
        return new Timed(ns, -1, gets.size(), closeAll(channels));
    }

    private Timed putAtOnce(Request request) throws Exception {
        List<Channel<Double>> channels = connected(context, request.names());
        List<CompletableFuture<Status>> puts = new ArrayList<>(channels.size());
        long start = System.nanoTime();
        for (int index = 0; index < channels.size(); index++) {
            puts.add(channels.get(index).putAsync(request.held(index) + 0.5));
        }
        within(CompletableFuture.allOf(puts.toArray(new CompletableFuture<?>[0])), "put");
        long ns = System.nanoTime() - start;
        List<Double> values = new ArrayList<>();
        for (Channel<Double> channel : channels) {
            values.add(channel.get() - 0.5);
        }
        for (int index = 0; index < channels.size(); index++) {
            channels.get(index).put(request.held(index));
        }
        request.check(values);
        int done = (int) puts.stream().filter(put -> put.join().isSuccessful()).count();
        return new Timed(ns, -1, done, closeAll(channels));
    }

    /** Uses the default notification service: the other two took the same time, within their scatter. */
    private Timed monitorAtOnce(Request request) throws Exception {
        List<Channel<Double>> channels = connected(context, request.names());
        AtomicReferenceArray<Double> values = new AtomicReferenceArray<>(channels.size());
        AtomicInteger missing = new AtomicInteger(channels.size());
        CountDownLatch done = new CountDownLatch(channels.isEmpty() ? 0 : 1);
        List<Monitor<Double>> monitors = new ArrayList<>(channels.size());
        long start = System.nanoTime();
        for (int index = 0; index < channels.size(); index++) {
            int place = index;
            monitors.add(channels.get(index).addValueMonitor(value -> {
                if (values.compareAndSet(place, null, value) && missing.decrementAndGet() == 0) {
                    done.countDown();
                }
            }));
        }
        long created = System.nanoTime();
        if (!done.await(OPERATION_S_MAX, TimeUnit.SECONDS)) {
            throw unable("the first updates", missing.get() + " are missing");
        }
        long ns = System.nanoTime() - start;
        int distinct = distinct(monitors);
        monitors.forEach(Monitor::close);
        List<Double> came = new ArrayList<>();
        for (int index = 0; index < values.length(); index++) {
            came.add(values.get(index));
        }
        request.check(came);
        return new Timed(ns, created - start, distinct, closeAll(channels));
    }

    private static List<Channel<Double>> connected(Context context, List<String> names) throws Exception {
        List<Channel<Double>> channels = new ArrayList<>(names.size());
        List<CompletableFuture<?>> futures = new ArrayList<>(names.size());
        for (String name : names) {
            Channel<Double> channel = context.createChannel(name, Double.class);
            channels.add(channel);
            futures.add(channel.connectAsync());
        }
        within(CompletableFuture.allOf(futures.toArray(new CompletableFuture<?>[0])), "connecting");
        return channels;
    }

    private static int connectedCount(List<Channel<Double>> channels) {
        return (int) channels.stream().filter(channel -> channel.getConnectionState() == ConnectionState.CONNECTED).count();
    }

    private static int distinct(List<?> objects) {
        Map<Object, Boolean> seen = new java.util.IdentityHashMap<>();
        objects.forEach(object -> seen.put(object, true));
        return seen.size();
    }

    private static long closeAll(List<Channel<Double>> channels) {
        long start = System.nanoTime();
        channels.forEach(Channel::close);
        channels.clear();
        return System.nanoTime() - start;
    }

    private static long closeContexts(List<Context> contexts) {
        long start = System.nanoTime();
        contexts.forEach(Context::close);
        return System.nanoTime() - start;
    }

    private static int[] pattern(int elementCount, int salt) {
        int[] elements = new int[elementCount];
        for (int index = 0; index < elementCount; index++) {
            elements[index] = (int) (index * 2654435761L) ^ salt;
        }
        return elements;
    }

    private static void within(CompletableFuture<?> future, String what) throws Exception {
        try {
            future.get(OPERATION_S_MAX, TimeUnit.SECONDS);
        } catch (java.util.concurrent.ExecutionException why) {
            throw unable(what, String.valueOf(why.getCause()));
        }
    }

    private static Failed unable(String what, String why) {
        return new Failed("{\"failed\":{\"operation\":{\"what\":" + quoted(what) + ",\"why\":" + quoted(why) + "}}}");
    }

    private static Failed wrongValue(double value, String expected) {
        String number = Double.isFinite(value) ? Double.toString(value) : "null";
        return new Failed("{\"failed\":{\"wrong_value\":{\"value\":" + number + ",\"expected\":" + quoted(expected) + "}}}");
    }

    private static Failed wrongCount(int n, int expected) {
        return new Failed("{\"failed\":{\"wrong_count\":{\"n\":" + n + ",\"expected\":" + expected + "}}}");
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            if (letter == '"' || letter == '\\') {
                quoted.append('\\').append(letter);
            } else {
                quoted.append(letter < ' ' ? ' ' : letter);
            }
        }
        return quoted.append('"').toString();
    }

    /** A failure: the complete answer. */
    private static final class Failed extends RuntimeException {
        private static final long serialVersionUID = 1;
        private final String answer;

        private Failed(String answer) {
            super(answer);
            this.answer = answer;
        }
    }

    /** The result of a batch; {@code createdNs} is -1 where creation is not measured separately. */
    private record Timed(long ns, long createdNs, int n, long closeNs) {
        private String answer(int expected) {
            if (n != expected) {
                throw wrongCount(n, expected);
            }
            String created = createdNs < 0 ? "" : ",\"created_ns\":" + createdNs;
            return "{\"timed\":{\"ns\":" + ns + created + ",\"close_ns\":" + closeNs + ",\"n\":" + n + "}}";
        }
    }

    /** The members of a request. */
    private record Request(Map<String, String> members) {
        private String text(String name) {
            String text = members.get(name);
            if (text == null) {
                throw new Failed("{\"failed\":{\"protocol\":{\"line\":" + quoted("missing " + name) + "}}}");
            }
            return text;
        }

        private int number(String name) {
            // A salt is an unsigned 32-bit number.
            return (int) Long.parseLong(text(name));
        }

        private boolean isEqual() {
            return !text("variant").equals("distinct");
        }

        private boolean isNumbered() {
            return PLACE.matcher(text("pattern")).find();
        }

        /** The value of the numbered PV at {@code index}: its number. */
        private double held(int index) {
            return isEqual() ? 0 : index;
        }

        private List<String> names() {
            String pattern = text("pattern");
            Matcher place = PLACE.matcher(pattern);
            boolean isNumbered = place.find();
            List<String> names = new ArrayList<>();
            for (int index = 0; index < number("n"); index++) {
                if (!isNumbered) {
                    names.add(pattern);
                    continue;
                }
                String number = Integer.toString(isEqual() ? 0 : index);
                int width = place.group(1) == null ? 0 : Integer.parseInt(place.group(1));
                String zeros = "0".repeat(Math.max(0, width - number.length()));
                names.add(pattern.substring(0, place.start()) + zeros + number + pattern.substring(place.end()));
            }
            return names;
        }

        /** The value of a numbered PV must be its number; any other PV is a counter. */
        private void check(List<Double> values) {
            if (values.size() != number("n")) {
                throw wrongCount(values.size(), number("n"));
            }
            for (int index = 0; index < values.size(); index++) {
                double value = values.get(index);
                if (isNumbered() && value != held(index)) {
                    throw wrongValue(value, Double.toString(held(index)));
                } else if (!Double.isFinite(value) || value < 0) {
                    throw wrongValue(value, "a counter");
                }
            }
        }
    }
}
