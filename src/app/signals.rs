//! What the process is asked by signals.
//!
//! The first SIGTERM or SIGINT asks it to stop; the second ends it at once with 130, from within the signal handler, so that
//! it works even when the runtime is stuck. SIGHUP asks a daemon to read its configuration again.
//!
//! A thread of its own waits for them. It also tells a second signal from the echo of the first: whoever signals a process and its
//! group (`timeout` does, and some supervisors) sends two within a millisecond and means one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator;
use tokio::sync::mpsc;

/// Exit code of an end by second signal.
const IMPATIENT: i32 = 130;

/// What comes so soon after the first is its echo. People who press Ctrl-C twice take longer.
pub const ECHO: Duration = Duration::from_millis(150);

/// Signals that may wait; the same one twice says no more than once.
const WAITING: usize = 16;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
}

/// The signals that concern a daemon.
#[derive(Debug)]
pub struct Signals {
    heard: mpsc::Receiver<Asked>,
    tell: mpsc::Sender<Asked>,
}

/// Asks as a signal would, from within the process.
#[derive(Debug, Clone)]
pub struct Asker(mpsc::Sender<Asked>);

/// Waits for the wish to stop.
#[derive(Debug)]
pub struct Stop(Signals);

impl Signals {
    /// Takes the signals over. To be called before anything else is started.
    ///
    /// # Errors
    /// When the system refuses a handler or a thread.
    pub fn arm() -> io::Result<Self> {
        Self::over(&[SIGTERM, SIGINT, SIGHUP])
    }

    fn over(signals: &[i32]) -> io::Result<Self> {
        let impatient = Arc::new(AtomicBool::new(false));
        // A file that may not grow is an error of its write, not the end of the process.
        flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        for signal in [SIGTERM, SIGINT] {
            flag::register_conditional_shutdown(signal, IMPATIENT, Arc::clone(&impatient))?;
        }
        let mut signals = iterator::Signals::new(signals)?;
        let (tell, heard) = mpsc::channel(WAITING);
        let own = tell.clone();
        thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in &mut signals {
                let asked = if signal == SIGHUP { Asked::Reload } else { Asked::Stop };
                // Full, or nobody listens any more: what was asked for is known.
                tell.try_send(asked).ok();
                if asked == Asked::Stop {
                    #[expect(clippy::disallowed_methods, reason = "a thread that has nothing else to do")]
                    thread::sleep(ECHO);
                    impatient.store(true, Ordering::Relaxed);
                }
            }
        })?;
        Ok(Self { heard, tell: own })
    }

    /// For a part of the process that may ask too.
    #[must_use]
    pub fn asker(&self) -> Asker {
        Asker(self.tell.clone())
    }

    /// Returns at the next signal.
    pub async fn asked(&mut self) -> Asked {
        // It is never closed: this end holds a sender too.
        self.heard.recv().await.unwrap_or(Asked::Stop)
    }
}

impl Asker {
    /// Asks to stop, as the first SIGTERM does. It does not make a signal that follows the second one.
    pub fn stop(&self) {
        // Full, or nobody listens any more: what was asked for is known.
        self.0.try_send(Asked::Stop).ok();
    }
}

impl Stop {
    /// Takes the signals over, for a command that reads its configuration once: SIGHUP ends it as it ends any other.
    ///
    /// # Errors
    /// When the system refuses a handler or a thread.
    pub fn arm() -> io::Result<Self> {
        Ok(Self(Signals::over(&[SIGTERM, SIGINT])?))
    }

    /// Returns at the first SIGTERM or SIGINT.
    pub async fn asked(&mut self) {
        self.0.asked().await;
    }
}
