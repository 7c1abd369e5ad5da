// Prints the updates of a PV until there were this many, first with a callback, then with a loop:
//     java --class-path fodo.jar MonitorPv.java lab1:seconds 3
import io.github.fodopv.Channel;
import io.github.fodopv.Context;
import io.github.fodopv.Event;
import io.github.fodopv.Monitor;
import io.github.fodopv.MonitorOptions;

import java.time.Duration;
import java.util.concurrent.CountDownLatch;

public class MonitorPv {
    public static void main(String[] arguments) throws InterruptedException {
        int n = Integer.parseInt(arguments[1]);
        try (Context context = new Context()) {
            Channel<Double> channel = context.channel(arguments[0], Double.class);
            callBack(channel, n);
            loop(channel, n);
        }
    }

    /** All callbacks of a context run on one thread, in the order of the updates. */
    private static void callBack(Channel<Double> channel, int n) throws InterruptedException {
        CountDownLatch done = new CountDownLatch(n);
        try (Monitor<Double> monitor = channel.monitor(event -> {
            if (event instanceof Event.Update<Double> update) {
                System.out.println(update.reading().value());
                done.countDown();
            } else {
                System.out.println(event);
            }
        })) {
            done.await();
            System.out.println(monitor.counts());
        }
    }

    /** Without a callback, the program takes the events when it wants; only the newest value is kept. */
    private static void loop(Channel<Double> channel, int n) {
        try (Monitor<Double> monitor = channel.monitor(MonitorOptions.newest())) {
            for (int updates = 0; updates < n;) {
                Event<Double> event = monitor.next(Duration.ofSeconds(5));
                if (event instanceof Event.Update<Double> update) {
                    System.out.println(update.reading().value());
                    updates++;
                }
            }
        }
    }
}
