// Writes a number to a PV, waits until the server has processed it, and reads it back:
//     java --class-path fodo.jar WritePv.java lab1:voltage 12.5
import io.github.fodopv.Channel;
import io.github.fodopv.Context;
import io.github.fodopv.RefusedException;

import java.time.Duration;

public class WritePv {
    public static void main(String[] arguments) {
        try (Context context = new Context()) {
            Channel<Double> channel = context.channel(arguments[0], Double.class);
            try {
                channel.put(Double.valueOf(arguments[1]), Duration.ofSeconds(2));
            } catch (RefusedException refused) {
                System.out.println(refused.getMessage());
            }
            System.out.printf("%s is now %s%n", channel.name(), channel.get().value());
        }
    }
}
