//! Links over pvAccess, as the thread of links executes their requests.

use std::collections::HashMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Instant;

use fodo_data::{Kind, Structure, StructureType};
use fodo_db::{ExternalLinkId, ExternalPvEvent, ExternalPvFacts, LinkUsage, PvaProcessing};
use fodo_net::{
    Channel, ChannelState, Context, Error, ErrorKind, Monitor, MonitorEvent, MonitorOptions, Operation, PvRequest,
    Source,
};

use super::field_view::FieldView;
use super::shared::{SharedLink, SharedLinkKey, SharedPut, SharedRequests};
use super::state::LinkTrouble;
use super::{LinkRequests, LinkThread, LinkWaker, RequestTarget};
use crate::driver::DatabaseDriver;
use crate::limit;

/// The server of the IOC that has the links.
pub struct OwnServer {
    pub source: Arc<dyn Source>,
    /// A client that searches only this server.
    pub context: Context,
}

/// The channels that links over pvAccess share.
pub(super) type SharedChannels = HashMap<Arc<SharedLinkKey>, SharedChannel>;

/// An open channel with its links.
pub(super) struct SharedChannel {
    channel: Channel,
    monitor: Monitor<Structure>,
    /// Always the same one, so that the monitor keeps only one.
    waker: Waker,
    /// In the order in which their records process.
    links: Vec<OpenSharedLink>,
    /// The last update; `None` while disconnected.
    latest: Option<Structure>,
    /// What is sent when the put in progress has ended, or when the PV is connected.
    waiting: SharedPut,
    writing: Option<(Operation<()>, SharedPut)>,
}

struct OpenSharedLink {
    link: SharedLink,
    /// `None` until an update has shown the type of the PV, and if the type does not have the field.
    view: Option<FieldView>,
    /// Whether the record knows the PV as connected.
    is_connected: bool,
    /// Whether the last put of this link was refused.
    is_put_refused: bool,
}

/// How a put has failed.
enum LinkPutFailure {
    Refused(LinkTrouble),
    /// The connection was lost; whether the server has received the put is unknown.
    Lost,
}

/// Where the thread reports to.
struct Reports<'a> {
    driver: &'a DatabaseDriver,
    requests: &'a LinkRequests,
}

impl Reports<'_> {
    fn trouble(&self, link: ExternalLinkId, trouble: Option<LinkTrouble>) {
        self.requests.states().set(&RequestTarget::Link(link), trouble, Instant::now());
    }

    fn count(&self, link: ExternalLinkId, n_updates: u64, n_puts: u64) {
        self.requests.count(&RequestTarget::Link(link), n_updates, n_puts);
    }

    /// A put of a link has no effect: counts it, and notes why. If the value itself is the reason, its record has an alarm.
    /// `put`: its number; `None` for a forward link.
    fn note_refused(&self, open: &mut OpenSharedLink, put: Option<u64>, trouble: LinkTrouble) {
        let id = open.link.id;
        open.is_put_refused = true;
        self.requests.count_refused(&RequestTarget::Link(id));
        if matches!(trouble, LinkTrouble::Unsent(_)) {
            self.pass_on(vec![(id, ExternalPvEvent::PutRefused { put })]);
        }
        self.trouble(id, Some(trouble));
    }

    /// Reports to the database, which makes all changes visible before it processes the first record.
    fn pass_on(&self, events: Vec<(ExternalLinkId, ExternalPvEvent)>) {
        if !events.is_empty() {
            self.driver.handle_link_events(events);
        }
    }

    fn put_done(&self, put: &SharedPut) {
        self.complete(&put.awaited);
    }

    /// Completes the puts of these links, which have these numbers.
    fn complete(&self, puts: &[(ExternalLinkId, u64)]) {
        self.pass_on(puts.iter().map(|&(link, put)| (link, ExternalPvEvent::PutDone { put })).collect());
    }
}

impl LinkThread {
    /// Executes the requests of a shared channel, and what has happened on it.
    pub(super) fn run_shared(
        &mut self,
        link_requests: &Arc<LinkRequests>,
        key: &Arc<SharedLinkKey>,
        requests: SharedRequests,
    ) {
        let SharedRequests { added, removed, put, completed, .. } = requests;
        if !added.is_empty() {
            self.report_troubles();
        }
        for link in added {
            self.add_shared(link_requests, key, link);
        }
        let reports = Reports { driver: &self.driver, requests: link_requests };
        reports.complete(&completed);
        let Some(open) = self.shared.get_mut(key) else {
            give_up(&reports, &put);
            return link_requests.end_shared(key);
        };
        removed.into_iter().for_each(|link| open.remove(link));
        if open.links.is_empty() {
            self.shared.remove(key);
            return link_requests.end_shared(key);
        }
        for link in open.waiting.merge(put) {
            reports.count(link, 0, 1);
        }
        if !open.poll_events(&reports) {
            link_requests.call(&RequestTarget::Shared(key.clone()));
        }
        open.poll_put(&reports);
    }

