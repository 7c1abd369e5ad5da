//! The machines of a CLU, with the sockets from which they send.

use std::mem;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use fodo_clu::server::{CluServer, CluServerConfig, ServerEvent, ServerOutput, ServerSocket, UnansweredRequest};
use fodo_clu::tftp::{TftpOutput, TftpServer, TftpSocket, TransferId};

use super::datagrams::{receive_from, send_all};
use super::{
    CluFiles, CluHandler, CluOutcome, CluServerSocketCounts, CluSocketsConfig, CluTask, NowFn, ReadySockets,
    ServedSockets, TransferSockets, bound,
};
use crate::clu::random_source;

/// The machines, and what they need.
pub(super) struct MachineDriver<H: CluHandler> {
    pub(super) server: CluServer<H::Item>,
    out: ServerOutput<H::Item>,
    pub(super) tftp: TftpServer,
    tftp_out: TftpOutput,
    pub(super) transfers: Vec<(TransferId, Arc<UdpSocket>)>,
    files: H::Files,
    pub(super) counts: CluServerSocketCounts,
    pub(super) clock: NowFn,
}

impl<H: CluHandler> MachineDriver<H> {
    pub(super) fn new(server: CluServerConfig, sockets: &CluSocketsConfig, files: H::Files) -> MachineDriver<H> {
        MachineDriver {
            server: CluServer::new(server, random_source()),
            out: ServerOutput::default(),
            tftp: TftpServer::new(sockets.tftp_limits),
            tftp_out: TftpOutput::default(),
            transfers: Vec::new(),
            files,
            counts: CluServerSocketCounts::default(),
            clock: Arc::clone(&sockets.clock),
        }
    }

    /// Passes the outcomes of tasks to the machine.
    pub(super) fn finish(&mut self, outcomes: &mut Vec<CluOutcome<H::Item>>) {
        let now = (self.clock)();
        for outcome in outcomes.drain(..) {
            let (server, out) = (&mut self.server, &mut self.out);
            match outcome {
                CluOutcome::Executed { reply, value, changes } => {
                    server.answer(reply, value.as_bytes(), changes, now, out);
                }
                CluOutcome::Fetched { fetch, list } => server.fetched(fetch, list.as_bytes(), now, out),
                CluOutcome::NotFetched { fetch } => server.not_fetched(fetch, now),
                CluOutcome::Reset { reply } => {
                    server.confirm(reply, now, out);
                    self.tftp.lock(&mut self.files, &mut self.tftp_out);
                }
                CluOutcome::Refused { reply } => server.refuse(reply, out),
                CluOutcome::ValuesChanged => server.values_changed(now, out),
            }
        }
    }

    pub(super) fn tick(&mut self) {
        let Some(deadline) = self.deadline() else { return };
        let now = (self.clock)();
        if deadline <= now.monotonic {
            self.server.tick(now, &mut self.out);
            self.tftp.tick(&mut self.files, now, &mut self.tftp_out);
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.server.deadline(), self.tftp.deadline()].into_iter().flatten().min()
    }

    /// Passes what the sockets have received to the machines.
    pub(super) fn receive(&mut self, sockets: &ServedSockets, ready: &ReadySockets, transfers: &TransferSockets) {
        let now = (self.clock)();
        let (server, out, counts) = (&mut self.server, &mut self.out, &mut self.counts);
        if ready.unicast {
            receive_from(&sockets.unicast, counts, |from, datagram| {
                server.received(ServerSocket::Unicast, from, datagram, now, out);
            });
        }
        for socket in sockets.broadcast.iter().filter(|_| ready.broadcast) {
            receive_from(socket, counts, |from, datagram| {
                server.received(ServerSocket::Broadcast, from, datagram, now, out);
            });
        }
        let (tftp, tftp_out, files) = (&mut self.tftp, &mut self.tftp_out, &mut self.files);
        for socket in sockets.tftp.iter().filter(|_| ready.tftp) {
            receive_from(socket, counts, |from, packet| {
                tftp.received(TftpSocket::Requests, from, packet, files, now, tftp_out);
            });
        }
        for (id, socket) in transfers.iter().filter(|_| ready.transfers) {
            receive_from(socket, counts, |from, packet| {
                tftp.received(TftpSocket::Transfer(*id), from, packet, files, now, tftp_out);
            });
        }
    }

