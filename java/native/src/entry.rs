//! The functions that Java calls; `Native.java` describes them.
//!
//! Each catches panics: they become an error of Java, as everything else that fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::Arc;
use std::time::Duration;

use fodo_lock::Mutex;
use fodo_net::GroupRow;
use jni::JNIEnv;
use jni::objects::JByteBuffer;
use jni::sys::{self, jint, jlong, jobject};

use crate::codec::{self, InputReader, ReplyTag, ReplyWriter};
use crate::context::{JavaContext, duration};
use crate::error::{ErrorClass, JavaFailure};
use crate::group::JavaGroup;
use crate::handle::{self, HandleObject, MemoryBlock};
use crate::list::ListedChannels;
use crate::monitor::JavaMonitor;
use crate::operation::{RunningOperation, What, write_end};
use crate::queue::AnyOperation;

/// The buffer of a call: its address, the number of bytes of input, and its capacity.
#[derive(Clone, Copy)]
pub struct Buffer {
    address: jlong,
    n_input: jint,
    capacity: jint,
}

impl Buffer {
    pub fn new(address: jlong, n_input: jint, capacity: jint) -> Buffer {
        Buffer { address, n_input, capacity }
    }

    fn capacity(self) -> usize {
        if self.address == 0 { 0 } else { usize::try_from(self.capacity).unwrap_or(0) }
    }

    /// A copy would cost more than all else; so the reply is written after the input was read.
    fn input<'a>(self) -> InputReader<'a> {
        let n = usize::try_from(self.n_input).unwrap_or(0).min(self.capacity());
        if n == 0 {
            return InputReader::new(&[]);
        }
        // SAFETY: Java passes the address of a direct buffer that it keeps during the call, and whose capacity is at least `n`.
        // Nothing writes to it before `store`, after which the input is not read any more.
        InputReader::new(unsafe { std::slice::from_raw_parts(with_exposed_provenance(self.address as usize), n) })
    }

    /// Writes a reply; returns its length. One that is longer than the buffer is put into a block, of which the handle is written, and -1
    /// returned.
    fn store(self, reply: &ReplyWriter) -> jint {
        if reply.len() <= self.capacity() {
            self.write(reply.bytes());
            return reply.len() as jint;
        }
        match MemoryBlock::of(reply.bytes()) {
            Some(block) if self.capacity() >= size_of::<i64>() => {
                self.write(&handle::create(HandleObject::MemoryBlock(Arc::new(block))).to_ne_bytes());
                -1
            }
            _ => {
                let error = [ReplyTag::Error as u8, ErrorClass::System as u8];
                // Its three texts are empty.
                let mut bytes = [0; 14];
                bytes[..2].copy_from_slice(&error);
                let n = bytes.len().min(self.capacity());
                self.write(&bytes[..n]);
                n as jint
            }
        }
    }

    /// Writes at most as many bytes as the capacity.
    fn write(self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= self.capacity());
        // SAFETY: Java passes the address of a direct buffer with this capacity, which no other thread uses during the call.
        unsafe {
            std::ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                with_exposed_provenance_mut(self.address as usize),
                bytes.len().min(self.capacity()),
            );
        }
    }
}

/// Calls `work`, and stores its reply, or the error with which it has failed.
pub fn reply(
    buffer: Buffer,
    work: impl FnOnce(&mut InputReader<'_>, &mut ReplyWriter) -> Result<(), JavaFailure>,
) -> jint {
    let run = || {
        let mut out = ReplyWriter::new();
        if let Err(failure) = work(&mut buffer.input(), &mut out) {
            out.truncate(0);
            out.failure(&failure);
        }
        buffer.store(&out)
    };
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let mut out = ReplyWriter::new();
        out.failure(&JavaFailure::new(
            ErrorClass::System,
            "",
            "the native library has failed (a fault of Fodo; please report it)",
        ));
        buffer.store(&out)
    })
}

/// Calls something that has no reply.
pub fn quietly<T>(otherwise: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(otherwise)
}

/// Defines functions of a class in Java. All arguments are numbers.
macro_rules! entries {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty $body:block)*) => {
        $(
            #[unsafe(no_mangle)]
            pub extern "system" fn $name(_: *mut sys::JNIEnv, _: jobject, $($argument: $kind),*) -> $result $body
        )*
    };
}
pub(crate) use entries;

