//! IOC statistics with the PV names of iocStats, which existing screens use.
//!
//! All PVs are read-only: the writable PVs of iocStats (`SYSRESET`, `READACF`, `ACCESS`, the `..._UPD_TIME`) would let
//! every client bypass access security. A record with one of these names takes precedence.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fodo_data::{Meta, STRING_BYTES_MAX, Value};
use fodo_net::process::host_name;
use fodo_net::{ClientStatus, PvTable, SharedPv};
use jiff::Zoned;

use crate::limit;
use crate::process::{self, HostFacts, ProcessFacts};

/// The version that an IOC reports in place of the version of EPICS Base.
pub const VERSION: &str = concat!("Fodo ", env!("CARGO_PKG_VERSION"));

/// Host facts that an IOC publishes: where it was started.
///
/// ```
/// use fodo_ioc::{Ioc, Surroundings};
///
/// let mut surroundings = Surroundings::of_process();
/// surroundings.variables.insert("ENGINEER".into(), "Ada".into());
/// assert_eq!(surroundings.variable("ENGINEER"), "Ada");
/// let ioc = Ioc::of(fodo_ioc::Loader::default()).unwrap().with_surroundings(surroundings);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// The folder.
    pub folder: PathBuf,
    /// The environment variables.
    pub variables: HashMap<String, String>,
}

impl Surroundings {
    /// The folder and environment of this process.
    pub fn of_process() -> Surroundings {
        let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
        let variables = std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
        // A deleted folder has no path.
        Surroundings { folder: std::env::current_dir().unwrap_or_default(), variables }
    }

    /// The value of a variable; empty if it is not set.
    pub fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }
}

/// The statistics of an IOC, as PVs.
pub struct IocStats {
    pvs: HashMap<&'static str, SharedPv>,
    started: Instant,
    before: LoadSample,
}

/// The previous sample, for computing loads, and the heartbeat.
struct LoadSample {
    at: Instant,
    cpu_used: Duration,
    worked: Option<(u64, u64)>,
    n_beats: u32,
}

/// Numeric PVs with their units. All are doubles, as in iocStats.
const NUMBERS: [(&str, &str); 17] = [
    ("CA_CLNT_CNT", ""),
    ("CA_CONN_CNT", ""),
    ("RECORD_CNT", ""),
    ("LOAD_ERROR_CNT", ""),
    ("FD_CNT", ""),
    ("FD_MAX", ""),
    ("FD_FREE", ""),
    ("SYS_CPU_LOAD", "%"),
    ("IOC_CPU_LOAD", "%"),
    ("LOAD", "%"),
    ("CPU_CNT", ""),
    ("MEM_USED", "byte"),
    ("MEM_FREE", "byte"),
    ("MEM_MAX", "byte"),
    ("PROCESS_ID", ""),
    ("PARENT_ID", ""),
    ("HEARTBEAT", ""),
];

impl IocStats {
    /// `n_records`: the number of records. `n_omitted`: the number of statements left out because of errors. The PVs
    /// have the current time as their time stamp, which is that of the start for those that never change.
    pub fn new((n_records, n_omitted): (usize, usize), surroundings: &Surroundings) -> IocStats {
        let mut pvs = HashMap::new();
        for (name, units) in NUMBERS {
            let meta = Meta { units: units.into(), precision: if units == "%" { 1 } else { 0 }, ..Meta::default() };
            pvs.insert(name, SharedPv::builder(0.0).meta(meta).build());
        }
        for (name, text) in texts(surroundings) {
            pvs.insert(name, SharedPv::new(text.as_str()));
        }
        for (name, text) in long_texts(surroundings) {
            // Exactly as long as the text plus the terminating zero for clients in C.
            let bytes = [text.as_bytes(), b"\0"].concat();
            pvs.insert(name, SharedPv::new(bytes));
        }
        let process = ProcessFacts::now();
        let before =
            LoadSample { at: Instant::now(), cpu_used: process.cpu_used, worked: HostFacts::now().worked, n_beats: 0 };
        let stats = IocStats { pvs, started: Instant::now(), before };
        stats.post("RECORD_CNT", n_records as f64);
        stats.post("LOAD_ERROR_CNT", n_omitted as f64);
        stats.post("PROCESS_ID", f64::from(std::process::id()));
        stats.post("PARENT_ID", f64::from(std::os::unix::process::parent_id()));
        stats
    }

