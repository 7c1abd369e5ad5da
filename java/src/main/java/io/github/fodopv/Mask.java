package io.github.fodopv;

/** For which changes a server sends an update. */
public enum Mask {
    /** The value has changed by more than the monitor's deadband. */
    VALUE(1),
    /** The value has changed by more than the archiver's deadband. */
    LOG(2),
    /** The alarm has changed. */
    ALARM(4),
    /** Units, limits or labels have changed. */
    PROPERTY(8);

    private final int bit;

    Mask(int bit) {
        this.bit = bit;
    }

    /** The bit of the protocol. */
    int bit() {
        return bit;
    }
}
