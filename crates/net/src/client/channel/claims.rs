//! Handling of claims: what a channel does when a server claims its name.

use std::net::SocketAddr;
use std::sync::Arc;

use fodo_engine::search::{Claim, Transport};

use super::state::{ChannelPhase, Responsiveness, State, Trouble};
use super::{ChannelCore, Circuit, Notice};
use crate::limit;
use crate::process::lacks_descriptors;

impl ChannelCore {
    /// A server has claimed the names of several channels that share a circuit, including this one.
    pub(in crate::client) fn connect_claimed(
        &self,
        server: SocketAddr,
        transport: Transport,
        all: &[(Arc<ChannelCore>, Claim)],
    ) {
        let channels = all.iter().map(|(channel, _)| channel);
        let trouble = match Circuit::create_on(
            || self.context.circuit_to(server, self.protocol, transport, self.priority),
            channels,
        ) {
            Ok(()) => return,
            Err(error) if lacks_descriptors(&error) => Trouble::System(server, Arc::new(error)),
            // The server's network cannot be reached.
            Err(_) => Trouble::NoReply(server),
        };
        all.iter().for_each(|(channel, _)| channel.search_again(trouble.clone()));
    }

    /// Whether the channel accepts a claim. If not, it is already found, or the search continues. Where the connection to the
    /// claimed address has just failed, the claim is changed to the plain address that it contains.
    pub(in crate::client) fn accepts_claim(self: &Arc<Self>, claim: &mut Claim) -> bool {
        let server = claim.server;
        let mut state = self.state.lock();
        let State { phase, until_active, .. } = &mut *state;
        let pause = match phase {
            ChannelPhase::Searching if until_active.as_mut().is_some_and(|until| until.avoids(server)) => {
                let is_unreached = until_active.as_ref().is_some_and(|until| until.is_unreached());
                if let (true, Some(plain)) = (is_unreached, claim.plain) {
                    (claim.server, claim.transport) = (plain, Transport::Tcp);
                    return true;
                }
                limit::OTHER_CLAIM
            }
            ChannelPhase::Searching => return true,
            ChannelPhase::Connecting(circuit) | ChannelPhase::Active(circuit, _, Responsiveness::Silent)
                if circuit.server() != server =>
            {
                let silent = circuit.clone();
                drop(state);
                silent.abandon(self);
                self.search().stop(self.cid);
                return true;
            }
            ChannelPhase::Connecting(_) | ChannelPhase::Active(_, _, Responsiveness::Silent) => {
                until_active.get_or_insert_default().failed(Trouble::NoReply(server))
            }
            ChannelPhase::Active(..) | ChannelPhase::Closed => return false,
        };
        drop(state);
        self.search().start(self.clone(), pause);
        false
    }

    /// Marks the channel as connecting on this circuit. Returns false if it was closed or already has a circuit.
    pub(in crate::client) fn connecting(&self, circuit: &Arc<Circuit>) -> bool {
        let mut state = self.state.lock();
        let is_searching = matches!(state.phase, ChannelPhase::Searching);
        if is_searching {
            state.phase = ChannelPhase::Connecting(circuit.clone());
        }
        is_searching
    }

    /// Whether the server has not yet confirmed the channel.
    pub(in crate::client) fn is_connecting(&self) -> bool {
        matches!(self.state.lock().phase, ChannelPhase::Connecting(_))
    }

    /// The server has not answered the request to create the channel: another server may have the name as well.
    pub(in crate::client) fn create_unanswered(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let is_new = matches!(state.phase, ChannelPhase::Connecting(_))
            && !std::mem::replace(&mut state.until_active().is_sought, true);
        drop(state);
        if is_new {
            self.search().start_lost(self.clone());
        }
    }

    /// A second server has claimed a name that is already in use; reports it to the user once. `is_ignored`: whether an
    /// address is another one of that server.
    pub(in crate::client) fn report_duplicate(&self, ignored: SocketAddr, is_ignored: impl FnOnce(SocketAddr) -> bool) {
        let mut state = self.state.lock();
        let (ChannelPhase::Connecting(circuit) | ChannelPhase::Active(circuit, ..)) = &state.phase else { return };
        let used = circuit.server();
        if !state.duplicate_reported && !is_ignored(used) {
            state.duplicate_reported = true;
            drop(state);
            self.context.add_notice(Notice::TwoServers { pv: self.name.to_string(), used, ignored });
        }
    }

