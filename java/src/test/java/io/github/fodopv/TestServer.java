package io.github.fodopv;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Assumptions;

/** A running server on loopback, with the records or values of the tests of conformance. */
final class TestServer implements AutoCloseable {
    /** Time in which an operation of a test must end on a busy machine. */
    static final Duration PATIENCE = Duration.ofSeconds(30);

    private static final AtomicInteger N_PREFIXES = new AtomicInteger();
    private static final Map<ServerProgram, TestServer> SHARED = new EnumMap<>(ServerProgram.class);

    private final ServerProgram program;
    private final Path database;
    private final Map<String, String> variables = Place.isolated();
    private final String prefix =
            "J" + ProcessHandle.current().pid() + "x" + N_PREFIXES.getAndIncrement() + ":";
    private Child process;

    private TestServer(ServerProgram program, Path database) {
        this.program = program;
        this.database = database;
        process = start();
    }

    /** A server that all tests share, and that no test may stop. */
    static TestServer shared(ServerProgram program) {
        synchronized (SHARED) {
            return SHARED.computeIfAbsent(program, TestServer::own);
        }
    }

    /** A server of one test. */
    static TestServer own(ServerProgram program) {
        return own(program, conformance("db", "pva.db"));
    }

    /** A server of one test with this database, whose macro P is the prefix. */
    static TestServer own(ServerProgram program, Path database) {
        boolean isThere = program == ServerProgram.FODO ? Place.fodo() != null : Place.peers() != null;
        String missing = program == ServerProgram.FODO ? "FODO_BIN names no program" : "the peers are not installed";
        // In the runs of the project both are there, so that nothing is left out without notice. `Soak` has no JUnit.
        if (!isThere) {
            Assumptions.assumeTrue(false, missing);
        }
        return new TestServer(program, database);
    }

    private static Path conformance(String folder, String file) {
        return Place.workspace().resolve("conformance").resolve(folder).resolve(file).toAbsolutePath().normalize();
    }

    private Child start() {
        Map<String, String> environment = new HashMap<>(variables);
        environment.put("EPICS_DB_INCLUDE_PATH", conformance("db", "pva.db").getParent().toString());
        if (program == ServerProgram.CORE_PVA) {
            // By this group it forwards searches for names of other servers on the host.
            environment.put("EPICS_PVAS_INTF_ADDR_LIST", "127.0.0.1 224.0.0.128,1@127.0.0.1");
        }
        try {
            Child child = Child.start(program.text(), command(), environment);
            child.lineWith(program == ServerProgram.FODO ? "fodo ioc: serving" : "ready");
            return child;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException interrupted) {
            throw new AssertionError(interrupted);
        }
    }

    private List<String> command() {
        String macros = "P=" + prefix;
        String rights = conformance("db", "rights.acf").toString();
        if (program == ServerProgram.FODO) {
            String port = variables.get("EPICS_CAS_SERVER_PORT");
            return List.of(
                    Place.fodo().toString(), "ioc", "-m", macros, "-d", database.toString(), "-a", rights,
                    "--interface", "127.0.0.1", "--port", port, "--status-prefix", prefix + "status");
        }
        List<String> command = new ArrayList<>();
        if (program == ServerProgram.CORE_PVA) {
            Path jars = Place.peers().resolve("core-pva").resolve("jars");
            command.addAll(List.of(
                    Place.java().toString(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", "-cp",
                    jars + File.separator + "*", conformance("peers", "CorePvaServer.java").toString(), prefix));
            return command;
        }
        command.add(Place.peers().resolve("bin").resolve("python").toString());
        switch (program) {
            case SOFT_IOC -> {
                command.add(conformance("peers", "softioc_server.py").toString());
                command.addAll(List.of(database.toString(), macros, rights));
            }
            case QSRV2 -> {
                command.add(conformance("peers", "qsrv_server.py").toString());
                command.addAll(List.of("qsrv2", database.toString(), macros, rights));
            }
            default -> {
                command.add(conformance("peers", "p4p_server.py").toString());
                command.add(prefix);
            }
        }
        return command;
    }

    /** The full name of a PV, with the protocol. */
    String name(Protocol protocol, String pv) {
        return (protocol == Protocol.CA ? "ca://" : "pva://") + prefix + pv;
    }

    /** The settings of a client of this server. */
    Map<String, String> settings() {
        return Place.ofClient(variables);
    }

    /** A client whose operations have time on a busy machine. */
    Context context() {
        return Context.builder().settings(settings()).timeout(PATIENCE).build();
    }

    /** Stops it, so that it neither answers nor disconnects. */
    void suspend() throws IOException, InterruptedException {
        process.stop();
    }

    void resume() throws IOException, InterruptedException {
        process.signal("CONT");
    }

    void kill() throws InterruptedException {
        process.kill();
    }

    /** Starts it again on the same ports, which the system gives to no other socket. */
    void restart() {
        process.close();
        process = start();
    }

    @Override
    public void close() {
        process.close();
    }

    @Override
    public String toString() {
        return program.text();
    }
}
