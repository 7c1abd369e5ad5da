//! EPICS' own client library, `libca`, loaded from a wheel and called as a C program calls it.
//!
//! Its blocking get is `ca_array_get` and `ca_pend_io`. This driver uses the fastest variant we found: see
//! [`PREEMPTIVE`]. Arrays are read into a reused destination, which libca supports and a performance-minded C program
//! would use.
//!
//! In the laboratory only this file and the files below it contain unsafe code. The functions and their rules are those
//! of `cadef.h` of EPICS 7; each block states which rule it relies on and what upholds it.
#![expect(unsafe_code, reason = "calls a C library")]

mod batch;
mod watch;

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::marker::PhantomData;
use std::path::Path;

use libloading::Library;

use self::batch::{ConnectionArgs, EventArgs};
pub use self::watch::LibcaWatcher;
use super::rounds::{EventRounds, ProcessGets, RoundTimes};
use super::{CloseBy, ConnectedChannels, Driver, DriverFailure, Hello, Timed, YesNoAnswer, command};
use crate::limit::OPERATION_MAX;

/// Preemptive callbacks (1): libca's receiving thread stores a reply itself, then wakes the waiting thread. Without
/// them (0) it first asks the waiting thread for permission: 46 instead of 38 us per get on one core of the machine on
/// which this was decided, and no difference across two. Either way a third thread sends. Getting by
/// `ca_array_get_callback` and waiting for a semaphore takes the same time: 38 and 38 us, in C.
const PREEMPTIVE: c_int = 1;

/// `ECA_NORMAL`.
const NORMAL: c_int = 1;
/// `DBR_LONG`.
const LONG: c_long = 5;
/// `DBR_TIME_DOUBLE`.
const TIME_DOUBLE: c_long = 20;

/// `struct dbr_time_double` of `db_access.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct TimeDouble {
    status: i16,
    severity: i16,
    seconds: u32,
    nanos: u32,
    padding: i32,
    value: f64,
}

/// `chid`, an opaque handle.
type ChannelId = *mut c_void;

/// `evid`, an opaque handle.
type SubscriptionId = *mut c_void;

/// `struct ca_client_context *`, an opaque handle.
type ContextId = *mut c_void;

/// `caCh *`, which may be null.
type OnConnection = Option<unsafe extern "C" fn(ConnectionArgs)>;

/// `caEventCallBackFunc *`.
type OnEvent = unsafe extern "C" fn(EventArgs);

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The functions of libca used here. They are valid as long as `_libraries`.
        pub(in crate::driver::libca) struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            _libraries: (Library, Library),
        }

        impl Functions {
            fn resolve(libraries: (Library, Library)) -> Result<Functions, libloading::Error> {
                Ok(Functions {
                    $(
                        // SAFETY: the type matches the declaration in cadef.h, which libca has kept since EPICS 3.14;
                        // the pointer does not outlive the library, which `Functions` owns as well.
                        $name: unsafe { *libraries.0.get(concat!(stringify!($name), "\0").as_bytes())? },
                    )*
                    _libraries: libraries,
                })
            }

            /// Functions that abort the test program; a test replaces the ones it calls.
            #[cfg(test)]
            fn uncalled(libraries: (Library, Library)) -> Functions {
                Functions {
                    $($name: {
                        unsafe extern "C" fn uncalled($(_: $argument),*) $(-> $result)? {
                            std::process::abort()
                        }
                        uncalled
                    },)*
                    _libraries: libraries,
                }
            }
        }
    };
}

