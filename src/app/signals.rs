//! How the process is asked to stop.
//!
//! The first SIGTERM or SIGINT asks; the second ends the process at once with 130, from within the signal handler, so that
//! it works even when the runtime is stuck.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use futures_util::StreamExt;
use signal_hook::consts::signal::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook_tokio::Signals;

/// Exit code of an end by second signal.
const IMPATIENT: i32 = 130;

/// Waits for the wish to stop.
pub struct Stop {
    signals: Signals,
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stop").finish_non_exhaustive()
    }
}

impl Stop {
    /// Takes the signals over. To be called inside the runtime, before anything else is started.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn arm() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // In this order: the shutdown looks at the flag before this same signal sets it.
            flag::register_conditional_shutdown(signal, IMPATIENT, Arc::clone(&asked))?;
            flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Self { signals: Signals::new([SIGTERM, SIGINT])? })
    }

    /// Returns at the first SIGTERM or SIGINT.
    pub async fn asked(&mut self) {
        // The stream ends only when its handle is closed, which nobody does.
        self.signals.next().await;
    }
}
