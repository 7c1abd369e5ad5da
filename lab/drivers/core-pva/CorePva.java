package lab;

import static lab.Conversation.OPERATION_S_MAX;
import static lab.Conversation.distinct;
import static lab.Conversation.nextOf;
import static lab.Conversation.pattern;
import static lab.Conversation.requireCounter;
import static lab.Conversation.requireEqual;
import static lab.Conversation.requireNext;
import static lab.Conversation.unable;
import static lab.Conversation.within;
import static lab.Conversation.withinAll;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.logging.Level;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import lab.Conversation.CycleTally;
import lab.Conversation.Request;
import lab.Conversation.Rounds;
import lab.Conversation.Timed;

import org.epics.pva.PVASettings;
import org.epics.pva.client.ClientChannelState;
import org.epics.pva.client.PVAChannel;
import org.epics.pva.client.PVAClient;
import org.epics.pva.client.PVAClientMain;
import org.epics.pva.data.PVADoubleArray;
import org.epics.pva.data.PVAIntArray;
import org.epics.pva.data.PVALong;
import org.epics.pva.data.PVANumber;
import org.epics.pva.data.PVAStructure;

/** Drives Phoebus' core-pva for the laboratory. It opens an operation for each get and put. */
public final class CorePva implements Conversation.Driver {
    private static final String READING = "field(value, alarm, timeStamp)";
    private static final String WHOLE = "";
    private static final String VALUE = "field(value)";
    /** pvAccess does not report the maximum number of elements; the laboratory's waveform has this many. */
    private static final int ELEMENTS_MAX = 10_000_000;
    private static final int IN_FLIGHT_MAX = 100;
    private static final long CLOSE_S_MAX = 10;
    private static final long EVENT_S_MAX = 10;
    private static final long QUIET_S = 1;
    /** QSRV2 leaves some of a thousand subscriptions without any update when they are created at once on a network. */
    private static final int SUBSCRIPTIONS_AT_ONCE = 100;
    private static final Pattern PRINTED = Pattern.compile("\\bdouble value (\\S+)");

    private final String version;
    private final PVAClient client = new PVAClient();
    private final List<PVAChannel> open = new ArrayList<>();

    private CorePva(String version) throws Exception {
        this.version = version;
    }

    public static void main(String[] arguments) throws Exception {
        // It logs each change of a buffer, which costs time.
        PVASettings.logger.setLevel(Level.WARNING);
        Conversation.serve("core-pva", arguments[0], () -> new CorePva(arguments[0]));
    }

    @Override
    public String answer(Request request) throws Exception {
        return switch (request.verb()) {
            case "open" -> open(request.text("pv"), request.number("n_channels"));
            case "get_scalars" -> getScalars(request.number("n"));
            case "move_array" -> moveArray(request.number("n_elements"), request.number("salt"), request.number("n_gets"));
            case "create_contexts" -> createContexts(request.number("n"), request.text("pv")).answer(request.number("n"));
            case "context_close" ->
                throw unable("closing a context", "a client of core-pva leaves it to the program to close its channels");
            case "create_channels" -> createChannels(request).answer(request.number("n"));
            case "connect_one_by_one" -> connectOneByOne(request).answer(request.number("n"));
            case "connect_at_once" -> connectAtOnce(request).answer(request.number("n"));
            case "get_at_once" -> getAtOnce(request, READING).answer(request.number("n"));
            case "get_whole_at_once" -> getAtOnce(request, WHOLE).answer(request.number("n"));
            case "get_in_flight" -> getInFlight(request).answer(request.number("n"));
            case "put_at_once" -> putAtOnce(request).answer(request.number("n"));
            case "put_unconfirmed_at_once" ->
                throw unable("puts without a reply", "core-pva sends a value only after the reply that opens the put");
            case "monitor_at_once" -> monitorAtOnce(request).answer(request.number("n"));
            case "commands" -> commands(request).answer(request.number("n"));
            case "process_gets" -> processGets(request);
            case "event_rounds" -> eventRounds(request);
            default -> throw Conversation.unknown(request);
        };
    }

    private String open(String pv, int channelCount) throws Exception {
        closeAll(open);
        open.addAll(connected(client, Collections.nCopies(channelCount, pv)));
        return Conversation.opened("core-pva " + version, channelCount, ELEMENTS_MAX);
    }

    private String getScalars(int n) throws Exception {
        long[] latencies = new long[n];
        double first = 0;
        double last = Double.NEGATIVE_INFINITY;
        for (int index = 0; index < n; index++) {
            PVAChannel channel = open.get(index % open.size());
            long start = System.nanoTime();
            PVAStructure reading = channel.read(READING).get(OPERATION_S_MAX, TimeUnit.SECONDS);
            latencies[index] = System.nanoTime() - start;
            double value = number(reading);
            PVALong seconds = reading.<PVAStructure>get("timeStamp").get("secondsPastEpoch");
            requireCounter(value, last, seconds.get());
            first = index == 0 ? value : first;
            last = value;
        }
        return Conversation.scalars(latencies, first, last);
    }

