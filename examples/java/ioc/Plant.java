import io.github.fodopv.Alarm;
import io.github.fodopv.Context;
import io.github.fodopv.Ioc;
import io.github.fodopv.IocRecord;
import io.github.fodopv.RecordDefinition;
import io.github.fodopv.Severity;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;

/** An IOC in the JVM: a temperature that the program measures, and a gap that clients set. The argument is this folder. */
public final class Plant {
    public static void main(String[] arguments) {
        Path folder = Path.of(arguments.length > 0 ? arguments[0] : "examples/java/ioc");
        // Without isolated() it serves on the network.
        try (Ioc ioc = Ioc.builder()
                .load(folder.resolve("plant.db"), Map.of("P", "X:"))
                .define(RecordDefinition.input("ai", "X:temperature")
                        .initial(21.5).field("EGU", "C").field("HIGH", 30).field("HSV", "MINOR"))
                .define(RecordDefinition.input("bi", "X:shutter").labels(List.of("Closed", "Open")).initial(0))
                .define(RecordDefinition.output("ao", "X:gap")
                        .initial(10.0).field("DRVL", 5).field("DRVH", 100)
                        .onPut(put -> System.out.println("move to " + put.value().toDouble())))
                .isolated()
                .start()) {
            IocRecord temperature = ioc.record("X:temperature");
            temperature.set(31.0);
            System.out.println(temperature.get().alarm().severity()); // prints MINOR
            ioc.record("X:shutter").set("Open", new Alarm(Severity.MAJOR, 7, "opened by hand"));
            ioc.setMany(List.of(temperature, ioc.record("X:shutter")), List.of(22.0, 0));

            try (Context context = new Context(ioc.settings())) {
                context.channel("X:gap", Double.class).put(200.0); // prints "move to 100.0"
                ioc.record("X:double.PROC").put(1, Duration.ofSeconds(5));
                System.out.println(context.channel("pva://X:double", Double.class).get().value());
            }
            System.out.println(ioc.counts().set() + " values set");
        }
    }

    private Plant() {
    }
}
