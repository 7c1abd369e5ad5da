//! What a monitor requests, and what it does when its queue is full.

use fodo_data::EventMask;

use crate::client::Request;

/// What a subscription delivers.
///
/// # Examples
///
/// ```
/// use fodo_net::{Detail, EventMask, MonitorOptions, Request, WhenFull};
///
/// // Every change of the alarm, with units and limits; the latest ten if they are not taken in time.
/// let options = MonitorOptions {
///     request: Request { detail: Detail::Full, ..Request::default() },
///     mask: EventMask::ALARM,
///     queue_max: 10,
///     when_full: WhenFull::DropOldest,
///     ..MonitorOptions::default()
/// };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorOptions {
    /// What each update contains. Default: the value in its native type, with alarm and time stamp.
    pub request: Request,
    /// Which changes cause an update. Default: [`EventMask::VALUE`] and [`EventMask::ALARM`]. With [`EventMask::NONE`] the
    /// monitor only follows the connection and the access rights, and the server has no subscription.
    pub mask: EventMask,
    /// Maximum number of updates in the queue of this monitor. Default: 1024; 0 counts as 1. The queue is also limited
    /// to 64 MiB of arrays, or one array if that is larger. Connection events do not count.
    pub queue_max: usize,
    /// What happens to updates when the queue is full. Default: [`WhenFull::ReplaceLast`].
    pub when_full: WhenFull,
    /// With pvAccess: how many updates the server may send before the client acknowledges that it has received them. The
    /// server keeps as many for a client that does not read. Default: `None`, no flow control but that of TCP; most
    /// servers then keep 4.
    pub window: Option<u32>,
}

/// What happens to updates that are not taken in time. Each lost update is counted as merged, and a
/// [`MonitorEvent::Merged`](super::MonitorEvent::Merged) marks its position. By default [`WhenFull::ReplaceLast`].
///
/// See the example of [`MonitorOptions`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// The newest update replaces the last one in the queue: the oldest updates and the newest one are kept. With
    /// `queue_max` 1 only the newest is kept.
    #[default]
    ReplaceLast,
    /// The oldest update in the queue is dropped: the latest ones are kept.
    DropOldest,
}

impl Default for MonitorOptions {
    fn default() -> Self {
        MonitorOptions {
            request: Request::default(),
            mask: EventMask::VALUE | EventMask::ALARM,
            queue_max: 1024,
            when_full: WhenFull::ReplaceLast,
            window: None,
        }
    }
}

impl MonitorOptions {
    /// Only the newest update is queued, as a display or a control loop needs it.
    /// See the example of
    /// [`Monitor`](super::Monitor).
    pub fn newest() -> MonitorOptions {
        MonitorOptions { queue_max: 1, ..MonitorOptions::default() }
    }
}
