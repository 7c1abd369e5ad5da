//! Pairs of a client and a server: which ones a run measures, and which questions each answers.

use crate::driver::ClientUnderTest;
use crate::limit::{CAPROTO_POINT_MAX, PEER_MONITORS_MAX, PYTHON_POINT_MAX};
use crate::placement::Placement;
use crate::protocol::LabProtocol;
use crate::runner::RunSettings;
use crate::scenario::{LabTask, MeasuredRequest, Suite};
use crate::server::ServerKind;

/// A client and its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientServerPair {
    /// The client.
    pub client: ClientUnderTest,
    /// The server.
    pub server: ServerKind,
    /// The protocol between them.
    pub protocol: LabProtocol,
}

impl ClientServerPair {
    /// The floor, to which every ratio of Channel Access refers.
    #[cfg(test)]
    pub const FLOOR: ClientServerPair =
        ClientServerPair { client: ClientUnderTest::Raw, server: ServerKind::Raw, protocol: LabProtocol::Ca };

    /// Fodo at both ends, where neither end sleeps while the other replies.
    pub const SPINNING: ClientServerPair =
        ClientServerPair { client: ClientUnderTest::FodoSpin, server: ServerKind::FodoSpin, protocol: LabProtocol::Ca };

    /// The pairs that a run measures, in the order of its tables.
    pub fn selected(settings: &RunSettings) -> Vec<ClientServerPair> {
        settings.suite.protocols().iter().flat_map(|protocol| ClientServerPair::over(*protocol, settings)).collect()
    }

    fn over(protocol: LabProtocol, settings: &RunSettings) -> Vec<ClientServerPair> {
        let pair = |client, server| ClientServerPair { client, server, protocol };
        let mut pairs =
            vec![pair(ClientUnderTest::Raw, ServerKind::Raw), pair(ClientUnderTest::RawReused, ServerKind::Raw)];
        let clients = settings.clients.iter().filter(|client| client.is_measured_over(protocol));
        let servers: Vec<ServerKind> =
            settings.servers.iter().copied().filter(|server| server.is_measured_over(protocol)).collect();
        // In a quick run a peer is measured with one server, that of EPICS if it speaks the protocol.
        let is_brief = settings.suite == Suite::Quick;
        let of_peers = servers.iter().find(|server| **server == ServerKind::SoftIoc).or(servers.first());
        for &client in clients {
            if is_brief && client != ClientUnderTest::Fodo {
                pairs.extend(of_peers.map(|&server| pair(client, server)));
                continue;
            }
            pairs.extend(servers.iter().map(|&server| pair(client, server)));
            if settings.suite == Suite::Java && servers.contains(&ServerKind::SoftIoc) {
                // With the server of the studies only: each is one more virtual machine to start and to warm up.
                let is_its = |variant: &&ClientUnderTest| {
                    variant.variant_of() == client && **variant != client && !settings.clients.contains(variant)
                };
                let variants = ClientUnderTest::JAVA_VARIANTS.iter().filter(is_its);
                pairs.extend(variants.map(|&variant| pair(variant, ServerKind::SoftIoc)));
            }
            if client != ClientUnderTest::Fodo {
                continue;
            }
            let is_spinning = protocol == LabProtocol::Ca && servers.contains(&ServerKind::Fodo);
            pairs.extend(is_spinning.then_some(ClientServerPair::SPINNING));
            let own = servers.iter().filter(|&&server| server != ServerKind::Caproto);
            pairs.extend(own.map(|&server| pair(ClientUnderTest::FodoInto, server)));
        }
        pairs
    }

    /// Whether the pair measures this task. A raw socket measures nothing without bytes to move, and no commands.
    /// Reused memory makes no difference for small answers. Of the clients that start slowly only Fodo in Java measures
    /// puts without a reply, and it and core-pva measure gets in flight. Variants in Java measure monitors and arrays.
    pub fn answers(self, task: &LabTask) -> bool {
        if self.protocol != task.protocol {
            return false;
        }
        match self.client {
            ClientUnderTest::Raw => !matches!(
                task.request,
                MeasuredRequest::ContextClose
                    | MeasuredRequest::CreateContexts
                    | MeasuredRequest::CreateChannels
                    | MeasuredRequest::Commands
            ),
            ClientUnderTest::RawReused | ClientUnderTest::FodoInto => task.request == MeasuredRequest::MoveArray,
            ClientUnderTest::FodoSpin => task.request == MeasuredRequest::GetScalars && !task.is_cold,
            _ if self.server == ServerKind::Caproto && task.point > CAPROTO_POINT_MAX => false,
            // A peer starts threads for each context and each client: tens of thousands.
            _ if task.request == MeasuredRequest::ContextsAtWork => {
                matches!(self.client, ClientUnderTest::Fodo | ClientUnderTest::FodoJava)
                    && self.server == ServerKind::Fodo
            }
            _ if task.request == MeasuredRequest::MonitorAtOnce && task.point > PEER_MONITORS_MAX => {
                matches!(self.client, ClientUnderTest::Fodo | ClientUnderTest::FodoJava)
                    && self.server == ServerKind::Fodo
            }
            client
                if (client.is_python() || client == ClientUnderTest::Spvirit)
                    && task.request != MeasuredRequest::MoveArray
                    && task.point > PYTHON_POINT_MAX =>
            {
                false
            }
            client if client.variant_of() != client => {
                task.is_for_external && !task.is_cold && client.variant_answers(task.request)
            }
            client if client.starts_slowly() || self.server == ServerKind::Caproto => {
                let is_measured_by = task.is_for_external && !task.without.contains(&client);
                match task.request {
                    MeasuredRequest::PutUnconfirmedAtOnce => is_measured_by && client == ClientUnderTest::FodoJava,
                    MeasuredRequest::GetInFlight => {
                        is_measured_by && matches!(client, ClientUnderTest::FodoJava | ClientUnderTest::CorePva)
                    }
                    _ => is_measured_by,
                }
            }
            _ => true,
        }
    }