    /// Adds a link to its channel, which is opened if there is none.
    fn add_shared(&mut self, link_requests: &Arc<LinkRequests>, key: &Arc<SharedLinkKey>, link: SharedLink) {
        let reports = Reports { driver: &self.driver, requests: link_requests };
        let is_local = self.own.as_ref().is_some_and(|own| own.source.serves(&key.pv));
        if link.options.is_local && !is_local {
            return reports.trouble(link.id, Some(LinkTrouble::NotLocal));
        }
        if !self.shared.contains_key(key) {
            let own = self.own.as_ref().filter(|_| is_local);
            let context = own.map_or(&self.context, |own| &own.context);
            match SharedChannel::open(context, link_requests, key) {
                Ok(open) => drop(self.shared.insert(key.clone(), open)),
                Err(error) => return reports.trouble(link.id, Some(LinkTrouble::Unopened(error.kind().clone()))),
            }
        }
        if let Some(open) = self.shared.get_mut(key) {
            open.add(link, &reports);
        }
    }
}

impl SharedChannel {
    /// Fails if the name is invalid, or if the system provides no socket or thread.
    fn open(
        context: &Context,
        link_requests: &Arc<LinkRequests>,
        key: &Arc<SharedLinkKey>,
    ) -> Result<SharedChannel, Error> {
        let channel = context.channel_at(&format!("pva://{}", key.pv), limit::LINK_PRIORITY)?;
        let (request, options) = subscription(key);
        let monitor = channel.monitor_structure(request, options);
        let target = RequestTarget::Shared(key.clone());
        let waker = LinkWaker { link_requests: Arc::downgrade(link_requests), target };
        let (waker, links, waiting) = (Arc::new(waker).into(), Vec::new(), SharedPut::default());
        Ok(SharedChannel { channel, monitor, waker, links, latest: None, waiting, writing: None })
    }

    fn add(&mut self, link: SharedLink, reports: &Reports<'_>) {
        let (states, target) = (reports.requests.states(), RequestTarget::Link(link.id));
        states.set_channel(&target, self.channel.clone());
        if let Some(facts) = self.channel.facts() {
            states.set_server(&target, facts.server);
        }
        let mut added = OpenSharedLink { link, view: None, is_connected: false, is_put_refused: false };
        if let Some(latest) = &self.latest {
            reports.pass_on(added.update(latest, reports));
        }
        self.links.push(added);
        // Stable: links of the same order remain in the order of their fields.
        self.links.sort_by_key(|open| (!open.link.options.is_atomic, open.link.options.order));
    }

    fn remove(&mut self, link: ExternalLinkId) {
        self.links.retain(|open| open.link.id != link);
        self.waiting.forget(link);
    }

    /// Handles what the monitor has received. Returns false if there may be more: the other links come first.
    fn poll_events(&mut self, reports: &Reports<'_>) -> bool {
        for _ in 0..limit::LINK_EVENTS_MAX {
            let polled = pin!(self.monitor.next_event()).poll(&mut TaskContext::from_waker(&self.waker));
            match polled {
                Poll::Ready(Some(event)) => self.handle(event, reports),
                Poll::Ready(None) | Poll::Pending => return true,
            }
        }
        false
    }

    fn handle(&mut self, event: MonitorEvent<Structure>, reports: &Reports<'_>) {
        match event {
            MonitorEvent::Connected(facts) => {
                let states = reports.requests.states();
                self.links.iter().for_each(|open| states.set_server(&RequestTarget::Link(open.link.id), facts.server));
            }
            MonitorEvent::Update(update) => {
                reports.pass_on(self.links.iter_mut().flat_map(|open| open.update(&update, reports)).collect());
                self.latest = Some(update);
            }
            MonitorEvent::Merged(n) => {
                let inputs = self.links.iter().filter(|open| open.link.usage == LinkUsage::Reads);
                inputs.for_each(|open| reports.count(open.link.id, n, 0));
            }
            MonitorEvent::Unresponsive => {
                self.notify(&ExternalPvEvent::Unresponsive, Some(LinkTrouble::Silent), reports)
            }
            MonitorEvent::Responsive => self.notify(&ExternalPvEvent::Responsive, None, reports),
            MonitorEvent::Disconnected => self.lose(&LinkTrouble::Lost, reports),
            MonitorEvent::Refused(refusal) => self.lose(&LinkTrouble::Refused(refusal), reports),
            MonitorEvent::WrongReply(reply) => self.lose(&LinkTrouble::WrongReply(reply), reports),
            // Servers of pvAccess report no access rights, and the context is closed only with this thread.
            _ => {}
        }
    }

