package io.github.fodopv;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystems;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.stream.Stream;

/**
 * Finds the native library and loads it: the file that the system property {@code fodo.library} names, otherwise the one in
 * the jar for this platform.
 */
final class Loader {
    /** The system property with the path of a library to load instead of the jar's. */
    static final String PROPERTY = "fodo.library";

    /** The platforms that a jar may have a library for. */
    private static final List<String> PLATFORMS =
            List.of("linux-x86_64", "linux-aarch64", "macos-x86_64", "macos-aarch64", "windows-x86_64");

    private Loader() {
    }

    /** Loads the library and checks the version of its encoding. */
    static Native load() {
        String path = System.getProperty(PROPERTY);
        if (path != null && !path.isEmpty()) {
            loadFile(Path.of(path).toAbsolutePath());
        } else {
            loadFromJar(platform(System.getProperty("os.name"), System.getProperty("os.arch")));
        }
        Native natives = new Jni();
        int version = version(natives);
        if (version != Codec.VERSION) {
            throw new SystemException("", "the native library has version " + version + " of the encoding, these classes have "
                    + Codec.VERSION + "; use the library of the same jar");
        }
        return natives;
    }

    private static int version(Native natives) {
        try {
            return natives.version();
        } catch (UnsatisfiedLinkError e) {
            throw new SystemException("", "the library that was loaded is not the native library of fodo: " + e.getMessage());
        }
    }

    /** The name of a platform, as the folders of the jar have it. */
    static String platform(String os, String arch) {
        String system = os.toLowerCase(Locale.ROOT);
        String systemName = system.startsWith("linux") ? "linux"
                : system.startsWith("mac") ? "macos"
                : system.startsWith("windows") ? "windows"
                : system.replace(' ', '_');
        String processor = switch (arch) {
            case "amd64", "x86_64", "x64" -> "x86_64";
            case "aarch64", "arm64" -> "aarch64";
            default -> arch;
        };
        return systemName + "-" + processor;
    }

    private static String fileName(String platform) {
        return platform.startsWith("windows") ? "fodo_java.dll"
                : platform.startsWith("macos") ? "libfodo_java.dylib"
                : "libfodo_java.so";
    }

    private static String resource(String platform) {
        return "/native/" + platform + "/" + fileName(platform);
    }

    private static void loadFile(Path file) {
        try {
            System.load(file.toString());
        } catch (UnsatisfiedLinkError e) {
            throw new SystemException("", "the native library " + file + " cannot be loaded: " + e.getMessage()
                    + "; name another one with -D" + PROPERTY + "=PATH");
        }
    }

    private static void loadFromJar(String platform) {
        byte[] library = resourceBytes(resource(platform));
        if (library == null) {
            throw new SystemException("", missing(platform));
        }
        byte[] hash = resourceBytes(resource(platform) + ".sha256");
        verify(resource(platform), library, hash == null ? "" : new String(hash, StandardCharsets.US_ASCII));
        loadUnpacked(fileName(platform), library);
    }

    /** Why the jar cannot be used on this platform. */
    private static String missing(String platform) {
        List<String> present =
                PLATFORMS.stream().filter(name -> Loader.class.getResource(resource(name)) != null).toList();
        return "the jar has no native library for " + platform + "; it has "
                + (present.isEmpty() ? "none" : "those for " + String.join(", ", present))
                + ". Name the file of a library with -D" + PROPERTY + "=PATH";
    }

    /** Compares the SHA-256 of a library with the one that the jar has for it. */
    static void verify(String name, byte[] library, String expected) {
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(library);
            String expectedHash = expected.strip().split("\\s", 2)[0];
            if (!HexFormat.of().formatHex(hash).equalsIgnoreCase(expectedHash)) {
                throw new SystemException("", "the jar's " + name + " is damaged: its SHA-256 is "
                        + HexFormat.of().formatHex(hash) + " instead of \"" + expectedHash + "\"; get the jar again");
            }
        } catch (NoSuchAlgorithmException e) {
            throw new SystemException("", "this Java has no SHA-256: " + e.getMessage());
        }
    }

    /**
     * Loads the library from a private folder, and removes both. A loaded library does not need its file, except on Windows,
     * where it is removed at the end of the process.
     */
    private static void loadUnpacked(String fileName, byte[] library) {
        try {
            Path folder = Files.createTempDirectory("fodo-", privateFolder());
            Path file = folder.resolve(fileName);
            try {
                Files.write(file, library);
                loadFile(file);
            } finally {
                remove(file, folder);
            }
        } catch (IOException e) {
            throw new SystemException("", "the native library cannot be unpacked into "
                    + System.getProperty("java.io.tmpdir") + ": " + e + "; name its file with -D" + PROPERTY + "=PATH");
        }
    }

    private static FileAttribute<?>[] privateFolder() {
        boolean isPosix = FileSystems.getDefault().supportedFileAttributeViews().contains("posix");
        return Stream.of(PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")))
                .filter(attribute -> isPosix)
                .toArray(FileAttribute<?>[]::new);
    }

    private static void remove(Path file, Path folder) {
        try {
            Files.deleteIfExists(file);
            Files.deleteIfExists(folder);
        } catch (IOException e) {
            folder.toFile().deleteOnExit();
            file.toFile().deleteOnExit();
        }
    }

    private static byte[] resourceBytes(String name) {
        try (InputStream in = Loader.class.getResourceAsStream(name)) {
            return in == null ? null : in.readAllBytes();
        } catch (IOException e) {
            throw new SystemException("", "the jar's " + name + " cannot be read: " + e);
        }
    }
}
