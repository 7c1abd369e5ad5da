//! Gets one by one over pvAccess, which the study lacks: of a PV, of a group of PVs, and of an array, plain and by TLS.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::{CaseBench, CasePlan, TakeRows, database};
use crate::driver::{ClientUnderTest, DriverFailure, DriverProcess, DriverReply, DriverRequest, Hello};
use crate::limit::{ARRAYS_ONE_BY_ONE, GETS_ONE_BY_ONE, NSLS2_POINT_MAX, REPETITIONS_MIN};
use crate::process::Ports;
use crate::protocol::LabProtocol;
use crate::result::{ResultRow, RowVerdict};
use crate::server::{ServerExtras, ServerKind, ServerUnderTest};
use crate::statistics::quantile_ns;

/// The points: the members of what is read, 1 for a PV that is not a group; the integers of an array of 8 MB.
pub(super) const PLANS: [CasePlan; 3] =
    [("N4", 1), ("N4", database::N_MEMBERS as u64), ("N5", database::N_INTEGERS as u64)];

/// A client and a server of gets one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GetCase {
    client: ClientUnderTest,
    server: ServerKind,
    /// Whether they use TLS, which of these programs only Fodo has.
    is_encrypted: bool,
}

impl GetCase {
    const fn plain(client: ClientUnderTest, server: ServerKind) -> GetCase {
        GetCase { client, server, is_encrypted: false }
    }

    /// All cases, those with one server together.
    pub(super) const ALL: [GetCase; 8] = [
        GetCase::plain(ClientUnderTest::RawReused, ServerKind::Raw),
        GetCase::plain(ClientUnderTest::Fodo, ServerKind::Fodo),
        GetCase::plain(ClientUnderTest::Pvxs, ServerKind::Fodo),
        GetCase::plain(ClientUnderTest::Spvirit, ServerKind::Fodo),
        GetCase { client: ClientUnderTest::Fodo, server: ServerKind::Fodo, is_encrypted: true },
        GetCase::plain(ClientUnderTest::Fodo, ServerKind::Qsrv2),
        GetCase::plain(ClientUnderTest::Pvxs, ServerKind::Qsrv2),
        GetCase::plain(ClientUnderTest::Spvirit, ServerKind::Qsrv2),
    ];

    fn has_server_of(&self, other: &GetCase) -> bool {
        (self.server, self.is_encrypted) == (other.server, other.is_encrypted)
    }

    fn is_selected(self, bench: &CaseBench<'_>) -> bool {
        let (clients, servers) = (&bench.run.clients, &bench.run.servers);
        self.server == ServerKind::Raw
            || ((clients.is_empty() || clients.contains(&self.client))
                && (servers.is_empty() || servers.contains(&self.server)))
    }
}

