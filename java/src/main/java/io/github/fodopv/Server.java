package io.github.fodopv;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Executor;
import java.util.function.BiConsumer;

/**
 * A server of PVs over Channel Access and pvAccess. It serves until it is closed, or the JVM ends.
 *
 * <p>Handlers run one after another on one daemon thread of the server, {@code fodo-server}, which starts with the first PV that
 * has one; or on an executor. Any number of servers run in a JVM. For records use {@link Ioc}.
 *
 * <pre>{@code
 * SharedPv gap = SharedPv.builder(1.5).acceptPuts().build();
 * try (Server server = Server.builder().add("lab:gap", gap).isolated().start();
 *         Context context = new Context(server.settings())) {
 *     context.channel("lab:gap", Double.class).put(2.5);
 * }
 * }</pre>
 */
public final class Server implements AutoCloseable {
    private final Object lock = new Object();
    private final Map<String, SharedPv> pvs = new LinkedHashMap<>();
    private final Map<String, Long> tokens = new LinkedHashMap<>();
    private final NativeObject server;
    private final HandlerThread handlers;
    private final Thread hook;
    private long nextToken;

    private Server(Builder builder) {
        List<Map.Entry<String, SharedPv>> entries = new ArrayList<>(builder.pvs.entrySet());
        handlers = new HandlerThread(builder.executor, builder.onFailure);
        for (Map.Entry<String, SharedPv> entry : entries) {
            register(entry.getKey(), entry.getValue());
        }
        long handle = ServerCalls.handle(
                out -> {
                    out.u8(builder.isIsolated ? 1 : 0);
                    ServerCalls.texts(out, builder.settings);
                    out.i32(pvs.size());
                    pvs.forEach((name, pv) -> {
                        out.i64(pv.with(number -> number));
                        out.i64(tokens.get(name));
                        out.text(name);
                    });
                },
                ServerCalls.NATIVE::serverStart);
        server = new NativeObject(handle);
        long queue = ServerCalls.handle(ServerCalls.NO_INPUT, (buf, in, cap) -> ServerCalls.NATIVE.serverQueue(handle, buf, cap));
        handlers.setQueue(queue);
        hook = ServerCalls.closeAtExit(this::end);
        if (pvs.values().stream().anyMatch(SharedPv::hasHandler)) {
            handlers.start();
        }
    }

    /** Gives the PV a number by which requests name it. */
    private long register(String name, SharedPv pv) {
        long token = nextToken++;
        pvs.put(name, pv);
        tokens.put(name, token);
        handlers.add(token, name, pv);
        return token;
    }

    /**
     * Builds a server.
     *
     * @return a builder
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public static Builder builder() {
        return new Builder();
    }

    /**
     * Serves a PV under a name from now on.
     *
     * @param name the name
     * @param pv the PV; it may have other names, and be on other servers
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for a name that exists or is empty, {@link ClosedException} after {@link #close}
     */
    public void add(String name, SharedPv pv) {
        Objects.requireNonNull(pv, "the PV is null");
        ServerCalls.checkName(name);
        synchronized (lock) {
            if (pvs.containsKey(name)) {
                throw new MisuseException(name, "the server has a PV with this name: remove it first");
            }
            long token = register(name, pv);
            try {
                pv.with(pvHandle -> server.with(handle -> ServerCalls.call(
                        out -> out.text(name),
                        (buf, in, cap) -> ServerCalls.NATIVE.serverAdd(handle, pvHandle, token, buf, in, cap),
                        ServerCalls.DONE)));
            } catch (PvException e) {
                forget(name);
                throw e;
            }
            if (pv.hasHandler()) {
                handlers.start();
            }
        }
    }

    private SharedPv forget(String name) {
        handlers.remove(tokens.remove(name));
        return pvs.remove(name);
    }

    /**
     * Serves the name no longer, and disconnects its clients.
     *
     * @param name the name
     * @return the PV that had the name
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link MisuseException} for a name that does not exist, {@link ClosedException} after {@link #close}
     */
    public SharedPv remove(String name) {
        synchronized (lock) {
            if (!pvs.containsKey(name)) {
                throw new MisuseException(String.valueOf(name), "the server has no PV with this name");
            }
            server.with(handle -> ServerCalls.call(
                    out -> out.text(name),
                    (buf, in, cap) -> ServerCalls.NATIVE.serverRemove(handle, buf, in, cap),
                    ServerCalls.DONE));
            return forget(name);
        }
    }

    /**
     * The names of the PVs.
     *
     * @return the names, in the order in which they were added
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails never
     */
    public List<String> names() {
        synchronized (lock) {
            return List.copyOf(pvs.keySet());
        }
    }