    /// Carries out the events of the machines, and sends what they send. What only scripts can do is added to `tasks`.
    pub(super) fn settle(&mut self, sockets: &ServedSockets, tasks: &mut Vec<CluTask<H::Item>>) {
        let mut events = mem::take(&mut self.out.events);
        for event in events.drain(..) {
            match event {
                ServerEvent::Execute { reply, script } => tasks.push(CluTask::Execute { reply, script }),
                ServerEvent::Fetch { fetch, items } => tasks.push(CluTask::Fetch { fetch, items }),
                ServerEvent::Reset { reply } => tasks.push(CluTask::Reset { reply }),
                ServerEvent::StartTftp { reply } => {
                    let is_started = self.unlock(sockets, reply.client());
                    self.end(reply, is_started);
                }
                ServerEvent::StopTftp { reply } => {
                    self.tftp.lock(&mut self.files, &mut self.tftp_out);
                    self.end(reply, true);
                }
                ServerEvent::Measure { reply, parameter } => {
                    let is_written = sockets.tftp.is_some() && self.files.measure(&parameter).is_ok();
                    self.counts.not_stored += u64::from(!is_written);
                    let is_started = is_written && self.unlock(sockets, reply.client());
                    self.end(reply, is_started);
                }
                ServerEvent::SetKey { reply, key } => {
                    let is_stored = self.files.store_key(&key).is_ok();
                    self.counts.not_stored += u64::from(!is_stored);
                    self.end(reply, is_stored);
                }
            }
        }
        self.out.events = events;
        self.send(sockets);
    }

    fn unlock(&mut self, sockets: &ServedSockets, client: SocketAddr) -> bool {
        sockets.tftp.is_some() && self.tftp.unlock(client.ip(), (self.clock)())
    }

    fn end(&mut self, reply: UnansweredRequest, is_done: bool) {
        if is_done {
            self.server.confirm(reply, (self.clock)(), &mut self.out);
        } else {
            self.server.refuse(reply, &mut self.out);
        }
    }

    fn send(&mut self, sockets: &ServedSockets) {
        send_all(&sockets.unicast, &mut self.out.datagrams, &mut self.counts);
        if let Some(socket) = sockets.broadcast.first() {
            send_all(socket, &mut self.out.broadcast_replies, &mut self.counts);
        }
        self.out.broadcast_replies.clear();
        self.open_transfers(sockets);
        for (socket, to, packet) in self.tftp_out.datagrams.drain(..) {
            let socket = match socket {
                TftpSocket::Requests => sockets.tftp.as_ref(),
                TftpSocket::Transfer(id) => self.transfers.iter().find(|(other, _)| *other == id).map(|(_, at)| &**at),
            };
            // A client repeats what gets no reply.
            let is_sent = socket.is_some_and(|socket| socket.send_to(&packet, to).is_ok());
            self.counts.unsent += u64::from(!is_sent);
        }
        for id in self.tftp_out.closed.drain(..) {
            self.transfers.retain(|(other, _)| *other != id);
        }
    }

    /// Opens the sockets of new transfers. Without one, all transfers end.
    fn open_transfers(&mut self, sockets: &ServedSockets) {
        let Some(address) = sockets.tftp.as_ref().and_then(|socket| socket.local_addr().ok()) else { return };
        for id in mem::take(&mut self.tftp_out.opened) {
            match bound(SocketAddr::new(address.ip(), 0)) {
                Ok(socket) => self.transfers.push((id, Arc::new(socket))),
                Err(_) => {
                    self.counts.transfers_without_socket += 1;
                    self.tftp.lock(&mut self.files, &mut self.tftp_out);
                }
            }
        }
    }

    /// Ends the transfers of files.
    pub(super) fn stop(&mut self, sockets: &ServedSockets) {
        self.tftp.lock(&mut self.files, &mut self.tftp_out);
        self.send(sockets);
    }
}