    /// The circuit to the server that claimed the name cannot be opened.
    fn search_again(self: &Arc<Self>, trouble: Trouble) {
        let mut state = self.state.lock();
        if matches!(state.phase, ChannelPhase::Searching) {
            let pause = state.until_active().failed(trouble);
            drop(state);
            self.search().start(self.clone(), pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use fodo_data::Kind;
    use fodo_engine::{Cid, Sid};

    use super::*;
    use crate::client::circuit::ServerChannel;
    use crate::client::{Context, Refusal};
    use crate::config::ClientConfig;
    use crate::protocol::Protocol;

    fn claim(server: SocketAddr, plain: Option<SocketAddr>) -> Claim {
        let transport = if plain.is_some() { Transport::Tls } else { Transport::Tcp };
        Claim { cid: Cid(0), server, transport, plain, is_first: true }
    }

    #[test]
    fn a_claim_is_accepted_while_the_name_is_searched_for_or_its_server_does_not_reply() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let context = Context::new(ClientConfig::with_addresses(Vec::new()));
        let x = context.channel("x").unwrap();
        let circuit =
            context.core.circuit_to(listener.local_addr().unwrap(), Protocol::Ca, Default::default(), 0).unwrap();
        let other = SocketAddr::from(([127, 0, 0, 1], 9));
        let server_channel = ServerChannel { sid: Sid(1), kind: Kind::F64, count: 1 };
        let active = |responsiveness| ChannelPhase::Active(circuit.clone(), server_channel, responsiveness);

        for (phase, accepts_same, accepts_other) in [
            (ChannelPhase::Searching, true, true),
            (active(Responsiveness::Responsive), false, false),
            (ChannelPhase::Connecting(circuit.clone()), false, true),
            (active(Responsiveness::Silent), false, true),
            (ChannelPhase::Closed, false, false),
        ] {
            let accepts = |server| {
                x.core().state.lock().phase = phase.clone();
                x.core().accepts_claim(&mut claim(server, None))
            };
            assert_eq!((accepts(circuit.server()), accepts(other)), (accepts_same, accepts_other), "{phase:?}");
        }
    }

    #[test]
    fn the_next_claim_of_a_server_that_has_failed_is_skipped_once() {
        let context = Context::new(ClientConfig::with_addresses(Vec::new()));
        let x = context.channel("x").unwrap();
        let [failed, other] = [9, 10].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        x.core().state.lock().until_active().failed(Trouble::NoReply(failed));

        let accepted = [other, failed, failed].map(|server| x.core().accepts_claim(&mut claim(server, None)));

        assert_eq!(accepted, [true, false, true]);
    }

    #[test]
    fn only_after_a_failed_connection_a_claim_for_tls_is_used_at_the_plain_address_of_its_name_server() {
        let context = Context::new(ClientConfig::with_addresses(Vec::new()));
        let x = context.channel("x").unwrap();
        let [encrypted, name_server] = [9, 10].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let by_tls = Some((encrypted, Transport::Tls));

        for (trouble, next) in [
            (Trouble::NoReply(encrypted), Some((name_server, Transport::Tcp))),
            (Trouble::Refused(encrypted, Refusal::Connection), Some((name_server, Transport::Tcp))),
            (Trouble::Refused(encrypted, Refusal::Channel { text: String::new() }), None),
            (Trouble::Handshake(encrypted, "expired".into()), None),
            (Trouble::NoReply(name_server), by_tls),
        ] {
            x.core().state.lock().until_active().failed(trouble.clone());
            let [first, second] = [(); 2].map(|()| {
                let mut claim = claim(encrypted, Some(name_server));
                x.core().accepts_claim(&mut claim).then_some((claim.server, claim.transport))
            });
            assert_eq!((first, second), (next, by_tls), "{trouble:?}");
        }
    }
}
