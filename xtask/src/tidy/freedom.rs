//! Below `net` no crate does IO, and in the protocol crates only a few modules handle byte order.

use super::Offence;
use super::repository::{Repository, TextFile};
use super::source::{self, Path};

/// The crates below `net`.
const WITHOUT_IO: [&str; 7] = ["data", "lock", "ca", "pva", "engine", "clu", "db"];

/// Modules and types of the standard library that do IO.
const WORLDLY: [&str; 12] = [
    "std::env",
    "std::fs",
    "std::os",
    "std::process",
    "std::thread",
    "std::io::stdin",
    "std::io::stdout",
    "std::io::stderr",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::net::ToSocketAddrs",
];

/// Calls and types that do IO, whatever the path before them.
const WORLDLY_ENDS: [&str; 5] = ["Instant::now", "SystemTime::now", "TcpStream", "TcpListener", "UdpSocket"];

/// The only place below `net` where a clock is read: it creates a time for tests.
const FOR_TESTS: (&str, &str) = ("crates/data/src/time.rs", "Instant::now");

/// Macros that print.
const PRINTING: [&str; 4] = ["print", "println", "eprint", "eprintln"];

/// Functions that convert byte order.
const BYTE_ORDER: [&str; 12] = [
    "from_be",
    "from_be_bytes",
    "from_le",
    "from_le_bytes",
    "from_ne_bytes",
    "swap_bytes",
    "to_be",
    "to_be_bytes",
    "to_le",
    "to_le_bytes",
    "to_ne_bytes",
    "BigEndian",
];

/// The protocol crates and what they share, to which the rule about byte order applies.
const PROTOCOLS: [&str; 4] = ["ca", "pva", "engine", "clu"];

/// The modules that may handle byte order.
const BYTE_MODULES: [&str; 8] = ["message", "dbr", "body", "outbox", "cursor", "types", "value", "incoming_array"];

/// Checks every source below `net`.
pub fn check(repository: &Repository) -> Vec<Offence> {
    let mut offences = Vec::new();
    for file in repository.rust_files() {
        let Some((crate_name, module)) = library_file(&file.path) else { continue };
        if WITHOUT_IO.contains(&crate_name) {
            check_freedom(file, &mut offences);
        }
        let may_order = module.split('/').any(|part| BYTE_MODULES.contains(&part.trim_end_matches(".rs")));
        if PROTOCOLS.contains(&crate_name) && !may_order {
            check_byte_order(file, &mut offences);
        }
    }
    offences
}

/// `("ca", "search/pace.rs")` from `crates/ca/src/search/pace.rs`.
fn library_file(path: &str) -> Option<(&str, &str)> {
    let (crate_name, rest) = path.strip_prefix("crates/")?.split_once('/')?;
    let module = rest.strip_prefix("src/")?;
    let is_for_tests = module.split('/').any(|part| part == "tests" || part == "tests.rs");
    (!is_for_tests).then_some((crate_name, module))
}

fn check_freedom(file: &TextFile, offences: &mut Vec<Offence>) {
    let Some(tokens) = source::product_tokens(&file.text) else {
        offences.push(Offence::new(&file.path, 0, "cannot be parsed as Rust"));
        return;
    };
    for path in source::paths(&tokens) {
        if let Some(what) = worldly(&path)
            && (file.path.as_str(), what.as_str()) != FOR_TESTS
        {
            offences.push(Offence::new(&file.path, path.line, format!("{what}: crates below net must not do IO")));
        }
    }
    for pair in tokens.windows(2) {
        if PRINTING.contains(&pair[0].text.as_str()) && pair[1].text == "!" {
            let what = format!("{}!: crates below net must not print", pair[0].text);
            offences.push(Offence::new(&file.path, pair[0].line, what));
        }
    }
}

fn worldly(path: &Path) -> Option<String> {
    let text = path.segments.join("::");
    let is_std_net_whole = text == "std::net";
    let starts = WORLDLY.iter().any(|worldly| text == *worldly || text.starts_with(&format!("{worldly}::")));
    let ends = WORLDLY_ENDS.iter().any(|worldly| {
        text == *worldly || text.ends_with(&format!("::{worldly}")) || text.contains(&format!("{worldly}::"))
    });
    (is_std_net_whole || starts || ends).then_some(text)
}

fn check_byte_order(file: &TextFile, offences: &mut Vec<Offence>) {
    for token in source::product_tokens(&file.text).unwrap_or_default() {
        if BYTE_ORDER.contains(&token.text.as_str()) {
            let what = format!("{}: only the modules {} may handle byte order", token.text, BYTE_MODULES.join(", "));
            offences.push(Offence::new(&file.path, token.line, what));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offences_in(path: &str, source: &str) -> Vec<String> {
        check(&Repository::of(&[(path, source)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn io_clock_thread_and_environment_use_below_net_is_rejected() {
        for planted in [
            "use std::net::UdpSocket;",
            "use std::net;",
            "use std::{fs, io};",
            "fn a() { std::thread::spawn(|| ()); }",
            "fn a() { let _ = std::env::var(\"A\"); }",
            "use std::time::Instant; fn a() { Instant::now(); }",
            "fn a() { std::time::SystemTime::now(); }",
            "fn a() { println!(\"x\"); }",
            "macro_rules! m { () => { std::fs::read(\"a\") } }",
        ] {
            assert_eq!(offences_in("crates/db/src/calc.rs", planted).len(), 1, "{planted}");
        }
    }

    #[test]
    fn addresses_instants_and_tests_are_allowed_below_net() {
        for allowed in [
            "use std::net::{Ipv4Addr, SocketAddr};",
            "use std::time::Instant; fn a(now: Instant) {}",
            "// std::fs\nfn a() -> std::io::Result<()> { Ok(()) }",
            "#[cfg(test)]\nmod tests { fn a() { std::time::Instant::now(); println!(\"x\"); } }",
        ] {
            assert_eq!(offences_in("crates/ca/src/search.rs", allowed), [""; 0], "{allowed}");
        }
        assert_eq!(offences_in("crates/net/src/lib.rs", "use std::net::UdpSocket;"), [""; 0]);
        assert_eq!(offences_in("crates/ca/tests/wire.rs", "use std::fs;"), [""; 0]);
    }

    #[test]
    fn byte_order_conversions_are_allowed_only_in_listed_files() {
        let source = "fn a(x: u16) -> [u8; 2] { x.to_be_bytes() }";

        assert_eq!(offences_in("crates/ca/src/search.rs", source).len(), 1);
        assert_eq!(offences_in("crates/ca/src/message.rs", source), [""; 0]);
        assert_eq!(offences_in("crates/ca/src/dbr/layout.rs", source), [""; 0]);
        assert_eq!(offences_in("crates/data/src/time.rs", source), [""; 0]);
    }
}
