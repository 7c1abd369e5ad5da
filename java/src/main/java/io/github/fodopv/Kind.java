package io.github.fodopv;

/** The kind of an element of a value. */
public enum Kind {
    /** A boolean. */
    BOOL(1),
    /** A signed integer of 8 bits. */
    I8(1),
    /** An unsigned integer of 8 bits. */
    U8(1),
    /** A signed integer of 16 bits. */
    I16(2),
    /** An unsigned integer of 16 bits. */
    U16(2),
    /** A signed integer of 32 bits. */
    I32(4),
    /** An unsigned integer of 32 bits. */
    U32(4),
    /** A signed integer of 64 bits. */
    I64(8),
    /** An unsigned integer of 64 bits. */
    U64(8),
    /** A floating point number of 32 bits. */
    F32(4),
    /** A floating point number of 64 bits. */
    F64(8),
    /** A text. */
    TEXT(0),
    /** The index of a state of an enum. */
    ENUM(2);

    private static final Kind[] ALL = values();

    private final int bytes;

    Kind(int bytes) {
        this.bytes = bytes;
    }

    /** The bytes of an element in an array; 0 for a text. */
    int bytes() {
        return bytes;
    }

    /** The kind of this number of the encoding; {@code null} if there is none. */
    static Kind of(int code) {
        return code >= 0 && code < ALL.length ? ALL[code] : null;
    }
}
