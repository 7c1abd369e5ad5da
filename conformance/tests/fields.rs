//! Checks that our IOC reports every field of every record type as softIoc does.
#![forbid(unsafe_code)]

use fodo_conformance::TestFailure;
use fodo_conformance::client::{Client, NameSearch, ValueForm};
use fodo_conformance::ours::FodoClient;
use fodo_conformance::place::database;
use fodo_conformance::server::{ServerProgram, TestServer};

/// One record of each type, and the type.
const RECORDS: &[(&str, &str)] = &[
    ("ai", "ai"),
    ("ao", "ao"),
    ("bi", "bi"),
    ("bo", "bo"),
    ("calc", "calc"),
    ("longin", "longin"),
    ("longout", "longout"),
    ("mbbi", "mbbi"),
    ("mbbo", "mbbo"),
    ("stringin", "stringin"),
    ("stringout", "stringout"),
    ("wf_LONG", "waveform"),
    ("wf_STRING", "waveform"),
    ("fanout", "fanout"),
    ("dfanout", "dfanout"),
    ("calcout", "calcout"),
    ("seq", "seq"),
    ("event", "event"),
    ("sel", "sel"),
    ("sub", "sub"),
    ("int64in", "int64in"),
    ("int64out", "int64out"),
    ("mbbiDirect", "mbbiDirect"),
    ("mbboDirect", "mbboDirect"),
    ("lsi", "lsi"),
    ("lso", "lso"),
    ("aai", "aai"),
    ("aao", "aao"),
    ("subArray", "subArray"),
    ("compress", "compress"),
    ("printf", "printf"),
    ("aSub", "aSub"),
    ("histogram", "histogram"),
    ("permissive", "permissive"),
    ("state", "state"),
];

/// Fields that are not compared, with the reason.
const LEFT_OUT: [(&str, &str); 3] = [
    ("longin.DTYP", "softIoc has an additional choice of QSRV"),
    ("waveform.DTYP", "softIoc has two additional choices of QSRV"),
    ("RTYP", "softIoc reports write access and then rejects puts"),
];

/// The names of a type's fields, including the common ones.
fn fields_of(record_type: &str) -> Vec<String> {
    let list = std::fs::read_to_string(database("fields.txt")).expect("the list is there");
    let lines = list.lines().filter_map(|line| line.split_once(' '));
    let lines = lines.filter(|(group, _)| *group == "common" || *group == record_type);
    lines.flat_map(|(_, names)| names.split(' ').map(str::to_string)).collect()
}

/// All properties of a field that a client sees, as text without the server's prefix.
fn properties(client: &mut FodoClient, server: &TestServer, field: &str) -> Result<String, TestFailure> {
    let pv = server.pv(field);
    let about = client.connect(&pv)?;
    let mut text = format!("{about:?}");
    for shape in [ValueForm::Value, ValueForm::Text, ValueForm::Control] {
        let mut sample = client.get(&pv, shape)?;
        sample.time_ns = None;
        text.push_str(&format!("\n{sample:?}"));
    }
    Ok(text.replace(&server.prefix, ""))
}

#[test]
fn every_field_is_reported_as_by_softioc() {
    let (theirs, ours) =
        (TestServer::start(ServerProgram::SoftIoc).unwrap(), TestServer::start(ServerProgram::Fodo).unwrap());
    let (mut at_theirs, mut at_ours) =
        (FodoClient::new(theirs.address(), NameSearch::Unicast), FodoClient::new(ours.address(), NameSearch::Unicast));
    let mut differences = Vec::new();
    let mut n_fields = 0;

    for &(record, record_type) in RECORDS {
        let is_compared = |name: &String| {
            let full = format!("{record_type}.{name}");
            !LEFT_OUT.iter().any(|(left_out, _)| name == left_out || full == *left_out)
        };
        for name in fields_of(record_type).into_iter().filter(is_compared) {
            let field = format!("{record}.{name}");
            n_fields += 1;
            let expected = properties(&mut at_theirs, &theirs, &field).expect(&field);
            let found = properties(&mut at_ours, &ours, &field);
            if found.as_ref() != Ok(&expected) {
                differences.push(format!("{field}:\nsoftIoc {expected}\nfodo    {found:?}"));
            }
        }
    }

    assert!(n_fields > 2_600, "{n_fields} fields of all types of Base");
    assert!(differences.is_empty(), "{}\n{} of {n_fields} differ", differences.join("\n"), differences.len());
}
