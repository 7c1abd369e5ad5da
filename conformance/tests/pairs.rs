//! Every scenario for every pair of client and server, and the page that says which are possible.
#![forbid(unsafe_code)]

use std::path::Path;

use fodo_conformance::client::ClientKind;
use fodo_conformance::server::ServerKind;
use fodo_conformance::{matrix, place};

fn meet(client: ClientKind, server: ServerKind) {
    if client == ClientKind::PsiCa && place::psi_ca().is_none() {
        return;
    }
    if let Err(failure) = matrix::meet(client, server) {
        panic!("{failure}");
    }
}

macro_rules! pairs {
    ($($pair:ident: $client:ident on $server:ident)*) => {
        $(
            #[test]
            fn $pair() {
                meet(ClientKind::$client, ServerKind::$server);
            }
        )*

        /// The tests above.
        const PAIRS: &[(ClientKind, ServerKind)] = &[$((ClientKind::$client, ServerKind::$server)),*];
    };
}

// Other people's clients on other people's servers say that the scenarios themselves are right.
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
fn every_pair_of_the_matrix_is_a_test_here() {
    let pairs = ClientKind::ALL.iter().flat_map(|client| ServerKind::ALL.map(|server| (*client, server)));

    assert_eq!(pairs.collect::<Vec<_>>(), PAIRS);
}

#[test]
fn the_page_of_conformance_is_the_matrix_in_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/conformance.md");
    let text = format!("{HEAD}{}{TAIL}", matrix::page());
    if std::env::var_os("FODO_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &text).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let differs = page.lines().zip(text.lines()).find(|(page, made)| page != made);

    assert!(
        page == text,
        "conformance.md is not what the code says; FODO_WRITE_REFERENCE=1 writes it anew: {differs:?}"
    );
}

const HEAD: &str = "\
# Conformance of Channel Access

What each client does with each server. Every `yes` is a test with real processes that `cargo xtask test` runs; a `no`
has its reason below the table. The versions of the peers are in `conformance/peers/requirements.txt`, PSI's `ca` is 1.3.2.

Made from `conformance/src/matrix.rs`, and compared with it by a test.
";

const TAIL: &str = "
## Where peers differ from each other

- **One string put to an array of characters** (`.VAL$`): softIoc reads it as a number and refuses; `fodo ioc` takes it as
  the text that it is, which is what aioca sends for a `str`.
- **Characters put without a zero behind them**: softIoc keeps what stood behind them before, `fodo ioc` ends the string
  there.
- **Searches over TCP**: libca puts a `VERSION` with a sequence number before each, Fodo does not, since its circuit has told
  its version already; Fodo's server answers both, caproto's only the latter.
- **Arrays**: a subscription that asks for 0 elements has as many as there are. libca, Fodo and PSI's `ca` ask so, caproto by
  itself for as many as there could be, which softIoc and `fodo ioc` pad with zeros.
- **An array of one element** is a scalar to pyepics.
- **A refused put with completion**: caproto's client returns the status and raises nothing, so look at it.
- **A field that nobody may write**: softIoc tells that it may be written and refuses each put, `fodo ioc` tells beforehand
  that it may not.
- **In records of pythonSoftIOC** refuse puts by `DISP`, although the rights of their channels allow them.
- **caproto's server** has none of the arrays of strings, characters, unsigned and 64-bit numbers that the others are asked
  for here, and formats numbers without their precision; its array without an element has one.
";
