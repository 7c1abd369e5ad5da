package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.api.parallel.Isolated;

/** The page docs/how-to/run-an-ioc-in-java.md and the programs that it shows parts of, which print to standard output. */
@Isolated
@Timeout(120)
class IocPageTest {
    private static final Pattern BLOCK = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);

    @TempDir
    Path folder;

    @Test
    void theBlocksOfThePageArePartsOfThePrograms() throws IOException {
        String page = Files.readString(root().resolve("docs/how-to/run-an-ioc-in-java.md"));
        List<String> programs;
        try (Stream<Path> files = Files.list(examples())) {
            programs = files.filter(file -> file.toString().endsWith(".java")).map(IocPageTest::text).toList();
        }

        Matcher block = BLOCK.matcher(page);
        int blocks = 0;
        while (block.find()) {
            blocks++;
            String shown = block.group(1);
            assertTrue(programs.stream().anyMatch(program -> program.contains(shown)), () -> "no program contains\n" + shown);
        }
        assertEquals(4, blocks);
    }

    @Test
    void theProgramWithRecordsRuns() throws Exception {
        assertEquals(List.of("MINOR", "move to 100.0", "200.0", "4 values set"), run("Plant"));
    }

    @Test
    void theProgramWithPutsThatTakeTimeRuns() throws Exception {
        List<String> printed = run("Motor");

        assertEquals("Alarm[severity=INVALID, status=2, message=the position must be positive]", printed.get(0));
        assertTrue(printed.get(1).contains("the speed must be at most 5 mm/s"), printed.get(1));
        assertEquals("Moving at 2.5", printed.get(2));
        assertEquals(3, printed.size());
    }

    /** Compiles a program and runs it; returns the lines that it has printed. */
    private List<String> run(String name) throws Exception {
        URL library = Ioc.class.getProtectionDomain().getCodeSource().getLocation();
        String file = examples().resolve(name + ".java").toString();
        String classPath = Path.of(library.toURI()).toString();
        var compiler = ToolProvider.getSystemJavaCompiler();
        assertNotNull(compiler, "the tests need a JDK");
        int result = compiler.run(null, null, null, "--release", "17", "-Xlint:all", "-Werror", "-cp", classPath, "-d", folder.toString(), file);
        assertEquals(0, result);

        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream before = System.out;
        try (URLClassLoader loader = new URLClassLoader(new URL[] {folder.toUri().toURL()}, IocPageTest.class.getClassLoader());
                PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8)) {
            System.setOut(out);
            String[] arguments = {examples().toString()};
            loader.loadClass(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } finally {
            System.setOut(before);
        }
        assertFalse(printed.size() == 0);
        return printed.toString(StandardCharsets.UTF_8).lines().toList();
    }

    private static String text(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    private static Path examples() {
        return root().resolve("examples/java/ioc");
    }

    /** The folder of the repository. */
    private static Path root() {
        Path folder = Path.of("").toAbsolutePath();
        while (!Files.exists(folder.resolve("examples/java/ioc"))) {
            folder = folder.getParent();
        }
        return folder;
    }
}
