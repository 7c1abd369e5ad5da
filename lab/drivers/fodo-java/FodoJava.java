package lab;

import static lab.Conversation.OPERATION_S_MAX;
import static lab.Conversation.distinct;
import static lab.Conversation.pattern;
import static lab.Conversation.requireCounter;
import static lab.Conversation.requireEqual;
import static lab.Conversation.unable;
import static lab.Conversation.withinAll;

import io.github.fodopv.Channel;
import io.github.fodopv.Channels;
import io.github.fodopv.ClosedException;
import io.github.fodopv.Context;
import io.github.fodopv.Event;
import io.github.fodopv.GroupOptions;
import io.github.fodopv.GroupRows;
import io.github.fodopv.Info;
import io.github.fodopv.Monitor;
import io.github.fodopv.MonitorGroup;
import io.github.fodopv.MonitorOptions;
import io.github.fodopv.Reading;
import io.github.fodopv.Result;
import io.github.fodopv.Value;

import java.io.IOException;
import java.io.InputStream;
import java.nio.IntBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.Consumer;
import java.util.stream.Stream;

import lab.Conversation.Request;
import lab.Conversation.Timed;

/**
 * Drives Fodo in Java for the laboratory.
 *
 * <p>Variants: {@code callbacks}; {@code executor} and {@code virtual} run the callbacks of monitors on threads of the
 * program, {@code rows} takes updates in batches, {@code into} reads arrays into the caller's memory, {@code futures} starts
 * one operation after the other where others use one call for a list.
 */
public final class FodoJava implements Conversation.Driver {
    private static final Duration TIMEOUT = Duration.ofSeconds(OPERATION_S_MAX);
    private static final int IN_FLIGHT_MAX = 100;
    private static final int ROWS = 4096;
    /** The virtual machine starts threads for its compilers and collectors when it has work for them. */
    private static final int OWN_THREADS_MAX = 8;

    /** The time in which no socket is closed after the last one, and how often it is waited for. */
    private static final long SETTLE_MS = 20;
    private static final int SETTLE_ROUNDS_MAX = 100;

    private final String version;
    private final String variant;
    private final Context context = newContext();
    private final List<Channel<Double>> scalars = new ArrayList<>();
    private Channel<Value> array;
    private Channel<int[]> arrayInto;

    private FodoJava(String version, String variant) {
        this.version = version;
        this.variant = variant;
    }

    public static void main(String[] arguments) throws Exception {
        String version = arguments[0] + (isDebugBuild() ? " (debug build)" : "");
        Conversation.serve(arguments[1], version, () -> new FodoJava(version, arguments[2]));
    }

    /** Whether the jar has the native library for tests, which is not optimized. */
    private static boolean isDebugBuild() throws IOException {
        try (InputStream build = Context.class.getResourceAsStream("/native/build.txt")) {
            return build != null && new String(build.readAllBytes(), StandardCharsets.UTF_8).strip().equals("debug");
        }
    }

    @Override
    public String answer(Request request) throws Exception {
        return switch (request.verb()) {
            case "open" -> open(request.text("pv"), request.number("n_channels"));
            case "get_scalars" -> getScalars(request.number("n"));
            case "move_array" -> moveArray(request.number("n_elements"), request.number("salt"), request.number("n_gets"));
            case "create_contexts" -> createContexts(request.number("n"), request.text("pv")).answer(request.number("n"));
            case "context_close" -> contextClose(request.text("pv"), request.text("how"));
            case "create_channels" -> createChannels(request).answer(request.number("n"));
            case "connect_one_by_one" -> connectOneByOne(request).answer(request.number("n"));
            case "connect_at_once" -> connectAtOnce(request).answer(request.number("n"));
            case "get_at_once" -> getAtOnce(request, io.github.fodopv.Request.TIME).answer(request.number("n"));
            case "get_whole_at_once" -> getAtOnce(request, io.github.fodopv.Request.FULL).answer(request.number("n"));
            case "get_in_flight" -> getInFlight(request).answer(request.number("n"));
            case "put_at_once" -> putAtOnce(request).answer(request.number("n"));
            case "put_unconfirmed_at_once" -> putUnconfirmedAtOnce(request).answer(request.number("n"));
            case "monitor_at_once" -> monitorAtOnce(request).answer(request.number("n"));
            case "contexts_at_work" -> contextsAtWork(request).answer(request.number("n"));
            default -> throw Conversation.unknown(request);
        };
    }

