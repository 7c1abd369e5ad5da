//! Compares the reference page that is generated from tables in the code with these tables.
//! `FODO_WRITE_REFERENCE=1` regenerates the page.

use std::fmt::Write as _;
use std::path::Path;

use fodo_pva::PROTOCOL_VERSION;
use fodo_pva::message::{Answer, Request, Row};

fn table(rows: &[Row]) -> String {
    let mut text = String::from("| command | message | fields | purpose |\n|---|---|---|---|\n");
    for row in rows {
        let fields: Vec<String> = row.fields.iter().map(|(field, kind)| format!("{field}: `{kind}`")).collect();
        // Links of the code's documentation lead nowhere on the page.
        let links = [" ([`crate::beacon`])", " ([`crate::search`])", " ([`crate::validation`])"];
        let purpose = links.iter().fold(row.purpose.concat(), |purpose, link| purpose.replace(link, ""));
        let _ = writeln!(text, "| {} | `{}` | {} | {} |", row.command, row.label, fields.join(", "), purpose.trim());
    }
    text
}

#[test]
fn the_message_reference_page_matches_the_tables_in_the_code() {
    let mut text = format!(
        "# Messages of pvAccess\n\nProtocol version {PROTOCOL_VERSION}. Every frame starts with 8 bytes: 0xca, the version, flags, the command, \
         and the size of the\npayload with 32 bits. Flags: 0x01 control message, 0x10 first segment, 0x20 last segment, 0x30 \
         middle segment, 0x40 from the\nserver, 0x80 big-endian. The table lists the fields at the start of a payload. A `Text` \
         has its size before it; a list its\ncount. `Cid`, `Sid` and `Ioid`, the numbers of channels and operations, have 32 bits. \
         `Subcommand` has 8: 0x08 INIT,\n0x10 DESTROY, 0x40 GET, 0x44 START, 0x04 STOP, 0x80 ACK, 0 EXECUTE.\n\n\
         Generated from `crates/pva/src/message.rs`; a test compares this page with the code.\n"
    );
    let _ = write!(text, "\n## What clients send\n\n{}", table(Request::ROWS));
    let _ = write!(text, "\n## What servers send\n\n{}", table(Answer::ROWS));

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/pvaccess-messages.md");
    if std::env::var_os("FODO_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &text).expect("the page can be written");
    }
    let page = std::fs::read_to_string(&path).expect("the page exists");
    let differs = page.lines().zip(text.lines()).find(|(page, made)| page != made);
    assert!(page == text, "the page differs from the code: {differs:?}; regenerate it with FODO_WRITE_REFERENCE=1");
}
