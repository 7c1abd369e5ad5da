package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.AbstractList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** An IOC in the JVM. */
@Timeout(120)
class IocTest {
    private static final Duration LIMIT = Duration.ofSeconds(20);

    @TempDir
    Path folder;

    private static Ioc.Builder input(String type, String name) {
        return Ioc.builder().define(RecordDefinition.input(type, name)).isolated();
    }

    @Test
    void recordsOfFilesAndDefinitionsAreServedOverBothProtocols() throws Exception {
        Path file = folder.resolve("sum.db");
        Files.writeString(file, "record(calc, \"$(P)double\") { field(CALC, \"A*$(N)\") field(INPA, \"$(P)gap CP\") }");
        Ioc.Builder builder = Ioc.builder()
                .load(file, Map.of("P", "X:", "N", "2"))
                .loadText("record(stringin, \"$(P)name\") { field(VAL, \"$(TEXT)\") }", Map.of("P", "X:", "TEXT", "a, b"))
                .define(RecordDefinition.output("ao", "X:gap").initial(1.5).field("EGU", "mm").alias("X:distance"))
                .isolated();
        try (Ioc ioc = builder.start(); Context context = new Context(ioc.settings())) {
            assertEquals(1.5, context.channel("ca://X:gap", Double.class).get().value());
            assertEquals("a, b", context.channel("pva://X:name", String.class).get().value());

            context.channel("pva://X:distance", Double.class).put(4.0);
            ioc.record("X:double.PROC").put(1, LIMIT);
            assertEquals(8.0, context.channel("ca://X:double", Double.class).get().value());
            assertEquals("mm", context.channel("X:gap", Double.class).get(Request.FULL).metadata().units());
            assertEquals("mm", ioc.record("X:gap.EGU").get().value().toText());
        }
    }

    @Test
    void aSetHasAValueAnAlarmAndATime() {
        try (Ioc ioc = input("ai", "X:t").start(); Context context = new Context(ioc.settings())) {
            IocRecord record = ioc.record("X:t");
            Channel<Double> channel = context.channel("pva://X:t", Double.class);
            assertEquals(Severity.INVALID, channel.get().alarm().severity());

            Instant time = Instant.ofEpochSecond(1_800_000_000, 250);
            record.set(21.5, new Alarm(Severity.MAJOR, 3, "no water"), time);
            Reading<Double> reading = channel.get();
            assertEquals(21.5, reading.value());
            assertEquals(Severity.MAJOR, reading.alarm().severity());
            assertEquals("no water", reading.alarm().message());
            assertEquals(time, reading.time());
            assertEquals(time, record.get().time());
            assertEquals("X:t", record.name());

            record.set(null, Alarm.NONE, null);
            assertEquals(21.5, channel.get().value());
            assertEquals(Severity.NONE, channel.get().alarm().severity());
        }
    }

    @Test
    void theLimitsOfARecordRaiseItsAlarm() {
        Ioc.Builder builder = Ioc.builder()
                .define(RecordDefinition.input("ai", "X:t").field("HIGH", 30).field("HSV", "MINOR"))
                .isolated();
        try (Ioc ioc = builder.start(); Context context = new Context(ioc.settings())) {
            ioc.record("X:t").set(31);

            assertEquals(Severity.MINOR, context.channel("ca://X:t", Double.class).get().alarm().severity());
        }
    }