    private static Context newContext() {
        return Context.builder().timeout(TIMEOUT).build();
    }

    private String open(String pv, int channelCount) {
        closeAll(scalars);
        if (array != null) {
            array.close();
            arrayInto.close();
            array = null;
        }
        scalars.addAll(connected(Collections.nCopies(channelCount, pv)));
        int countMax = scalars.stream().mapToInt(channel -> channel.info().orElseThrow().countMax()).max().orElse(0);
        if (countMax != 1) {
            array = context.channel(pv);
            arrayInto = context.channel(pv, int[].class);
            array.connect();
            arrayInto.connect();
        }
        // Over pvAccess an array has no maximum.
        return Conversation.opened("fodo-java " + version, channelCount, countMax == 0 ? Integer.MAX_VALUE : countMax);
    }

    private String getScalars(int n) {
        long[] latencies = new long[n];
        double first = 0;
        double last = Double.NEGATIVE_INFINITY;
        for (int index = 0; index < n; index++) {
            Channel<Double> channel = scalars.get(index % scalars.size());
            long start = System.nanoTime();
            Reading<Double> reading = channel.get();
            latencies[index] = System.nanoTime() - start;
            double value = reading.value();
            requireCounter(value, last, reading.time().getEpochSecond());
            first = index == 0 ? value : first;
            last = value;
        }
        return Conversation.scalars(latencies, first, last);
    }

    private String moveArray(int elementCount, int salt, int getCount) {
        long[] latencies = new long[getCount];
        int[] target = new int[elementCount];
        for (int round = 0; round < getCount; round++) {
            int[] put = pattern(elementCount, salt + round);
            arrayInto.put(put);
            if (variant.equals("into")) {
                long start = System.nanoTime();
                int received = arrayInto.getInto(target);
                latencies[round] = System.nanoTime() - start;
                requireEqual(received == elementCount ? target : Arrays.copyOf(target, received), put);
            } else {
                long start = System.nanoTime();
                Value value = array.get().value();
                IntBuffer elements = ((Value.Array) value).bytes().asIntBuffer();
                latencies[round] = System.nanoTime() - start;
                int[] copy = new int[elements.remaining()];
                elements.get(copy);
                requireEqual(copy, put);
            }
        }
        return Conversation.array(latencies, elementCount);
    }

    private Timed createContexts(int n, String pv) {
        List<Context> contexts = new ArrayList<>(n);
        try {
            long start = System.nanoTime();
            for (int index = 0; index < n; index++) {
                contexts.add(new Context());
            }
            long ns = System.nanoTime() - start;
            // A context opens no socket before its first channel, so every context is tried.
            for (Context each : contexts) {
                each.channel(pv, Double.class).connect(TIMEOUT);
            }
            return new Timed(ns, -1, distinct(contexts), closeContexts(contexts));
        } catch (OutOfMemoryError why) {
            int made = contexts.size();
            closeContexts(contexts);
            throw unable("making a context", "after " + made + ": " + why.getMessage());
        }
    }

    private String contextClose(String pv, String how) {
        Channel<Double> channel;
        if (how.equals("explicit")) {
            Context closed = newContext();
            channel = closed.channel(pv, Double.class);
            channel.connect();
            closed.close();
        } else {
            try (Context scope = newContext()) {
                channel = scope.channel(pv, Double.class);
                channel.connect();
            }
        }
        boolean isClosed = false;
        try {
            channel.get();
        } catch (ClosedException expected) {
            isClosed = !channel.isConnected();
        }
        return "{\"answered\":{\"yes\":" + isClosed + "}}";
    }