    private String moveArray(int elementCount, int salt, int getCount) throws Exception {
        PVAChannel channel = open.get(0);
        long[] latencies = new long[getCount];
        for (int round = 0; round < getCount; round++) {
            int[] put = pattern(elementCount, salt + round);
            within(channel.write(true, VALUE, put), "put");
            long start = System.nanoTime();
            PVAStructure reading = channel.read(READING).get(OPERATION_S_MAX, TimeUnit.SECONDS);
            latencies[round] = System.nanoTime() - start;
            PVAIntArray came = reading.get("value");
            requireEqual(came.get(), put);
        }
        return Conversation.array(latencies, elementCount);
    }

    private static Timed createContexts(int n, String pv) throws Exception {
        List<PVAClient> contexts = new ArrayList<>(n);
        long start = System.nanoTime();
        for (int index = 0; index < n; index++) {
            contexts.add(new PVAClient());
        }
        long ns = System.nanoTime() - start;
        for (int index : n == 0 ? new int[0] : new int[] {0, n - 1}) {
            closeAll(connected(contexts.get(index), List.of(pv)));
        }
        int distinct = distinct(contexts);
        start = System.nanoTime();
        contexts.forEach(PVAClient::close);
        return new Timed(ns, -1, distinct, System.nanoTime() - start);
    }

    private Timed createChannels(Request request) throws Exception {
        List<String> names = request.names();
        List<PVAChannel> channels = new ArrayList<>(names.size());
        long start = System.nanoTime();
        for (String name : names) {
            channels.add(created(client, name));
        }
        long ns = System.nanoTime() - start;
        int distinct = distinct(channels);
        // The server would keep a channel that is closed while it connects.
        awaitConnected(channels);
        return new Timed(ns, -1, distinct, closeAll(channels));
    }

    private Timed connectOneByOne(Request request) throws Exception {
        List<String> names = request.names();
        List<PVAChannel> channels = new ArrayList<>(names.size());
        long start = System.nanoTime();
        for (String name : names) {
            PVAChannel channel = created(client, name);
            channels.add(channel);
            within(channel.connect(), "connecting");
        }
        long ns = System.nanoTime() - start;
        return new Timed(ns, -1, connectedCount(channels), closeAll(channels));
    }

    private Timed connectAtOnce(Request request) throws Exception {
        List<String> names = request.names();
        List<PVAChannel> channels = new ArrayList<>(names.size());
        long start = System.nanoTime();
        for (String name : names) {
            channels.add(created(client, name));
        }
        long created = System.nanoTime();
        awaitConnected(channels);
        long ns = System.nanoTime() - start;
        return new Timed(ns, created - start, connectedCount(channels), closeAll(channels));
    }

    private Timed getAtOnce(Request request, String fields) throws Exception {
        List<PVAChannel> channels = connected(client, request.names());
        getAll(channels, fields);
        long start = System.nanoTime();
        List<PVAStructure> readings = getAll(channels, fields);
        long ns = System.nanoTime() - start;
        request.check(readings.stream().map(CorePva::number).toList());
        return new Timed(ns, -1, readings.size(), closeAll(channels));
    }

    private Timed getInFlight(Request request) throws Exception {
        List<PVAChannel> channels = connected(client, request.names());
        getAll(channels, READING);
        List<PVAStructure> readings = new ArrayList<>(channels.size());
        ArrayDeque<CompletableFuture<PVAStructure>> gets = new ArrayDeque<>(IN_FLIGHT_MAX);
        long start = System.nanoTime();
        for (PVAChannel channel : channels) {
            if (gets.size() == IN_FLIGHT_MAX) {
                readings.add(within(gets.remove(), "get"));
            }
            gets.add(channel.read(READING));
        }
        for (CompletableFuture<PVAStructure> get : gets) {
            readings.add(within(get, "get"));
        }
        long ns = System.nanoTime() - start;
        request.check(readings.stream().map(CorePva::number).toList());
        return new Timed(ns, -1, readings.size(), closeAll(channels));
    }

    private Timed putAtOnce(Request request) throws Exception {
        List<PVAChannel> channels = connected(client, request.names());
        putAll(channels, request, 0);
        long start = System.nanoTime();
        putAll(channels, request, 0.5);
        long ns = System.nanoTime() - start;
        List<Double> values = getAll(channels, READING).stream().map(reading -> number(reading) - 0.5).toList();
        putAll(channels, request, 0);
        request.check(values);
        return new Timed(ns, -1, values.size(), closeAll(channels));
    }