    @Test
    void valuesOfAllKindsAreSet() {
        Ioc.Builder builder = Ioc.builder()
                .define(RecordDefinition.input("bi", "X:b").labels(List.of("Closed", "Open")))
                .define(RecordDefinition.input("mbbi", "X:m").labels(List.of("A", "B", "C")))
                .define(RecordDefinition.input("int64in", "X:i"))
                .define(RecordDefinition.input("stringin", "X:s"))
                .define(RecordDefinition.input("waveform", "X:w").field("NELM", 5000).field("FTVL", "DOUBLE"))
                .isolated();
        try (Ioc ioc = builder.start(); Context context = new Context(ioc.settings())) {
            double[] array = new double[5000];
            array[4999] = 0.5;
            ioc.record("X:b").set("Open");
            ioc.record("X:m").set(2);
            ioc.record("X:i").set(1L << 60);
            ioc.record("X:s").set("grün");
            ioc.record("X:w").set(array);

            assertEquals("Open", context.channel("ca://X:b", String.class).get().value());
            assertEquals("C", context.channel("ca://X:m", String.class).get().value());
            assertEquals(1L << 60, context.channel("pva://X:i", Long.class).get().value());
            assertEquals("grün", context.channel("pva://X:s", String.class).get().value());
            assertArrayEquals(array, context.channel("ca://X:w", double[].class).get().value());
            assertEquals(5, ioc.counts().set());
        }
    }

    @Test
    void aValueThatTheRecordWouldChangeIsRefused() {
        try (Ioc ioc = input("longin", "X:n").start()) {
            IocRecord record = ioc.record("X:n");
            record.set(7);

            MisuseException error = assertThrows(MisuseException.class, () -> record.set(1.5));
            assertEquals("X:n", error.pv());
            assertThrows(MisuseException.class, () -> record.set("12 mm"));
            assertThrows(NullPointerException.class, () -> record.set(null));
            assertThrows(MisuseException.class, () -> record.set(new Object()));
            assertEquals(7, record.get().value().toLong());
            assertEquals(2, ioc.counts().setRefused());
        }
    }

    @Test
    void manyRecordsAreSetWithOneCall() {
        Ioc.Builder builder = input("ai", "X:a").define(RecordDefinition.input("longin", "X:b"));
        try (Ioc ioc = builder.start(); Ioc other = input("ai", "X:a").start()) {
            IocRecord a = ioc.record("X:a");
            IocRecord b = ioc.record("X:b");

            List<Result<Void>> results = ioc.setMany(List.of(b, a), List.of(0.5, 2.5));
            assertEquals("X:b", assertInstanceOf(Result.Failure.class, results.get(0)).error().pv());
            assertInstanceOf(Result.Success.class, results.get(1));
            assertEquals(2.5, a.get().value().toDouble());
            assertThrows(MisuseException.class, () -> ioc.setMany(List.of(a), List.of()));
            assertThrows(MisuseException.class, () -> ioc.setMany(List.of(other.record("X:a")), List.of(1)));
        }
    }

    @Test
    void recordsThatOnlyTheListCreatesExistUntilTheyAreSet() {
        try (Ioc ioc = input("longin", "X:n").start()) {
            List<IocRecord> records = new AbstractList<>() {
                @Override
                public IocRecord get(int index) {
                    return ioc.record("X:n");
                }

                @Override
                public int size() {
                    return 50;
                }
            };
            List<Integer> values = new AbstractList<>() {
                @Override
                public Integer get(int index) {
                    System.gc();
                    return index;
                }

                @Override
                public int size() {
                    return 50;
                }
            };

            List<Result<Void>> results = ioc.setMany(records, values);

            assertTrue(results.stream().allMatch(Result.Success.class::isInstance), results::toString);
            assertEquals(49, ioc.record("X:n").get().value().toLong());
        }
    }

    @Test
    void theTextOfAMacroMayHaveQuotesAndBackslashes() {
        String record = "record(stringin, \"X:s\") { field(VAL, $(D)) }";
        try (Ioc ioc = Ioc.builder().loadText(record, Map.of("D", "\"a, b\\\\c\"")).isolated().start()) {
            assertEquals("a, b\\c", ioc.record("X:s").get().value().toText());
        }
    }