    private Timed createChannels(Request request) {
        List<String> names = request.names();
        List<Channel<Double>> channels = new ArrayList<>(names.size());
        long start = System.nanoTime();
        for (String name : names) {
            channels.add(context.channel(name, Double.class));
        }
        long ns = System.nanoTime() - start;
        return new Timed(ns, -1, distinct(channels), closeAll(channels));
    }

    private Timed connectOneByOne(Request request) {
        List<String> names = request.names();
        List<Channel<Double>> channels = new ArrayList<>(names.size());
        long start = System.nanoTime();
        for (String name : names) {
            Channel<Double> channel = context.channel(name, Double.class);
            channels.add(channel);
            channel.connect();
        }
        long ns = System.nanoTime() - start;
        return new Timed(ns, -1, connectedCount(channels), closeAll(channels));
    }

    private Timed connectAtOnce(Request request) throws Exception {
        List<String> names = request.names();
        if (variant.equals("futures")) {
            List<Channel<Double>> channels = new ArrayList<>(names.size());
            List<CompletableFuture<Info>> connects = new ArrayList<>(names.size());
            long start = System.nanoTime();
            for (String name : names) {
                Channel<Double> channel = context.channel(name, Double.class);
                channels.add(channel);
                connects.add(channel.connectAsync());
            }
            long created = System.nanoTime();
            withinAll(connects, "connecting");
            long ns = System.nanoTime() - start;
            return new Timed(ns, created - start, connectedCount(channels), closeAll(channels));
        }
        long start = System.nanoTime();
        Channels<Double> channels = context.channels(names, Double.class);
        long created = System.nanoTime();
        List<Result<Info>> connects = channels.connect(TIMEOUT);
        long ns = System.nanoTime() - start;
        connects.forEach(Result::orThrow);
        return new Timed(ns, created - start, connects.size(), closed(channels));
    }

    private Timed getAtOnce(Request request, io.github.fodopv.Request detail) throws Exception {
        if (variant.equals("futures") || detail != io.github.fodopv.Request.TIME) {
            List<Channel<Double>> channels = connected(request.names());
            warm(channels);
            List<CompletableFuture<Reading<Double>>> gets = new ArrayList<>(channels.size());
            long start = System.nanoTime();
            for (Channel<Double> channel : channels) {
                gets.add(channel.getAsync(detail));
            }
            withinAll(gets, "get");
            long ns = System.nanoTime() - start;
            request.check(gets.stream().map(get -> get.join().value()).toList());
            return new Timed(ns, -1, gets.size(), closeAll(channels));
        }
        Channels<Double> channels = connectedList(request.names());
        // Over pvAccess the first get of a channel opens it.
        channels.get(TIMEOUT).forEach(Result::orThrow);
        long start = System.nanoTime();
        List<Result<Reading<Double>>> gets = channels.get(TIMEOUT);
        long ns = System.nanoTime() - start;
        request.check(gets.stream().map(get -> get.orThrow().value()).toList());
        return new Timed(ns, -1, gets.size(), closed(channels));
    }

    private Timed getInFlight(Request request) throws Exception {
        List<Channel<Double>> channels = connected(request.names());
        warm(channels);
        ArrayDeque<CompletableFuture<Reading<Double>>> inFlight = new ArrayDeque<>(IN_FLIGHT_MAX);
        List<Double> values = new ArrayList<>(channels.size());
        long start = System.nanoTime();
        for (Channel<Double> channel : channels) {
            if (inFlight.size() == IN_FLIGHT_MAX) {
                values.add(inFlight.remove().join().value());
            }
            inFlight.add(channel.getAsync());
        }
        for (CompletableFuture<Reading<Double>> get : inFlight) {
            values.add(get.join().value());
        }
        long ns = System.nanoTime() - start;
        request.check(values);
        return new Timed(ns, -1, values.size(), closeAll(channels));
    }

