package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.fodopv.ServerProgram.Way;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.parallel.Execution;
import org.junit.jupiter.api.parallel.ExecutionMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Lists of channels: one deadline, and a result or an error for each. Tests that write store equal values. */
@Execution(ExecutionMode.CONCURRENT)
class ListTest {
    private static final Duration SHORT = Duration.ofSeconds(2);

    static List<Way> ways() {
        return ServerProgram.ways();
    }

    private static List<String> names(TestServer server, Way way, String... pvs) {
        List<String> names = new ArrayList<>();
        for (String pv : pvs) {
            names.add(server.name(way.protocol(), pv));
        }
        return names;
    }

    @ParameterizedTest
    @MethodSource("ways")
    void eachPvOfAListHasItsOwnEnd(Way way) {
        TestServer server = TestServer.shared(way.program());
        List<String> names = names(server, way, "ai", "absent", "longin", "missing");
        try (Context context = server.context(); Channels<Double> channels = context.channels(names, Double.class)) {
            List<Result<Reading<Double>>> results = channels.get(SHORT);

            assertEquals(names, channels.names());
            assertEquals(2.5, results.get(0).orThrow().value());
            assertEquals(7.0, results.get(2).orThrow().value());
            for (int index : new int[] {1, 3}) {
                Result.Failure<?> failure = assertInstanceOf(Result.Failure.class, results.get(index));
                assertInstanceOf(NotFoundException.class, failure.error());
                assertEquals(names.get(index), failure.error().pv());
                assertThrows(NotFoundException.class, results.get(index)::orThrow);
            }
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aListConnectsTogether(Way way) {
        TestServer server = TestServer.shared(way.program());
        List<String> names = names(server, way, "mbbi", "absent", "stringin");
        try (Context context = server.context(); Channels<Value> channels = context.channels(names, Value.class)) {
            List<Result<Info>> results = channels.connect(SHORT);

            assertEquals(Kind.ENUM, results.get(0).orThrow().kind());
            assertInstanceOf(Result.Failure.class, results.get(1));
            assertEquals(Kind.TEXT, results.get(2).orThrow().kind());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aListConnectsAndWritesByFutures(Way way) throws Exception {
        try (TestServer server = TestServer.own(way.program());
                Context context = server.context();
                Channels<Double> channels =
                        context.channels(names(server, way, "ai", "longin"), Double.class)) {
            List<Result<Info>> infos = channels.connectAsync().get(60, TimeUnit.SECONDS);
            List<Result<Void>> puts = channels.putAsync(List.of(1.5, 8.0)).get(60, TimeUnit.SECONDS);

            infos.forEach(Result::orThrow);
            puts.forEach(Result::orThrow);
            assertEquals(1.5, channels.get().get(0).orThrow().value());
            assertEquals(8.0, channels.get().get(1).orThrow().value());
            assertThrows(MisuseException.class, () -> channels.putAsync(List.of(1.0)));
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aListOfManyIsReadInItsOrder(Way way) throws Exception {
        TestServer server = TestServer.shared(way.program());
        // The server of core-pva refuses further channels of one PV that are created at the same time.
        String[] pvs = new String[way.program() == ServerProgram.CORE_PVA ? 2 : 1000];
        for (int index = 0; index < pvs.length; index++) {
            pvs[index] = index % 2 == 0 ? "ai" : "longin";
        }
        try (Context context = server.context();
                Channels<Double> channels = context.channels(names(server, way, pvs), Double.class)) {
            for (List<Result<Reading<Double>>> results : List.of(
                    channels.get(TestServer.PATIENCE), channels.getAsync().get(60, TimeUnit.SECONDS))) {
                assertEquals(pvs.length, results.size());
                for (int index = 0; index < pvs.length; index++) {
                    assertEquals(index % 2 == 0 ? 2.5 : 7.0, results.get(index).orThrow().value());
                }
            }
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void aPutToAListStoresOneValueEach(Way way) {
        TestServer server = TestServer.shared(way.program());
        // No other class writes to them.
        List<String> names = names(server, way, "mbbo", "absent", "int64out");
        try (Context context = server.context(); Channels<Integer> channels = context.channels(names, Integer.class)) {
            List<Result<Void>> results = channels.put(List.of(2, 5, 9), SHORT);

            assertNull(results.get(0).orThrow());
            assertInstanceOf(Result.Failure.class, results.get(1));
            assertNull(results.get(2).orThrow());
            assertEquals(2, channels.get(SHORT).get(0).orThrow().value());
        }
    }

    @ParameterizedTest
    @MethodSource("ways")
    void anEmptyListHasNoResults(Way way) {
        try (Context context = TestServer.shared(way.program()).context();
                Channels<Double> channels = context.channels(List.of(), Double.class)) {
            assertTrue(channels.get(SHORT).isEmpty());
            assertTrue(channels.put(List.of(), SHORT).isEmpty());
        }
    }
}
