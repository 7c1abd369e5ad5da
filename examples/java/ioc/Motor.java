import io.github.fodopv.Context;
import io.github.fodopv.Ioc;
import io.github.fodopv.IocRecord;
import io.github.fodopv.PutRequest;
import io.github.fodopv.RecordDefinition;
import io.github.fodopv.RefusedException;
import io.github.fodopv.Server;
import io.github.fodopv.SharedPv;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** Puts that take time and puts that are refused, for a record and for a PV without a record. */
public final class Motor {
    public static void main(String[] arguments) {
        record();
        pv();
    }

    private static void record() {
        try (Ioc ioc = Ioc.builder()
                .define(RecordDefinition.output("ao", "X:position").initial(0.0).onPut(Motor::move))
                .isolated()
                .start()) {
            IocRecord position = ioc.record("X:position");
            position.put(3.0, Duration.ofSeconds(5)); // returns when the motor has moved
            position.put(-1.0, Duration.ofSeconds(5));
            System.out.println(position.get().alarm()); // INVALID, "the position must be positive"
        }
    }

    /** The record is busy until the request ends; other records go on meanwhile. */
    private static void move(PutRequest put) {
        if (put.value().toDouble() < 0) {
            throw new IllegalArgumentException("the position must be positive");
        }
        put.defer();
        CompletableFuture.delayedExecutor(100, TimeUnit.MILLISECONDS).execute(put::complete);
    }

    private static void pv() {
        SharedPv speed = SharedPv.builder(1.5)
                .onPut(put -> {
                    if (put.value().toDouble() > 5) {
                        put.refuse("the speed must be at most 5 mm/s");
                    }
                })
                .build();
        SharedPv state = SharedPv.choice(List.of("Idle", "Moving"), 0).build();
        try (Server server = Server.builder().add("lab:speed", speed).add("lab:state", state).isolated().start();
                Context context = new Context(server.settings())) {
            state.post("Moving");
            context.channel("lab:speed", Double.class).put(2.5);
            try {
                context.channel("pva://lab:speed", Double.class).put(7.0);
            } catch (RefusedException refusal) {
                System.out.println(refusal.reason());
            }
            System.out.println(context.channel("lab:state", String.class).get().value() + " at " + speed.get().value().toText());
        }
    }

    private Motor() {
    }
}
