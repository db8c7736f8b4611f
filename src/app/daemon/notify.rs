//! What the service manager is told: systemd's protocol, which does nothing elsewhere.

use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::Instant;

use crate::clock;

/// The line to the service manager.
#[derive(Debug)]
pub(super) struct Supervisor {
    /// How often it wants to hear that we are alive, if it does.
    every: Option<Duration>,
    told_at: Instant,
}

impl Supervisor {
    /// Looks whether there is a watchdog. It is told twice as often as it wants.
    pub(super) fn new() -> Self {
        Self { every: sd_notify::watchdog_enabled().map(|limit| limit / 2), told_at: clock::now() }
    }

    /// The loads run.
    pub(super) fn ready(&self, status: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// The configuration is read again; `ready` ends it.
    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now]),
            Err(error) => tracing::debug!(%error, "the service manager is not told of the reload"),
        }
    }

    /// The end has begun.
    pub(super) fn stopping(&self) {
        tell(&[NotifyState::Stopping, NotifyState::Status("requests in flight go on to their end")]);
    }

    /// A second has ended, with every thread alive.
    pub(super) fn alive(&mut self) {
        let now = clock::now();
        if self.every.is_some_and(|every| now.saturating_duration_since(self.told_at) >= every) {
            self.told_at = now;
            tell(&[NotifyState::Watchdog]);
        }
    }
}

fn tell(what: &[NotifyState<'_>]) {
    // Fails where there is a socket that nobody reads. A daemon does not end because its supervisor is deaf.
    if let Err(error) = sd_notify::notify(what) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}
