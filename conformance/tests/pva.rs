//! Runs every scenario of pvAccess for every pair of client and server.
#![forbid(unsafe_code)]

use fodo_conformance::client::ClientKind;
use fodo_conformance::server::ServerProgram;
use fodo_conformance::{matrix, place};

fn meet(client: ClientKind, server: ServerProgram) {
    let needs_java = client == ClientKind::CorePva || server == ServerProgram::CorePva;
    if needs_java && place::java_class_path().is_none() {
        return;
    }
    if let Err(failure) = matrix::PV_ACCESS.run_scenarios(client, server) {
        panic!("{failure}");
    }
}

macro_rules! pairs {
    ($($pair:ident: $client:ident on $server:ident)*) => {
        $(
            #[test]
            fn $pair() {
                meet(ClientKind::$client, ServerProgram::$server);
            }
        )*

        /// The tests above.
        const PAIRS: &[(ClientKind, ServerProgram)] = &[$((ClientKind::$client, ServerProgram::$server)),*];
    };
}

// Pairs of another client with other servers verify the scenarios themselves.
pairs! {
    fodo_on_fodo: Fodo on Fodo
    fodo_on_qsrv2: Fodo on Qsrv2
    fodo_on_qsrv1: Fodo on Qsrv1
    fodo_on_p4p: Fodo on P4p
    fodo_on_core_pva: Fodo on CorePva
    fodo_program_on_fodo: FodoProgram on Fodo
    fodo_program_on_qsrv2: FodoProgram on Qsrv2
    fodo_program_on_qsrv1: FodoProgram on Qsrv1
    fodo_program_on_p4p: FodoProgram on P4p
    fodo_program_on_core_pva: FodoProgram on CorePva
    p4p_on_fodo: P4p on Fodo
    p4p_on_qsrv2: P4p on Qsrv2
    p4p_on_qsrv1: P4p on Qsrv1
    p4p_on_p4p: P4p on P4p
    p4p_on_core_pva: P4p on CorePva
    core_pva_on_fodo: CorePva on Fodo
    core_pva_on_qsrv2: CorePva on Qsrv2
    core_pva_on_qsrv1: CorePva on Qsrv1
    core_pva_on_p4p: CorePva on P4p
    core_pva_on_core_pva: CorePva on CorePva
}

#[test]
fn every_client_server_pair_of_the_matrix_has_a_test() {
    let pairs = ClientKind::PVA.iter().flat_map(|client| ServerProgram::PVA.map(|server| (*client, server)));

    assert_eq!(pairs.collect::<Vec<_>>(), PAIRS);
}
