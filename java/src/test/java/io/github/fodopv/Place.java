package io.github.fodopv;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.DatagramSocket;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/** Paths, ports and settings of the tests. */
final class Place {
    /** None of the ports that the system gives to sockets without one, as in the tests of conformance. */
    private static final int PORT_MIN = 12_000;
    private static final int PORT_MAX = 32_000;
    /** Other processes begin elsewhere. */
    private static final AtomicLong PORTS = new AtomicLong(ProcessHandle.current().pid() * 397);
    private static final int PORT_ATTEMPTS = 1000;

    private Place() {
    }

    /** The folder of the whole project: Maven runs the tests in the folder of its module. */
    static Path workspace() {
        return Path.of("").toAbsolutePath().getFileName().toString().equals("java") ? Path.of("..") : Path.of("");
    }

    /** The program {@code fodo}; {@code null} if the tests run without {@code cargo xtask java}. */
    static Path fodo() {
        return existing(System.getenv("FODO_BIN"));
    }

    /** The folder of the peers; {@code null} if they are not installed. */
    static Path peers() {
        String named = System.getenv("FODO_PEERS");
        return existing(named != null ? named : workspace().resolve(".peers").resolve("venv").toString());
    }

    private static Path existing(String path) {
        return path != null && Files.exists(Path.of(path)) ? Path.of(path) : null;
    }

    static Path java() {
        return Path.of(System.getProperty("java.home"), "bin", "java");
    }

    /** A loopback port that is free for TCP and UDP, and that no other test of this process has. */
    static int freePort() {
        for (int attempt = 0; attempt < PORT_ATTEMPTS; attempt++) {
            int port = (int) (PORT_MIN + PORTS.getAndIncrement() % (PORT_MAX - PORT_MIN));
            InetSocketAddress address = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
            try (ServerSocket tcp = new ServerSocket(); DatagramSocket udp = new DatagramSocket(null)) {
                tcp.bind(address);
                udp.bind(address);
                return port;
            } catch (IOException taken) {
                continue;
            }
        }
        throw new UncheckedIOException(new IOException("loopback has no free port"));
    }

    /** The variables of a server and its clients, which reach nothing else. */
    static Map<String, String> isolated() {
        String ca = String.valueOf(freePort());
        String search = String.valueOf(freePort());
        String tcp = String.valueOf(freePort());
        Map<String, String> variables = new HashMap<>();
        variables.put("EPICS_CA_SERVER_PORT", ca);
        variables.put("EPICS_CAS_SERVER_PORT", ca);
        variables.put("EPICS_CA_REPEATER_PORT", String.valueOf(freePort()));
        variables.put("EPICS_PVA_BROADCAST_PORT", search);
        variables.put("EPICS_PVAS_BROADCAST_PORT", search);
        variables.put("EPICS_PVA_SERVER_PORT", tcp);
        variables.put("EPICS_PVAS_SERVER_PORT", tcp);
        variables.put("EPICS_CA_MAX_ARRAY_BYTES", "20000000");
        for (String protocol : new String[] {"CA", "PVA"}) {
            variables.put("EPICS_" + protocol + "_ADDR_LIST", "127.0.0.1");
            variables.put("EPICS_" + protocol + "_AUTO_ADDR_LIST", "NO");
            variables.put("EPICS_" + protocol + "S_INTF_ADDR_LIST", "127.0.0.1");
            variables.put("EPICS_" + protocol + "S_BEACON_ADDR_LIST", "127.0.0.1");
            variables.put("EPICS_" + protocol + "S_AUTO_BEACON_ADDR_LIST", "NO");
        }
        return variables;
    }

    /** Only the variables that a client reads. */
    static Map<String, String> ofClient(Map<String, String> isolated) {
        Map<String, String> settings = new HashMap<>(isolated);
        settings.keySet().removeIf(name -> name.startsWith("EPICS_CAS_") || name.startsWith("EPICS_PVAS_"));
        return settings;
    }
}