    private Timed putAtOnce(Request request) {
        Channels<Double> channels = connectedList(request.names());
        List<Double> held = held(request);
        // Over pvAccess the first put of a channel opens it.
        channels.put(held, TIMEOUT).forEach(Result::orThrow);
        List<Double> changed = held.stream().map(value -> value + 0.5).toList();
        long start = System.nanoTime();
        List<Result<Void>> puts = channels.put(changed, TIMEOUT);
        long ns = System.nanoTime() - start;
        puts.forEach(Result::orThrow);
        List<Double> values = values(channels);
        channels.put(held, TIMEOUT).forEach(Result::orThrow);
        request.check(values);
        return new Timed(ns, -1, puts.size(), closed(channels));
    }

    private Timed putUnconfirmedAtOnce(Request request) {
        List<Channel<Double>> channels = connected(request.names());
        List<Double> held = held(request);
        warm(channels);
        long start = System.nanoTime();
        for (int index = 0; index < channels.size(); index++) {
            channels.get(index).putUnconfirmed(held.get(index) + 0.5);
        }
        // The server handles the requests of a circuit in order.
        channels.get(channels.size() - 1).get();
        long ns = System.nanoTime() - start;
        List<Double> values = channels.stream().map(channel -> channel.get().value() - 0.5).toList();
        for (int index = 0; index < channels.size(); index++) {
            channels.get(index).put(held.get(index));
        }
        request.check(values);
        return new Timed(ns, -1, values.size(), closeAll(channels));
    }

