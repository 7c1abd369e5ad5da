//! Contexts and channels.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use fodo_lock::Mutex;
use fodo_net::{Channel, ClientConfig, Context, Protocol};

use crate::codec::{InputReader, ReplyTag, ReplyWriter};
use crate::error::JavaFailure;
use crate::queue::EventQueue;

/// A client with its configuration.
pub struct JavaContext {
    pub context: Context,
    /// Reports the results of operations that no thread waits for; absent until there is one.
    queue: ContextQueue,
    pub default_timeout: Duration,
    default_protocol: Protocol,
}

/// The queue of a context, which its channels also know.
type ContextQueue = Arc<Mutex<Weak<EventQueue>>>;

/// A connection to a PV.
pub struct JavaChannel {
    pub channel: Channel,
    queue: ContextQueue,
    /// Its operations end although they keep the channel.
    is_closed: AtomicBool,
    pub protocol: Protocol,
    pub default_timeout: Duration,
    /// Whether the PV is a structure without a value of its own, as soon as that is known.
    pub is_structure: AtomicBool,
}

impl JavaContext {
    /// The input: variables, before those of the environment, and the default timeout in nanoseconds.
    pub fn create(input: &mut InputReader<'_>) -> Result<JavaContext, JavaFailure> {
        let n = input.count(8)?;
        let settings =
            (0..n).map(|_| Ok((input.text()?, input.text()?))).collect::<Result<HashMap<_, _>, JavaFailure>>()?;
        let default_timeout = duration(input.i64()?);
        let is_known = |name: &&String| fodo_net::config::known_variables().any(|known| known == *name);
        if let Some(unknown) = settings.keys().find(|name| !is_known(name)) {
            return Err(JavaFailure::misuse("", format!("there is no setting {unknown}")));
        }
        let lookup = |name: &str| settings.get(name).cloned().or_else(|| std::env::var(name).ok());
        let config =
            ClientConfig::from_variables(&lookup).map_err(|error| JavaFailure::misuse("", error.to_string()))?;
        // Every call has a timeout of its own.
        let config = ClientConfig { operation_timeout: Duration::MAX, ..config };
        let default_protocol = config.default_protocol;
        Ok(JavaContext {
            context: Context::new(config),
            queue: ContextQueue::default(),
            default_timeout,
            default_protocol,
        })
    }

    /// Creates the queue of this context.
    pub fn create_queue(&self) -> Arc<EventQueue> {
        let queue = Arc::new(EventQueue::default());
        *self.queue.lock() = Arc::downgrade(&queue);
        queue
    }

    pub fn channel(&self, name: &str, priority: u8) -> Result<JavaChannel, JavaFailure> {
        let channel = self.context.channel_at(name, priority)?;
        let protocol = Protocol::split(name).0.unwrap_or(self.default_protocol);
        Ok(JavaChannel {
            channel,
            queue: self.queue.clone(),
            is_closed: AtomicBool::new(false),
            protocol,
            default_timeout: self.default_timeout,
            is_structure: AtomicBool::new(false),
        })
    }
}

impl JavaChannel {
    /// Ends the operations: those that a thread waits for at its next pause, the others by the thread of the queue.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let queue = self.queue.lock().upgrade();
        if let Some(queue) = queue {
            queue.end_closed();
        }
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// The failure of an operation that has not ended although the channel was closed.
    pub fn closed(&self) -> Option<JavaFailure> {
        self.is_closed().then(|| JavaFailure::closed(self.channel.name(), "the channel is closed"))
    }

    /// What the server has reported, while the channel is connected.
    pub fn write_info(&self, out: &mut ReplyWriter) {
        use fodo_net::ChannelState::{Active, Unresponsive};

        let is_active = matches!(self.channel.state(), Active | Unresponsive);
        match self.channel.facts().filter(|_| is_active) {
            Some(facts) => {
                out.reply(ReplyTag::Info);
                out.info_body(self.protocol, &facts);
            }
            None => out.reply(ReplyTag::Nothing),
        }
    }
}

/// A time in nanoseconds; a negative one or the maximum has no end.
pub fn duration(nanos: i64) -> Duration {
    match u64::try_from(nanos) {
        Ok(nanos) if nanos < i64::MAX as u64 => Duration::from_nanos(nanos),
        _ => Duration::MAX,
    }
}

/// Several channels of a context.
pub type ChannelsOfList = Arc<[Arc<JavaChannel>]>;
