// Reads PVs and prints value, alarm, time stamp and units:
//     java --class-path fodo.jar ReadPv.java lab1:voltage
import io.github.fodopv.Channel;
import io.github.fodopv.Context;
import io.github.fodopv.NotFoundException;
import io.github.fodopv.Reading;
import io.github.fodopv.Request;
import io.github.fodopv.Value;

public class ReadPv {
    public static void main(String[] names) {
        try (Context context = new Context()) {
            for (String name : names) {
                read(context, name);
            }
        }
    }

    private static void read(Context context, String name) {
        Channel<Value> channel = context.channel(name);
        try {
            Reading<Value> reading = channel.get(Request.FULL);
            System.out.printf("%s %s %s%n", name, reading.value().toText(), reading.metadata().units());
            System.out.printf("    alarm %s, time %s%n", reading.alarm().severity(), reading.time());
        } catch (NotFoundException absent) {
            System.out.println(absent.getMessage());
        }
    }
}
