//! Dispatches each path to its judge.

use crate::actor::Actors;
use crate::deletion::Deletions;
use crate::events::{Events, Told};
use crate::outcome::{Path, Verdict};
use crate::pod::Pods;
use crate::review::Request;
use crate::routes::Judge;

/// The judges of all paths.
pub struct Judges {
    pub actors: Actors,
    pub deletions: Deletions,
    pub pods: Pods,
    pub events: Events,
}

impl Judge for Judges {
    fn judge(&self, path: Path, request: &Request<'_>) -> Verdict {
        match path {
            Path::Actors => self.actors.judge(request),
            Path::Deletions => self.deletions.judge(request),
            Path::Pods | Path::RequiredPods => self.pods.judge(path, request),
        }
    }

    fn tell(&self, told: Told) {
        self.events.tell(told);
    }
}

#[cfg(test)]
mod tests;
