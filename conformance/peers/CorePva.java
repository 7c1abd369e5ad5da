import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.epics.pva.data.PVABool;
import org.epics.pva.data.PVAData;
import org.epics.pva.data.PVANumber;
import org.epics.pva.data.PVAString;
import org.epics.pva.data.PVAStructure;
import org.epics.pva.data.PVAUnion;
import org.epics.pva.data.PVAny;

/** Values and types of core-pva as JSON; a union or a variant is the value that it contains. */
final class CorePva {
    private CorePva() {
    }

    static Object shown(PVAData found) throws ReflectiveOperationException {
        if (found instanceof PVAStructure structure) {
            Map<String, Object> members = new LinkedHashMap<>();
            for (PVAData member : structure.get()) {
                members.put(member.getName(), shown(member));
            }
            return members;
        }
        if (found instanceof PVAUnion union) {
            return shown(union.get());
        }
        if (found instanceof PVAny variant) {
            return shown(variant.get());
        }
        if (found instanceof PVANumber number) {
            return number(number.getNumber(), number.getType());
        }
        if (found == null || found instanceof PVAString || found instanceof PVABool) {
            return found == null ? null : content(found);
        }
        String kind = found.getType();
        return Lines.shown(content(found), element -> element instanceof Number n ? number(n, kind) : element);
    }

    /** A type as JSON: a name, or the members of a structure or union. */
    private static Object type(PVAData found) {
        if (found instanceof PVAStructure structure) {
            return types(structure.get());
        }
        if (found instanceof PVAUnion union) {
            return Map.of("union", types(union.getOptions()));
        }
        return found.getType();
    }

    static Map<String, Object> types(List<PVAData> members) {
        Map<String, Object> types = new LinkedHashMap<>();
        members.forEach(member -> types.put(member.getName(), type(member)));
        return types;
    }

    /** What the method {@code get} returns, which every class of a value has without a common interface. */
    private static Object content(PVAData found) throws ReflectiveOperationException {
        return found.getClass().getMethod("get").invoke(found);
    }

    /** The library stores unsigned numbers in signed ones. */
    private static Number number(Number stored, String kind) {
        if (!kind.startsWith("u")) {
            return stored;
        }
        if (stored instanceof Byte) {
            return stored.byteValue() & 0xff;
        }
        if (stored instanceof Short) {
            return stored.shortValue() & 0xffff;
        }
        return stored instanceof Integer ? Integer.toUnsignedLong(stored.intValue()) : stored;
    }
}