    @Test
    void anInterruptEndsTheWaitOfAVirtualThreadForAPut() throws Exception {
        Assumptions.assumeTrue(Runtime.version().feature() >= 21, "virtual threads need JDK 21");
        CountDownLatch isWaiting = new CountDownLatch(1);
        CompletableFuture<Throwable> end = new CompletableFuture<>();
        Ioc.Builder builder = Ioc.builder()
                .loadText("record(ao, \"X:gap\") { field(DTYP, \"Program\") }", Map.of())
                .onPut("X:gap", put -> {
                    put.defer();
                    isWaiting.countDown();
                })
                .isolated();
        try (Ioc ioc = builder.start()) {
            IocRecord record = ioc.record("X:gap");
            Runnable put = () -> {
                try {
                    record.put(1, Duration.ofMinutes(10));
                    end.complete(null);
                } catch (Throwable error) {
                    end.complete(error);
                }
            };
            Thread thread = (Thread) Thread.class.getMethod("startVirtualThread", Runnable.class).invoke(null, put);
            assertTrue(isWaiting.await(20, TimeUnit.SECONDS));

            thread.interrupt();

            assertInstanceOf(InterruptedCallException.class, end.get(20, TimeUnit.SECONDS));
        }
    }

    @Test
    void anOutputOfAFileHasAHandler() {
        LinkedBlockingQueue<PutRequest> puts = new LinkedBlockingQueue<>();
        Ioc.Builder builder = Ioc.builder()
                .loadText("record(ao, \"X:gap\") { field(DTYP, \"Program\") field(DRVH, 100) field(VAL, 10) }", Map.of())
                .onPut("X:gap", puts::add)
                .isolated();
        try (Ioc ioc = builder.start(); Context context = new Context(ioc.settings())) {
            context.channel("ca://X:gap", Double.class).put(200.0);

            PutRequest put = puts.remove();
            assertEquals(100.0, put.value().toDouble());
            assertEquals("X:gap", put.pv());
            assertEquals("", put.user());
            assertTrue(put.isEnded());
            context.channel("pva://X:gap", Double.class).put(20.0);
            assertEquals(Optional.of(100.0), puts.remove().previous().map(Value::toDouble));
            ioc.record("X:gap").set(50.0);
            assertTrue(puts.isEmpty());
            assertEquals(2, ioc.counts().completed());
        }
    }

    @Test
    void aHandlerRefusesAndRestores() {
        Ioc.Builder builder = Ioc.builder()
                .define(RecordDefinition.output("ao", "X:gap").initial(10.0).onPut(put -> {
                    if (put.value().toDouble() < 0) {
                        throw new IllegalArgumentException("the gap must be positive");
                    }
                    if (put.value().toDouble() > 50) {
                        put.restore();
                    }
                }))
                .onFailure((name, error) -> { })
                .isolated();
        try (Ioc ioc = builder.start(); Context context = new Context(ioc.settings())) {
            Channel<Double> channel = context.channel("pva://X:gap", Double.class);

            channel.put(-1.0);
            Reading<Double> refused = channel.get();
            assertEquals(-1.0, refused.value());
            assertEquals(Severity.INVALID, refused.alarm().severity());
            assertEquals("the gap must be positive", context.channel("X:gap.AMSG", String.class).get().value());

            channel.put(20.0);
            channel.put(60.0);
            assertEquals(20.0, channel.get().value());
            assertEquals(Severity.NONE, channel.get().alarm().severity());
            IocCounts counts = ioc.counts();
            assertEquals(List.of(1L, 1L, 1L, 1L),
                    List.of(counts.completed(), counts.refused(), counts.restored(), counts.failed()));
        }
    }