functions! {
    ca_context_create(c_int) -> c_int;
    ca_context_destroy();
    ca_current_context() -> ContextId;
    ca_attach_context(ContextId) -> c_int;
    ca_detach_context();
    ca_create_channel(*const c_char, OnConnection, *mut c_void, c_uint, *mut ChannelId) -> c_int;
    ca_clear_channel(ChannelId) -> c_int;
    ca_pend_io(f64) -> c_int;
    ca_flush_io() -> c_int;
    ca_puser(ChannelId) -> *mut c_void;
    ca_state(ChannelId) -> c_int;
    ca_array_get_callback(c_long, c_ulong, ChannelId, OnEvent, *mut c_void) -> c_int;
    ca_array_put_callback(c_long, c_ulong, ChannelId, *const c_void, OnEvent, *mut c_void) -> c_int;
    ca_create_subscription(c_long, c_ulong, ChannelId, c_long, OnEvent, *mut c_void, *mut SubscriptionId) -> c_int;
    ca_array_get(c_long, c_ulong, ChannelId, *mut c_void) -> c_int;
    ca_array_put(c_long, c_ulong, ChannelId, *const c_void) -> c_int;
    ca_element_count(ChannelId) -> c_ulong;
    ca_message(c_long) -> *const c_char;
    ca_version() -> *const c_char;
}

/// A context of libca with its channels. It stays on the thread that created it, as libca requires.
pub struct Libca {
    // Fields drop in this order, after `drop` below has destroyed the context, which writes to them.
    channels: Vec<ChannelId>,
    scalar: Box<TimeDouble>,
    elements: Vec<i32>,
    n_elements: usize,
    functions: Functions,
    _stays_on_its_thread: PhantomData<*const ()>,
}

impl Libca {
    /// Loads libca and libCom, which it depends on, and creates a context in this thread.
    ///
    /// # Safety
    /// The files are libca and libCom of EPICS 7: loading runs their initializers, and their functions are called as
    /// `cadef.h` declares them. This thread has no context of libca yet.
    unsafe fn load(libca: &Path, libcom: &Path) -> Result<Libca, DriverFailure> {
        let unavailable =
            |why: libloading::Error| DriverFailure::Unavailable { who: "libca".into(), why: why.to_string() };
        // SAFETY: the caller passes the two libraries of EPICS Base; their initializers set up C++ statics and do not
        // affect this process otherwise.
        let libraries = unsafe {
            let libcom = Library::new(libcom).map_err(unavailable)?;
            (Library::new(libca).map_err(unavailable)?, libcom)
        };
        let functions = Functions::resolve(libraries).map_err(unavailable)?;
        // SAFETY: takes a number; allowed once per thread, which the caller guarantees.
        let status = unsafe { (functions.ca_context_create)(PREEMPTIVE) };
        let libca = Libca::over(functions);
        libca.check("ca_context_create", status)?;
        Ok(libca)
    }

    /// Loads libca in a worker process, which exists only for this.
    ///
    /// This is the only safe entry. The rules of [`Libca::load`] hold because the only caller is `main` of a hidden
    /// `fodo lab worker` command: the laboratory passes it the files of the installed wheel, and it calls this once.
    /// The process isolates the laboratory: whatever a wrong library does ends with the process, and the row fails.
    pub fn load_in_worker(libca: &Path, libcom: &Path) -> Result<Libca, DriverFailure> {
        // SAFETY: see above.
        unsafe { Libca::load(libca, libcom) }
    }

    fn over(functions: Functions) -> Libca {
        Libca {
            channels: Vec::new(),
            scalar: Box::default(),
            elements: Vec::new(),
            n_elements: 0,
            functions,
            _stays_on_its_thread: PhantomData,
        }
    }

    fn check(&self, what: &str, status: c_int) -> Result<(), DriverFailure> {
        if status == NORMAL {
            return Ok(());
        }
        // SAFETY: libca returns a static string for any status, including unknown ones.
        let why = unsafe { text((self.functions.ca_message)(status.into())) };
        Err(DriverFailure::Operation { what: what.into(), why })
    }

    /// Waits for all gets and connections. No get is in flight after it: a get that timed out ends with its channel.
    fn pend_io(&mut self, what: &str) -> Result<(), DriverFailure> {
        // SAFETY: takes a number and waits in the thread of the context, which is this one. Meanwhile a thread of libca
        // writes to the destinations of the preceding gets; `self` owns them, and they are neither moved nor read
        // before this call returns.
        let status = unsafe { (self.functions.ca_pend_io)(OPERATION_MAX.as_secs_f64()) };
        let checked = self.check(what, status);
        if checked.is_err() {
            self.clear_channels();
        }
        checked
    }

