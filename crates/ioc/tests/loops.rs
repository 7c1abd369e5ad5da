//! Records that trigger themselves endlessly: clients are still served, and the IOC still stops.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fodo_ioc::Ioc;
use fodo_net::{Context, ServerConfig, Value};

const PATIENCE: Duration = Duration::from_secs(10);

const RECORDS: &str = r#"
record(bo, "pulse") { field(OMSL, "closed_loop") field(DOL, "one") }
record(bo, "one") { field(VAL, "1") }
record(calc, "x") { field(CALC, "VAL+1") field(INPA, "y CP") field(INPB, "x CP") }
record(calc, "y") { field(CALC, "VAL+1") field(INPA, "x CP") field(INPB, "y CP") }
record(calcout, "first") { field(CALC, "1") field(OEVT, "ring") field(SCAN, "Event") field(EVNT, "ring") }
record(calcout, "second") { field(CALC, "1") field(OEVT, "ring") field(SCAN, "Event") field(EVNT, "ring") }
record(ao, "other") {}
"#;

#[test]
fn endless_record_loops_block_neither_clients_nor_shutdown() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("loops.db");
    std::fs::write(&file, RECORDS).unwrap();
    let config = ServerConfig::isolated();
    let ioc = Ioc::load(&[(file, String::new())]).unwrap().serve(config).unwrap();
    let context = Context::new(ioc.client_config());
    let put = |name: &str, value: f64| context.channel(name).unwrap().put_timeout(value, PATIENCE).unwrap();
    put("pulse.HIGH", 1e-12);
    put("pulse.PROC", 1.0);
    put("first.PROC", 1.0);

    for number in 0..20 {
        put("other", f64::from(number));
    }

    let value = context.channel("other").unwrap().get_timeout(PATIENCE).unwrap().value;
    assert_eq!(value, Value::from(19.0));
    let stopped = Instant::now();
    ioc.stop().unwrap();
    assert!(stopped.elapsed() < PATIENCE);
}
