//! Whether a dry run of a pod with the sidecar is made now (SAFE-4).

use std::time::Duration;

/// All that is decided by.
#[derive(Clone, Copy, Debug)]
pub struct Facts {
    /// It would tell something that status does not.
    pub wanted: bool,
    /// Something has changed that pods are judged by.
    pub requested: bool,
    /// How long it has to wait.
    pub wait: Option<Duration>,
}

/// What to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probing {
    /// Nothing: the last one still tells.
    #[default]
    Rest,
    /// Make one.
    Ask,
    /// Make one then.
    Wait(Duration),
}

/// Decides about one binding.
pub fn decide(facts: Facts) -> Probing {
    match facts.wait {
        _ if !facts.wanted && !facts.requested => Probing::Rest,
        Some(wait) => Probing::Wait(wait),
        None => Probing::Ask,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Facts, Probing, decide};

    /// SAFE-4
    #[test]
    fn dry_run_is_made_when_it_tells_something_and_its_time_has_come() {
        let later = Duration::from_secs(30);
        for (wanted, requested, wait, probing) in [
            (false, false, None, Probing::Rest),
            (false, false, Some(later), Probing::Rest),
            (true, false, None, Probing::Ask),
            (false, true, None, Probing::Ask),
            (true, false, Some(later), Probing::Wait(later)),
            (true, true, Some(later), Probing::Wait(later)),
        ] {
            let facts = Facts {
                wanted,
                requested,
                wait,
            };
            assert_eq!(decide(facts), probing, "{facts:?}");
        }
    }
}