    fn channel(&self, index: usize) -> Result<ChannelId, DriverFailure> {
        self.channels.get(index).copied().ok_or_else(DriverFailure::not_open)
    }

    /// Gets one double, with its time if it has one.
    pub fn get_double(&mut self, channel_index: usize) -> Result<f64, DriverFailure> {
        let channel = self.channel(channel_index)?;
        // SAFETY: the destination is one `dbr_time_double`, whose layout the test below checks. It is on the heap,
        // owned by `self`, and lives until the context is destroyed.
        let status = unsafe { (self.functions.ca_array_get)(TIME_DOUBLE, 1, channel, (&raw mut *self.scalar).cast()) };
        self.check("ca_array_get", status)?;
        self.pend_io("ca_pend_io after ca_array_get")?;
        Ok(self.scalar.value)
    }

    fn get_longs(&mut self, n_elements: usize) -> Result<(), DriverFailure> {
        let channel = self.channel(0)?;
        if self.elements.len() < n_elements {
            self.elements.resize(n_elements, 0);
        }
        // SAFETY: the destination has space for `n_elements` 32-bit integers, ensured just above. It is neither moved
        // nor freed before the get ends: `pend_io` follows immediately and ends it.
        let status = unsafe {
            (self.functions.ca_array_get)(LONG, n_elements as c_ulong, channel, self.elements.as_mut_ptr().cast())
        };
        self.check("ca_array_get", status)?;
        self.pend_io("ca_pend_io after ca_array_get")
    }

    fn clear_channels(&mut self) {
        for channel in self.channels.drain(..) {
            // SAFETY: the handle is from ca_create_channel and is cleared once, because it is drained. A channel that
            // cannot be cleared ends with the context.
            let _ = unsafe { (self.functions.ca_clear_channel)(channel) };
        }
    }
}

fn c_name(pv: &str) -> Result<CString, DriverFailure> {
    CString::new(pv).map_err(|why| DriverFailure::Operation { what: "naming a PV".into(), why: why.to_string() })
}

/// Copies a string that libca owns.
///
/// # Safety
/// `text` is null or a zero-terminated string that lives during the call.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: not null, and the caller guarantees the rest.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Driver for Libca {
    fn hello(&self) -> Hello {
        // SAFETY: takes no argument and returns a static string.
        let protocol = unsafe { text((self.functions.ca_version)()) };
        Hello { client: "libca".into(), version: format!("protocol {protocol}"), runtime: "C++".into() }
    }

    fn open(&mut self, pv: &str, n_channels: usize) -> Result<usize, DriverFailure> {
        let name = c_name(pv)?;
        self.clear_channels();
        for _index in 0..n_channels {
            let mut channel: ChannelId = std::ptr::null_mut();
            // SAFETY: the name lives during the call and libca copies it; without a callback, ca_pend_io waits for the
            // connection; `channel` is written during the call only.
            let status = unsafe {
                (self.functions.ca_create_channel)(name.as_ptr(), None, std::ptr::null_mut(), 0, &raw mut channel)
            };
            self.check("ca_create_channel", status)?;
            self.channels.push(channel);
        }
        self.pend_io("connecting")?;
        let channel = self.channel(0)?;
        // SAFETY: the handle is from ca_create_channel above.
        Ok(unsafe { (self.functions.ca_element_count)(channel) } as usize)
    }

    fn get_scalar(&mut self, channel_index: usize) -> Result<f64, DriverFailure> {
        let value = self.get_double(channel_index)?;
        if self.scalar.seconds == 0 {
            return Err(DriverFailure::WrongValue { value, expected: "one double with its time".into() });
        }
        Ok(value)
    }

    fn put_array(&mut self, elements: &[i32]) -> Result<(), DriverFailure> {
        let channel = self.channel(0)?;
        // SAFETY: the source contains that many 32-bit integers and is copied or sent during the call.
        let status = unsafe {
            (self.functions.ca_array_put)(LONG, elements.len() as c_ulong, channel, elements.as_ptr().cast())
        };
        self.check("ca_array_put", status)?;
        // The server handles the requests of a circuit in order: this reply is sent after the put is done.
        self.get_longs(1)?;
        // Written to before the timed get, so that the memory counts as reused in the first get too, and so that an
        // earlier array cannot be mistaken for this one.
        self.elements.clear();
        self.elements.resize(elements.len(), 0);
        Ok(())
    }

    fn get_array(&mut self, n_elements: usize) -> Result<(), DriverFailure> {
        self.n_elements = n_elements;
        self.get_longs(n_elements)
    }

    fn elements(&mut self) -> &[i32] {
        self.elements.get(..self.n_elements).unwrap_or_default()
    }

    fn create_contexts(&mut self, n: usize, _pv: &str) -> Result<Timed, DriverFailure> {
        self.contexts(n)
    }

    fn context_close(&mut self, pv: &str, how: CloseBy) -> Result<YesNoAnswer, DriverFailure> {
        self.close_with_channel(pv, how)
    }

    fn create_channels(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        self.with_set(batch, Libca::time_creating)
    }

    fn connect_one_by_one(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        self.with_set(batch, Libca::time_one_by_one)
    }

    fn connect_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        self.with_set(batch, Libca::time_connecting)
    }

    fn get_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        self.with_set(batch, Libca::time_gets)
    }

    fn monitor_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        self.with_set(batch, Libca::time_monitors)
    }

    fn put_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        self.with_set(batch, Libca::time_puts)
    }

    fn put_unconfirmed_at_once(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        self.with_set(batch, Libca::time_puts_unconfirmed)
    }

    fn get_in_flight(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        self.with_set(batch, Libca::time_gets_in_flight)
    }

    fn commands(&mut self, batch: &ConnectedChannels) -> Result<Timed, DriverFailure> {
        command::time(batch, |name| {
            let mut command = command::this_program()?;
            command.args(std::env::args_os().skip(1)).args(["--get", name]);
            Ok(command)
        })
    }

    fn process_gets(&mut self, gets: &ProcessGets) -> Result<RoundTimes, DriverFailure> {
        self.repeat_process_gets(gets)
    }

    fn event_rounds(&mut self, rounds: &EventRounds) -> Result<RoundTimes, DriverFailure> {
        self.repeat_events(rounds)
    }
}

