//! Whether to make a dry run of a pod with the sidecar now (SAFE-4).

use std::time::Duration;

/// Inputs to [`decide`].
#[derive(Clone, Copy, Debug)]
pub struct ProbeFacts {
    /// It would show something that status does not.
    pub wanted: bool,
    /// Something that affects the admission of pods has changed.
    pub requested: bool,
    /// How long it still has to wait.
    pub wait: Option<Duration>,
}

/// The decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Probing {
    /// None: the last result still holds.
    #[default]
    Rest,
    /// Make one now.
    Ask,
    /// Make one after this delay.
    Wait(Duration),
}

/// Decides for one binding.
pub fn decide(facts: ProbeFacts) -> Probing {
    match facts.wait {
        _ if !facts.wanted && !facts.requested => Probing::Rest,
        Some(wait) => Probing::Wait(wait),
        None => Probing::Ask,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ProbeFacts, Probing, decide};

    /// SAFE-4
    #[test]
    fn dry_run_is_made_when_it_is_useful_and_due() {
        let later = Duration::from_secs(30);
        for (wanted, requested, wait, probing) in [
            (false, false, None, Probing::Rest),
            (false, false, Some(later), Probing::Rest),
            (true, false, None, Probing::Ask),
            (false, true, None, Probing::Ask),
            (true, false, Some(later), Probing::Wait(later)),
            (true, true, Some(later), Probing::Wait(later)),
        ] {
            let facts = ProbeFacts {
                wanted,
                requested,
                wait,
            };
            assert_eq!(decide(facts), probing, "{facts:?}");
        }
    }
}