impl CaseBench<'_> {
    /// Measures gets one by one on one host.
    pub(super) fn measure_gets(&self, plans: &[CasePlan], take: &mut TakeRows<'_>) -> std::io::Result<()> {
        let cases: Vec<GetCase> = GetCase::ALL.into_iter().filter(|case| case.is_selected(self)).collect();
        if plans.is_empty() {
            return Ok(());
        }
        let keychains = Keychains::make();
        for beside in cases.chunk_by(GetCase::has_server_of) {
            let Some(first) = beside.first() else { continue };
            let server = self.start_for_gets(*first, &keychains);
            for case in beside {
                self.progress.set_message(format!("gets of {} with {}", case.client.text(), case.server.text()));
                let mut hello = None;
                let mut rows = Vec::new();
                for plan in plans {
                    let times = server.as_ref().map_err(Clone::clone).and_then(|server| {
                        let (times, of_driver) = self.times(*case, *plan, server, &keychains)?;
                        hello = Some(of_driver);
                        Ok(times)
                    });
                    rows.push(self.get_row(*case, *plan, times));
                }
                take(rows, hello.as_ref())?;
            }
        }
        Ok(())
    }

    fn start_for_gets(
        &self,
        case: GetCase,
        keychains: &Result<Keychains, DriverFailure>,
    ) -> Result<ServerUnderTest, DriverFailure> {
        if let Some(why) = case.server.missing(self.peers) {
            return Err(DriverFailure::Unavailable { who: case.server.text().into(), why });
        }
        let variables = case.variables(keychains)?;
        let extras = ServerExtras { variables, ..ServerExtras::default() };
        let cpu = self.cpus.server_cpu;
        ServerUnderTest::start_with(case.server, self.database, cpu, None, self.peers, extras)
    }

    /// The times of the gets of each repetition, by one process, after one that does not count.
    fn times(
        &self,
        case: GetCase,
        (question, point): CasePlan,
        server: &ServerUnderTest,
        keychains: &Result<Keychains, DriverFailure>,
    ) -> Result<(Vec<Vec<u64>>, Hello), DriverFailure> {
        if let Some(why) = case.client.missing(self.peers) {
            return Err(DriverFailure::Unavailable { who: case.client.text().into(), why });
        }
        if Instant::now() > self.deadline {
            let why = "the time of the suite was over".into();
            return Err(DriverFailure::Unavailable { who: "a further point".into(), why });
        }
        let variables = case.variables(keychains)?;
        let cpu = self.cpus.client_cpu(self.cpus.apart());
        let client = (case.client, LabProtocol::Pva);
        let mut driver = DriverProcess::start_with(client, server, cpu, self.peers, variables)?;
        let point = point as usize;
        let (pv, request) = match (question, point) {
            ("N5", _) => {
                let array = DriverRequest::MoveArray { n_elements: point, salt: 0, n_gets: ARRAYS_ONE_BY_ONE };
                (Some(database::INTEGERS), array)
            }
            (_, 1) => (Some(database::MEMBER), DriverRequest::GetScalars { n: GETS_ONE_BY_ONE }),
            _ => {
                let pv = database::GROUP.into();
                (None, DriverRequest::GetGroup { pv, n_members: point, n: GETS_ONE_BY_ONE })
            }
        };
        if let Some(pv) = pv {
            driver.request(&DriverRequest::Open { pv: pv.into(), n_channels: 1 }, NSLS2_POINT_MAX)?;
        }
        let mut times = Vec::new();
        for _repetition in 0..=REPETITIONS_MIN {
            times.push(match driver.request(&request, NSLS2_POINT_MAX)? {
                DriverReply::Scalars(scalars) => scalars.latencies_ns,
                DriverReply::Array(array) => array.latencies_ns,
                other => return Err(DriverFailure::Protocol { line: format!("{other:?}") }),
            });
        }
        times.remove(0);
        Ok((times, driver.hello().clone()))
    }

    fn get_row(
        &self,
        case: GetCase,
        (question, point): CasePlan,
        times: Result<Vec<Vec<u64>>, DriverFailure>,
    ) -> ResultRow {
        let tls = if case.is_encrypted { " TLS" } else { "" };
        let title = match question {
            "N5" => "Get of an array of 4-byte integers, one by one",
            _ => "Get of one PV, and of every field of an atomic group of n records, one by one",
        };
        let place = ResultRow {
            question: question.into(),
            protocol: LabProtocol::Pva,
            title: title.into(),
            series: self.cpus.apart().text().into(),
            variant: "none".into(),
            point,
            client: if case.server == ServerKind::Raw { "raw".into() } else { case.client.text().into() },
            server: format!("{}{tls}", case.server.text()),
            unit: "ns".into(),
            bytes: (question == "N5").then_some(4 * point),
            ..ResultRow::default()
        };
        match times {
            Ok(times) => measured(place, &times),
            Err(failure) => super::rows::without_number(&place, &failure),
        }
    }
}

/// The row with the median of each repetition.
fn measured(place: ResultRow, times: &[Vec<u64>]) -> ResultRow {
    let all: Vec<u64> = times.concat();
    let mut row = ResultRow {
        samples: times.iter().filter_map(|of_one| quantile_ns(of_one, 0.5)).collect(),
        n_operations: times.first().map_or(0, Vec::len) as u64,
        percentiles: quantile_ns(&all, 0.99).into_iter().map(|ns| (99.0, ns)).collect(),
        verdict: RowVerdict::Measured,
        ..place
    };
    row.summarize(row.point);
    row
}

