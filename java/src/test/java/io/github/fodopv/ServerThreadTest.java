package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.parallel.Isolated;

/** The threads of servers and IOCs in Java: other tests would have the same. */
@Isolated
@Timeout(120)
class ServerThreadTest {
    @Test
    void aServerWithoutHandlersHasNoThread() {
        try (Server server = Server.builder().add("x", SharedPv.of(1)).isolated().start()) {
            assertEquals(List.of(), threads());

            server.add("y", SharedPv.builder(1).acceptPuts().build());
            assertEquals(List.of("fodo-server"), threads());
        }
        assertEquals(List.of(), threads());
    }

    @Test
    void theNumberOfThreadsDoesNotDependOnPvsAndClients() {
        SharedPv pv = SharedPv.builder(0.0).acceptPuts().build();
        Server.Builder builder = Server.builder().isolated();
        for (int i = 0; i < 1000; i++) {
            builder.add("x" + i, pv);
        }
        try (Server server = builder.start(); Context context = new Context(server.settings())) {
            for (int i = 0; i < 1000; i++) {
                context.channel("x" + i, Double.class).put((double) i);
            }

            assertEquals(List.of("fodo-server"), threads());
            assertEquals(999.0, pv.get().value().toDouble());
        }
    }

    @Test
    void aJvmThatServesEndsWithItsOwnThreads() throws Exception {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        String classes = System.getProperty("java.class.path");
        ProcessBuilder builder = new ProcessBuilder(java, "-cp", classes, Serving.class.getName()).redirectErrorStream(true);
        String library = System.getProperty("fodo.library");
        if (library != null) {
            builder.command().add(1, "-Dfodo.library=" + library);
        }
        Process process = builder.start();
        String printed = new String(process.getInputStream().readAllBytes());

        assertTrue(process.waitFor(60, TimeUnit.SECONDS));
        assertEquals(0, process.exitValue(), printed);
        assertFalse(printed.contains("Exception"), printed);
        assertTrue(printed.contains("serves"), printed);
    }

    /** A program that ends without closing its server and its IOC. */
    static final class Serving {
        public static void main(String[] arguments) {
            Server.builder().add("x", SharedPv.builder(1).acceptPuts().build()).isolated().start();
            Ioc ioc = Ioc.builder()
                    .loadText("record(ao, \"$(P)gap\") { field(DTYP, \"Program\") }", Map.of("P", "X:"))
                    .onPut("X:gap", PutRequest::defer)
                    .isolated()
                    .start();
            ioc.record("X:gap").put(1);
            System.out.println("serves: " + !ioc.await(Duration.ZERO));
        }

        private Serving() {
        }
    }

    /** The names of the threads that call handlers. */
    private static List<String> threads() {
        return Thread.getAllStackTraces().keySet().stream()
                .map(Thread::getName)
                .filter("fodo-server"::equals)
                .toList();
    }
}
