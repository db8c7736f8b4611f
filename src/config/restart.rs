//! What a running daemon cannot take from a new configuration: what it has bound, opened or promised at its start.

use crate::config::sections::Config;

/// The settings that differ and that are only taken at the start, as dotted keys in the order of the documentation.
///
/// - `server.listen`: the socket is bound, and who scrapes it knows it;
/// - `server.buckets`: a counter whose buckets change under way is read as one that was set back;
/// - `state.dir`: it is locked, and holds what has been written so far;
/// - `log.format`: who reads the log reads one format;
/// - `shard`: its plan would begin anew beside the plans of the others.
///
/// Everything else is taken when the configuration is read again, the admin token and `log.level` included.
#[must_use]
pub fn restart_keys(old: &Config, new: &Config) -> Vec<&'static str> {
    let keys = [
        ("server.listen", old.server.listen != new.server.listen),
        ("server.buckets", old.server.buckets != new.server.buckets),
        ("state.dir", old.state.dir != new.state.dir),
        ("log.format", old.log.format != new.log.format),
        ("shard", old.shard != new.shard),
    ];
    keys.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
}