    @Test
    void aPutWaitsForADeferredRequest() throws Exception {
        LinkedBlockingQueue<PutRequest> puts = new LinkedBlockingQueue<>();
        Ioc.Builder builder = Ioc.builder()
                .define(RecordDefinition.output("longout", "X:n").initial(0).onPut(put -> puts.add(put.defer())))
                .define(RecordDefinition.input("ai", "X:other"))
                .isolated();
        try (Ioc ioc = builder.start()) {
            IocRecord record = ioc.record("X:n");
            CompletableFuture<Void> put = CompletableFuture.runAsync(() -> record.put(5, LIMIT));
            PutRequest request = puts.poll(20, TimeUnit.SECONDS);

            assertFalse(put.isDone());
            ioc.record("X:other").set(1);
            assertTrue(request.complete());
            put.get(20, TimeUnit.SECONDS);
            NoAnswerException late = assertThrows(NoAnswerException.class, () -> record.put(6, Duration.ofMillis(50)));
            assertEquals("X:n", late.pv());
            puts.take().refuse("late");
        }
    }

    @Test
    void aHandlerUsesRecordsButCannotWaitForThem() throws Exception {
        AtomicReference<Ioc> ioc = new AtomicReference<>();
        CompletableFuture<Throwable> failure = new CompletableFuture<>();
        Ioc.Builder builder = input("ai", "X:readback")
                .define(RecordDefinition.output("ao", "X:set").onPut(put -> {
                    ioc.get().record("X:readback").set(put.value());
                    ioc.get().record("X:readback.DESC").put("moved", LIMIT);
                }))
                .onFailure((name, error) -> failure.complete(error));
        try (Ioc running = builder.start()) {
            ioc.set(running);
            running.record("X:set").put(3.0, LIMIT);

            assertEquals(3.0, running.record("X:readback").get().value().toDouble());
            assertInstanceOf(MisuseException.class, failure.get(20, TimeUnit.SECONDS));
        }
    }

    @Test
    void handlersRunOnAnExecutor() {
        AtomicReference<String> thread = new AtomicReference<>();
        ExecutorService executor = Executors.newSingleThreadExecutor(work -> new Thread(work, "of the program"));
        Executor rejecting = work -> {
            throw new java.util.concurrent.RejectedExecutionException("full");
        };
        RecordDefinition output = RecordDefinition.output("ao", "X:set").initial(0.0)
                .onPut(put -> thread.set(Thread.currentThread().getName()));
        try (Ioc ioc = Ioc.builder().define(output).executor(executor).isolated().start();
                Ioc full = Ioc.builder().define(output).executor(rejecting).onFailure((name, error) -> { }).isolated().start()) {
            ioc.record("X:set").put(1.0, LIMIT);
            full.record("X:set").put(1.0, LIMIT);

            assertEquals("of the program", thread.get());
            assertEquals(Severity.INVALID, full.record("X:set").get().alarm().severity());
            assertEquals(1, full.counts().failed());
        } finally {
            executor.shutdown();
        }
    }

    @Test
    void anAccessFileAppliesAndIsReadAgain() throws Exception {
        Path file = folder.resolve("rules.acf");
        Files.writeString(file, "ASG(DEFAULT) { RULE(1, READ) }");
        Ioc.Builder builder = Ioc.builder().define(RecordDefinition.of("ao", "X:a")).access(file, Map.of()).isolated();
        try (Ioc ioc = builder.start(); Context context = new Context(ioc.settings())) {
            Channel<Double> channel = context.channel("ca://X:a", Double.class);
            assertFalse(channel.connect().mayWrite());
            assertThrows(RefusedException.class, () -> channel.put(1.0));

            Files.writeString(file, "ASG(DEFAULT) { RULE(1, WRITE) }");
            assertEquals(List.of(), ioc.reloadAccess());
            context.channel("pva://X:a", Double.class).put(2.0);
            Files.writeString(file, "ASG(DEFAULT) {");
            assertThrows(MisuseException.class, ioc::reloadAccess);
            context.channel("pva://X:a", Double.class).put(3.0);
        }
    }

