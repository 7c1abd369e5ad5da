package lab;

import static lab.Conversation.OPERATION_S_MAX;
import static lab.Conversation.distinct;
import static lab.Conversation.pattern;
import static lab.Conversation.requireCounter;
import static lab.Conversation.requireEqual;
import static lab.Conversation.unable;
import static lab.Conversation.within;
import static lab.Conversation.withinAll;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReferenceArray;

import lab.Conversation.Request;
import lab.Conversation.Timed;

import org.epics.ca.Channel;
import org.epics.ca.ConnectionState;
import org.epics.ca.Context;
import org.epics.ca.Monitor;
import org.epics.ca.Status;
import org.epics.ca.data.Timestamped;

/** Drives PSI's {@code org.epics.ca} for the laboratory. */
public final class PsiCa implements Conversation.Driver {
    private final String version;
    private final Context context = new Context();
    private final List<Channel<Double>> scalars = new ArrayList<>();
    private Channel<int[]> array;

    private PsiCa(String version) {
        this.version = version;
    }

    public static void main(String[] arguments) throws Exception {
        Conversation.serve(arguments[1], arguments[0], () -> new PsiCa(arguments[0]));
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
            case "get_at_once" -> getAtOnce(request).answer(request.number("n"));
            case "put_at_once" -> putAtOnce(request).answer(request.number("n"));
            case "monitor_at_once" -> monitorAtOnce(request).answer(request.number("n"));
            default -> throw Conversation.unknown(request);
        };
    }

    private String open(String pv, int channelCount) throws Exception {
        closeAll(scalars);
        if (array != null) {
            array.close();
            array = null;
        }
        List<Channel<Double>> opened = connected(context, Collections.nCopies(channelCount, pv));
        scalars.addAll(opened);
        int countMax = 0;
        for (Channel<Double> channel : opened) {
            countMax = (Integer) channel.getProperties().get("nativeElementCount");
        }
        if (countMax > 1) {
            array = context.createChannel(pv, int[].class);
            within(array.connectAsync(), "connecting");
        }
        return Conversation.opened("psi-ca " + version, channelCount, countMax);
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
            requireCounter(value, last, reading.getSeconds());
            first = index == 0 ? value : first;
            last = value;
        }
        return Conversation.scalars(latencies, first, last);
    }

    private String moveArray(int elementCount, int salt, int getCount) {
        long[] latencies = new long[getCount];
        for (int round = 0; round < getCount; round++) {
            int[] put = pattern(elementCount, salt + round);
            array.put(put);
            long start = System.nanoTime();
            int[] came = array.get();
            latencies[round] = System.nanoTime() - start;
            requireEqual(came, put);
        }
        return Conversation.array(latencies, elementCount);
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
        List<CompletableFuture<?>> futures = new ArrayList<>(names.size());
        long start = System.nanoTime();
        for (String name : names) {
            Channel<Double> channel = context.createChannel(name, Double.class);
            channels.add(channel);
            futures.add(channel.connectAsync());
        }
        long created = System.nanoTime();
        withinAll(futures, "connecting");
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
        withinAll(gets, "get");
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
        withinAll(puts, "put");
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

    /** Uses the notification service that the property of the virtual machine selects. */
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
        withinAll(futures, "connecting");
        return channels;
    }

    private static int connectedCount(List<Channel<Double>> channels) {
        return (int) channels.stream().filter(channel -> channel.getConnectionState() == ConnectionState.CONNECTED).count();
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
}