    /// Reports a change to the connected links.
    fn notify(&mut self, event: &ExternalPvEvent, trouble: Option<LinkTrouble>, reports: &Reports<'_>) {
        let connected = self.links.iter().filter(|open| open.is_connected);
        let events = connected.map(|open| {
            reports.trouble(open.link.id, trouble.clone());
            (open.link.id, event.clone())
        });
        reports.pass_on(events.collect());
    }

    /// The subscription has ended for now.
    fn lose(&mut self, trouble: &LinkTrouble, reports: &Reports<'_>) {
        self.latest = None;
        let mut events = Vec::new();
        for open in &mut self.links {
            reports.trouble(open.link.id, Some(trouble.clone()));
            if std::mem::take(&mut open.is_connected) {
                events.push((open.link.id, ExternalPvEvent::Disconnected));
            }
        }
        reports.pass_on(events);
    }

    /// Ends the put in progress if it has ended, and sends what waits. One put is in progress at a time, so that the
    /// newest values replace the others while the server does not reply.
    fn poll_put(&mut self, reports: &Reports<'_>) {
        loop {
            let is_active = matches!(self.channel.state(), ChannelState::Active | ChannelState::Unresponsive);
            if let Some((operation, _)) = &mut self.writing {
                let polled = Pin::new(operation).poll(&mut TaskContext::from_waker(&self.waker));
                let result = match polled {
                    Poll::Ready(result) => result.map_err(|error| LinkPutFailure::of(&error)),
                    Poll::Pending if is_active => return,
                    // It must not be sent after a reconnect, unless a link demands it.
                    Poll::Pending => Err(LinkPutFailure::Lost),
                };
                self.end_put(result, reports);
            }
            if self.waiting.is_empty() {
                return;
            }
            let Some(latest) = self.latest.as_ref().filter(|_| is_active) else {
                let unsent = std::mem::take(&mut self.waiting);
                return self.keep_or_give_up(unsent, reports);
            };
            self.start_put(&latest.kind().clone(), reports);
        }
    }

    /// Sends the values that wait, without those that their fields cannot hold. `kind`: the type of the PV.
    fn start_put(&mut self, kind: &Arc<StructureType>, reports: &Reports<'_>) {
        let mut put = std::mem::take(&mut self.waiting);
        let mut fields = Vec::new();
        // One for all values: the PV can have many more fields than one link uses.
        let mut trial = None;
        let (mut is_always, mut is_never) = (!put.forwards.is_empty(), false);
        put.values.retain(|(link, value, number)| {
            let open = self.links.iter_mut().find(|open| open.link.id == *link);
            let Some((open, put)) = open.and_then(|open| {
                let trial = trial.get_or_insert_with(|| Structure::new(kind.clone()));
                let put = open.view.as_ref()?.to_put(value.clone(), trial);
                Some((open, put))
            }) else {
                reports.count(*link, 0, 1);
                return false;
            };
            match put {
                Ok(field) => fields.push(field),
                Err(reason) => {
                    reports.note_refused(open, Some(*number), LinkTrouble::Unsent(reason));
                    return false;
                }
            }
            is_always |= open.link.options.processing == PvaProcessing::Always;
            is_never |= open.link.options.processing == PvaProcessing::Never;
            true
        });
        if fields.is_empty() && put.forwards.is_empty() {
            return reports.put_done(&put);
        }
        let mut request = PvRequest::default();
        if !put.awaited.is_empty() {
            request.set_option("block", "true");
        }
        let process = match (is_always, is_never) {
            (true, _) => "true",
            (false, true) => "false",
            (false, false) => "passive",
        };
        request.set_option("process", process);
        self.writing = Some((self.channel.start_put_structure(request, fields), put));
    }

    fn end_put(&mut self, result: Result<(), LinkPutFailure>, reports: &Reports<'_>) {
        let Some((_, put)) = self.writing.take() else { return };
        if let Err(LinkPutFailure::Lost) = result {
            return self.keep_or_give_up(put, reports);
        }
        for open in &mut self.links {
            let link = open.link.id;
            let number = put.values.iter().find(|(id, ..)| *id == link).map(|(.., number)| *number);
            if number.is_none() && !put.forwards.contains(&link) {
                continue;
            }
            match &result {
                Err(LinkPutFailure::Refused(trouble)) => reports.note_refused(open, number, trouble.clone()),
                _ if std::mem::take(&mut open.is_put_refused) => reports.trouble(link, None),
                _ => {}
            }
        }
        reports.put_done(&put);
    }

