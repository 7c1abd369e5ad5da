package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.EnumSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Supplier;
import org.junit.jupiter.api.Test;

class ValueTest {
    @Test
    void scalarsAreConverted() {
        assertEquals(1.5, Value.of(1.5f).toDouble());
        assertEquals(1, Value.of(true).toLong());
        assertEquals(2, new Value.Choice(2).toDouble());
        assertEquals(-3, Value.of("-3").toLong());
        assertEquals(-1, Value.of(-1.9).toLong());
        assertEquals(Math.pow(2, 64), new Value.Int(Kind.U64, -1).toDouble());
        assertEquals(5, new Value.Any(Value.of(5)).toLong());
    }

    @Test
    void aVariantAndAUnionHaveTheNumberOfTheirValue() {
        Value.Int unsigned = new Value.Int(Kind.U64, -1);

        assertEquals(2.5, new Value.Any(Value.of(2.5)).toDouble());
        assertEquals(Math.pow(2, 64), new Value.Any(unsigned).toDouble());
        assertEquals(2.5, new Value.Union(0, "n", Value.of(2.5)).toDouble());
        assertEquals(7, new Value.Union(0, "n", new Value.Any(Value.of(7))).toLong());
        checkMisuse("a value of the type Empty is not a number", () -> new Value.Any(new Value.Empty()).toDouble());
    }

    @Test
    void valuesHaveTexts() {
        assertEquals("18446744073709551615", new Value.Int(Kind.U64, -1).toText());
        assertEquals("0.1", Value.of(0.1f).toText());
        assertEquals("[1, 2]", Value.of(new short[] {1, 2}).toText());
        assertEquals("[a, b]", Value.of(List.of("a", "b")).toText());
        assertEquals("", new Value.Empty().toText());
        Map<String, Object> fields = new LinkedHashMap<>();
        fields.put("x", 1);
        fields.put("y", List.of("a"));
        assertEquals("point{x: 1, y: [a]}", Value.Structure.of("point", fields).toText());
    }

    @Test
    void aFieldIsFoundByItsPathThroughVariantsAndUnions() {
        Value.Structure inner = Value.Structure.of("", Map.of("b", new Value.Union(0, "n", Value.of(7))));
        Value.Structure outer = Value.Structure.of("", Map.of("a", new Value.Any(inner)));

        assertEquals(new Value.Union(0, "n", Value.of(7)), outer.get("a.b"));
    }

    @Test
    void errorsSayWhatIsWrongAndWhatToDo() {
        Value.Structure structure = Value.Structure.of("", Map.of("value", 1));

        checkMisuse("there is no field \"val\" in \"val\"; the fields here are value", () -> structure.get("val"));
        checkMisuse("there is no field \"x\" in \"value.x\"; what is before it is not a structure",
                () -> structure.get("value.x"));
        checkMisuse("a value of the type Structure is not a number", structure::toDouble);
        checkMisuse("the text \"abc\" is not a number", () -> Value.of("abc").toDouble());
        checkMisuse("an object of the type java.lang.Object is not a value of a PV", () -> Value.of(new Object()));
        checkMisuse("an object of the type null is not a value of a PV", () -> Value.of(null));
        checkMisuse("a field of a structure needs a name", () -> Value.Structure.of("", Map.of("", 1)));
        checkMisuse("the index of a state must be between 0 and 65535: 65536", () -> new Value.Choice(65536));
        checkMisuse("an integer cannot have the kind TEXT", () -> new Value.Int(Kind.TEXT, 1));
        checkMisuse("a channel needs the class of its values, such as Double.class", () -> ValueType.of(null));
        assertTrue(assertThrows(MisuseException.class, () -> ValueType.of(Object.class)).getMessage()
                .startsWith("values cannot have the type java.lang.Object; use Double"));
    }

    @Test
    void optionsAreChecked() {
        checkMisuse("the queue of a monitor must have place for at least 1 update: 0",
                () -> MonitorOptions.defaults().withQueueMax(0));
        checkMisuse("the window of a monitor must be at least 1: 0", () -> MonitorOptions.defaults().withWindow(0));
        checkMisuse("a mask needs at least one of VALUE, LOG, ALARM and PROPERTY",
                () -> MonitorOptions.defaults().withMask(EnumSet.noneOf(Mask.class)));
        checkMisuse("the number of elements of a request must not be negative: -1", () -> Request.TIME.withCount(-1));
        checkMisuse("the number of rows of a group must not be negative: -1",
                () -> GroupOptions.defaults().withRowsMax(-1));
        assertEquals(1, MonitorOptions.newest().queueMax());
        assertEquals(13, Masks.bits(EnumSet.of(Mask.VALUE, Mask.ALARM, Mask.PROPERTY)));
    }

    @Test
    void aPutOfAnArrayWithNullIsRefused() {
        Codec codec = new Codec(new FakeNative().natives, java.lang.ref.Cleaner.create());
        ValueType<String[]> type = ValueType.of(String[].class);
        Scratch scratch = new Scratch(new FakeNative().natives, new Scratch.Pool(), Scratch.BYTES);

        checkMisuse("\"pv\": a value to put has an element that is null", () -> {
            type.encode(codec, "pv", scratch, new String[] {"a", null});
            return null;
        });
        checkMisuse("\"pv\": a value to put must not be null", () -> {
            type.encode(codec, "pv", scratch, null);
            return null;
        });
    }

    private static void checkMisuse(String message, Supplier<?> call) {
        assertEquals(message, assertThrows(MisuseException.class, call::get).getMessage());
    }

    @Test
    void aMapWithinItselfIsRefused() {
        Map<String, Object> itself = new LinkedHashMap<>();
        itself.put("itself", itself);

        checkMisuse("a value can have at most 64 structures within each other", () -> Value.of(itself));
    }

    @Test
    void aListWithAnotherObjectIsNotAValue() {
        assertThrows(MisuseException.class, () -> Value.of(Arrays.asList("a", 1)));
    }
}
