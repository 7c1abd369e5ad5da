// Reads many PVs with one call and one deadline, and prints a value or an error for each:
//     java --class-path fodo.jar ReadMany.java lab1:voltage lab1:power lab1:absent
import io.github.fodopv.Channel;
import io.github.fodopv.Channels;
import io.github.fodopv.Context;
import io.github.fodopv.Reading;
import io.github.fodopv.Result;

import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;

public class ReadMany {
    public static void main(String[] names) {
        try (Context context = new Context()) {
            list(context, List.of(names));
            future(context, names[0]);
        }
    }

    private static void list(Context context, List<String> names) {
        try (Channels<Double> channels = context.channels(names, Double.class)) {
            List<Result<Reading<Double>>> results = channels.get(Duration.ofSeconds(2));
            for (int index = 0; index < names.size(); index++) {
                if (results.get(index) instanceof Result.Success<Reading<Double>> success) {
                    System.out.println(names.get(index) + " " + success.value().value());
                } else if (results.get(index) instanceof Result.Failure<Reading<Double>> failure) {
                    System.out.println(failure.error().getMessage());
                }
            }
        }
    }

    /** Starts a get, and does other work until its value is received. */
    private static void future(Context context, String name) {
        Channel<Double> channel = context.channel(name, Double.class);
        CompletableFuture<Reading<Double>> get = channel.getAsync();
        CompletableFuture<Double> doubled = get.thenApply(reading -> 2 * reading.value());
        System.out.println("twice " + name + " is " + doubled.join());
    }
}
