package io.github.fodopv;

import java.lang.ref.Reference;
import java.util.function.LongFunction;

/** A handle of the native library, which is released when this object is unreachable. */
final class NativeObject {
    private final long handle;

    NativeObject(long handle) {
        this.handle = handle;
        Library.get().releaseWith(this, handle);
    }

    /** Calls the function with the handle, which is valid until it returns. */
    <T> T with(LongFunction<T> function) {
        try {
            return function.apply(handle);
        } finally {
            Reference.reachabilityFence(this);
        }
    }
}
