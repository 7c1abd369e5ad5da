//! The threads of a CLU that wait for the network, so that its own thread never does.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

use tokio::runtime::{self, Handle};

use crate::clock::ClockFn;
use crate::engine::request::VcluConfig;
use crate::http::HttpService;
use crate::log::{CluLog, LogSeverity};
use crate::mqtt::MqttLink;

/// What the objects of a CLU use of the network. It outlives a reset, so that a reset interrupts no connection.
pub(crate) struct CluNetwork {
    pub mqtt: Arc<MqttLink>,
    pub http: Arc<HttpService>,
}

impl CluNetwork {
    pub fn new(config: &VcluConfig, log: &Arc<CluLog>) -> CluNetwork {
        let reporter = Reporter { log: Arc::clone(log), clock: Arc::clone(&config.clock) };
        CluNetwork {
            mqtt: MqttLink::new(config.certificates.clone(), reporter.clone()),
            http: HttpService::new(config.http, config.certificates.clone(), reporter),
        }
    }

    /// Ends all connections and their threads.
    pub fn close(&self) {
        self.mqtt.close();
        self.http.close();
    }
}

/// Writes to the log and the counters of the CLU from any thread.
#[derive(Clone)]
pub(crate) struct Reporter {
    pub log: Arc<CluLog>,
    clock: ClockFn,
}

impl Reporter {
    pub fn write(&self, level: LogSeverity, text: impl Into<String>) {
        self.log.write((self.clock)().wall, level, text);
    }
}

/// The folder with `ca.crt`, and with `certificate.crt` and `key.pem` for servers that request a certificate.
pub(crate) type CertificateFolder = Option<PathBuf>;

/// A thread that runs one future and the tasks that are spawned on it. Dropping it waits for the end of that future.
pub(crate) struct NetworkThread {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl NetworkThread {
    /// Fails if the operating system has no thread or no descriptor left.
    pub fn start(name: &str, run: impl Future<Output = ()> + Send + 'static) -> io::Result<NetworkThread> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let thread = Builder::new().name(name.into()).spawn(move || {
            runtime.block_on(run);
            // A name that is still being resolved delays nothing.
            runtime.shutdown_background();
        })?;
        Ok(NetworkThread { handle, thread: Some(thread) })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for NetworkThread {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been reported by the thread.
            let _ = thread.join();
        }
    }
}
