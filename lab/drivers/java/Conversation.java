package lab;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Requests and answers of a driver in Java; {@code lab/src/driver/mod.rs} describes them. */
final class Conversation {
    /** Maximum time of one operation, or of many concurrent ones. The laboratory ends a slower driver earlier. */
    static final long OPERATION_S_MAX = 600;

    /** A counter counts from 0 to this value and begins again. */
    static final int COUNTER_LAST = 999;

    private static final int ROUNDS_MIN = 2;
    private static final int ROUNDS_MAX = 100_000;

    private static final Pattern REQUEST = Pattern.compile("\\s*\\{\\s*\"(\\w+)\"\\s*:\\s*\\{(.*)\\}\\s*\\}\\s*");
    private static final Pattern MEMBER = Pattern.compile("\"(\\w+)\"\\s*:\\s*(?:\"([^\"\\\\]*)\"|(\\d+))");
    private static final Pattern PLACE = Pattern.compile("\\{(?::0(\\d+))?\\}");

    private Conversation() {
    }

    /** A client under test. */
    interface Driver {
        /** Does what the request asks; returns the answer, or fails with a {@link Failed}. */
        String answer(Request request) throws Exception;
    }

    /** Answers every line of the input, then ends this process. */
    static void serve(String client, String version, Callable<Driver> start) throws Exception {
        PrintStream output = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        // Prints of the library are not answers.
        System.setOut(System.err);
        String runtime = "Java " + System.getProperty("java.version") + ", " + System.getProperty("java.vm.name");
        say(output, "{\"hello\":{\"client\":" + quoted(client) + ",\"version\":" + quoted(version) + ",\"runtime\":"
            + quoted(runtime) + "}}");
        Driver driver = start.call();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            say(output, answerLine(driver, line));
        }
        // The library's threads would keep the process alive, and closing 100 000 channels is pointless now.
        Runtime.getRuntime().halt(0);
    }

    private static void say(PrintStream output, String line) {
        output.println(line);
        output.flush();
    }

    private static String answerLine(Driver driver, String line) {
        try {
            return driver.answer(Request.of(line));
        } catch (Failed failed) {
            return failed.answer;
        } catch (Exception | OutOfMemoryError | StackOverflowError why) {
            // Any error is the answer; a failure to create a thread is an OutOfMemoryError.
            return unable(line, why.toString()).answer;
        }
    }

    /** The answer to {@code open}. */
    static String opened(String version, int channelCount, int elementCountMax) {
        return "{\"opened\":{\"version\":" + quoted(version) + ",\"n_channels\":" + channelCount
            + ",\"element_count_max\":" + elementCountMax + "}}";
    }

    /** The answer to {@code get_scalars}. */
    static String scalars(long[] latenciesNs, double first, double last) {
        return "{\"scalars\":{\"latencies_ns\":" + Arrays.toString(latenciesNs) + ",\"first\":" + first + ",\"last\":"
            + Math.max(first, last) + "}}";
    }

    /** The answer to {@code move_array}. */
    static String array(long[] latenciesNs, int elementCount) {
        return "{\"array\":{\"latencies_ns\":" + Arrays.toString(latenciesNs) + ",\"n_elements\":" + elementCount + "}}";
    }

    /** Elements that differ by index and by repetition, as in {@code lab/src/driver/mod.rs}. */
    static int[] pattern(int elementCount, int salt) {
        int[] elements = new int[elementCount];
        for (int index = 0; index < elementCount; index++) {
            elements[index] = (int) (index * 2654435761L) ^ salt;
        }
        return elements;
    }

    /** Fails unless the array is the one that was put. */
    static void requireEqual(int[] came, int[] put) {
        if (came.length != put.length) {
            throw wrongCount(came.length, put.length);
        }
        int index = Arrays.mismatch(came, put);
        if (index >= 0) {
            throw new Failed("{\"failed\":{\"wrong_element\":{\"index\":" + index + ",\"value\":" + came[index]
                + ",\"expected\":" + put[index] + "}}}");
        }
    }

    /** Fails unless the value continues a counter at {@code last} and has a time. */
    static void requireCounter(double value, double last, long seconds) {
        if (!Double.isFinite(value) || value < last || seconds <= 0) {
            throw wrongValue(value, "a counter at " + last + " or beyond, with its time");
        }
    }

    /** Fails unless the value of a counter, or the first element of an array, follows {@code last}; -1: there is none. */
    static double requireNext(double value, double last) {
        double expected = last < 0 ? value : nextOf(last);
        if (value != expected || value < 0 || value > COUNTER_LAST) {
            throw wrongValue(value, Double.toString(expected));
        }
        return value;
    }

    /** The same for an array, of which each element is larger by one than the element before. */
    static double requireNext(double[] elements, int elementCount, double last) {
        if (elements.length != elementCount) {
            throw wrongCount(elements.length, elementCount);
        }
        for (int index = 0; index < elementCount; index++) {
            if (elements[index] != elements[0] + index) {
                throw wrongValue(elements[index], elements[0] + " + " + index);
            }
        }
        return requireNext(elements[0], last);
    }

    /** The value of a counter after {@code value}. */
    static double nextOf(double value) {
        return value < COUNTER_LAST ? value + 1 : 0;
    }

    /** The number of different objects. */
    static int distinct(Collection<?> objects) {
        Map<Object, Boolean> seen = new IdentityHashMap<>();
        objects.forEach(object -> seen.put(object, true));
        return seen.size();
    }

    /** The result of the operation that {@code what} names. */
    static <T> T within(CompletableFuture<T> future, String what) throws Exception {
        try {
            return future.get(OPERATION_S_MAX, TimeUnit.SECONDS);
        } catch (ExecutionException why) {
            throw new IOException(what + ": " + why.getCause());
        }
    }

    /** The same for many operations. */
    static void withinAll(Collection<? extends CompletableFuture<?>> futures, String what) throws Exception {
        within(CompletableFuture.allOf(futures.toArray(new CompletableFuture<?>[0])), what);
    }

    /** The failure of an operation that the client does not support. */
    static Failed unable(String what, String why) {
        return new Failed("{\"failed\":{\"operation\":{\"what\":" + quoted(what) + ",\"why\":" + quoted(why) + "}}}");
    }

    /** The failure of a request that the driver does not know. */
    static Failed unknown(Request request) {
        return misread(request.line);
    }

    private static Failed misread(String line) {
        return new Failed("{\"failed\":{\"protocol\":{\"line\":" + quoted(line) + "}}}");
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
    static final class Failed extends RuntimeException {
        private static final long serialVersionUID = 1;
        private final String answer;

        private Failed(String answer) {
            super(answer);
            this.answer = answer;
        }
    }

    /** The result of a batch; {@code createdNs} and {@code closeNs} are -1 where they are not measured. */
    record Timed(long ns, long createdNs, int n, long closeNs) {
        String answer(int expected) {
            if (n != expected) {
                throw wrongCount(n, expected);
            }
            String created = createdNs < 0 ? "" : ",\"created_ns\":" + createdNs;
            String closed = closeNs < 0 ? "" : ",\"close_ns\":" + closeNs;
            return "{\"timed\":{\"ns\":" + ns + created + closed + ",\"n\":" + n + "}}";
        }
    }

    /** Does the work of a round, and returns its time in nanoseconds. */
    interface Round {
        long run() throws Exception;
    }

    /** The updates of one counter, as {@code CycleTally} of {@code lab/src/driver/rounds.rs}. */
    static final class CycleTally {
        private double last = -1;
        private long received;
        private long missing;
        private long duplicates;
        private long outOfOrder;
        private long wrong;

        synchronized void add(double value) {
            if (!(value >= 0 && value <= COUNTER_LAST) || value != Math.rint(value)) {
                wrong++;
                return;
            }
            if (last < 0) {
                last = value;
                return;
            }
            received++;
            int cycle = COUNTER_LAST + 1;
            int step = ((int) value + cycle - (int) last) % cycle;
            if (step == 0) {
                duplicates++;
            } else if (step <= cycle / 2) {
                missing += step - 1;
                last = value;
            } else {
                outOfOrder++;
            }
        }

        /** The newest value; -1 before the first. */
        synchronized double last() {
            return last;
        }

        synchronized long received() {
            return received;
        }

        private synchronized long[] sums() {
            return new long[] {received, missing, duplicates, outOfOrder, wrong};
        }
    }

    /** The times of rounds. */
    static final class Rounds {
        private final List<Long> times = new ArrayList<>();

        /** Repeats rounds, as {@code RoundSpans::repeat} of {@code lab/src/driver/rounds.rs}. */
        Rounds(Request request, Round round) throws Exception {
            long start = System.nanoTime();
            long warmUp = TimeUnit.MILLISECONDS.toNanos(request.number("warm_up_ms"));
            do {
                round.run();
            } while (System.nanoTime() - start < warmUp);
            start = System.nanoTime();
            long duration = TimeUnit.MILLISECONDS.toNanos(request.number("duration_ms"));
            while (times.size() < ROUNDS_MIN || (System.nanoTime() - start < duration && times.size() < ROUNDS_MAX)) {
                times.add(round.run());
            }
        }

        /** The answer to rounds with {@code n} records; {@code tallies} are those of an event, or none. */
        String answer(int n, long eventCount, List<CycleTally> tallies) {
            long[] sums = new long[5];
            for (CycleTally tally : tallies) {
                long[] own = tally.sums();
                for (int index = 0; index < sums.length; index++) {
                    sums[index] += own[index];
                }
            }
            return "{\"rounds\":{\"rounds_ns\":" + times + ",\"n\":" + n + ",\"n_events\":" + eventCount
                + ",\"updates\":{\"received\":" + sums[0] + ",\"missing\":" + sums[1] + ",\"duplicates\":" + sums[2]
                + ",\"out_of_order\":" + sums[3] + ",\"wrong\":" + sums[4] + ",\"merged\":0}}}";
        }
    }

    /** A request: its name and its members. */
    record Request(String line, String verb, Map<String, String> members) {
        private static Request of(String line) {
            Matcher matcher = REQUEST.matcher(line);
            if (!matcher.matches()) {
                throw misread(line);
            }
            Map<String, String> members = new HashMap<>();
            Matcher member = MEMBER.matcher(matcher.group(2));
            while (member.find()) {
                members.put(member.group(1), member.group(2) != null ? member.group(2) : member.group(3));
            }
            return new Request(line, matcher.group(1), members);
        }

        String text(String name) {
            String text = members.get(name);
            if (text == null) {
                throw misread("missing " + name);
            }
            return text;
        }

        int number(String name) {
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
        double held(int index) {
            return isEqual() ? 0 : index;
        }

        List<String> names() {
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
        void check(List<Double> values) {
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