    /// What was not sent waits for the next connection if its link demands that, and is given up otherwise.
    fn keep_or_give_up(&mut self, mut put: SharedPut, reports: &Reports<'_>) {
        let retrying = self.links.iter().filter(|open| open.link.options.retries).map(|open| open.link.id);
        let retrying: Vec<ExternalLinkId> = retrying.collect();
        let mut lost = put.clone();
        retrying.iter().for_each(|link| lost.forget(*link));
        give_up(reports, &lost);
        let lost_links = lost.values.iter().map(|(link, ..)| *link).chain(lost.forwards.iter().copied());
        lost_links.chain(lost.awaited.iter().map(|(link, _)| *link)).for_each(|link| put.forget(link));
        let newer = std::mem::replace(&mut self.waiting, put);
        for link in self.waiting.merge(newer) {
            reports.count(link, 0, 1);
        }
    }
}

impl OpenSharedLink {
    /// The changes of the link's field in an update.
    fn update(&mut self, update: &Structure, reports: &Reports<'_>) -> Vec<(ExternalLinkId, ExternalPvEvent)> {
        let id = self.link.id;
        if self.link.options.is_forward {
            if std::mem::replace(&mut self.is_connected, true) {
                return Vec::new();
            }
            reports.trouble(id, None);
            let facts = ExternalPvFacts { kind: Kind::Text, count_max: 1, may_read: true, may_write: true };
            return vec![(id, ExternalPvEvent::Connected(facts))];
        }
        let path = self.link.options.field.to_str();
        if self.view.as_ref().is_none_or(|view| !view.is_of(update.kind())) {
            self.view = FieldView::of(update.kind(), &path);
        }
        let Some(reading) = self.view.as_mut().and_then(|view| view.reading(update)) else {
            reports.trouble(id, Some(LinkTrouble::NoField(path.into_owned())));
            let was_connected = std::mem::take(&mut self.is_connected);
            return was_connected.then_some((id, ExternalPvEvent::Disconnected)).into_iter().collect();
        };
        let mut events = Vec::new();
        let is_new = !std::mem::replace(&mut self.is_connected, true);
        if is_new {
            reports.trouble(id, None);
            let (kind, count_max) = (reading.value.kind(), reading.value.len().max(1) as u32);
            let facts = ExternalPvFacts { kind, count_max, may_read: true, may_write: true };
            events.push((id, ExternalPvEvent::Connected(facts)));
        }
        if is_new || self.link.usage == LinkUsage::Reads {
            events.push((id, ExternalPvEvent::Updated(reading)));
        }
        events
    }
}

impl LinkPutFailure {
    fn of(error: &Error) -> LinkPutFailure {
        match error.kind() {
            ErrorKind::Refused { refusal, .. } => LinkPutFailure::Refused(LinkTrouble::Refused(refusal.clone())),
            ErrorKind::Misuse { reason, .. } => LinkPutFailure::Refused(LinkTrouble::Unsent(reason.clone())),
            // The next attempt would end the same.
            ErrorKind::WrongReply { reply, .. } => LinkPutFailure::Refused(LinkTrouble::WrongReply(reply.clone())),
            _ => LinkPutFailure::Lost,
        }
    }
}

/// Counts the values of a put that is not sent, and completes the records that wait for it.
fn give_up(reports: &Reports<'_>, put: &SharedPut) {
    let links = put.values.iter().map(|(link, ..)| link).chain(&put.forwards);
    links.for_each(|link| reports.count(*link, 0, 1));
    reports.put_done(put);
}

/// The pvRequest and the options of the subscription of a shared channel.
fn subscription(key: &SharedLinkKey) -> (PvRequest, MonitorOptions) {
    let mut request = PvRequest::default();
    // The members of a group then belong to one update.
    request.set_option("atomic", "true");
    request.set_option("pipeline", if key.is_pipelined { "true" } else { "false" });
    request.set_option("queueSize", key.queue_size.to_string());
    let options = MonitorOptions { queue_max: key.queue_size as usize, ..MonitorOptions::default() };
    (request, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_requests_its_queue_and_flow_control() {
        let key = SharedLinkKey { pv: "x".into(), queue_size: 9, is_pipelined: true };

        let (request, options) = subscription(&key);

        assert_eq!(request.to_string(), "record[atomic=true,pipeline=true,queueSize=9]");
        assert_eq!(options.queue_max, 9);
        let plain = subscription(&SharedLinkKey { is_pipelined: false, ..key }).0;
        assert_eq!(plain.to_string(), "record[atomic=true,pipeline=false,queueSize=9]");
    }
}