/// A pause in nanoseconds.
fn pause(nanos: jlong) -> Duration {
    duration(nanos.max(0))
}

#[unsafe(no_mangle)]
pub extern "system" fn Java_io_github_fodopv_Jni_address(env: *mut sys::JNIEnv, _: jobject, buffer: jobject) -> jlong {
    quietly(0, || {
        // SAFETY: Java passes its environment and a reference to a buffer, both valid during the call.
        let address = unsafe {
            let Ok(env) = JNIEnv::from_raw(env) else { return 0 };
            env.get_direct_buffer_address(&JByteBuffer::from_raw(buffer))
        };
        address.map_or(0, |address| address.expose_provenance() as jlong)
    })
}

#[unsafe(no_mangle)]
pub extern "system" fn Java_io_github_fodopv_Jni_view(
    env: *mut sys::JNIEnv,
    _: jobject,
    address: jlong,
    n_bytes: jlong,
) -> jobject {
    quietly(std::ptr::null_mut(), || {
        let n_bytes = usize::try_from(n_bytes).unwrap_or(0);
        // SAFETY: Java passes its environment, and the address of memory with this size that is owned by a handle, which it
        // keeps as long as the buffer.
        let view = unsafe {
            let Ok(mut env) = JNIEnv::from_raw(env) else { return std::ptr::null_mut() };
            env.new_direct_byte_buffer(with_exposed_provenance_mut(address as usize), n_bytes)
        };
        view.map_or(std::ptr::null_mut(), |view| view.into_raw())
    })
}

