//! Which client supports what with which server, and the reason where it does not.
//!
//! [`CHANNEL_ACCESS`] and [`PV_ACCESS`] are the complete lists: `tests/pairs.rs` and `tests/pva.rs` run every
//! combination without an exception, and `docs/reference/conformance.md` is generated from them.

mod pva;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

pub use self::pva::PV_ACCESS;
use crate::TestFailure;
use crate::client::{self, Client, ClientKind, NameSearch, TimedClient};
use crate::scenario::{self, life, search};
use crate::server::{ServerProgram, TestServer};

/// The clients, servers and scenarios of a protocol.
pub struct Matrix {
    /// The name of the protocol.
    pub title: &'static str,
    /// The clients, a column each.
    pub clients: &'static [ClientKind],
    /// The servers, a table each.
    pub servers: &'static [ServerProgram],
    /// The scenarios, in the order in which a pair runs them.
    pub rows: &'static [ScenarioRow],
    start: fn(ServerProgram) -> Result<TestServer, TestFailure>,
    /// Maximum time of a scenario; afterwards its peers count as hung.
    scenario_duration_max: Duration,
}

/// The matrix of Channel Access.
pub const CHANNEL_ACCESS: Matrix = Matrix {
    title: "Channel Access",
    clients: &ClientKind::CA,
    servers: &ServerProgram::CA,
    rows: ROWS,
    start: TestServer::start,
    scenario_duration_max: Duration::from_secs(300),
};

/// The kind of a scenario, by what it needs.
#[derive(Clone, Copy)]
pub enum Run {
    /// A client and a server.
    Meet(fn(&mut dyn Client, &TestServer) -> Result<(), TestFailure>),
    /// A client, and a server that the scenario restarts.
    Restart(fn(&mut dyn Client, &mut TestServer) -> Result<(), TestFailure>),
    /// A server; the scenario starts its own clients.
    Find(fn(ClientKind, &TestServer) -> Result<(), TestFailure>),
}

/// A scenario.
pub struct ScenarioRow {
    /// What the scenario tests.
    pub title: &'static str,
    /// The function that tests it.
    pub run: Run,
    /// The pairs for which it is not possible.
    pub exceptions: &'static [Exception],
}

/// Clients and servers for which a scenario is not possible, with the reason.
pub struct Exception(&'static [ClientKind], &'static [ServerProgram], &'static str);

const ANY_CLIENT: &[ClientKind] = &ClientKind::CA;
const ANY_SERVER: &[ServerProgram] = &ServerProgram::CA;
const CAPROTO: &[ServerProgram] = &[ServerProgram::Caproto];

/// The scenarios of Channel Access.
const ROWS: &[ScenarioRow] = &[
    ScenarioRow {
        title: "connect by unicast; get, as value and as text",
        run: Run::Meet(scenario::every_record_is_read),
        exceptions: &[],
    },
    ScenarioRow { title: "find by broadcast", run: Run::Find(search::by_broadcast), exceptions: &[] },
    ScenarioRow {
        title: "find by name server, over TCP",
        run: Run::Find(search::by_name_server),
        exceptions: &[
            Exception(
                &[ClientKind::Caproto, ClientKind::PsiCa],
                ANY_SERVER,
                "the client does not know EPICS_CA_NAME_SERVERS",
            ),
            Exception(
                &[ClientKind::Aioca, ClientKind::Pyepics],
                CAPROTO,
                "libca sends a VERSION with a sequence number before every search; the server takes it for another \
                 priority of the circuit and sends no further replies",
            ),
        ],
    },
    ScenarioRow {
        title: "put with completion, every kind of value, including strings of 39 characters",
        run: Run::Meet(scenario::every_record_is_written),
        exceptions: &[],
    },
    ScenarioRow {
        title: "put without completion, in order",
        run: Run::Meet(scenario::puts_without_waiting_arrive_in_order),
        exceptions: &[],
    },
    ScenarioRow {
        title: "completion after a chain of records",
        run: Run::Meet(scenario::a_put_ends_after_the_chain_behind_it),
        exceptions: &[Exception(ANY_CLIENT, CAPROTO, "the server has no links between PVs")],
    },
    ScenarioRow {
        title: "completion after work that takes time",
        run: Run::Meet(life::a_put_ends_after_work_that_takes_time),
        exceptions: &[],
    },
    ScenarioRow {
        title: "monitor, every kind of value",
        run: Run::Meet(scenario::every_record_is_monitored),
        exceptions: &[],
    },
    ScenarioRow {
        title: "monitor with the masks VALUE and LOG",
        run: Run::Meet(life::value_and_log_have_their_own_deadbands),
        exceptions: &[Exception(ANY_CLIENT, CAPROTO, "the server posts every change, whatever the deadband")],
    },
    ScenarioRow {
        title: "monitor with the masks ALARM and PROPERTY",
        run: Run::Meet(life::alarm_and_property_are_reported_alone),
        exceptions: &[Exception(ANY_CLIENT, CAPROTO, "the server's values have neither alarm limits nor fields")],
    },
    ScenarioRow {
        title: "alarms with the value",
        run: Run::Meet(scenario::alarms_come_with_the_value),
        exceptions: &[Exception(ANY_CLIENT, CAPROTO, "limits of the server's values raise no alarm")],
    },
    ScenarioRow { title: "arrays that grow and shrink", run: Run::Meet(life::arrays_grow_and_shrink), exceptions: &[] },
    ScenarioRow { title: "arrays of 4 MB", run: Run::Meet(scenario::four_megabytes_go_both_ways), exceptions: &[] },
    ScenarioRow {
        title: "enums by label and by index",
        run: Run::Meet(scenario::enums_go_by_label_and_by_index),
        exceptions: &[],
    },
    ScenarioRow {
        title: "units, precision and limits",
        run: Run::Meet(scenario::units_precision_and_limits_are_returned),
        exceptions: &[],
    },
    ScenarioRow {
        title: "a string as an array of characters, with `$`",
        run: Run::Meet(life::strings_are_long_with_a_dollar),
        exceptions: &[Exception(ANY_CLIENT, CAPROTO, "the server's values have no fields")],
    },
    ScenarioRow {
        title: "fields as channels",
        run: Run::Meet(scenario::fields_are_channels),
        exceptions: &[Exception(ANY_CLIENT, CAPROTO, "the server's values have no fields")],
    },
    ScenarioRow {
        title: "a read-only field",
        run: Run::Meet(life::a_field_that_is_fixed_refuses_puts),
        exceptions: &[
            Exception(ANY_CLIENT, CAPROTO, "the server's values have no fields"),
            Exception(
                &[ClientKind::Pyepics],
                &[ServerProgram::SoftIoc, ServerProgram::PythonSoftIoc],
                "the client reports that a put has ended, not that it was refused",
            ),
        ],
    },
    ScenarioRow { title: "access rights", run: Run::Meet(life::rights_are_reported_and_kept), exceptions: &[] },
    ScenarioRow {
        title: "fifty counters at 10 Hz for ten seconds, without a gap",
        run: Run::Meet(scenario::counters_at_10_hz_leave_no_gap),
        exceptions: &[
            Exception(ANY_CLIENT, CAPROTO, "the server has no records that count by themselves"),
            Exception(
                &[ClientKind::PsiCa],
                ANY_SERVER,
                "the client writes every update into one object: of two queued updates, it shows the later one twice",
            ),
        ],
    },
    ScenarioRow {
        title: "reconnect, after the server was killed",
        run: Run::Restart(life::all_comes_back_with_the_server),
        exceptions: &[],
    },
];

impl ScenarioRow {
    /// Why it is not possible for this pair; `None` if it is possible.
    pub fn why_not(&self, client: ClientKind, server: ServerProgram) -> Option<&'static str> {
        let excepts = |exception: &&Exception| exception.0.contains(&client) && exception.1.contains(&server);
        self.exceptions.iter().find(excepts).map(|exception| exception.2)
    }
}

