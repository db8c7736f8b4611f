//! Whether the loads will have file descriptors enough, asked once at the start.
//!
//! A stream is a descriptor for as long as it lasts. Most systems start a process with a soft limit of 1024, made for programs
//! that use `select`, and a far higher hard one that anybody may raise it to; so do we, as other servers do. A daemon that
//! runs out later would end requests `local` just when the gateway is slow and streams pile up, so it is better refused
//! at once.

/// The limit is below what the loads may need at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// The limit is too low and cannot be raised from here: raise it from outside, or lower `max_in_flight` and `concurrency`.
    #[error(
        "the loads may need {needed} file descriptors at once and the limit is {limit}: raise it (`ulimit -n {needed}`, or \
         LimitNOFILE={needed} in the systemd unit) or lower max_in_flight and concurrency"
    )]
    TooFew {
        /// What the loads may need, everything else included.
        needed: u64,
        /// What may be had.
        limit: u64,
    },
}

/// Raises the soft limit to the hard one and compares it with what is needed. Where limits cannot be read (off Linux) all is well.
///
/// # Errors
/// When there are fewer.
pub fn check_descriptors(needed: u64) -> Result<(), DescriptorError> {
    match raised_limit() {
        Some(limit) if limit < needed => Err(DescriptorError::TooFew { needed, limit }),
        _ => Ok(()),
    }
}

/// The soft limit after it was raised; `None` when there is no limit.
#[cfg(target_os = "linux")]
fn raised_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum,
        // A sandbox may forbid it. What there is may be enough.
        Err(error) => {
            tracing::debug!(%error, "the limit of descriptors stays as it is");
            current
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn raised_limit() -> Option<u64> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn the_soft_limit_is_raised_and_what_is_still_too_low_is_named() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        // Other tests run beside this one: never so low that they would notice.
        let lower = maximum.or(current).unwrap_or(4096) - 1;
        setrlimit(Resource::Nofile, Rlimit { current: Some(lower), maximum }).unwrap();
        assert_eq!(check_descriptors(lower), Ok(()));
        assert_eq!(getrlimit(Resource::Nofile).current, maximum, "raised though it was enough");
        let Some(limit) = maximum else { return };
        assert_eq!(check_descriptors(limit), Ok(()));
        let error = check_descriptors(limit + 1).unwrap_err();
        assert_eq!(error, DescriptorError::TooFew { needed: limit + 1, limit });
        let text = error.to_string();
        for part in [&format!("need {} file", limit + 1), &format!("limit is {limit}:"), "`ulimit -n ", "LimitNOFILE="]
        {
            assert!(text.contains(part), "{text}");
        }
    }
}
