//! Runs every scenario of Channel Access for every pair of client and server, and checks the page that lists the possible
//! ones of both protocols.
#![forbid(unsafe_code)]

use std::path::Path;

use fodo_conformance::client::ClientKind;
use fodo_conformance::server::ServerProgram;
use fodo_conformance::{matrix, place};

fn meet(client: ClientKind, server: ServerProgram) {
    if client == ClientKind::PsiCa && place::java_class_path().is_none() {
        return;
    }
    if let Err(failure) = matrix::CHANNEL_ACCESS.run_scenarios(client, server) {
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

// Pairs of other clients with other servers verify the scenarios themselves.
pairs! {
    fodo_on_fodo: Fodo on Fodo
    fodo_on_softioc: Fodo on SoftIoc
    fodo_on_caproto: Fodo on Caproto
    fodo_on_pythonsoftioc: Fodo on PythonSoftIoc
    aioca_on_fodo: Aioca on Fodo
    aioca_on_softioc: Aioca on SoftIoc
    aioca_on_caproto: Aioca on Caproto
    aioca_on_pythonsoftioc: Aioca on PythonSoftIoc
    pyepics_on_fodo: Pyepics on Fodo
    pyepics_on_softioc: Pyepics on SoftIoc
    pyepics_on_caproto: Pyepics on Caproto
    pyepics_on_pythonsoftioc: Pyepics on PythonSoftIoc
    caproto_on_fodo: Caproto on Fodo
    caproto_on_softioc: Caproto on SoftIoc
    caproto_on_caproto: Caproto on Caproto
    caproto_on_pythonsoftioc: Caproto on PythonSoftIoc
    psi_ca_on_fodo: PsiCa on Fodo
    psi_ca_on_softioc: PsiCa on SoftIoc
    psi_ca_on_caproto: PsiCa on Caproto
    psi_ca_on_pythonsoftioc: PsiCa on PythonSoftIoc
}

#[test]
fn every_client_server_pair_of_the_matrix_has_a_test() {
    let pairs = ClientKind::CA.iter().flat_map(|client| ServerProgram::CA.map(|server| (*client, server)));

    assert_eq!(pairs.collect::<Vec<_>>(), PAIRS);
}

#[test]
fn the_conformance_page_matches_the_matrix_in_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/conformance.md");
    let text = format!("{HEAD}{}{}{TAIL}", matrix::CHANNEL_ACCESS.page(), matrix::PV_ACCESS.page());
    if std::env::var_os("FODO_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &text).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let differs = page.lines().zip(text.lines()).find(|(page, generated)| page != generated);

    assert!(page == text, "conformance.md differs from the code; FODO_WRITE_REFERENCE=1 rewrites it: {differs:?}");
}

const HEAD: &str = "\
# Conformance

This page shows what each client can do with each server, for each of the two protocols. Every `yes` is a test with real
processes that `cargo xtask test` runs; the reason of a `no` is below its table. The versions of the peers are in
`conformance/peers/requirements.txt`; PSI's `ca` is 1.3.2, Phoebus' core-pva is 5.0.5.

Generated from `conformance/src/matrix.rs`; a test compares this page with the code.
";

const TAIL: &str = "
## Where peers differ from each other

- **One string put to an array of characters** (`.VAL$`): softIoc parses it as a number and refuses it; `fodo ioc` stores it
  as text, which is what aioca intends when it sends a `str`.
- **Characters put without a terminating NUL**: softIoc keeps the characters stored after them, `fodo ioc` ends the string
  there.
- **Searches over TCP**: libca sends a `VERSION` with a sequence number before each search. Fodo does not, because its circuit
  has already sent its version. Fodo's server replies to both, caproto's only to searches without it.
- **Arrays**: a subscription with a count of 0 receives the current number of elements. libca, Fodo and PSI's `ca` use 0;
  by default caproto requests the maximum number, for which softIoc and `fodo ioc` pad the array with zeros.
- **An array of one element** is a scalar in pyepics.
- **A refused put with completion**: caproto's client returns the status and raises no exception, so check the status.
- **A read-only field**: softIoc reports it as writable and refuses each put; `fodo ioc` reports it as read-only.
- **Input records of pythonSoftIOC** refuse puts by `DISP`, although their channels report write access.
- **caproto's server** lacks some values that these tests use: arrays of strings, characters, unsigned and 64-bit numbers.
  It formats numbers without their precision, and its empty array has one element.
- **A put over pvAccess with completion to a read-only field**: QSRV1 and QSRV2 never answer it, and the record cannot be read
  over pvAccess until the IOC restarts. Without completion they refuse it.
- **A put over pvAccess with `process=true`**: if completion is requested as well, QSRV1 and QSRV2 report success without
  processing the record, except where every put to that field processes it. A put without a value processes the record each
  time in QSRV1, but in QSRV2 only the first time.
- **Arrays of enums**: QSRV1 serves them as arrays of int; QSRV2 refuses the channel's operations.
- **Limits that are not set**: QSRV1 reports NaN for alarm limits of integers and arrays, QSRV2 0.
- **Tables, unions, variants and procedures** are served by a program with the Rust API in the rows of `fodo ioc`, whose records
  have none.
- **core-pva's client** cannot select the member of a union that it puts, has no processing other than that of passive
  records, never ends a call that fails, and loses its subscriptions with the connection; a program subscribes again.
- **core-pva's server** never answers a subscription that begins with a window (`pipeline=true` in the first message, as pvxs
  and core-pva's own client send it); Fodo's client acknowledges later and works. It has no queue: an update that is not
  sent yet is replaced, and the changes of the replaced one are not always marked. It does not store the first member of a
  union. An update posted while a subscription begins can be lost.
- **Processing, time and alarms of p4p's server** are what its program makes them; here its values have no alarms.
";
