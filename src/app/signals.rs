//! What the process is asked by signals.
//!
//! The first SIGTERM or SIGINT asks it to stop; the second ends it at once with 130, from within the signal handler, so that
//! it works even when the runtime is stuck. SIGHUP asks a daemon to read its configuration again.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::StreamExt;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook_tokio as stream;

/// Exit code of an end by second signal.
const IMPATIENT: i32 = 130;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals that concern a daemon.
pub struct Signals {
    signals: stream::Signals,
}

/// Waits for the wish to stop.
#[derive(Debug)]
pub struct Stop(Signals);

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

impl Signals {
    /// Takes the signals over. To be called inside the runtime, before anything else is started.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn arm() -> io::Result<Self> {
        Self::over(&[SIGTERM, SIGINT, SIGHUP])
    }

    fn over(heard: &[i32]) -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the shutdown looks at the flag before this same signal sets it.
            flag::register_conditional_shutdown(signal, IMPATIENT, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Self { signals: stream::Signals::new(heard)? })
    }

    /// Returns at the next signal.
    pub async fn asked(&mut self) -> Asked {
        match self.signals.next().await {
            Some(SIGHUP) => Asked::Reload,
            // The stream ends only when its handle is closed, which nobody does.
            Some(_) | None => Asked::Stop,
        }
    }
}

impl Stop {
    /// Takes the signals over, for a command that reads its configuration once: SIGHUP ends it as it ends any other.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn arm() -> io::Result<Self> {
        Ok(Self(Signals::over(&[SIGTERM, SIGINT])?))
    }

    /// Returns at the first SIGTERM or SIGINT.
    pub async fn asked(&mut self) {
        self.0.asked().await;
    }
}
