//! Processes many records and reads them in one batch, on the IOCs of other implementations and on ours.
#![forbid(unsafe_code)]

use std::time::Duration;

use fodo_conformance::place;
use fodo_conformance::server::{ServerProgram, TestServer};
use fodo_data::Value;
use fodo_net::{Channel, ClientConfig, Context, PvRequest, PvaClientConfig, Request, many};

/// Number of records: more than are sent at once.
const N: u32 = 700;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A server of counters, each with its own first value, and a client of it.
struct Counters {
    server: TestServer,
    context: Context,
    scheme: &'static str,
}

impl Counters {
    fn start(kind: ServerProgram, scheme: &'static str) -> Counters {
        let path = std::env::temp_dir().join(format!("fodo-{}.db", place::prefix().replace(':', "")));
        let record = |n| format!("record(calc, \"$(P)c{n}\") {{ field(CALC, \"VAL+1\") field(VAL, \"{n}\") }}\n");
        std::fs::write(&path, (0..N).map(record).collect::<String>()).unwrap();
        let server = match scheme {
            "ca" => TestServer::start_on(kind, &path),
            _ => TestServer::start_pva_on(kind, &path),
        };
        std::fs::remove_file(&path).unwrap();
        let server = server.unwrap();
        let pva = PvaClientConfig::with_addresses(server.pva_search_addresses());
        let context = Context::new(ClientConfig { pva, ..ClientConfig::with_addresses(vec![server.address()]) });
        Counters { server, context, scheme }
    }

    /// Channels to a field of all counters.
    fn channels(&self, field: &str) -> Vec<Channel> {
        let name = |n| format!("{}://{}", self.scheme, self.server.pv(&format!("c{n}{field}")));
        let names: Vec<String> = (0..N).map(name).collect();
        let connected = many::connect_timeout(&self.context, &names, TIMEOUT);
        connected.into_iter().collect::<Result<_, _>>().unwrap()
    }
}

/// The values after this number of rounds.
fn expected(n_rounds: u32) -> Vec<Value> {
    (0..N).map(|n| f64::from(n + n_rounds).into()).collect()
}

#[test]
fn a_get_follows_the_processing_of_its_record_in_one_round_trip() {
    for (kind, scheme) in [
        (ServerProgram::SoftIoc, "ca"),
        (ServerProgram::Fodo, "ca"),
        (ServerProgram::Qsrv2, "pva"),
        (ServerProgram::Fodo, "pva"),
    ] {
        let counters = Counters::start(kind, scheme);
        let (channels, processing) = (counters.channels(""), counters.channels(".PROC"));
        for round in 1..4 {
            let puts = many::start_put(processing.iter().map(|channel| (channel.clone(), 1.into())));
            let readings = many::get_timeout(&channels, Request::default(), TIMEOUT);

            assert!(puts.wait_timeout(TIMEOUT).iter().all(Result::is_ok), "{kind:?}");
            let values: Vec<Value> = readings.into_iter().map(|reading| reading.unwrap().value).collect();
            assert_eq!(values, expected(round), "{kind:?}, round {round}");
        }
    }
}

#[test]
fn a_get_with_the_option_process_processes_each_record_once() {
    // QSRV2 ignores the option.
    for (kind, n_processed) in [(ServerProgram::Fodo, 1), (ServerProgram::Qsrv2, 0)] {
        let counters = Counters::start(kind, "pva");
        let channels = counters.channels("");
        let request = PvRequest::parse("field(value,alarm,timeStamp)record[process=true]").unwrap();
        for round in 1..4 {
            let structures = many::get_structure_timeout(&channels, &request, TIMEOUT);

            let value = |structure: &fodo_net::Structure| structure.get("value").cloned().unwrap();
            let values: Vec<Value> = structures.iter().map(|structure| value(structure.as_ref().unwrap())).collect();
            assert_eq!(values, expected(round * n_processed), "{kind:?}, round {round}");
        }
    }
}