impl Matrix {
    /// Runs all scenarios that are possible for this pair, and reports every failure.
    pub fn run_scenarios(&self, client_kind: ClientKind, server_kind: ServerProgram) -> Result<(), TestFailure> {
        let mut server = (self.start)(server_kind)?;
        let mut client = client::start(client_kind, &server, NameSearch::Unicast)?;
        let mut failures = Vec::new();
        for row in self.rows.iter().filter(|row| row.why_not(client_kind, server_kind).is_none()) {
            let start = Instant::now();
            let mut timed = TimedClient::new(client.as_mut(), self.scenario_duration_max);
            let done = match row.run {
                Run::Meet(run) => run(&mut timed, &server),
                Run::Restart(run) => run(&mut timed, &mut server),
                Run::Find(run) => run(client_kind, &server),
            };
            // Shown for a test that fails.
            println!("{:5.1} s  {}", start.elapsed().as_secs_f64(), row.title);
            if let Err(why) = done.and_then(|()| client.end_monitors()) {
                failures.push(format!("{}: {why}", row.title));
                // The next scenario must not be affected by this one.
                client = client::start(client_kind, &server, NameSearch::Unicast)?;
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(failures.join("\n\n")) }
    }

    /// A table for each server, followed by the reasons for exceptions.
    pub fn page(&self) -> String {
        let mut text = format!("\n## {}\n", self.title);
        for &server in self.servers {
            let mut reasons: Vec<&str> = Vec::new();
            let clients: Vec<&str> = self.clients.iter().map(|client| client.text()).collect();
            let rule = "|---".repeat(1 + clients.len());
            let _ = write!(text, "\n### {}\n\n| scenario | {} |\n{rule}|\n", server.text(), clients.join(" | "));
            for row in self.rows {
                let cells = self.clients.iter().map(|&client| cell(row.why_not(client, server), &mut reasons));
                let _ = writeln!(text, "| {} | {} |", row.title, cells.collect::<Vec<_>>().join(" | "));
            }
            for (index, why) in reasons.iter().enumerate() {
                let _ = write!(text, "{}no {}: {why}.", if index == 0 { "\n" } else { "\\\n" }, index + 1);
            }
            text.push_str(if reasons.is_empty() { "" } else { "\n" });
        }
        text
    }
}

fn cell(why_not: Option<&'static str>, reasons: &mut Vec<&'static str>) -> String {
    let Some(why) = why_not else { return "yes".into() };
    let index = reasons.iter().position(|reason| *reason == why).unwrap_or_else(|| {
        reasons.push(why);
        reasons.len() - 1
    });
    format!("no {}", index + 1)
}
