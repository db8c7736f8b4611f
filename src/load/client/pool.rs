//! Idle connections of one client.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::Instant;

use crate::load::client::connection::Connection;

/// A connection that idled longer is not used again. Servers close theirs after 5 s (uvicorn) or more; whoever waits as
/// long as they do meets the race every day.
const MAX_IDLE: Duration = Duration::from_secs(3);

/// The last used connection is taken first, so that a falling load lets the others expire.
#[derive(Debug, Default)]
pub(super) struct Pool {
    idle: RefCell<Vec<Connection>>,
}

impl Pool {
    /// A connection that is open as far as can be seen without sending.
    pub(super) async fn take(&self, now: Instant) -> Option<Connection> {
        self.expire(now);
        loop {
            let mut connection = self.idle.borrow_mut().pop()?;
            if connection.is_usable().await {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection whose last response ended by protocol.
    pub(super) async fn put(&self, mut connection: Connection, now: Instant) {
        self.expire(now);
        if connection.is_usable().await {
            connection.idle_since = now;
            self.idle.borrow_mut().push(connection);
        }
    }

    fn expire(&self, now: Instant) {
        self.idle.borrow_mut().retain(|connection| now.saturating_duration_since(connection.idle_since) < MAX_IDLE);
    }
}