    @Test
    void statisticsAndSavedValuesAreThere() throws Exception {
        RecordDefinition offset = RecordDefinition.of("ao", "X:offset").initial(1.0).autosave();
        Ioc.Builder builder = Ioc.builder().define(offset).autosave(folder, Duration.ofSeconds(5)).statistics("X").isolated();
        try (Ioc ioc = builder.start(); Context context = new Context(ioc.settings())) {
            assertTrue(context.channel("X:HEARTBEAT", Double.class).get().value() >= 0);
            ioc.record("X:offset").put(2.5, LIMIT);
        }
        try (Ioc ioc = builder.start()) {
            assertEquals(2.5, ioc.record("X:offset").get().value().toDouble());
        }
    }

    @Test
    void errorsNameTheFileAndTheLine() throws Exception {
        Path file = folder.resolve("wrong.db");
        Files.writeString(file, "record(ao, \"X:a\") {\n  field(EGUU, \"mm\")\n}\n");

        MisuseException error = assertThrows(MisuseException.class, () -> Ioc.builder().load(file, Map.of()).isolated().start());
        assertTrue(error.getMessage().contains("wrong.db") && error.getMessage().contains("2"), error.getMessage());
        assertTrue(error.getMessage().contains("EGUU"), error.getMessage());
        Ioc.Builder missing = Ioc.builder().load(folder.resolve("missing.db"), Map.of()).isolated();
        assertTrue(assertThrows(MisuseException.class, missing::start).getMessage().contains("missing.db"));
        Ioc.Builder noOutput = Ioc.builder().define(RecordDefinition.of("ao", "X:a")).onPut("X:a", put -> { }).isolated();
        assertTrue(assertThrows(MisuseException.class, noOutput::start).getMessage().contains("X:a"));
        RecordDefinition state = RecordDefinition.input("bi", "X:b");
        assertThrows(MisuseException.class, () -> state.labels(List.of("one")));
        assertThrows(MisuseException.class, () -> Ioc.builder().autosave(folder, Duration.ofMillis(1)));
    }

    @Test
    void aClosedIocOnlyReads() {
        Ioc ioc = input("ai", "X:t").start();
        IocRecord record = ioc.record("X:t");
        record.set(2.5);
        assertTrue(assertThrows(MisuseException.class, () -> ioc.record("X:u")).getMessage().contains("X:t"));
        assertFalse(ioc.await(Duration.ZERO));

        ioc.close();
        ioc.close();
        assertTrue(ioc.await(Duration.ZERO));
        assertEquals(2.5, record.get().value().toDouble());
        assertThrows(ClosedException.class, () -> record.set(3.5));
        assertThrows(ClosedException.class, () -> record.put(3.5));
        assertThrows(ClosedException.class, () -> record.put(3.5, LIMIT));
        assertThrows(ClosedException.class, () -> ioc.record("X:t"));
        assertThrows(ClosedException.class, ioc::settings);
        assertEquals(1, ioc.counts().set());
    }

    @Test
    void iocsRunSideBySide() {
        try (Ioc one = input("ai", "X:t").start();
                Ioc other = input("ai", "X:t").start();
                Context first = new Context(one.settings());
                Context second = new Context(other.settings())) {
            one.record("X:t").set(1);
            other.record("X:t").set(2);

            assertEquals(1.0, first.channel("ca://X:t", Double.class).get().value());
            assertEquals(2.0, second.channel("pva://X:t", Double.class).get().value());
        }
    }

    @Test
    void closingTheIocEndsAPutThatWaits() throws Exception {
        LinkedBlockingQueue<PutRequest> puts = new LinkedBlockingQueue<>();
        Ioc ioc = Ioc.builder()
                .define(RecordDefinition.output("ao", "X:a").onPut(put -> puts.add(put.defer())))
                .isolated()
                .start();
        IocRecord record = ioc.record("X:a");
        CompletableFuture<Throwable> put = CompletableFuture.supplyAsync(
                () -> assertThrows(PvException.class, () -> record.put(1.0, Duration.ofSeconds(60))));
        PutRequest request = puts.poll(20, TimeUnit.SECONDS);

        ioc.close();
        assertInstanceOf(ClosedException.class, put.get(20, TimeUnit.SECONDS));
        request.complete();
    }
}
