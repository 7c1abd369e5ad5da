//! Handling of claims: what a channel does when a server claims its name.

use std::net::SocketAddr;
use std::sync::Arc;

use fodo_ca::search::Claim;

use super::state::{ChannelPhase, Responsiveness, State, Trouble};
use super::{ChannelCore, Circuit, Notice};
use crate::client::search::is_one_server;
use crate::limit;
use crate::process::lacks_descriptors;

impl ChannelCore {
    /// A server has claimed the names of several channels that share a circuit, including this one.
    pub(in crate::client) fn connect_claimed(&self, server: SocketAddr, all: &[(Arc<ChannelCore>, Claim)]) {
        let channels = all.iter().map(|(channel, _)| channel);
        let trouble = match Circuit::create_on(|| self.context.circuit_to(server, self.priority), channels) {
            Ok(()) => return,
            Err(error) if lacks_descriptors(&error) => Trouble::System(server, Arc::new(error)),
            // The server's network cannot be reached.
            Err(_) => Trouble::NoReply(server),
        };
        all.iter().for_each(|(channel, _)| channel.search_again(trouble.clone()));
    }

    /// Whether the channel accepts the claim of this server. If not, it is already found, or the search continues.
    pub(in crate::client) fn accepts_claim(self: &Arc<Self>, server: SocketAddr) -> bool {
        let mut state = self.state.lock();
        let State { phase, until_active, .. } = &mut *state;
        let pause = match phase {
            ChannelPhase::Searching if until_active.as_mut().is_some_and(|until| until.avoids(server)) => {
                limit::OTHER_CLAIM
            }
            ChannelPhase::Searching => return true,
            ChannelPhase::Connecting(circuit) | ChannelPhase::Active(circuit, _, Responsiveness::Silent)
                if circuit.server() != server =>
            {
                let silent = circuit.clone();
                drop(state);
                silent.abandon(self);
                self.context.search().stop(self.cid);
                return true;
            }
            ChannelPhase::Connecting(_) | ChannelPhase::Active(_, _, Responsiveness::Silent) => {
                until_active.get_or_insert_default().failed(Trouble::NoReply(server))
            }
            ChannelPhase::Active(..) | ChannelPhase::Closed => return false,
        };
        drop(state);
        self.context.search().start(self.clone(), pause);
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
            self.context.search().start_lost(self.clone());
        }
    }

    /// A second server has claimed a name that is already in use; reports it to the user once.
    pub(in crate::client) fn report_duplicate(&self, ignored: SocketAddr) {
        let mut state = self.state.lock();
        let (ChannelPhase::Connecting(circuit) | ChannelPhase::Active(circuit, ..)) = &state.phase else { return };
        let used = circuit.server();
        if !state.duplicate_reported && !is_one_server(used, ignored) {
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
            self.context.search().start(self.clone(), pause);
        }
    }
}