    /// Whether it is measured at this placement. Clients that take a second to start and tens of microseconds per
    /// operation are measured on two cores, which is their better case, and with the client on all CPUs; caproto's
    /// server is measured on two cores.
    pub fn is_measured(self, placement: Placement) -> bool {
        let is_external = self.client.starts_slowly();
        if self == ClientServerPair::SPINNING {
            // On one core the polling end would keep the other from replying.
            return placement == Placement::TwoCores;
        }
        match placement {
            Placement::OneCore => !is_external && self.server != ServerKind::Caproto,
            Placement::ClientNotPinned => self.server != ServerKind::Caproto && self.client.variant_of() == self.client,
            _ => true,
        }
    }

    /// Whether one process does all repetitions, because starting and warming it up takes longer than measuring.
    pub fn stays(self) -> bool {
        self.client.starts_slowly()
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::scenario::{self, Scenario};

    /// A run with one client in C++ and one in Python, and two servers.
    pub fn settings(suite: Suite) -> RunSettings {
        RunSettings {
            suite,
            repetitions: 5,
            seed: 1,
            elements_max: 1_000_000,
            clients: vec![ClientUnderTest::Libca, ClientUnderTest::Aioca],
            servers: vec![ServerKind::Fodo, ServerKind::SoftIoc],
            questions: Vec::new(),
            slower_per_cent: 0,
        }
    }

    #[test]
    fn the_floor_is_always_measured() {
        let selected = ClientServerPair::selected(&settings(Suite::Quick));

        assert!(selected.contains(&ClientServerPair::FLOOR));
        // Two floors for each protocol, and each peer with one server.
        assert_eq!(selected.len(), 2 * 2 + 2);
        assert!(selected.iter().all(|pair| pair.server == ServerKind::Raw || pair.server == ServerKind::SoftIoc));
    }

    #[test]
    fn a_run_over_pvaccess_has_only_pairs_that_speak_it_and_its_own_floor() {
        let clients = ClientUnderTest::ALL.to_vec();
        let servers = vec![ServerKind::Fodo, ServerKind::SoftIoc, ServerKind::Qsrv2, ServerKind::Qsrv1];

        let selected = ClientServerPair::selected(&RunSettings { clients, servers, ..settings(Suite::Pva) });

        assert!(selected.iter().all(|pair| pair.protocol == LabProtocol::Pva));
        let names: Vec<(&str, &str)> =
            selected.iter().skip(2).map(|pair| (pair.client.text(), pair.server.text())).collect();
        let of = |client| ["fodo", "qsrv2", "qsrv1"].map(|server| (client, server));
        let clients = ["fodo", "fodo-into", "fodo-java", "pvxs", "spvirit", "p4p", "core-pva", "repics"];
        assert_eq!(names, clients.map(of).concat());
        assert_eq!((selected[0].client, selected[0].server), (ClientUnderTest::Raw, ServerKind::Raw));
    }

    #[test]
    fn variants_in_java_run_with_softioc_in_the_suite_java_and_answer_only_where_they_differ() {
        let clients = vec![ClientUnderTest::PsiCa, ClientUnderTest::FodoJava];
        let servers = vec![ServerKind::Fodo, ServerKind::SoftIoc];
        let of = |suite| {
            let run = RunSettings { clients: clients.clone(), servers: servers.clone(), ..settings(suite) };
            ClientServerPair::selected(&run)
        };
        let is_variant = |pair: &&ClientServerPair| ClientUnderTest::JAVA_VARIANTS.contains(&pair.client);

        let (java, full) = (of(Suite::Java), of(Suite::Full));

        assert_eq!(java.iter().filter(is_variant).count(), ClientUnderTest::JAVA_VARIANTS.len());
        assert!(java.iter().filter(is_variant).all(|pair| pair.server == ServerKind::SoftIoc));
        assert_eq!(full.iter().filter(is_variant).count(), 0);
        let tasks = scenario::tasks(&Scenario::all().unwrap(), Suite::Java, usize::MAX);
        let requests = |client| {
            let pair = ClientServerPair { client, server: ServerKind::SoftIoc, protocol: LabProtocol::Ca };
            let mut requests: Vec<MeasuredRequest> =
                tasks.iter().filter(|task| pair.answers(task)).map(|task| task.request).collect();
            requests.sort_unstable();
            requests.dedup();
            requests
        };
        assert_eq!(requests(ClientUnderTest::FodoJavaRows), [MeasuredRequest::MonitorAtOnce]);
        assert_eq!(requests(ClientUnderTest::FodoJavaInto), [MeasuredRequest::MoveArray]);
        let both = [MeasuredRequest::MonitorAtOnce, MeasuredRequest::MoveArray];
        assert_eq!(requests(ClientUnderTest::PsiCaStriped), both);
        assert_eq!(requests(ClientUnderTest::FodoJavaExecutor), both);
    }

    #[test]
    fn python_clients_are_measured_up_to_a_thousand_channels_and_with_all_arrays() {
        let scenarios = Scenario::all().unwrap();
        let aioca =
            ClientServerPair { client: ClientUnderTest::Aioca, server: ServerKind::Fodo, protocol: LabProtocol::Ca };

        for task in scenario::tasks(&scenarios, Suite::Full, usize::MAX).iter().filter(|task| aioca.answers(task)) {
            assert!(task.point <= PYTHON_POINT_MAX || task.request == MeasuredRequest::MoveArray, "{task:?}");
        }
    }
}
