package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** JVMs that begin and end: each program runs in one of its own, with the checks of the native interface. */
class LifetimeTest {
    private static TestServer server() {
        return TestServer.shared(ServerProgram.FODO);
    }

    /** The folder of the compiled classes of this class. */
    private static Path folder(Class<?> type) {
        try {
            return Path.of(type.getProtectionDomain().getCodeSource().getLocation().toURI());
        } catch (URISyntaxException error) {
            throw new AssertionError(error);
        }
    }

    private static List<String> java(String... options) {
        List<String> command = new ArrayList<>(List.of(
                Place.java().toString(), "-Xcheck:jni", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"));
        if (Runtime.version().feature() >= 24) {
            command.add("--enable-native-access=ALL-UNNAMED");
        }
        command.addAll(List.of(options));
        return command;
    }

    /** A program of {@link Programs} with the library from this class path. */
    private static Child started(TestServer server, Path library, List<String> options, String... arguments)
            throws IOException {
        List<String> command = java(options.toArray(String[]::new));
        command.addAll(List.of("-cp", folder(Programs.class) + ":" + library, Programs.class.getName()));
        command.addAll(List.of(arguments));
        return Child.start(arguments[0], command, server.settings());
    }

    private static Child started(TestServer server, String... arguments) throws IOException {
        return started(server, folder(Context.class), List.of(), arguments);
    }

    /** The output of a program that must end with this code. */
    private static String ended(Child program, int code) throws InterruptedException {
        assertEquals(code, program.exitCode(), program.output());
        assertFalse(program.output().contains("WARNING in native method"), program.output());
        return program.output();
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aThousandContextsLeaveNothingBehind(Protocol protocol) throws Exception {
        try (Child program = started(server(), "contexts", server().name(protocol, "ai"))) {
            String printed = ended(program, 0);

            for (String what : new String[] {"threads", "descriptors"}) {
                Matcher counts = Pattern.compile(what + " (\\d+) (\\d+)").matcher(printed);
                assertTrue(counts.find(), printed);
                int before = Integer.parseInt(counts.group(1));
                assertTrue(Integer.parseInt(counts.group(2)) <= before + 8, printed);
            }
        }
    }

    @Test
    void aClassLoaderIsUnloadedAfterItsContextsAreClosed() throws Exception {
        try (Child program = started(
                server(), "loader", server().name(Protocol.CA, "ai"), folder(Context.class).toString())) {
            String printed = ended(program, 0);

            assertEquals(3, printed.split("got 2.5", -1).length - 1, printed);
            assertEquals(3, printed.split("\nunloaded", -1).length - 1, printed);
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void systemExitEndsAJvmWhoseGetsWait(Protocol protocol) throws Exception {
        try (TestServer server = TestServer.own(ServerProgram.FODO);
                Child program = started(server, "exit", server.name(protocol, "ai"))) {
            program.lineWith("connected");
            server.suspend();
            program.send("\n");

            ended(program, 3);
        }
    }

    @Test
    void systemExitInAHandlerDoesNotWaitForTheHandler() throws Exception {
        try (Child program = started(server(), "exit-in-handler", "x")) {
            program.lineWith("exits");
            long start = System.nanoTime();

            ended(program, 4);
            Duration took = Duration.ofNanos(System.nanoTime() - start);
            assertTrue(took.compareTo(Duration.ofSeconds(5)) < 0, took::toString);
            assertFalse(program.output().contains("has not returned"), program.output());
        }
    }

    @ParameterizedTest
    @EnumSource(Protocol.class)
    void aJvmEndsWithItsOwnThreadsAlthoughAContextIsOpen(Protocol protocol) throws Exception {
        try (Child program = started(server(), "end", server().name(protocol, "ai"))) {
            assertTrue(ended(program, 0).contains("main has ended"));
        }
    }

    @Test
    void aSignalEndsAJvmWhoseGetsWait() throws Exception {
        try (TestServer server = TestServer.own(ServerProgram.FODO);
                Child program = started(server, "end-never", server.name(Protocol.CA, "ai"))) {
            program.lineWith("waits");
            program.signal("TERM");

            assertEquals(143, program.exitCode(), program.output());
        }
    }

    /** A copy of the library's classes with the native library in a jar; its hash is of other bytes if it is damaged. */
    private static Path jar(Path folder, boolean isDamaged) throws IOException {
        Path jar = folder.resolve("fodo.jar");
        Path classes = folder(Context.class);
        try (JarOutputStream out = new JarOutputStream(Files.newOutputStream(jar)); Stream<Path> files = Files.walk(classes)) {
            for (Path file : files.filter(Files::isRegularFile).toList()) {
                String name = classes.relativize(file).toString();
                out.putNextEntry(new JarEntry(name));
                if (isDamaged && name.endsWith(".sha256")) {
                    out.write("0".repeat(64).getBytes(java.nio.charset.StandardCharsets.US_ASCII));
                } else {
                    Files.copy(file, out);
                }
                out.closeEntry();
            }
        }
        return jar;
    }

    @Test
    void aJarLoadsItsOwnLibraryAndLeavesNoFile(@TempDir Path folder) throws Exception {
        Path files = Files.createDirectory(folder.resolve("files"));
        List<String> options = List.of("-Djava.io.tmpdir=" + files);
        try (Child program =
                started(server(), jar(folder, false), options, "get", server().name(Protocol.PVA, "ai"))) {
            assertTrue(ended(program, 0).contains("got 2.5"), program.output());
        }
        try (Stream<Path> left = Files.list(files)) {
            assertEquals(List.of(), left.toList());
        }
    }

    @Test
    void aJarIsAModule(@TempDir Path folder) throws Exception {
        String jar = jar(folder, false).toString();
        List<String> command = java("--module-path", jar, "--describe-module", "io.github.fodopv");
        try (Child program = Child.start("describe", command, Map.of())) {
            String printed = ended(program, 0);
            assertTrue(printed.contains("exports io.github.fodopv"), printed);
            assertFalse(printed.contains("requires java.desktop"), printed);
        }
    }

    @Test
    void aLibraryWithAWrongHashIsNotLoaded(@TempDir Path folder) throws Exception {
        try (Child program =
                started(server(), jar(folder, true), List.of(), "error", server().name(Protocol.CA, "ai"))) {
            String printed = ended(program, 0);

            assertTrue(printed.contains("SystemException: "), printed);
            assertTrue(printed.contains("SHA-256"), printed);
        }
    }

    @Test
    void aPropertyNamesAnotherLibrary(@TempDir Path folder) throws Exception {
        Path library = folder.resolve("own-name.so");
        try (Stream<Path> files = Files.walk(folder(Context.class).resolve("native"))) {
            Path own = files.filter(file -> file.toString().endsWith(".so")).findFirst().orElseThrow();
            Files.copy(own, library, StandardCopyOption.REPLACE_EXISTING);
        }
        // The jar's own library is damaged, so that only the named one can be loaded.
        List<String> options = List.of("-Dfodo.library=" + library);
        try (Child program =
                started(server(), jar(folder, true), options, "get", server().name(Protocol.CA, "ai"))) {
            assertTrue(ended(program, 0).contains("got 2.5"), program.output());
        }
    }

    @Test
    void aNamedLibraryThatIsMissingOrNotALibraryIsAnErrorWithItsPath(@TempDir Path folder) throws Exception {
        Path text = Files.writeString(folder.resolve("text.so"), "not a library");
        for (Path library : List.of(text, folder.resolve("missing.so"))) {
            List<String> options = List.of("-Dfodo.library=" + library);
            try (Child program = started(
                    server(), folder(Context.class), options, "error", server().name(Protocol.CA, "ai"))) {
                String printed = ended(program, 0);

                assertTrue(printed.contains("SystemException: "), printed);
                assertTrue(printed.contains(library.toString()), printed);
            }
        }
    }
}
