package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;

class LoaderTest {
    /** Of "abc"; FIPS 180-2, appendix B.1. */
    private static final String HASH_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    private final byte[] abc = "abc".getBytes(StandardCharsets.US_ASCII);

    @Test
    void platformsHaveTheNamesOfTheJarsFolders() {
        assertEquals("linux-x86_64", Loader.platform("Linux", "amd64"));
        assertEquals("linux-aarch64", Loader.platform("Linux", "aarch64"));
        assertEquals("macos-aarch64", Loader.platform("Mac OS X", "aarch64"));
        assertEquals("windows-x86_64", Loader.platform("Windows 11", "amd64"));
        assertEquals("sunos-sparcv9", Loader.platform("SunOS", "sparcv9"));
    }

    @Test
    void aLibraryWithItsHashIsAccepted() {
        assertDoesNotThrow(() -> Loader.verify("lib.so", abc, HASH_OF_ABC + "  lib.so\n"));
    }

    @Test
    void aLibraryWithAnotherHashOrNoneIsRefused() {
        SystemException error =
                assertThrows(SystemException.class, () -> Loader.verify("lib.so", abc, HASH_OF_ABC.replace('b', 'c')));
        assertTrue(error.getMessage().startsWith("the jar's lib.so is damaged: its SHA-256 is " + HASH_OF_ABC),
                error.getMessage());
        assertThrows(SystemException.class, () -> Loader.verify("lib.so", abc, ""));
    }
}
