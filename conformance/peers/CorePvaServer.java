import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;

import org.epics.pva.common.TCPHandler;
import org.epics.pva.data.PVABool;
import org.epics.pva.data.PVAByteArray;
import org.epics.pva.data.PVAData;
import org.epics.pva.data.PVADouble;
import org.epics.pva.data.PVADoubleArray;
import org.epics.pva.data.PVAFloatArray;
import org.epics.pva.data.PVAInt;
import org.epics.pva.data.PVAIntArray;
import org.epics.pva.data.PVALong;
import org.epics.pva.data.PVALongArray;
import org.epics.pva.data.PVAShortArray;
import org.epics.pva.data.PVAString;
import org.epics.pva.data.PVAStringArray;
import org.epics.pva.data.PVAStructure;
import org.epics.pva.data.PVAUnion;
import org.epics.pva.data.PVAny;
import org.epics.pva.data.nt.PVATimeStamp;
import org.epics.pva.server.PVAServer;
import org.epics.pva.server.ServerPV;
import org.epics.pva.server.WriteEventHandler;

/** Phoebus' core-pva as a server with values in Java: {@code CorePvaServer PREFIX}. */
public final class CorePvaServer {
    private static final String[] STATES = {"zero", "one", "two"};
    private static final int N_COUNTERS = 50;
    private static final int TICK_MS = 100;

    private final PVAServer server = new PVAServer();
    private final String prefix;

    private CorePvaServer(String prefix) throws Exception {
        this.prefix = prefix;
    }

    public static void main(String[] arguments) throws Exception {
        CorePvaServer values = new CorePvaServer(arguments[0]);
        values.addScalars();
        values.addArrays();
        values.addSlow();
        values.addStructures();
        values.addCounters();
        System.out.println("ready");
        // It ends with its input, so that it never outlives the test that started it.
        while (System.in.read() >= 0) {
            continue;
        }
        Runtime.getRuntime().halt(0);
    }

    private void addScalars() {
        add("ai", limited(
            2.5,
            new PVAStructure(
                "display", "", new PVADouble("limitLow", -10), new PVADouble("limitHigh", 10),
                new PVAString("description", ""), new PVAString("units", "mm"), new PVAInt("precision", 3)),
            new PVAStructure("control", "control_t", new PVADouble("limitLow", -10), new PVADouble("limitHigh", 10)),
            new PVAStructure(
                "valueAlarm", "valueAlarm_t", new PVABool("active", false),
                new PVADouble("lowAlarmLimit", -8), new PVADouble("lowWarningLimit", -6),
                new PVADouble("highWarningLimit", 6), new PVADouble("highAlarmLimit", 8))));
        add("ao", normative("NTScalar", new PVADouble("value", -1.25)));
        add("bi", states(1, "off", "on"));
        add("bo", states(0, "off", "on"));
        add("mbbi", states(2, STATES));
        add("mbbo", states(1, STATES));
        add("longin", normative("NTScalar", new PVAInt("value", 7)));
        add("longout", normative("NTScalar", new PVAInt("value", -7)));
        add("int64out", normative("NTScalar", new PVALong("value", false, -4294967296L)));
        add("stringin", normative("NTScalar", new PVAString("value", "hello")));
        add("stringout", normative("NTScalar", new PVAString("value", "world")));
        server.createPV(prefix + "locked", normative("NTScalar", new PVAInt("value", 5)));
    }

    private void addArrays() {
        add("wf_STRING", normative("NTScalarArray", new PVAStringArray("value")));
        add("wf_CHAR", normative("NTScalarArray", new PVAByteArray("value", false)));
        add("wf_UCHAR", normative("NTScalarArray", new PVAByteArray("value", true)));
        add("wf_SHORT", normative("NTScalarArray", new PVAShortArray("value", false)));
        add("wf_USHORT", normative("NTScalarArray", new PVAShortArray("value", true)));
        add("wf_LONG", normative("NTScalarArray", new PVAIntArray("value", false)));
        add("wf_ULONG", normative("NTScalarArray", new PVAIntArray("value", true)));
        add("wf_INT64", normative("NTScalarArray", new PVALongArray("value", false)));
        add("wf_UINT64", normative("NTScalarArray", new PVALongArray("value", true)));
        add("wf_FLOAT", normative("NTScalarArray", new PVAFloatArray("value")));
        add("wf_DOUBLE", normative("NTScalarArray", new PVADoubleArray("value")));
        add("huge", normative("NTScalarArray", new PVAIntArray("value", false, 0)));
    }

