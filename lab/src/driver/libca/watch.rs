//! Permanent subscriptions, whose updates a load counts.
//!
//! One thread of libca runs the callbacks and records each update directly in its [`SubscriptionLog`].

use std::ffi::c_int;
use std::path::Path;
use std::sync::Arc;

use fodo_net::TimeStamp;

use super::batch::{EventArgs, VALUE_AND_ALARM};
use super::{ChannelId, DriverFailure, Libca, NORMAL, SubscriptionId, TIME_DOUBLE, TimeDouble, c_name};
use crate::load::book::SubscriptionLog;
use crate::load::watch::UpdateWatcher;

/// libca with subscriptions.
pub struct LibcaWatcher {
    libca: Libca,
    // Dropped after `libca`, whose drop ends all callbacks that write to the pages.
    pages: Vec<Arc<SubscriptionLog>>,
}

impl LibcaWatcher {
    /// See [`Libca::load_in_worker`].
    pub fn load_in_worker(libca: &Path, libcom: &Path) -> Result<LibcaWatcher, DriverFailure> {
        Ok(LibcaWatcher { libca: Libca::load_in_worker(libca, libcom)?, pages: Vec::new() })
    }
}

impl UpdateWatcher for LibcaWatcher {
    fn subscribe(&mut self, name: &str, pages: Vec<Arc<SubscriptionLog>>) -> Result<(), String> {
        let channel = self.libca.channel_to(name).map_err(|failure| failure.to_string())?;
        for page in pages {
            // The page lives from before the first callback until after the last, at a fixed address.
            self.pages.push(page.clone());
            self.libca.subscribe(channel, &page).map_err(|failure| failure.to_string())?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), String> {
        self.libca.flush().map_err(|failure| failure.to_string())
    }
}

impl Libca {
    fn channel_to(&mut self, name: &str) -> Result<ChannelId, DriverFailure> {
        let name = c_name(name)?;
        let mut channel: ChannelId = std::ptr::null_mut();
        // SAFETY: the name lives during the call and libca copies it; there is no callback; `channel` is written during
        // the call only.
        let status = unsafe {
            (self.functions.ca_create_channel)(name.as_ptr(), None, std::ptr::null_mut(), 0, &raw mut channel)
        };
        self.check("ca_create_channel", status)?;
        self.channels.push(channel);
        Ok(channel)
    }

    /// libca keeps the request until the channel is connected. The caller must keep the page as long as `self`.
    fn subscribe(&self, channel: ChannelId, page: &Arc<SubscriptionLog>) -> Result<(), DriverFailure> {
        let user = Arc::as_ptr(page).cast_mut().cast();
        let mut subscription: SubscriptionId = std::ptr::null_mut();
        // SAFETY: the channel belongs to `self` and is not cleared before its end; `LibcaWatcher` keeps the page as long;
        // the page is only shared, never borrowed mutably; `subscription` is written during the call only.
        let status: c_int = unsafe {
            (self.functions.ca_create_subscription)(
                TIME_DOUBLE,
                1,
                channel,
                VALUE_AND_ALARM,
                on_update,
                user,
                &raw mut subscription,
            )
        };
        self.check("ca_create_subscription", status)
    }
}

unsafe extern "C" fn on_update(event: EventArgs) {
    // SAFETY: every request with this callback passes a pointer to a page that `LibcaWatcher` keeps until the context is
    // destroyed, which ends the calling thread.
    let Some(page) = (unsafe { event.user.cast::<SubscriptionLog>().as_ref() }) else { return };
    if event.status != NORMAL || event.kind != TIME_DOUBLE || event.count != 1 || event.payload.is_null() {
        // Not a value that its PV can have.
        page.update(f64::NAN, TimeStamp::NEVER);
        return;
    }
    // SAFETY: libca passes a payload of the kind and count in the event, valid during the callback.
    let double = unsafe { event.payload.cast::<TimeDouble>().read_unaligned() };
    page.update(double.value, TimeStamp::from_epics(double.seconds, double.nanos));
}
