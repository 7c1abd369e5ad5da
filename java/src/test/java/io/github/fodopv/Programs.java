package io.github.fodopv;

import java.io.IOException;
import java.lang.ref.WeakReference;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Programs that run in a JVM of their own: {@code Programs NAME PV [ARGUMENT]}. */
final class Programs {
    /** Contexts opened before the first count, so that what exists once per process is there. */
    private static final int N_WARM = 100;
    private static final int N_CONTEXTS = 1000;
    /** Threads and descriptors that the JVM itself may have opened meanwhile, such as those of its compilers. */
    private static final int N_OTHERS = 8;

    private Programs() {
    }

    public static void main(String[] arguments) throws Exception {
        String pv = arguments[1];
        switch (arguments[0]) {
            case "contexts" -> contexts(pv);
            case "loader" -> loader(pv, arguments[2]);
            case "exit" -> exit(pv);
            case "exit-in-handler" -> exitInHandler(pv);
            case "end" -> end(pv);
            case "end-never" -> {
                end(pv);
                System.out.println("waits");
                new Context().channel(pv + "absent", Double.class).get(Duration.ofMinutes(10));
            }
            case "get" -> System.out.println("got " + got(pv));
            case "error" -> error(pv);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    /** The settings of EPICS in the environment are those of the test's server. */
    private static double got(String pv) {
        try (Context context = new Context(); Channel<Double> channel = context.channel(pv, Double.class)) {
            return channel.get(TestServer.PATIENCE).value();
        }
    }

    /** Prints the error of a get. */
    private static void error(String pv) {
        try {
            System.out.println("got " + got(pv));
        } catch (PvException error) {
            System.out.println(error.getClass().getSimpleName() + ": " + error.getMessage());
        }
    }

    /** Opens contexts, each with a get, a future and a monitor, and compares threads and descriptors. */
    private static void contexts(String pv) throws Exception {
        long threads = 0;
        long descriptors = 0;
        for (int count = 0; count < N_WARM + N_CONTEXTS; count++) {
            if (count == N_WARM) {
                threads = settled("task", 0);
                descriptors = settled("fd", 0);
            }
            try (Context context = new Context(Map.of())) {
                if (count % 10 == 0) {
                    Channel<Double> channel = context.channel(pv, Double.class);
                    CountDownLatch update = new CountDownLatch(1);
                    channel.monitor(event -> {
                        if (event instanceof Event.Update<Double>) {
                            update.countDown();
                        }
                    });
                    channel.get(TestServer.PATIENCE);
                    channel.getAsync().get(60, TimeUnit.SECONDS);
                    if (!update.await(60, TimeUnit.SECONDS)) {
                        throw new IllegalStateException("no update in context " + count);
                    }
                }
            }
        }
        System.out.println("threads " + threads + " " + settled("task", threads + N_OTHERS));
        System.out.println("descriptors " + descriptors + " " + settled("fd", descriptors + N_OTHERS));
    }

    /** The number of entries of this folder of the process, at the latest when it has not fallen to the limit in time. */
    private static long settled(String folder, long limit) throws IOException, InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(limit == 0 ? 1 : 20);
        while (true) {
            long count;
            try (Stream<Path> entries = Files.list(Path.of("/proc/self").resolve(folder))) {
                count = entries.count();
            }
            if (count <= limit || System.nanoTime() > deadline) {
                return count;
            }
            TimeUnit.MILLISECONDS.sleep(50);
        }
    }

    /** Uses the library in a class loader of its own, several times, until the loader is unreachable. */
    private static void loader(String pv, String classes) throws Exception {
        for (int turn = 0; turn < 3; turn++) {
            WeakReference<ClassLoader> loader = used(pv, classes);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
            while (loader.get() != null && System.nanoTime() < deadline) {
                System.gc();
                TimeUnit.MILLISECONDS.sleep(50);
            }
            System.out.println(loader.get() == null ? "unloaded" : "still loaded");
        }
    }

    private static WeakReference<ClassLoader> used(String pv, String classes)
            throws IOException, ReflectiveOperationException {
        URL url = Path.of(classes).toUri().toURL();
        try (URLClassLoader loader = new URLClassLoader(new URL[] {url}, ClassLoader.getPlatformClassLoader())) {
            Class<?> type = loader.loadClass("io.github.fodopv.Context");
            try (AutoCloseable context = (AutoCloseable) type.getConstructor().newInstance()) {
                Object channel =
                        type.getMethod("channel", String.class, Class.class).invoke(context, pv, Double.class);
                Object reading = channel.getClass().getMethod("get").invoke(channel);
                System.out.println("got " + reading.getClass().getMethod("value").invoke(reading));
            } catch (InvocationTargetException error) {
                throw new IllegalStateException(error.getCause());
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
            return new WeakReference<>(loader);
        }
    }

    /** Ends the JVM while one thread waits for a stopped server and another for the queue. */
    private static void exit(String pv) throws Exception {
        Context context = new Context();
        Channel<Double> channel = context.channel(pv, Double.class);
        channel.monitor(event -> System.out.println("event"));
        channel.getAsync().get(60, TimeUnit.SECONDS);
        System.out.println("connected");
        // The test stops the server now.
        System.in.read();
        CountDownLatch isRunning = new CountDownLatch(4);
        for (int count = 0; count < 4; count++) {
            Thread blocked = new Thread(() -> {
                isRunning.countDown();
                channel.get(Duration.ofMinutes(10));
            });
            blocked.start();
        }
        isRunning.await();
        System.exit(3);
    }

    /** Ends the JVM within a handler of a server. */
    private static void exitInHandler(String pv) {
        SharedPv exits = SharedPv.builder(0.0).onPut(put -> {
            System.out.println("exits");
            System.exit(4);
        }).build();
        Server server = Server.builder().add(pv, exits).isolated().start();
        try (Context context = new Context(server.settings()); Channel<Double> channel = context.channel(pv, Double.class)) {
            channel.put(1.0, TestServer.PATIENCE);
        }
    }

    /** Returns from main with an open context, a monitor and a future that never ends. */
    private static void end(String pv) throws Exception {
        Map<String, String> settings = new HashMap<>();
        List<Object> kept = new ArrayList<>();
        Context context = new Context(settings);
        CountDownLatch update = new CountDownLatch(1);
        Channel<Double> channel = context.channel(pv, Double.class);
        kept.add(channel.monitor(event -> {
            if (event instanceof Event.Update<Double>) {
                update.countDown();
            }
        }));
        kept.add(context.channel(pv + "absent", Double.class).getAsync());
        update.await();
        System.out.println("main has ended");
    }
}