    /**
     * The variables of a client on this host that searches only this server: {@code new Context(server.settings())}.
     *
     * @return the texts by the names of the variables
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link ClosedException} after {@link #close}
     */
    public Map<String, String> settings() {
        return server.with(handle -> ServerCalls.call(
                ServerCalls.NO_INPUT,
                (buf, in, cap) -> ServerCalls.NATIVE.serverSettings(handle, buf, cap),
                ServerCalls.TEXTS));
    }

    /**
     * The counters.
     *
     * @return counters since the start
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link ClosedException} after {@link #close}
     */
    public ServerCounts counts() {
        long[] n = server.with(handle -> ServerCalls.call(
                ServerCalls.NO_INPUT,
                (buf, in, cap) -> ServerCalls.NATIVE.serverCounts(handle, buf, cap),
                ServerCalls.counts(11)));
        return new ServerCounts(n[0], n[1], handlers.failed(), n[2], n[3], n[4], n[5], n[6], n[7], n[8], n[9], n[10]);
    }

    /**
     * Disconnects all clients, refuses what waits for handlers, and waits until the thread of the server runs no handler; logs the
     * name of the PV whose handler is still busy after 5 s. Handlers on an executor may run on. Does nothing the second time.
     *
     * @roundTrips none
     * @thread any, also a handler, which it does not wait for
     * @blocks for at most 5 s
     * @bounds none
     * @fails never
     */
    @Override
    public void close() {
        end();
        handlers.close();
        ServerCalls.forgetExit(hook);
    }

    /** Closes the server without waiting for a handler, which may be what ends the JVM and waits for this. */
    private void end() {
        server.with(handle -> {
            ServerCalls.NATIVE.serverClose(handle);
            return null;
        });
        handlers.end();
    }

    /**
     * Waits until the server is closed, for a program that only serves.
     *
     * @param timeout for at most this time
     * @return whether it was closed
     * @roundTrips none
     * @thread any
     * @blocks until then
     * @bounds none
     * @fails {@link InterruptedCallException} when the thread is interrupted
     */
    public boolean await(Duration timeout) {
        return handlers.await(timeout);
    }

    /** Builds a {@link Server}. */
    public static final class Builder {
        private final Map<String, SharedPv> pvs = new LinkedHashMap<>();
        private Map<String, String> settings = Map.of();
        private boolean isIsolated;
        private Executor executor;
        private BiConsumer<? super String, ? super Throwable> onFailure;

        private Builder() {
        }

        /**
         * Serves a PV under a name.
         *
         * @param name the name
         * @param pv the PV
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails {@link MisuseException} for a name that exists or is empty; {@link NullPointerException} without a PV
         */
        public Builder add(String name, SharedPv pv) {
            ServerCalls.checkName(name);
            if (pvs.putIfAbsent(name, Objects.requireNonNull(pv, "the PV is null")) != null) {
                throw new MisuseException(name, "the server has a PV with this name");
            }
            return this;
        }

        /**
         * Sets variables such as {@code EPICS_PVAS_INTF_ADDR_LIST}, which take precedence over those of the environment.
         *
         * @param settings texts by the names of the variables
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} for null; what is invalid is reported by {@link #start}
         */
        public Builder settings(Map<String, String> settings) {
            this.settings = Map.copyOf(settings);
            return this;
        }

        /**
         * Serves on loopback and on free ports only, for tests. Clients find the server with {@link Server#settings}.
         *
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds none
         * @fails never
         */
        public Builder isolated() {
            isIsolated = true;
            return this;
        }

        /**
         * Calls handlers on an executor, in the order of their requests, instead of the server's own thread. With several threads,
         * handlers run at the same time, also those of one PV.
         *
         * @param executor for example {@code Executors.newFixedThreadPool(4)}; what it rejects is refused and counted
         * @return this builder
         * @roundTrips none
         * @thread one at a time
         * @blocks never
         * @bounds 1000 requests are with the executor; others wait in the queue of the server
         * @fails {@link NullPointerException} without an executor
         */
        public Builder executor(Executor executor) {
            this.executor = Objects.requireNonNull(executor, "the executor is null");
            return this;
        }

        /**
         * Receives the exceptions of handlers; without it, they are logged by the {@link System.Logger} {@code io.github.fodopv}.
         *
         * @param handler called with the name of the PV and the exception
         * @return this builder
         * @roundTrips none
         * @thread one at a time; the function runs where the handler has run
         * @blocks never
         * @bounds none
         * @fails {@link NullPointerException} without a function
         */
        public Builder onFailure(BiConsumer<? super String, ? super Throwable> handler) {
            onFailure = Objects.requireNonNull(handler, "the handler is null");
            return this;
        }

        /**
         * Starts the server.
         *
         * @return the running server
         * @roundTrips none
         * @thread one at a time
         * @blocks while sockets are opened
         * @bounds none
         * @fails {@link MisuseException} for an invalid variable, and if a port or an address is not available
         */
        public Server start() {
            return new Server(this);
        }
    }
}