    /// The PVs by their names: the prefix, a colon and the name in iocStats.
    pub fn table(&self, prefix: &str) -> PvTable {
        self.pvs.iter().map(|(name, pv)| (format!("{prefix}:{name}"), pv.clone())).collect()
    }

    /// Posts a value if it has changed.
    fn post(&self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        if let Some(pv) = self.pvs.get(name).filter(|pv| pv.value() != value) {
            pv.post(value);
        }
    }

    /// Updates the PVs; called once a second. `clients`: the clients of the server.
    pub fn refresh(&mut self, clients: &[ClientStatus]) {
        let (process, host) = (ProcessFacts::now(), HostFacts::now());
        let before = &self.before;
        let n_beats = if before.n_beats < i32::MAX as u32 { before.n_beats + 1 } else { 1 };
        let now = LoadSample { at: Instant::now(), cpu_used: process.cpu_used, worked: host.worked, n_beats };
        // The start of a program says nothing about its load.
        let is_measured = now.at.saturating_duration_since(before.at) >= limit::LOAD_MIN;
        let load = if is_measured { own_load(before, &now, host.n_processors) } else { 0.0 };
        let of_system = if is_measured { system_load(before, &now) } else { 0.0 };
        let known = |number: Option<u64>| number.map_or(f64::NAN, |number| number as f64);
        let (n_open, n_max) = (known(process.n_descriptors), known(process.n_descriptors_max));
        let numbers = [
            ("CA_CLNT_CNT", clients.len() as f64),
            ("CA_CONN_CNT", clients.iter().map(|client| client.n_channels).sum::<usize>() as f64),
            ("FD_CNT", n_open),
            ("FD_MAX", n_max),
            ("FD_FREE", n_max - n_open),
            ("SYS_CPU_LOAD", of_system),
            ("IOC_CPU_LOAD", load),
            ("LOAD", load),
            ("CPU_CNT", host.n_processors as f64),
            ("MEM_USED", known(process.resident_bytes)),
            ("MEM_FREE", known(host.free_bytes)),
            ("MEM_MAX", known(host.memory_bytes)),
            ("HEARTBEAT", f64::from(now.n_beats)),
        ];
        self.before = now;
        numbers.into_iter().for_each(|(name, number)| self.post(name, number));
        self.post("UPTIME", up_time(self.started.elapsed()).as_str());
        self.post("TOD", time_of_day().as_str());
    }
}

/// The CPU load of this process, in percent of all processors.
fn own_load(before: &LoadSample, now: &LoadSample, n_processors: usize) -> f64 {
    let (used, passed) = (now.cpu_used.saturating_sub(before.cpu_used), now.at.saturating_duration_since(before.at));
    let all_s = passed.as_secs_f64() * n_processors as f64;
    if all_s > 0.0 { 100.0 * used.as_secs_f64() / all_s } else { 0.0 }
}

/// The CPU load of the host, in percent of all processors.
fn system_load(before: &LoadSample, now: &LoadSample) -> f64 {
    let (Some((worked_before, all_before)), Some((worked, all))) = (before.worked, now.worked) else { return f64::NAN };
    let passed = all.saturating_sub(all_before);
    if passed > 0 { 100.0 * worked.saturating_sub(worked_before) as f64 / passed as f64 } else { 0.0 }
}

/// The up time in the format of iocStats: `2 days, 03:04:05`.
fn up_time(up: Duration) -> String {
    let s = up.as_secs();
    let days = match s / 86_400 {
        0 => String::new(),
        1 => "1 day, ".to_owned(),
        days => format!("{days} days, "),
    };
    format!("{days}{:02}:{:02}:{:02}", s / 3600 % 24, s / 60 % 60, s % 60)
}

/// The local time in the default format of iocStats.
fn time_of_day() -> String {
    Zoned::now().strftime("%m/%d/%Y %H:%M:%S").to_string()
}

