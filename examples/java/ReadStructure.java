// Reads a PV of pvAccess as a structure, prints its fields, and writes one of them:
//     java --class-path fodo.jar ReadStructure.java pva://lab1:voltage
import io.github.fodopv.Channel;
import io.github.fodopv.Context;
import io.github.fodopv.Value;

import java.util.Map;

public class ReadStructure {
    public static void main(String[] arguments) {
        try (Context context = new Context()) {
            Channel<Value> channel = context.channel(arguments[0]);
            Value.Structure structure = channel.getStructure("field(value,alarm,display)");
            System.out.println(structure.id() + " " + structure.fields().keySet());
            System.out.println("severity " + structure.get("alarm.severity").toLong());
            channel.putFields(Map.of("value", structure.get("value").toDouble() + 1));
            System.out.println("value " + channel.getStructure("field(value)").get("value").toDouble());
        }
    }
}
