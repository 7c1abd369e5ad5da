package io.github.fodopv;

import java.util.Collections;
import java.util.EnumSet;
import java.util.Set;

/** Sets of changes. */
final class Masks {
    private Masks() {
    }

    static Set<Mask> copy(Set<Mask> mask) {
        if (mask == null || mask.isEmpty()) {
            throw new MisuseException("", "a mask needs at least one of VALUE, LOG, ALARM and PROPERTY");
        }
        return Collections.unmodifiableSet(EnumSet.copyOf(mask));
    }

    /** The bits of the protocol. */
    static int bits(Set<Mask> mask) {
        return mask.stream().mapToInt(Mask::bit).sum();
    }
}
