//! The statistics that an IOC with a status prefix serves under the names of iocStats.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that stops has said enough")]

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fodo_db::Loader;
use fodo_ioc::{Ioc, RunningIoc, Surroundings};
use fodo_net::{Context, MonitorEvent, MonitorOptions, ServerConfig, Value};

const PATIENCE: Duration = Duration::from_secs(10);

/// The second is a name of iocStats as well.
const RECORDS: &str = r#"
record(ao, "s:gap") {}
record(stringin, "s:ioc:ENGINEER") { field(VAL, "of the plant") field(PINI, "YES") }
"#;

fn ioc(name: &str) -> (RunningIoc, Context) {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("stats-{name}.db"));
    std::fs::write(&file, RECORDS).unwrap();
    let variables = [("LOCATION", "hall 3"), ("ENGINEER", "Ann"), ("IOCSH_STARTUP_SCRIPT", "st.cmd")];
    let surroundings = Surroundings {
        folder: PathBuf::from("/opt/iocs/vacuum"),
        variables: HashMap::from(variables.map(|(name, value)| (name.to_owned(), value.to_owned()))),
    };
    let config = ServerConfig { status_prefix: Some("s:ioc".to_owned()), ..ServerConfig::isolated() };
    let ioc = Ioc::load(&[(file, String::new())]).unwrap().with_surroundings(surroundings).serve(config).unwrap();
    let context = Context::new(ioc.client_config());
    (ioc, context)
}

fn value(context: &Context, name: &str) -> Value {
    context.channel(name).unwrap().get_timeout(PATIENCE).unwrap_or_else(|error| panic!("{name}: {error}")).value
}

/// Reads a number until it meets a condition.
fn number_until(context: &Context, name: &str, is_expected: impl Fn(f64) -> bool) -> f64 {
    let (channel, start) = (context.channel(name).unwrap(), Instant::now());
    loop {
        let Value::Scalar(scalar) = channel.get_timeout(PATIENCE).unwrap().value else {
            panic!("{name} is not a number")
        };
        let number = scalar.to_f64().unwrap();
        if is_expected(number) {
            return number;
        }
        assert!(start.elapsed() < PATIENCE, "{name} is still {number}");
    }
}

#[test]
fn ioc_stats_pvs_report_server_counters_and_system_statistics() {
    let (_ioc, context) = ioc("counts");

    number_until(&context, "s:ioc:CA_CLNT_CNT", |n| n == 1.0);
    number_until(&context, "s:ioc:CA_CONN_CNT", |n| n >= 1.0);
    number_until(&context, "s:ioc:RECORD_CNT", |n| n == 2.0);
    number_until(&context, "s:ioc:PROCESS_ID", |n| n == f64::from(std::process::id()));
    number_until(&context, "s:ioc:PARENT_ID", |n| n > 0.0);
    number_until(&context, "s:ioc:CPU_CNT", |n| n >= 1.0);
    number_until(&context, "s:ioc:SYS_CPU_LOAD", |n| (0.0..=100.0).contains(&n));
    let used = number_until(&context, "s:ioc:MEM_USED", |n| n > 0.0);
    let max = number_until(&context, "s:ioc:MEM_MAX", |n| n > 0.0);
    assert!(used < max, "{used} of {max}");
    let n_open = number_until(&context, "s:ioc:FD_CNT", |n| n > 3.0);
    assert!(n_open < number_until(&context, "s:ioc:FD_MAX", |n| n > 0.0));
}

#[test]
fn skipped_items_of_databases_are_counted() {
    let mut loader = Loader::default();
    let text = "record(ao, s:gap) { field(PREC, two) field(EGU, mm) }\nrecord(robot, s:arm) {}\n";
    let errors = loader.load("a.db", "", &mut |_| Ok(text.into())).unwrap_err();
    let config = ServerConfig { status_prefix: Some("s:ioc".to_owned()), ..ServerConfig::isolated() };

    let ioc = Ioc::of(loader).unwrap().serve(config).unwrap();

    let context = Context::new(ioc.client_config());
    assert_eq!(errors.len(), 2);
    assert_eq!(value(&context, "s:ioc:LOAD_ERROR_CNT"), Value::from(2.0));
}

#[test]
fn the_heartbeat_pv_increments_once_per_second() {
    let (_ioc, context) = ioc("heart");

    let beats = context.channel("s:ioc:HEARTBEAT").unwrap().monitor(MonitorOptions::default());
    let next = || loop {
        if let MonitorEvent::Update(reading) = beats.next_timeout(PATIENCE).unwrap() {
            return reading.value.first().unwrap().to_f64().unwrap();
        }
    };
    let first = next();

    assert_eq!([next(), next()], [first + 1.0, first + 2.0]);
}

#[test]
fn ioc_stats_site_strings_are_readable_and_read_only() {
    let (_ioc, context) = ioc("texts");

    assert_eq!(value(&context, "s:ioc:LOCATION"), Value::from("hall 3"));
    assert_eq!(value(&context, "s:ioc:APP_DIR1"), Value::from("/opt/iocs/vacuum"));
    assert_eq!(value(&context, "s:ioc:APP_DIR"), Value::from(b"/opt/iocs/vacuum\0".to_vec()));
    assert_eq!(value(&context, "s:ioc:ST_SCRIPT1"), Value::from("st.cmd"));
    assert_eq!(value(&context, "s:ioc:EPICS_VERS"), Value::from(concat!("Fodo ", env!("CARGO_PKG_VERSION"))));
    let refused = context.channel("s:ioc:LOCATION").unwrap().put_timeout(Value::from("hall 4"), PATIENCE);
    assert!(refused.is_err());
}

#[test]
fn a_record_overrides_an_ioc_stats_pv_of_the_same_name() {
    let (_ioc, context) = ioc("names");

    assert_eq!(value(&context, "s:ioc:ENGINEER"), Value::from("of the plant"));
    number_until(&context, "s:ioc:CLIENTS", |n| n == 1.0);
}