entries! {
    Java_io_github_fodopv_Jni_version() -> jint { codec::VERSION }

    Java_io_github_fodopv_Jni_release(handle: jlong) -> () {
        quietly((), || handle::release(handle));
    }

    Java_io_github_fodopv_Jni_blockCreate(n_bytes: jlong) -> jlong {
        quietly(0, || {
            let block = usize::try_from(n_bytes).ok().and_then(MemoryBlock::zeroed);
            block.map_or(0, |block| handle::create(HandleObject::MemoryBlock(Arc::new(block))))
        })
    }

    Java_io_github_fodopv_Jni_blockAddress(block: jlong) -> jlong {
        quietly(0, || handle::block(block).map_or(0, |block| block.address().expose_provenance() as jlong))
    }

    Java_io_github_fodopv_Jni_blockBytes(block: jlong) -> jlong {
        quietly(0, || handle::block(block).map_or(0, |block| block.len() as jlong))
    }

    Java_io_github_fodopv_Jni_contextCreate(buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| {
            let context = JavaContext::create(input)?;
            out.handle(handle::create(HandleObject::Context(Arc::new(context))));
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_contextClose(context: jlong) -> () {
        quietly((), || {
            if let HandleObject::Context(context) = handle::take(context) {
                context.context.close();
            }
        });
    }

    Java_io_github_fodopv_Jni_noticeNext(context: jlong, pause_ns: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            match handle::context(context)?.context.next_notice(pause(pause_ns)) {
                Some(notice) => {
                    out.reply(ReplyTag::Text);
                    out.text(&notice.to_string());
                }
                None => out.reply(ReplyTag::Nothing),
            }
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_channelCreate(
        context: jlong, priority: jint, buf: jlong, n_input: jint, cap: jint
    ) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| {
            let name = input.text()?;
            let priority = u8::try_from(priority)
                .map_err(|_| JavaFailure::misuse(&name, format!("the priority {priority} is not between 0 and 99")))?;
            let context = handle::context(context).map_err(|failure| failure.about(&name))?;
            out.handle(handle::create(HandleObject::Channel(Arc::new(context.channel(&name, priority)?))));
            Ok(())
        })
    }

    // Also closes lists of channels.
    Java_io_github_fodopv_Jni_channelClose(channel: jlong) -> () {
        quietly((), || match handle::take(channel) {
            HandleObject::Channel(channel) => channel.close(),
            HandleObject::Channels(list) => list.close(),
            _ => {}
        });
    }

    Java_io_github_fodopv_Jni_channelInfo(channel: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            handle::channel(channel)?.write_info(out);
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_whyInactive(channel: jlong, waited_ns: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            match handle::channel(channel)?.channel.why_inactive(pause(waited_ns)) {
                Some(why) => out.failure(&why.into()),
                None => out.reply(ReplyTag::Nothing),
            }
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_run(
        channel: jlong, what: jint, pause_ns: jlong, timeout_ns: jlong, buf: jlong, n_input: jint, cap: jint
    ) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| {
            let channel = handle::channel(channel)?;
            let mut running = RunningOperation::start(&channel, What::of(what)?, input, true)?;
            let (timeout, pause) = (duration(timeout_ns), pause(pause_ns));
            match running.wait_at_most(pause.min(timeout)) {
                Some(end) => write_end(out, &channel, &end),
                None if timeout <= pause => {
                    let (channel, end) = running.finish(timeout);
                    write_end(out, &channel, &end);
                }
                None => pending(out, HandleObject::Operation(Arc::new(Mutex::new(Some(running))))),
            }
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_await(operation: jlong, pause_ns: jlong, waited_ns: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            if handle::is_list(operation) {
                await_list(operation, pause_ns, waited_ns, out)
            } else {
                await_one(operation, pause_ns, waited_ns, out)
            }
        })
    }

    Java_io_github_fodopv_Jni_start(
        channel: jlong, what: jint, queue: jlong, token: jlong, timeout_ns: jlong, buf: jlong, n_input: jint, cap: jint
    ) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| {
            let (channel, queue) = (handle::channel(channel)?, handle::queue(queue)?);
            let running = RunningOperation::start(&channel, What::of(what)?, input, false)?;
            let timeout = if timeout_ns == 0 { channel.default_timeout } else { duration(timeout_ns) };
            queue.add(token, AnyOperation::One(running), timeout);
            out.reply(ReplyTag::Nothing);
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_listCreate(context: jlong, buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| {
            let context = handle::context(context)?;
            let list = ListedChannels::create(&context, input)?;
            out.handle(handle::create(HandleObject::Channels(Arc::new(list))));
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_listRun(
        list: jlong, what: jint, pause_ns: jlong, timeout_ns: jlong, buf: jlong, n_input: jint, cap: jint
    ) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| {
            let mut running = handle::channels(list)?.start(What::of(what)?, input)?;
            let (timeout, pause) = (duration(timeout_ns), pause(pause_ns));
            if running.wait_at_most(pause.min(timeout)) || timeout <= pause {
                running.finish(timeout, out);
            } else {
                pending(out, HandleObject::List(Arc::new(Mutex::new(Some(running)))));
            }
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_listStart(
        list: jlong, what: jint, queue: jlong, token: jlong, timeout_ns: jlong, buf: jlong, n_input: jint, cap: jint
    ) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| {
            let (list, queue) = (handle::channels(list)?, handle::queue(queue)?);
            let running = list.start(What::of(what)?, input)?;
            let timeout = if timeout_ns == 0 { list.default_timeout() } else { duration(timeout_ns) };
            queue.add(token, AnyOperation::List(running), timeout);
            out.reply(ReplyTag::Nothing);
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_queueCreate(context: jlong) -> jlong {
        quietly(0, || {
            handle::context(context).map_or(0, |context| handle::create(HandleObject::Queue(context.create_queue())))
        })
    }

    Java_io_github_fodopv_Jni_queueDrain(queue: jlong, pause_ns: jlong, buf: jlong, cap: jint) -> jint {
        let buffer = Buffer::new(buf, 0, cap);
        reply(buffer, |_, out| {
            match handle::queue(queue) {
                // The rest of the buffer has room for one more entry, as a rule.
                Ok(queue) => queue.drain(pause(pause_ns), buffer.capacity() / 4 * 3, out),
                Err(_) => out.reply(ReplyTag::Closed),
            }
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_queueClose(queue: jlong) -> () {
        quietly((), || {
            if let Ok(queue) = handle::queue(queue) {
                queue.close();
            }
        });
    }

    Java_io_github_fodopv_Jni_monitorStart(
        channel: jlong, queue: jlong, token: jlong, mode: jint, buf: jlong, n_input: jint, cap: jint
    ) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| {
            let channel = handle::channel(channel)?;
            let queue = if queue == 0 { None } else { Some(handle::queue(queue)?) };
            let monitor = JavaMonitor::start(channel, queue, token, mode, input)?;
            out.handle(handle::create(HandleObject::Monitor(monitor)));
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_monitorTake(monitor: jlong, events_max: jint, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            handle::monitor(monitor)?.write_taken(usize::try_from(events_max).unwrap_or(0), out);
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_monitorNext(monitor: jlong, pause_ns: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| handle::monitor(monitor)?.write_next(pause(pause_ns), out))
    }

    Java_io_github_fodopv_Jni_monitorCounts(monitor: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            handle::monitor(monitor)?.write_counts(out);
            Ok(())
        })
    }

    // Its counts are still known.
    Java_io_github_fodopv_Jni_monitorClose(monitor: jlong) -> () {
        quietly((), || {
            if let Ok(monitor) = handle::monitor(monitor) {
                monitor.close();
            }
        });
    }

    Java_io_github_fodopv_Jni_groupCreate(
        context: jlong, mask: jint, rows_max: jlong, window: jint, buf: jlong, cap: jint
    ) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            let group = JavaGroup::create(&*handle::context(context)?, mask, rows_max, window);
            out.handle(handle::create(HandleObject::Group(Arc::new(group))));
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_groupAdd(group: jlong, channel: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            let channel = handle::channel(channel)?;
            out.handle(handle::group(group)?.add(&channel)?.into());
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_groupTake(
        group: jlong, pause_ns: jlong, rows: jlong, rows_max: jint, buf: jlong, cap: jint
    ) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            let to: *mut GroupRow = with_exposed_provenance_mut(rows as usize);
            let n = usize::try_from(rows_max).unwrap_or(0);
            if to.is_null() || !to.is_aligned() {
                return Err(JavaFailure::misuse("", "the rows have no memory that is aligned"));
            }
            // SAFETY: Java passes the address of a direct buffer with memory for so many rows, which no other thread uses during
            // the call; every pattern of bits is a row.
            let to = unsafe { std::slice::from_raw_parts_mut(to, n) };
            handle::group(group)?.take(pause(pause_ns), to, out)
        })
    }

    Java_io_github_fodopv_Jni_groupCounts(group: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            handle::group(group)?.write_counts(out);
            Ok(())
        })
    }

    Java_io_github_fodopv_Jni_groupRemove(group: jlong, index: jint) -> () {
        quietly((), || {
            if let Ok(group) = handle::group(group) {
                group.remove(index);
            }
        });
    }

    Java_io_github_fodopv_Jni_groupClose(group: jlong) -> () {
        quietly((), || {
            if let Ok(group) = handle::group(group) {
                group.close();
            }
        });
    }
}

/// Writes that an operation has not ended.
fn pending(out: &mut ReplyWriter, operation: HandleObject) {
    out.reply(ReplyTag::Pending);
    out.i64(handle::create(operation));
}

/// Writes that an operation has still not ended.
fn still_pending(out: &mut ReplyWriter, operation: jlong) {
    out.reply(ReplyTag::Pending);
    out.i64(operation);
}

/// The operation of a handle is taken by one call after the other.
fn is_taken() -> JavaFailure {
    JavaFailure::misuse("", "another thread waits for the operation, or it has ended")
}

fn await_one(operation: jlong, pause_ns: jlong, waited_ns: jlong, out: &mut ReplyWriter) -> Result<(), JavaFailure> {
    let slot = handle::operation(operation)?;
    let mut running = slot.lock().take().ok_or_else(is_taken)?;
    match running.wait_at_most(pause(pause_ns)) {
        Some(end) => write_end(out, running.target(), &end),
        None if waited_ns >= 0 => {
            let (channel, end) = running.finish(duration(waited_ns));
            write_end(out, &channel, &end);
        }
        None => {
            if let Some(failure) = running.target().closed() {
                return Err(failure);
            }
            *slot.lock() = Some(running);
            still_pending(out, operation);
        }
    }
    Ok(())
}

fn await_list(operation: jlong, pause_ns: jlong, waited_ns: jlong, out: &mut ReplyWriter) -> Result<(), JavaFailure> {
    let slot = handle::running_list(operation)?;
    let mut running = slot.lock().take().ok_or_else(is_taken)?;
    if running.wait_at_most(pause(pause_ns)) || waited_ns >= 0 {
        running.finish(duration(waited_ns.max(0)), out);
    } else if let Some(failure) = running.closed() {
        return Err(failure);
    } else {
        *slot.lock() = Some(running);
        still_pending(out, operation);
    }
    Ok(())
}
