package io.github.fodopv;

import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.Consumer;

/**
 * What a record of an {@link Ioc} is created from.
 *
 * <pre>{@code
 * Ioc.builder()
 *         .define(RecordDefinition.input("ai", "X:temperature").initial(21.5).field("EGU", "C").field("HIGH", 30))
 *         .define(RecordDefinition.output("ao", "X:gap").field("DRVH", 100).onPut(put -> move(put.value())))
 *         .define(RecordDefinition.of("calc", "X:double").field("CALC", "A*2").field("INPA", "X:gap CP"));
 * }</pre>
 */
public final class RecordDefinition {
    private static final Set<String> WITH_TWO_LABELS = Set.of("bi", "bo");
    private static final List<String> TWO_LABELS = List.of("ZNAM", "ONAM");
    private static final List<String> LABELS = List.of(
            "ZRST", "ONST", "TWST", "THST", "FRST", "FVST", "SXST", "SVST",
            "EIST", "NIST", "TEST", "ELST", "TVST", "TTST", "FTST", "FFST");

    final String type;
    final String name;
    final Map<String, String> fields = new LinkedHashMap<>();
    final Map<String, String> infos = new LinkedHashMap<>();
    final List<String> aliases = new ArrayList<>();
    Object initial;
    Consumer<? super PutRequest> onPut;

    private RecordDefinition(String type, String name) {
        this.type = Objects.requireNonNull(type, "the record has no type");
        this.name = Objects.requireNonNull(name, "the record has no name");
    }

    /**
     * A record of any type, such as calc or fanout, with exactly the fields that are given.
     *
     * @param type the type of the record
     * @param name the whole name
     * @return a definition without fields
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} without a type or a name; what is invalid is reported by {@link Ioc.Builder#start}
     */
    public static RecordDefinition of(String type, String name) {
        return new RecordDefinition(type, name);
    }

    /**
     * A record whose values the program sets: DTYP is Program, and SCAN is I/O Intr. Types: ai, bi, mbbi, longin, int64in,
     * stringin, lsi, waveform, aai.
     *
     * @param type the type of the record
     * @param name the whole name
     * @return a definition with these two fields
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} without a type or a name; what is invalid is reported by {@link Ioc.Builder#start}
     */
    public static RecordDefinition input(String type, String name) {
        return new RecordDefinition(type, name).field("DTYP", "Program").field("SCAN", "I/O Intr");
    }

    /**
     * A record that clients write, and whose values the program takes: DTYP is Program. Types: ao, bo, mbbo, longout, int64out,
     * stringout, lso, aao, waveform.
     *
     * @param type the type of the record
     * @param name the whole name
     * @return a definition with this field
     * @roundTrips none
     * @thread any
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} without a type or a name; what is invalid is reported by {@link Ioc.Builder#start}
     */
    public static RecordDefinition output(String type, String name) {
        String device = type.equals("waveform") ? "Program Output" : "Program";
        return new RecordDefinition(type, name).field("DTYP", device);
    }

    /**
     * Sets a field.
     *
     * @param field the name of the field, in capitals
     * @param value a number or a text; a boolean is YES or NO
     * @return this definition
     * @roundTrips none
     * @thread one at a time
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} without a field or a value; what is invalid is reported by {@link Ioc.Builder#start}
     */
    public RecordDefinition field(String field, Object value) {
        Objects.requireNonNull(field, "the field has no name");
        Objects.requireNonNull(value, "the field has no value");
        String text = value instanceof Boolean flag ? flag ? "YES" : "NO" : value.toString();
        fields.put(field, text);
        return this;
    }

    /**
     * Sets an info item.
     *
     * @param key the name of the info item
     * @param text its text
     * @return this definition
     * @roundTrips none
     * @thread one at a time
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} without a name or a text
     */
    public RecordDefinition info(String key, String text) {
        infos.put(Objects.requireNonNull(key, "the info item has no name"), Objects.requireNonNull(text, "the info item has no text"));
        return this;
    }

    /**
     * Adds another name.
     *
     * @param alias the other name of the record
     * @return this definition
     * @roundTrips none
     * @thread one at a time
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} without a name
     */
    public RecordDefinition alias(String alias) {
        aliases.add(Objects.requireNonNull(alias, "the alias has no name"));
        return this;
    }

    /**
     * Names the fields that {@link Ioc.Builder#autosave} saves and restores.
     *
     * @param names the fields; none: VAL
     * @return this definition
     * @roundTrips none
     * @thread one at a time
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} for a field without a name
     */
    public RecordDefinition autosave(String... names) {
        return info("autosaveFields", names.length == 0 ? "VAL" : String.join(" ", names));
    }

    /**
     * Names the states of a bi, bo, mbbi or mbbo record.
     *
     * @param labels the names, that of 0 first: two for bi and bo, at most 16 for mbbi and mbbo
     * @return this definition
     * @roundTrips none
     * @thread one at a time
     * @blocks never
     * @bounds 16 labels
     * @fails {@link MisuseException} for another number of labels
     */
    public RecordDefinition labels(Collection<String> labels) {
        boolean hasTwo = WITH_TWO_LABELS.contains(type);
        List<String> names = hasTwo ? TWO_LABELS : LABELS;
        if (labels.size() > names.size() || hasTwo && labels.size() != 2) {
            String expected = hasTwo ? "two" : "at most " + names.size();
            throw new MisuseException(name, "there are " + labels.size() + " labels: expected " + expected);
        }
        int index = 0;
        for (String label : labels) {
            field(names.get(index++), label);
        }
        return this;
    }

    /**
     * Sets the value of VAL before the program or a client sets one. An input without it is undefined until then.
     *
     * @param value a number, a text, a boolean, an array of these, or a {@link Value}
     * @return this definition
     * @roundTrips none
     * @thread one at a time
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} without a value; a value that cannot be set is reported by {@link Ioc.Builder#start}
     */
    public RecordDefinition initial(Object value) {
        initial = Objects.requireNonNull(value, "the initial value is null");
        return this;
    }

    /**
     * Receives the values that an output has to write. {@link Ioc.Builder#onPut} describes the handler.
     *
     * @param handler called with each value
     * @return this definition
     * @roundTrips none
     * @thread one at a time; the handler runs on the thread or the executor of the IOC
     * @blocks never
     * @bounds none
     * @fails {@link NullPointerException} without a handler
     */
    public RecordDefinition onPut(Consumer<? super PutRequest> handler) {
        onPut = Objects.requireNonNull(handler, "the handler is null");
        return this;
    }
}
