package io.github.fodopv;

/** A protocol of EPICS. */
public enum Protocol {
    /** Channel Access. */
    CA,
    /** pvAccess. */
    PVA
}
