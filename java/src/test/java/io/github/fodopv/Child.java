package io.github.fodopv;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;

/** A child process whose output is kept. It is killed when it is closed, and when the tests end. */
final class Child implements AutoCloseable {
    /** A child that prints or does nothing for this time has failed. */
    static final long PATIENCE_S = 60;

    private final Process process;
    private final String name;
    private final List<String> printed = new ArrayList<>();
    private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
    private final Thread reader;
    private final Thread end;

    private Child(String name, Process process) {
        this.name = name;
        this.process = process;
        reader = new Thread(this::read, "output of " + name);
        reader.setDaemon(true);
        reader.start();
        end = new Thread(this::endProcess);
        Runtime.getRuntime().addShutdownHook(end);
    }

    /** Starts a command with these variables, and with no others of EPICS. */
    static Child start(String name, List<String> command, Map<String, String> variables) throws IOException {
        ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
        builder.environment().keySet().removeIf(variable -> variable.startsWith("EPICS_"));
        builder.environment().putAll(variables);
        return new Child(name, builder.start());
    }

    private void read() {
        try (BufferedReader output =
                new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
            for (String line = output.readLine(); line != null; line = output.readLine()) {
                synchronized (printed) {
                    printed.add(line);
                }
                lines.add(line);
            }
        } catch (IOException closed) {
            // The child was killed.
            return;
        }
    }

    /** Waits for a line that contains this. */
    String lineWith(String text) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (true) {
            String line = lines.poll(100, TimeUnit.MILLISECONDS);
            if (line != null && line.contains(text)) {
                return line;
            }
            boolean isOver = line == null && !process.isAlive() && lines.isEmpty() && !reader.isAlive();
            if (isOver || System.nanoTime() > deadline) {
                throw new AssertionError(name + " did not print \"" + text + "\"; it printed:\n" + output());
            }
        }
    }

    /** Waits until it ends by itself, and returns its exit code. */
    int exitCode() throws InterruptedException {
        if (!process.waitFor(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new AssertionError(name + " has not ended after " + PATIENCE_S + " s; it printed:\n" + output());
        }
        reader.join(TimeUnit.SECONDS.toMillis(PATIENCE_S));
        return process.exitValue();
    }

    /** All lines that it has printed. */
    String output() {
        synchronized (printed) {
            return String.join("\n", printed);
        }
    }

    /** Writes to its standard input. */
    void send(String text) throws IOException {
        process.getOutputStream().write(text.getBytes(StandardCharsets.UTF_8));
        process.getOutputStream().flush();
    }

    void signal(String signal) throws IOException, InterruptedException {
        int code = new ProcessBuilder("kill", "-" + signal, String.valueOf(process.pid())).start().waitFor();
        if (code != 0) {
            throw new AssertionError("kill -" + signal + " " + name + ": exit code " + code);
        }
    }

    /** Stops all of its threads, and returns when they have stopped: the signal reaches them one after the other. */
    void stop() throws IOException, InterruptedException {
        signal("STOP");
        Path folder = folder();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_S);
        while (!areThreadsStopped(folder)) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError(name + " has not stopped after " + PATIENCE_S + " s");
            }
            Thread.onSpinWait();
        }
    }

    /** Its folder in /proc, where a process in a network of its own has the number of the whole computer. */
    private Path folder() throws IOException {
        Path namespace = Files.readSymbolicLink(Path.of("/proc/self/ns/pid"));
        Pattern number = Pattern.compile("(?m)^NSpid:.*\\b" + process.pid() + "$");
        try (DirectoryStream<Path> folders = Files.newDirectoryStream(Path.of("/proc"), "[0-9]*")) {
            for (Path folder : folders) {
                try {
                    if (number.matcher(Files.readString(folder.resolve("status"))).find()
                            && Files.readSymbolicLink(folder.resolve("ns").resolve("pid")).equals(namespace)) {
                        return folder;
                    }
                } catch (IOException ended) {
                    continue;
                }
            }
        }
        throw new AssertionError(name + " is not in /proc");
    }

    private static boolean areThreadsStopped(Path folder) {
        try (DirectoryStream<Path> threads = Files.newDirectoryStream(folder.resolve("task"))) {
            for (Path thread : threads) {
                if (!Files.readString(thread.resolve("status")).contains("State:\tT")) {
                    return false;
                }
            }
            return true;
        } catch (IOException | DirectoryIteratorException ended) {
            // A thread ended while it was examined; the caller looks again.
            return false;
        }
    }

    void kill() throws InterruptedException {
        endProcess();
        process.waitFor();
        reader.join(TimeUnit.SECONDS.toMillis(PATIENCE_S));
    }

    /**
     * Kills the process. {@link Process#destroyForcibly()} does not always do so in a network of its own: it looks the
     * process up in /proc, which has the process numbers of the whole computer there.
     */
    private void endProcess() {
        try {
            if (process.isAlive()) {
                new ProcessBuilder("kill", "-KILL", String.valueOf(process.pid())).start();
            }
        } catch (IOException noProgram) {
            process.destroyForcibly();
        }
    }

    @Override
    public void close() {
        boolean isInterrupted = false;
        while (true) {
            try {
                endProcess();
                process.waitFor();
                break;
            } catch (InterruptedException interrupted) {
                isInterrupted = true;
            }
        }
        if (isInterrupted) {
            Thread.currentThread().interrupt();
        }
        try {
            Runtime.getRuntime().removeShutdownHook(end);
        } catch (IllegalStateException tooLate) {
            // The JVM ends, and the hook runs.
            return;
        }
    }
}