/// Text PVs, limited to the length of a string; the folder and the script have two each.
fn texts(surroundings: &Surroundings) -> [(&'static str, String); 12] {
    let [folder, script] = [folder(surroundings), script(surroundings)];
    [
        ("STARTTOD", time_of_day()),
        ("TOD", time_of_day()),
        ("UPTIME", up_time(Duration::ZERO)),
        ("HOSTNAME", part(&host_name(), 0)),
        ("KERNEL_VERS", part(&process::kernel(), 0)),
        ("EPICS_VERS", part(VERSION, 0)),
        ("ENGINEER", part(surroundings.variable("ENGINEER"), 0)),
        ("LOCATION", part(surroundings.variable("LOCATION"), 0)),
        ("APP_DIR1", part(&folder, 0)),
        ("APP_DIR2", part(&folder, 1)),
        ("ST_SCRIPT1", part(&script, 0)),
        ("ST_SCRIPT2", part(&script, 1)),
    ]
}

/// Text PVs without a length limit, as character arrays.
fn long_texts(surroundings: &Surroundings) -> [(&'static str, String); 3] {
    [("APP_DIR", folder(surroundings)), ("ST_SCRIPT", script(surroundings)), ("EPICS_VERSION", VERSION.to_owned())]
}

fn folder(surroundings: &Surroundings) -> String {
    surroundings.folder.display().to_string()
}

fn script(surroundings: &Surroundings) -> String {
    surroundings.variable("IOCSH_STARTUP_SCRIPT").to_owned()
}

/// Part `index` of a text split into strings of `STRING_BYTES_MAX`.
fn part(text: &str, index: usize) -> String {
    let (first, rest) = text.split_at(text.floor_char_boundary(STRING_BYTES_MAX));
    if index == 0 { first.to_owned() } else { part(rest, index - 1) }
}

#[cfg(test)]
mod tests {
    use fodo_net::UpdateCounts;
    use jiff::civil::DateTime;

    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_refresh_counts_channels_free_descriptors_and_beats_that_begin_again_at_one() {
        let client = |n_channels| ClientStatus {
            protocol: fodo_net::Protocol::Ca,
            address: ([127, 0, 0, 1], 4000).into(),
            user: String::new(),
            host: String::new(),
            is_encrypted: false,
            n_channels,
            n_subscriptions: 0,
            queued_bytes: 0,
            n_pvs_waiting: 0,
            updates: UpdateCounts::default(),
            waiting: None,
        };
        let mut stats = IocStats::new((3, 2), &Surroundings::default());
        let number = |stats: &IocStats, name: &str| stats.pvs[name].value().first().unwrap().to_f64().unwrap();
        stats.before.n_beats = i32::MAX as u32 - 1;

        let beats = [(); 2].map(|()| {
            stats.refresh(&[client(2), client(3)]);
            number(&stats, "HEARTBEAT")
        });

        assert_eq!(beats, [f64::from(i32::MAX), 1.0]);
        assert_eq!((number(&stats, "CA_CLNT_CNT"), number(&stats, "CA_CONN_CNT")), (2.0, 5.0));
        assert_eq!(number(&stats, "FD_FREE"), number(&stats, "FD_MAX") - number(&stats, "FD_CNT"));
        assert_eq!(number(&stats, "LOAD"), number(&stats, "IOC_CPU_LOAD"));
    }

    #[test]
    fn the_time_of_the_start_and_the_current_time_are_date_and_time() {
        let stats = IocStats::new((0, 0), &Surroundings::default());

        for name in ["STARTTOD", "TOD"] {
            let text = stats.pvs[name].value().first().unwrap().to_text(None).to_string();
            assert!(DateTime::strptime("%m/%d/%Y %H:%M:%S", &text).is_ok(), "{name} is {text}");
        }
    }

    fn at(s: u64, cpu_s: u64, worked: (u64, u64)) -> LoadSample {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        let start = *START.get_or_init(Instant::now);
        LoadSample {
            at: start + Duration::from_secs(s),
            cpu_used: Duration::from_secs(cpu_s),
            worked: Some(worked),
            n_beats: 0,
        }
    }

    #[test]
    fn cpu_loads_are_percentages_of_all_processors() {
        let (before, now) = (at(0, 10, (100, 1000)), at(4, 12, (400, 1600)));

        assert_eq!(own_load(&before, &now, 2), 25.0);
        assert_eq!(system_load(&before, &now), 50.0);
        assert_eq!((own_load(&now, &now, 2), system_load(&now, &now)), (0.0, 0.0));
    }

    #[test]
    fn the_uptime_includes_days_if_there_are_any() {
        let up = |s| up_time(Duration::from_secs(s));

        assert_eq!(up(3_661), "01:01:01");
        assert_eq!(up(86_400 + 5), "1 day, 00:00:05");
        assert_eq!(up(3 * 86_400 - 1), "2 days, 23:59:59");
    }

    #[test]
    fn a_long_text_continues_in_its_second_part() {
        let text = format!("{}{}", "ä".repeat(20), "b".repeat(50));

        assert_eq!((part(&text, 0), part(&text, 1)), ("ä".repeat(19), format!("ä{}", "b".repeat(37))));
        assert_eq!(part("short", 1), "");
    }
}