    private Timed monitorAtOnce(Request request) throws Exception {
        List<PVAChannel> channels = connected(client, request.names());
        AtomicReferenceArray<Double> values = new AtomicReferenceArray<>(channels.size());
        AtomicInteger missing = new AtomicInteger(channels.size());
        CountDownLatch done = new CountDownLatch(channels.isEmpty() ? 0 : 1);
        List<AutoCloseable> subscriptions = new ArrayList<>(channels.size());
        long start = System.nanoTime();
        for (int index = 0; index < channels.size(); index++) {
            int place = index;
            subscriptions.add(channels.get(index).subscribe(READING, 0, (channel, changes, overruns, reading) -> {
                // The end of a subscription has no value.
                if (reading != null && values.compareAndSet(place, null, number(reading))
                    && missing.decrementAndGet() == 0) {
                    done.countDown();
                }
            }));
        }
        long created = System.nanoTime();
        if (!done.await(OPERATION_S_MAX, TimeUnit.SECONDS)) {
            throw new IllegalStateException(missing.get() + " first updates are missing");
        }
        long ns = System.nanoTime() - start;
        int distinct = distinct(subscriptions);
        for (AutoCloseable subscription : subscriptions) {
            subscription.close();
        }
        List<Double> came = new ArrayList<>();
        for (int index = 0; index < values.length(); index++) {
            came.add(values.get(index));
        }
        request.check(came);
        return new Timed(ns, created - start, distinct, closeAll(channels));
    }

    /** A get of core-pva has no options, so a put to PROC processes the record. */
    private String processGets(Request request) throws Exception {
        if (!request.text("way").equals("put_then_get")) {
            throw unable("a get that processes", "a get of core-pva has no options");
        }
        int elementCount = request.number("n_elements");
        List<String> names = request.names();
        List<PVAChannel> records = connected(client, names);
        List<PVAChannel> processing = connected(client, names.stream().map(name -> name + ".PROC").toList());
        double[] last = new double[names.size()];
        Arrays.fill(last, -1);
        Rounds rounds = new Rounds(request, () -> {
            long start = System.nanoTime();
            List<CompletableFuture<?>> puts = new ArrayList<>(last.length);
            List<CompletableFuture<PVAStructure>> gets = new ArrayList<>(last.length);
            for (int index = 0; index < last.length; index++) {
                puts.add(processing.get(index).write(true, VALUE, 1));
                gets.add(records.get(index).read(READING));
            }
            withinAll(puts, "put");
            withinAll(gets, "get");
            long ns = System.nanoTime() - start;
            for (int index = 0; index < last.length; index++) {
                PVAStructure reading = gets.get(index).join();
                if (elementCount > 0) {
                    PVADoubleArray elements = reading.get("value");
                    last[index] = requireNext(elements.get(), elementCount, last[index]);
                } else {
                    last[index] = requireNext(number(reading), last[index]);
                }
            }
            return ns;
        });
        closeAll(records);
        closeAll(processing);
        return rounds.answer(last.length, 0, List.of());
    }

    private String eventRounds(Request request) throws Exception {
        List<PVAChannel> channels = connected(client, request.names());
        PVAChannel event = connected(client, List.of(request.text("event"))).get(0);
        int n = channels.size();
        List<CycleTally> tallies = new ArrayList<>(n);
        Semaphore changes = new Semaphore(0);
        List<AutoCloseable> subscriptions = new ArrayList<>(n);
        for (int index = 0; index < n; index++) {
            CycleTally tally = new CycleTally();
            boolean isLast = index + 1 == n;
            tallies.add(tally);
            subscriptions.add(channels.get(index).subscribe(READING, 0, (channel, changed, overruns, reading) -> {
                // The end of a subscription has no value.
                if (reading != null) {
                    tally.add(number(reading));
                    if (isLast) {
                        changes.release();
                    }
                }
            }));
            if (isLast || tallies.size() % SUBSCRIPTIONS_AT_ONCE == 0) {
                awaitFirst(tallies);
            }
        }
        double[] begun = tallies.stream().mapToDouble(CycleTally::last).toArray();
        CycleTally lastTally = tallies.get(n - 1);
        long[] eventCount = {0};
        Rounds rounds = new Rounds(request, () -> {
            double next = nextOf(lastTally.last());
            long start = System.nanoTime();
            CompletableFuture<?> put = event.write(false, VALUE, 1);
            eventCount[0]++;
            while (lastTally.last() != next) {
                if (!changes.tryAcquire(EVENT_S_MAX, TimeUnit.SECONDS)) {
                    throw new IllegalStateException("no update of the last counter");
                }
            }
            long ns = System.nanoTime() - start;
            // Its reply is not measured.
            within(put, "put");
            return ns;
        });
        settle(tallies, begun, eventCount[0]);
        for (AutoCloseable subscription : subscriptions) {
            subscription.close();
        }
        closeAll(channels);
        event.close();
        return rounds.answer(n, eventCount[0], tallies);
    }