    private Timed monitorAtOnce(Request request) throws Exception {
        if (variant.equals("rows")) {
            return groupAtOnce(request);
        }
        List<Channel<Double>> channels = connected(request.names());
        MonitorOptions options = monitorOptions(variant);
        AtomicReferenceArray<Double> values = new AtomicReferenceArray<>(channels.size());
        AtomicInteger missing = new AtomicInteger(channels.size());
        CountDownLatch done = new CountDownLatch(channels.isEmpty() ? 0 : 1);
        List<Monitor<Double>> monitors = new ArrayList<>(channels.size());
        long start = System.nanoTime();
        for (int index = 0; index < channels.size(); index++) {
            int place = index;
            Consumer<Event<Double>> first = event -> {
                if (event instanceof Event.Update<Double> update
                    && values.compareAndSet(place, null, update.reading().value()) && missing.decrementAndGet() == 0) {
                    done.countDown();
                }
            };
            monitors.add(channels.get(index).monitor(options, first));
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

    private Timed groupAtOnce(Request request) {
        List<String> names = request.names();
        List<Channel<Double>> keeping = connected(names);
        Double[] values = new Double[names.size()];
        int missing = values.length;
        long start = System.nanoTime();
        try (MonitorGroup group = context.monitorGroup(names, GroupOptions.defaults())) {
            long created = System.nanoTime();
            GroupRows rows = group.rows(ROWS);
            long deadline = start + TIMEOUT.toNanos();
            while (missing > 0) {
                if (System.nanoTime() > deadline) {
                    throw unable("the first updates", missing + " are missing");
                }
                group.take(rows, Duration.ofMillis(100));
                for (int row = 0; row < rows.size(); row++) {
                    int index = rows.index(row);
                    missing -= values[index] == null ? 1 : 0;
                    values[index] = rows.value(row);
                }
            }
            long ns = System.nanoTime() - start;
            request.check(Arrays.asList(values));
            return new Timed(ns, created - start, values.length, closeAll(keeping));
        }
    }

    /** Blocking gets, one after the other: a future would start a thread of its context. */
    private Timed contextsAtWork(Request request) throws Exception {
        List<String> names = request.names();
        List<Context> contexts = new ArrayList<>(names.size());
        List<Double> values = new ArrayList<>(names.size());
        long socketsBefore = settledSockets();
        long threadsBefore = threads();
        long start = System.nanoTime();
        for (int index = 0; index < names.size(); index++) {
            contexts.add(newContext());
        }
        long created = System.nanoTime();
        for (int index = 0; index < names.size(); index++) {
            values.add(contexts.get(index).channel(names.get(index), Double.class).get().value());
        }
        long ns = System.nanoTime() - start;
        request.check(values);
        long circuits = Math.min(values.size(), sockets() - socketsBefore);
        long threads = threads() - threadsBefore;
        if (threads > OWN_THREADS_MAX) {
            throw unable("contexts_at_work", "the contexts started " + threads + " threads");
        }
        return new Timed(ns, created - start, (int) circuits, closeContexts(contexts));
    }

    /** What a monitor of this variant requests. */
    static MonitorOptions monitorOptions(String variant) throws Exception {
        return switch (variant) {
            case "executor" -> MonitorOptions.defaults().withExecutor(threads(2));
            case "virtual" -> MonitorOptions.defaults().withExecutor(virtualThreads());
            default -> MonitorOptions.defaults();
        };
    }

    private static Executor threads(int n) {
        return Executors.newFixedThreadPool(n, task -> {
            Thread thread = new Thread(task, "lab-updates");
            thread.setDaemon(true);
            return thread;
        });
    }

    /** An executor of Java 21, for which this class is not compiled. */
    private static Executor virtualThreads() throws Exception {
        return (Executor) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    }

    private List<Channel<Double>> connected(List<String> names) {
        List<Channel<Double>> channels = new ArrayList<>(names.size());
        List<CompletableFuture<Info>> connects = new ArrayList<>(names.size());
        for (String name : names) {
            Channel<Double> channel = context.channel(name, Double.class);
            channels.add(channel);
            connects.add(channel.connectAsync());
        }
        connects.forEach(CompletableFuture::join);
        return channels;
    }

    private Channels<Double> connectedList(List<String> names) {
        Channels<Double> channels = context.channels(names, Double.class);
        channels.connect(TIMEOUT).forEach(Result::orThrow);
        return channels;
    }

    /** One get of each: over pvAccess it opens the channel's get. */
    private static void warm(List<Channel<Double>> channels) {
        List<CompletableFuture<Reading<Double>>> gets = channels.stream().map(Channel::getAsync).toList();
        gets.forEach(CompletableFuture::join);
    }

    private static List<Double> held(Request request) {
        List<Double> held = new ArrayList<>();
        for (int index = 0; index < request.number("n"); index++) {
            held.add(request.held(index));
        }
        return held;
    }

    /** The values, half less: what was put is restored. */
    private static List<Double> values(Channels<Double> channels) {
        return channels.get(TIMEOUT).stream().map(get -> get.orThrow().value() - 0.5).toList();
    }

    private static int connectedCount(List<Channel<Double>> channels) {
        return (int) channels.stream().filter(Channel::isConnected).count();
    }

    private static long closeAll(List<Channel<Double>> channels) {
        long start = System.nanoTime();
        channels.forEach(Channel::close);
        channels.clear();
        return System.nanoTime() - start;
    }

    private static long closed(Channels<Double> channels) {
        long start = System.nanoTime();
        channels.close();
        return System.nanoTime() - start;
    }

    private static long closeContexts(List<Context> contexts) {
        long start = System.nanoTime();
        contexts.forEach(Context::close);
        return System.nanoTime() - start;
    }

    /** The number of sockets, after those of closed contexts are gone: the thread that reads them closes them later. */
    private static long settledSockets() throws Exception {
        long before = -1;
        long now = sockets();
        for (int round = 0; round < SETTLE_ROUNDS_MAX && now != before; round++) {
            Thread.sleep(SETTLE_MS);
            before = now;
            now = sockets();
        }
        return now;
    }

    /** Sockets of this process, by the system. */
    private static long sockets() throws Exception {
        try (Stream<Path> descriptors = Files.list(Path.of("/proc/self/fd"))) {
            return descriptors.filter(descriptor -> target(descriptor).startsWith("socket:")).count();
        }
    }

    private static String target(Path descriptor) {
        try {
            return Files.readSymbolicLink(descriptor).toString();
        } catch (IOException closedMeanwhile) {
            return "";
        }
    }

    /** Threads of this process, by the system. */
    private static long threads() throws Exception {
        try (Stream<Path> threads = Files.list(Path.of("/proc/self/task"))) {
            return threads.count();
        }
    }
}
