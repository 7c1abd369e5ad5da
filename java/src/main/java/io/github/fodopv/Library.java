package io.github.fodopv;

import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.ref.Cleaner;

/** The native library with what all contexts share: the only static state. */
final class Library {
    private static final MethodHandle IS_VIRTUAL = isVirtualMethod();

    /** {@code null} until the first context is created. */
    private static volatile Library loaded;

    private final Native natives;
    private final Cleaner cleaner = Cleaner.create();
    private final Codec codec;
    private final Scratch.Pool pool = new Scratch.Pool();

    Library(Native natives) {
        this.natives = natives;
        this.codec = new Codec(natives, cleaner);
    }

    /** The library, which the first call loads. */
    static Library get() {
        Library library = loaded;
        if (library != null) {
            return library;
        }
        synchronized (Library.class) {
            if (loaded == null) {
                loaded = new Library(Loader.load());
            }
            return loaded;
        }
    }

    Cleaner cleaner() {
        return cleaner;
    }

    Native natives() {
        return natives;
    }

    Codec codec() {
        return codec;
    }

    Scratch scratch() {
        return pool.take(natives);
    }

    /** Memory for one thread that keeps it, of this many bytes. */
    Scratch ownScratch(int bytes) {
        return new Scratch(natives, pool, bytes);
    }

    /** Frees the slot of a handle when the object that has it is unreachable. */
    void releaseWith(Object owner, long handle) {
        Native library = natives;
        cleaner.register(owner, () -> library.release(handle));
    }

    /** Whether the calling thread is a virtual thread, of which Java 17 has none. */
    static boolean isVirtualThread() {
        if (IS_VIRTUAL == null) {
            return false;
        }
        try {
            return (boolean) IS_VIRTUAL.invokeExact(Thread.currentThread());
        } catch (Throwable e) {
            throw new IllegalStateException(e);
        }
    }

    private static MethodHandle isVirtualMethod() {
        try {
            return MethodHandles.publicLookup()
                    .findVirtual(Thread.class, "isVirtual", MethodType.methodType(boolean.class));
        } catch (NoSuchMethodException | IllegalAccessException e) {
            return null;
        }
    }
}