    private static void awaitFirst(List<CycleTally> tallies) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(EVENT_S_MAX);
        while (!tallies.stream().allMatch(tally -> tally.last() >= 0)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("first updates are missing");
            }
            Thread.sleep(1);
        }
    }

    /** Waits until each counter has its value after the last event, or no update is received for a second. */
    private static void settle(List<CycleTally> tallies, double[] begun, long eventCount) throws Exception {
        long cycle = Conversation.COUNTER_LAST + 1;
        long received = 0;
        long quietSince = System.nanoTime();
        while (System.nanoTime() - quietSince < TimeUnit.SECONDS.toNanos(QUIET_S)) {
            boolean isSettled = true;
            for (int index = 0; index < begun.length; index++) {
                isSettled &= tallies.get(index).last() == ((long) begun[index] + eventCount) % cycle;
            }
            if (isSettled) {
                return;
            }
            long now = tallies.stream().mapToLong(CycleTally::received).sum();
            quietSince = now == received ? quietSince : System.nanoTime();
            received = now;
            Thread.sleep(1);
        }
    }

    /** Runs the library's own command. */
    private static Timed commands(Request request) throws Exception {
        String java = System.getProperty("java.home") + File.separator + "bin" + File.separator + "java";
        long ns = 0;
        List<Double> values = new ArrayList<>();
        for (String name : request.names()) {
            ProcessBuilder command = new ProcessBuilder(
                java, "-cp", System.getProperty("java.class.path"), PVAClientMain.class.getName(), "get", name);
            command.redirectError(ProcessBuilder.Redirect.DISCARD);
            long start = System.nanoTime();
            Process process = command.start();
            String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            int status = process.waitFor();
            ns += System.nanoTime() - start;
            Matcher printed = PRINTED.matcher(output);
            if (status != 0 || !printed.find()) {
                throw new IllegalStateException("the command printed no value: " + output);
            }
            values.add(Double.valueOf(printed.group(1)));
        }
        request.check(values);
        return new Timed(ns, -1, values.size(), -1);
    }

    /** A channel that does not log its changes of state, as one without a listener would. */
    private static PVAChannel created(PVAClient client, String name) {
        return client.getChannel(name, (channel, state) -> { });
    }

    private static List<PVAChannel> connected(PVAClient client, List<String> names) throws Exception {
        List<PVAChannel> channels = new ArrayList<>(names.size());
        for (String name : names) {
            channels.add(created(client, name));
        }
        awaitConnected(channels);
        return channels;
    }

    private static void awaitConnected(List<PVAChannel> channels) throws Exception {
        withinAll(channels.stream().map(PVAChannel::connect).toList(), "connecting");
    }

    private static int connectedCount(List<PVAChannel> channels) {
        return (int) channels.stream().filter(PVAChannel::isConnected).count();
    }

    private static List<PVAStructure> getAll(List<PVAChannel> channels, String fields) throws Exception {
        List<CompletableFuture<PVAStructure>> gets = new ArrayList<>(channels.size());
        for (PVAChannel channel : channels) {
            gets.add(channel.read(fields));
        }
        withinAll(gets, "get");
        return gets.stream().map(CompletableFuture::join).toList();
    }

    private static void putAll(List<PVAChannel> channels, Request request, double more) throws Exception {
        List<CompletableFuture<Void>> puts = new ArrayList<>(channels.size());
        for (int index = 0; index < channels.size(); index++) {
            puts.add(channels.get(index).write(true, VALUE, request.held(index) + more));
        }
        withinAll(puts, "put");
    }

    private static double number(PVAStructure reading) {
        PVANumber value = reading.get("value");
        return value.getNumber().doubleValue();
    }

    /** Closes channels and waits until the server has confirmed it; returns the time in nanoseconds. */
    private static long closeAll(List<PVAChannel> channels) throws Exception {
        long start = System.nanoTime();
        channels.forEach(PVAChannel::close);
        long deadline = start + TimeUnit.SECONDS.toNanos(CLOSE_S_MAX);
        while (channels.stream().anyMatch(channel -> channel.getState() != ClientChannelState.CLOSED)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("the server has not confirmed that channels are closed");
            }
            Thread.sleep(1);
        }
        channels.clear();
        return System.nanoTime() - start;
    }
}
