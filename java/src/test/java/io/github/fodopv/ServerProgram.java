package io.github.fodopv;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;

/** The programs whose PVs the tests use, and the protocols for which they do. */
enum ServerProgram {
    /** {@code fodo ioc}. */
    FODO("fodo ioc", Set.of(Protocol.CA, Protocol.PVA)),
    /** EPICS' softIoc. */
    SOFT_IOC("softIoc", Set.of(Protocol.CA)),
    /** EPICS' softIoc with pvAccess from pvxs. */
    QSRV2("pvxs's IOC", Set.of(Protocol.PVA)),
    /** The server of Phoebus' core-pva. */
    CORE_PVA("core-pva", Set.of(Protocol.PVA)),
    /** The server of p4p. */
    P4P("p4p", Set.of(Protocol.PVA));

    /** Fodo's own program, in the lists that have a protocol. */
    private final String text;
    private final Set<Protocol> protocols;

    ServerProgram(String text, Set<Protocol> protocols) {
        this.text = text;
        this.protocols = protocols;
    }

    /** Whether it serves records, with their fields, alarms and access rights. */
    boolean servesRecords() {
        return this == FODO || this == SOFT_IOC || this == QSRV2;
    }

    /** Every protocol of every program. */
    static List<Way> ways() {
        List<Way> ways = new ArrayList<>();
        for (ServerProgram program : values()) {
            for (Protocol protocol : Protocol.values()) {
                if (program.protocols.contains(protocol)) {
                    ways.add(new Way(program, protocol));
                }
            }
        }
        return ways;
    }

    /** One protocol of a program. */
    record Way(ServerProgram program, Protocol protocol) {
        @Override
        public String toString() {
            return program.text + " over " + protocol;
        }
    }

    String text() {
        return text;
    }
}
