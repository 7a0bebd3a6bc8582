//! The limit on open files: each connection is one, and systems begin with few.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to what is needed, as far as the system lets us; says so if that is not enough.
/// The server then serves fewer connections at a time and loses nothing.
pub(crate) fn raise_limit(needed: u64) {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // No limit at all is `None`.
    let raised = maximum.map_or(needed, |maximum| needed.min(maximum));
    if current.is_none_or(|current| current >= needed) {
        return;
    }
    let wanted = Rlimit { current: Some(raised), maximum };
    if setrlimit(Resource::Nofile, wanted).is_err() || raised < needed {
        tracing::warn!(
            needed,
            "fewer files may be open than all connections need; raise the limit (ulimit -n), or \
             lower server.connections_max"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_raised_and_never_lowered() {
        let limit = || getrlimit(Resource::Nofile);
        let before = limit().current;
        raise_limit(1);
        assert_eq!(limit().current, before);
        if let Some((current, maximum)) = before.zip(limit().maximum)
            && current < maximum
        {
            raise_limit(current + 1);
            assert_eq!(limit().current, Some(current + 1));
            raise_limit(u64::MAX - 1);
            assert_eq!(limit().current, Some(maximum));
        }
    }
}