    /** Ends a put 0.3 s later, when the other PV has the value. */
    private void addSlow() {
        ServerPV done = add("slow:done", normative("NTScalar", new PVADouble("value", 0)));
        add("slow", normative("NTScalar", new PVADouble("value", 0)), (client, pv, changes, written) -> {
            TimeUnit.MILLISECONDS.sleep(300);
            done.update(stamped(written));
            pv.update(stamped(written));
        });
    }

    private void addStructures() {
        add("table", normative(
            "NTTable",
            new PVAStringArray("labels", "name", "position"),
            new PVAStructure(
                "value", "",
                new PVAStringArray("name", "left", "right"),
                new PVADoubleArray("position", -1.5, 2.5))));
        add("union", normative(
            "NTUnion",
            // A put to the first member is not stored.
            new PVAUnion(
                "value", "", 1,
                new PVABool("flag", false), new PVADouble("number", 1.5), new PVAString("text", ""))));
        add("variant", normative("NTUnion", new PVAny("value", new PVADouble("any", 1.5))));
        server.createPV(prefix + "add", argument -> {
            double sum = number(argument.locate("query.lhs")) + number(argument.locate("query.rhs"));
            return new PVAStructure("", "epics:nt/NTScalar:1.0", new PVADouble("value", sum));
        });
    }

    /** Programs without types, such as pvcall and `fodo call`, send texts. */
    private static double number(PVAData argument) {
        return argument instanceof PVAString text ? Double.parseDouble(text.get()) : ((PVADouble) argument).get();
    }

    private void addCounters() {
        PVAStructure value = normative("NTScalar", new PVADouble("value", 0));
        List<ServerPV> counters = new ArrayList<>();
        for (int index = 0; index < N_COUNTERS; index++) {
            counters.add(add(String.format("count%02d", index), value));
        }
        PVADouble count = value.get("value");
        ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor();
        clock.scheduleAtFixedRate(() -> {
            count.set(count.get() + 1);
            for (ServerPV counter : counters) {
                try {
                    counter.update(stamped(value));
                } catch (Exception why) {
                    why.printStackTrace();
                }
            }
        }, TICK_MS, TICK_MS, TimeUnit.MILLISECONDS);
    }

    private ServerPV add(String name, PVAStructure initial) {
        return add(name, initial, CorePvaServer::store);
    }

    private ServerPV add(String name, PVAStructure initial, WriteEventHandler handler) {
        return server.createPV(prefix + name, initial, handler);
    }

    private static void store(TCPHandler client, ServerPV pv, java.util.BitSet changes, PVAStructure written)
        throws Exception {
        pv.update(stamped(written));
    }

    private static PVAStructure stamped(PVAStructure value) throws Exception {
        PVATimeStamp.set(value, Instant.now());
        return value;
    }

    private static PVAStructure states(int index, String... choices) {
        return normative("NTEnum", new PVAStructure(
            "value", "enum_t", new PVAInt("index", index), new PVAStringArray("choices", choices)));
    }

    private static PVAStructure limited(double value, PVAData... limits) {
        PVAStructure plain = normative("NTScalar", new PVADouble("value", value));
        List<PVAData> members = new ArrayList<>(plain.get());
        members.addAll(Arrays.asList(limits));
        return new PVAStructure("", plain.getStructureName(), members);
    }

    /** A normative type with these members, alarm and time stamp. */
    private static PVAStructure normative(String type, PVAData... content) {
        List<PVAData> members = new ArrayList<>(Arrays.asList(content));
        members.add(new PVAStructure(
            "alarm", "alarm_t", new PVAInt("severity", 0), new PVAInt("status", 0), new PVAString("message", "")));
        members.add(new PVATimeStamp(Instant.now()));
        return new PVAStructure("", "epics:nt/" + type + ":1.0", members);
    }
}