impl GetCase {
    /// The variables of server and client: with TLS the keychains, and that nothing else is used. An IOC is a client, too.
    fn variables(
        self,
        keychains: &Result<Keychains, DriverFailure>,
    ) -> Result<Vec<(&'static str, OsString)>, DriverFailure> {
        if !self.is_encrypted {
            return Ok(Vec::new());
        }
        let keychains = keychains.as_ref().map_err(Clone::clone)?;
        Ok(vec![
            ("EPICS_PVAS_TLS_KEYCHAIN", keychains.server().into()),
            ("EPICS_PVAS_TLS_PORT", "0".into()),
            ("EPICS_PVA_TLS_KEYCHAIN", keychains.client().into()),
            ("FODO_PVA_TLS_ONLY", "YES".into()),
        ])
    }
}

/// A root, and a server's certificate that it has signed; removed when dropped.
struct Keychains(PathBuf);

impl Keychains {
    /// By `openssl`.
    fn make() -> Result<Keychains, DriverFailure> {
        let failed = |why: String| DriverFailure::Unavailable { who: "TLS".into(), why };
        let io = |why: std::io::Error| failed(why.to_string());
        // A port that is free now is unused by other processes, so the name is new.
        let name = format!("fodo-lab-tls-{}-{}", std::process::id(), Ports::free().map_err(io)?.server);
        let keychains = Keychains(std::env::temp_dir().join(name));
        std::fs::create_dir(&keychains.0).map_err(io)?;
        std::fs::write(keychains.0.join("usage"), "extendedKeyUsage = serverAuth\n").map_err(io)?;
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        for words in [
            format!("req -x509 {key} -days 2 -subj /CN=root -keyout root.key -out root.pem"),
            format!("req -new {key} -subj /CN=server -keyout server.key -out server.csr"),
            "x509 -req -in server.csr -CA root.pem -CAkey root.key -CAcreateserial -days 2 -extfile usage -out server.crt"
                .into(),
        ] {
            let output = Command::new("openssl").args(words.split(' ')).current_dir(&keychains.0).output();
            let output = output.map_err(|why| failed(format!("openssl cannot be started: {why}")))?;
            if !output.status.success() {
                return Err(failed(format!("openssl: {}", String::from_utf8_lossy(&output.stderr).trim())));
            }
        }
        let part = |name: &str| std::fs::read(keychains.0.join(name)).map_err(io);
        let parts = [part("server.crt")?, part("server.key")?, part("root.pem")?].concat();
        std::fs::write(keychains.server(), parts).map_err(io)?;
        Ok(keychains)
    }

    fn server(&self) -> PathBuf {
        self.0.join("server.pem")
    }

    fn client(&self) -> PathBuf {
        self.0.join("root.pem")
    }
}

impl Drop for Keychains {
    fn drop(&mut self) {
        // A folder that cannot be removed is a few kilobytes in the temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_server_of_gets_is_started_twice_and_only_fodo_uses_tls() {
        let n_servers = GetCase::ALL.chunk_by(GetCase::has_server_of).count();

        assert_eq!(n_servers, 4);
        for case in GetCase::ALL.iter().filter(|case| case.is_encrypted) {
            assert_eq!((case.client, case.server), (ClientUnderTest::Fodo, ServerKind::Fodo));
        }
    }

    #[test]
    fn a_plain_case_has_no_variables_and_one_with_tls_fails_without_keychains() {
        let missing = || Err(DriverFailure::Unavailable { who: "TLS".into(), why: "openssl is missing".into() });
        let variables = |case: GetCase| case.variables(&missing());

        assert_eq!(variables(GetCase::ALL[1]), Ok(Vec::new()));
        assert_eq!(variables(GetCase::ALL[4]).err(), missing().err());
    }

    #[test]
    fn a_row_of_gets_has_the_median_of_each_repetition() {
        let place = ResultRow { unit: "ns".into(), ..ResultRow::default() };

        let row = measured(place, &[vec![1000, 3000, 2000], vec![4000, 4000, 9000]]);

        assert_eq!((row.samples, row.median, row.n_operations), (vec![2000.0, 4000.0], Some(3000.0), 3));
        assert_eq!(row.verdict, RowVerdict::Measured);
    }
}
