//! The client of EPICS that all Pv objects of a CLU share.

use std::cell::OnceCell;
use std::rc::Rc;
use std::time::Duration;

use fodo_net::{Channel, ClientConfig, Context};

use crate::log::LogSeverity;
use crate::object::world::World;

/// Creates its context when the first PV is named. A reset of the CLU keeps it.
#[derive(Clone)]
pub(crate) struct PvClient {
    shared: Rc<SharedClient>,
}

struct SharedClient {
    /// `None`: that of the environment.
    config: Option<ClientConfig>,
    context: OnceCell<Context>,
}

impl PvClient {
    pub fn new(config: Option<ClientConfig>) -> PvClient {
        PvClient { shared: Rc::new(SharedClient { config, context: OnceCell::new() }) }
    }

    /// Opens a channel; `name` may have a scheme. Fails with a text for the user.
    pub fn channel(&self, name: &str) -> Result<Channel, String> {
        // Without the name, which may be long and is known.
        self.context()?.channel(name).map_err(|error| error.kind().to_string())
    }

    fn context(&self) -> Result<&Context, String> {
        if let Some(context) = self.shared.context.get() {
            return Ok(context);
        }
        let config = match &self.shared.config {
            Some(config) => config.clone(),
            None => ClientConfig::from_env().map_err(|error| error.to_string())?,
        };
        // The objects end their operations by the clock of the CLU.
        let config = ClientConfig { operation_timeout: Duration::MAX, ..config };
        Ok(self.shared.context.get_or_init(|| Context::new(config)))
    }

    /// Writes what the client reports besides results to the log of the CLU.
    pub fn log_notices(&self, world: &World) {
        let Some(context) = self.shared.context.get() else { return };
        while let Some(notice) = context.next_notice(Duration::ZERO) {
            world.log(LogSeverity::Warning, notice.to_string());
        }
    }
}

impl Drop for SharedClient {
    fn drop(&mut self) {
        if let Some(context) = self.context.get() {
            context.close();
        }
    }
}