impl Drop for Libca {
    fn drop(&mut self) {
        self.clear_channels();
        // SAFETY: this is the thread of the context; the call joins libca's threads, which do not write afterwards.
        unsafe { (self.functions.ca_context_destroy)() };
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn a_double_with_time_stamp_has_the_memory_layout_of_libca() {
        assert_eq!(size_of::<TimeDouble>(), 24);
        assert_eq!(offset_of!(TimeDouble, seconds), 4);
        assert_eq!(offset_of!(TimeDouble, nanos), 8);
        assert_eq!(offset_of!(TimeDouble, value), 16);
    }

    #[test]
    fn a_missing_library_fails_without_a_crash() {
        let nowhere = Path::new("/nonexistent/libca.so");

        let loaded = Libca::load_in_worker(nowhere, nowhere);

        assert!(matches!(loaded, Err(DriverFailure::Unavailable { .. })));
    }

    unsafe extern "C" fn destroy_nothing() {}

    unsafe extern "C" fn no_message(_status: c_long) -> *const c_char {
        std::ptr::null()
    }

    /// Functions of a libca that does nothing; a test replaces the ones it calls.
    pub(in crate::driver::libca) fn doubles() -> Functions {
        let libraries = (Library::from(this_program()), Library::from(this_program()));
        let mut functions = Functions::uncalled(libraries);
        functions.ca_context_destroy = destroy_nothing;
        functions.ca_message = no_message;
        functions
    }

    #[test]
    fn a_library_without_the_required_functions_fails_without_a_crash() {
        // This program itself serves as a library that loads but is not libca.
        let this = Library::from(this_program());
        let that = Library::from(this_program());

        assert!(Functions::resolve((this, that)).is_err());
    }

    #[cfg(unix)]
    fn this_program() -> libloading::os::unix::Library {
        libloading::os::unix::Library::this()
    }

    #[cfg(windows)]
    fn this_program() -> libloading::os::windows::Library {
        libloading::os::windows::Library::this().unwrap()
    }
}
