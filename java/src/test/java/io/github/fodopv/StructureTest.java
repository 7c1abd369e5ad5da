package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Structures, unions and calls over pvAccess. */
class StructureTest {
    private static Value.Structure structure(Context context, TestServer server, String pv) {
        try (Channel<Value> channel = context.channel(server.name(Protocol.PVA, pv))) {
            return channel.getStructure("");
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"CORE_PVA", "P4P"})
    void aTableHasItsColumns(ServerProgram program) {
        TestServer server = TestServer.shared(program);
        try (Context context = server.context()) {
            Value.Structure table = structure(context, server, "table");

            assertEquals("epics:nt/NTTable:1.0", table.id());
            assertEquals(new Value.TextArray(List.of("left", "right")), table.get("value.name"));
            assertArrayEquals(new double[] {-1.5, 2.5}, ((Value.Array) table.get("value.position")).toDoubleArray());
            assertTrue(table.fields().containsKey("labels"));
            MisuseException error = assertThrows(MisuseException.class, () -> table.get("value.missing"));
            assertTrue(error.getMessage().contains("name"), error.getMessage());
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"CORE_PVA", "P4P"})
    void unionsAndVariantsHaveTheirContent(ServerProgram program) {
        TestServer server = TestServer.shared(program);
        try (Context context = server.context()) {
            Value.Union union =
                    assertInstanceOf(Value.Union.class, structure(context, server, "union").get("value"));
            assertEquals("number", union.member());
            assertEquals(1.5, union.value().toDouble());

            Value.Any any = assertInstanceOf(Value.Any.class, structure(context, server, "variant").get("value"));
            assertEquals(1.5, any.value().toDouble());
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"CORE_PVA", "P4P"})
    void aPvThatIsAStructureIsItsValue(ServerProgram program) {
        TestServer server = TestServer.shared(program);
        try (Context context = server.context();
                Channel<Value> channel = context.channel(server.name(Protocol.PVA, "table"))) {
            Value.Structure table = assertInstanceOf(Value.Structure.class, channel.get().value());

            assertEquals("epics:nt/NTTable:1.0", table.id());
            assertTrue(channel.describe().contains("NTTable"), channel.describe());
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"CORE_PVA", "P4P"})
    void aCallReturnsTheResultOfTheServer(ServerProgram program) throws Exception {
        TestServer server = TestServer.shared(program);
        Value.Structure query = Value.Structure.of("", Map.of("lhs", 1.5, "rhs", 2.25));
        Value.Structure argument =
                Value.Structure.of("epics:nt/NTURI:1.0", Map.of("scheme", "pva", "path", "add", "query", query));
        try (Context context = server.context();
                Channel<Value> channel = context.channel(server.name(Protocol.PVA, "add"))) {
            assertEquals(3.75, channel.rpc(argument).get("value").toDouble());
            assertEquals(3.75, channel.rpcAsync(argument).get(60, TimeUnit.SECONDS).get("value").toDouble());
        }
    }

    @Test
    void aCallThatTheServerRejectsIsRefused() {
        TestServer server = TestServer.shared(ServerProgram.P4P);
        try (Context context = server.context();
                Channel<Value> channel = context.channel(server.name(Protocol.PVA, "add"))) {
            Value.Structure argument = Value.Structure.of("", Map.of("nothing", 1));

            RefusedException error = assertThrows(RefusedException.class, () -> channel.rpc(argument));
            assertEquals(channel.name(), error.pv());
        }
    }

    @Test
    void aPutOfFieldsSendsOnlyThose() {
        TestServer server = TestServer.shared(ServerProgram.P4P);
        try (Context context = server.context();
                Channel<Value> channel = context.channel(server.name(Protocol.PVA, "pair"))) {
            channel.putFields(Map.of("b", 2.5));

            Value.Structure pair = channel.getStructure("");
            assertEquals(2.5, pair.get("b").toDouble());
            assertEquals("b", pair.get("fields").toText());
            assertEquals(1, pair.get("n_puts").toLong());
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"FODO", "QSRV2", "CORE_PVA", "P4P"})
    void aRequestSelectsFields(ServerProgram program) {
        TestServer server = TestServer.shared(program);
        try (Context context = server.context();
                Channel<Value> channel = context.channel(server.name(Protocol.PVA, "ai"))) {
            Value.Structure part = channel.getStructure("field(value,alarm)");

            assertEquals(2.5, part.get("value").toDouble());
            assertEquals(0, part.get("alarm.severity").toLong());
        }
    }
}
