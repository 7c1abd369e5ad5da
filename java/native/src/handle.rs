//! Objects that Java refers to by a number.
//!
//! A handle is the address of a slot. Closing takes the object out of its slot; the slot itself is freed by
//! [`release`], which Java calls when nothing there refers to the handle any more.

use std::sync::Arc;

use fodo_lock::Mutex;
use fodo_net::Array;

use crate::context::{JavaChannel, JavaContext};
use crate::error::JavaFailure;
use crate::group::JavaGroup;
use crate::list::{ListedChannels, RunningList};
use crate::monitor::JavaMonitor;
use crate::operation::RunningOperation;
use crate::queue::EventQueue;
use crate::server::ServerObject;

/// What a slot contains.
#[derive(Clone)]
pub enum HandleObject {
    Context(Arc<JavaContext>),
    Channel(Arc<JavaChannel>),
    Operation(Arc<Mutex<Option<RunningOperation>>>),
    Channels(Arc<ListedChannels>),
    List(Arc<Mutex<Option<RunningList>>>),
    Queue(Arc<EventQueue>),
    Monitor(Arc<JavaMonitor>),
    Group(Arc<JavaGroup>),
    /// A PV, a server, an IOC, or a part of one.
    Server(ServerObject),
    /// The elements of an array that was received, to which Java refers by their address.
    Elements(#[expect(dead_code, reason = "kept for its elements")] Array),
    MemoryBlock(Arc<MemoryBlock>),
    Closed,
}

/// Native memory. The words are aligned for elements of every kind.
pub struct MemoryBlock {
    words: Vec<u64>,
    n_bytes: usize,
}

impl MemoryBlock {
    /// Memory of this size, or `None` if there is not so much.
    pub fn zeroed(n_bytes: usize) -> Option<MemoryBlock> {
        let n_words = n_bytes.div_ceil(8);
        let mut words = Vec::new();
        words.try_reserve_exact(n_words).ok()?;
        words.resize(n_words, 0);
        Some(MemoryBlock { words, n_bytes })
    }

    /// A copy of these bytes.
    pub fn of(bytes: &[u8]) -> Option<MemoryBlock> {
        let mut block = MemoryBlock::zeroed(bytes.len())?;
        for (word, chunk) in block.words.iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_ne_bytes(padded);
        }
        Some(block)
    }

    pub fn address(&self) -> *const u8 {
        self.words.as_ptr().cast()
    }

    pub fn len(&self) -> usize {
        self.n_bytes
    }

    /// The first bytes.
    pub fn bytes(&self, n_bytes: usize) -> &[u8] {
        let n_bytes = n_bytes.min(self.n_bytes);
        // SAFETY: the words have at least this many bytes, and every pattern of bits is a byte.
        unsafe { std::slice::from_raw_parts(self.address(), n_bytes) }
    }

    /// The words of the first bytes.
    pub fn into_words(block: Arc<MemoryBlock>, n_bytes: usize) -> Vec<u64> {
        let mut words = Arc::try_unwrap(block).map_or_else(|shared| shared.words.clone(), |block| block.words);
        words.truncate(n_bytes / 8);
        words
    }
}

struct HandleSlot(Mutex<HandleObject>);

/// Creates a slot; returns its handle.
pub fn create(object: HandleObject) -> i64 {
    Box::into_raw(Box::new(HandleSlot(Mutex::new(object)))).expose_provenance() as i64
}

/// The slot of a handle; `None` for 0.
///
/// # Safety
///
/// The handle is 0, or one that [`create`] has returned and [`release`] has not freed.
unsafe fn slot<'a>(handle: i64) -> Option<&'a HandleSlot> {
    // SAFETY: by the contract of this function the address is that of a slot that exists.
    unsafe { std::ptr::with_exposed_provenance::<HandleSlot>(handle as usize).as_ref() }
}

/// The object of a handle, as long as it is not closed.
///
/// Handles are private to the package in Java, which keeps each reachable during its calls; so the contract of [`slot`] holds.
fn object(handle: i64) -> HandleObject {
    // SAFETY: Java passes handles of the native library only, and releases each when nothing refers to it any more.
    unsafe { slot(handle) }.map_or(HandleObject::Closed, |slot| slot.0.lock().clone())
}

/// Closes what a handle refers to; returns it.
pub fn take(handle: i64) -> HandleObject {
    // SAFETY: as in `object`.
    unsafe { slot(handle) }
        .map_or(HandleObject::Closed, |slot| std::mem::replace(&mut *slot.0.lock(), HandleObject::Closed))
}

/// Frees a slot, and what it still contains.
pub fn release(handle: i64) {
    let address = std::ptr::with_exposed_provenance_mut::<HandleSlot>(handle as usize);
    if !address.is_null() {
        // SAFETY: `create` has made it of a box, and Java releases a handle once.
        drop(unsafe { Box::from_raw(address) });
    }
}

macro_rules! getters {
    ($($name:ident $variant:ident $kind:ty, $what:literal;)*) => {
        $(pub fn $name(handle: i64) -> Result<$kind, JavaFailure> {
            match object(handle) {
                HandleObject::$variant(found) => Ok(found),
                _ => Err(JavaFailure::closed("", concat!($what, " is closed"))),
            }
        })*
    };
}

getters! {
    context Context Arc<JavaContext>, "the context";
    channel Channel Arc<JavaChannel>, "the channel";
    operation Operation Arc<Mutex<Option<RunningOperation>>>, "the operation";
    channels Channels Arc<ListedChannels>, "the list of channels";
    running_list List Arc<Mutex<Option<RunningList>>>, "the operation";
    queue Queue Arc<EventQueue>, "the queue of events";
    monitor Monitor Arc<JavaMonitor>, "the monitor";
    group Group Arc<JavaGroup>, "the group of monitors";
    server_object Server ServerObject, "the server";
    block MemoryBlock Arc<MemoryBlock>, "the block of memory";
}

/// Takes a block that Java has filled. Java releases the handle, also if the call fails before.
pub fn take_block(handle: i64) -> Result<Arc<MemoryBlock>, JavaFailure> {
    match take(handle) {
        HandleObject::MemoryBlock(block) => Ok(block),
        _ => Err(JavaFailure::misuse("", "the array is in no block of memory")),
    }
}

/// Whether the operation of a handle is that of a list.
pub fn is_list(handle: i64) -> bool {
    matches!(object(handle), HandleObject::List(_))
}
