/**
 * A client and a server of EPICS process variables (PVs), over Channel Access and pvAccess.
 *
 * <h2>Read and write</h2>
 *
 * <pre>{@code
 * try (Context context = new Context();
 *         Channel<Double> current = context.channel("ring:current", Double.class)) {
 *     Reading<Double> reading = current.get();
 *     System.out.println(reading.value() + " at " + reading.time() + ", " + reading.alarm().severity());
 *     current.put(reading.value() + 0.5);
 *     String units = current.get(Request.FULL).metadata().units();
 * }
 * }</pre>
 *
 * <p>{@code Context} takes its configuration from the environment ({@code EPICS_CA_ADDR_LIST} and so on), or from the
 * settings that it is created with. A PV is searched for over Channel Access unless its name begins with {@code pva://} or
 * {@code FODO_PROTOCOL} says otherwise. The type of the channel decides what is requested; the server converts. With {@code
 * context.channel(name)} it is the PV's own type, as a {@link io.github.fodopv.Value}:
 *
 * <pre>{@code
 * Value value = context.channel("ring:mode").get().value();
 * if (value instanceof Value.Choice mode) {
 *     System.out.println("state " + mode.index());
 * } else {
 *     System.out.println(value.toText());
 * }
 * }</pre>
 *
 * <p>Each operation on a PV has a timeout: its own, that of {@code Context.builder().timeout(...)}, or 5 s. What fails throws
 * a {@link io.github.fodopv.PvException}; its class says which step has failed.
 *
 * <h2>Arrays</h2>
 *
 * <pre>{@code
 * double[] samples = new double[1_000_000];
 * int n = context.channel("camera:profile", double[].class).getInto(samples);
 * }</pre>
 *
 * <p>{@code getInto} fills an array of the caller, {@code get} creates one, and of a {@code Channel<Value>} {@link
 * io.github.fodopv.Value.Array#bytes()} is a read-only buffer without a copy.
 *
 * <h2>Monitor</h2>
 *
 * <pre>{@code
 * Monitor<Double> monitor = current.monitor(event -> {
 *     if (event instanceof Event.Update<Double> update) {
 *         show(update.reading().value());
 *     } else if (event instanceof Event.Disconnected) {
 *         showDisconnected();
 *     }
 * });
 * }</pre>
 *
 * <p>A monitor may be created before the PV exists. It reports connections as events, and subscribes again after each. Events
 * are in order. Updates wait in a queue of {@link io.github.fodopv.MonitorOptions#queueMax()}; what a full queue drops is
 * counted ({@link io.github.fodopv.Monitor#counts()}) and reported as {@link io.github.fodopv.Event.Merged}. {@link
 * io.github.fodopv.MonitorOptions#newest()} keeps only the newest update. A monitor without a callback is read with {@code
 * next(timeout)}; {@code channel.publisher(options)} is a {@link java.util.concurrent.Flow.Publisher} that takes as many
 * events as its subscriber requests.
 *
 * <h2>Many PVs</h2>
 *
 * <pre>{@code
 * Channels<Double> all = context.channels(names, Double.class);
 * for (Result<Reading<Double>> result : all.get(Duration.ofSeconds(2))) {
 *     if (result instanceof Result.Success<Reading<Double>> success) {
 *         use(success.value());
 *     }
 * }
 *
 * MonitorGroup group = context.monitorGroup(names, GroupOptions.defaults());
 * GroupRows rows = group.rows(4096);
 * while (group.take(rows, Duration.ofSeconds(1))) {
 *     for (int row = 0; row < rows.size(); row++) {
 *         use(group.name(rows.index(row)), rows.value(row));
 *     }
 * }
 * }</pre>
 *
 * <p>{@code Channels} sends all requests at once, with one deadline and a result or an error for each PV. {@code MonitorGroup}
 * takes the updates of many monitors as rows of numbers, thousands in one call.
 *
 * <h2>Structures</h2>
 *
 * <pre>{@code
 * Channel<Value> table = context.channel("pva://db:table");
 * Value.Structure structure = table.getStructure("field(value,timeStamp)");
 * long seconds = structure.get("timeStamp.secondsPastEpoch").toLong();
 * table.putFields(Map.of("descriptor", "measured"));
 * Value.Structure reply = table.rpc(Value.Structure.of("", Map.of("query", "all")));
 * }</pre>
 *
 * <h2>Futures</h2>
 *
 * <pre>{@code
 * CompletableFuture<Double> sum = a.getAsync().thenCombine(b.getAsync(), (x, y) -> x.value() + y.value());
 * sum.thenCompose(total -> c.putAsync(total)).join();
 * }</pre>
 *
 * <p>Operations of a channel have a second method with {@code Async}, except {@code getInto} and {@code putUnconfirmed}. A future
 * ends after the timeout of the context at the latest. Cancelling one does not end its request.
 *
 * <h2>Threads</h2>
 *
 * <p>The number of threads does not depend on the number of channels, monitors or calls. The process has the threads of the
 * native client; a context has one thread, {@code fodo-callbacks}, from its first future or callback on. All are daemons.
 *
 * <ul>
 *   <li>A blocking call reads the connection on the calling thread, so that it needs no other thread. It looks for an
 *       interrupt every 100 ms. In a virtual thread (Java 21) it waits for a future instead, so that no carrier is held.
 *   <li>Futures complete and callbacks run on {@code fodo-callbacks}, or on the executor of the context or of the monitor. The
 *       callbacks of one monitor never run at the same time. An executor runs tasks of at most 64 events; at most one task for
 *       each monitor is queued in it, and one for each future whose operation has ended.
 *   <li>A callback may block, get, put and close anything. While it runs on {@code fodo-callbacks}, other callbacks and
 *       futures of the context wait: it must not wait for a future ({@code join()}), which only its own thread can complete.
 *   <li>A callback that throws is counted ({@link io.github.fodopv.Monitor#callbackFailures()}) and reported to {@code
 *       Context.builder().onCallbackFailure(...)}; the monitor continues.
 * </ul>
 *
 * <h2>The contract of each method</h2>
 *
 * <p>The documentation of each method says: <em>Round trips</em>, messages to a server and back before it ends;
 * <em>Thread</em>, which may call it, and where callbacks run; <em>Blocks</em>, how long the calling thread waits;
 * <em>Bounds</em>, what limits memory; <em>Fails</em>, which exceptions it throws. Exceptions for programming errors ({@link
 * io.github.fodopv.MisuseException}) and for use after close ({@link io.github.fodopv.ClosedException}) may come from every
 * method that names them.
 *
 * <h2>The native library</h2>
 *
 * <p>The jar contains a library for each platform that it was built for, with its SHA-256. It is unpacked into a private folder
 * when the first context is created, and removed once it is loaded. {@code -Dfodo.library=PATH} names another file. From Java 24 on
 * the virtual machine warns that a library is loaded, unless {@code --enable-native-access=io.github.fodopv} permits it
 * ({@code ALL-UNNAMED} on the class path).
 */
package io.github.fodopv;
