//! Dispatches each path to its reviewer.

use crate::actor::ActorReviewer;
use crate::deletion::DeletionReviewer;
use crate::events::{Events, PodEvent};
use crate::outcome::{EndpointPath, ReviewOutcome};
use crate::pod::PodReviewer;
use crate::review::AdmissionRequest;
use crate::routes::ReviewHandler;

/// The reviewers of all paths.
pub struct Dispatcher {
    pub actors: ActorReviewer,
    pub deletions: DeletionReviewer,
    pub pods: PodReviewer,
    pub events: Events,
}

impl ReviewHandler for Dispatcher {
    fn handle(&self, path: EndpointPath, request: &AdmissionRequest<'_>) -> ReviewOutcome {
        match path {
            EndpointPath::Actors => self.actors.review(request),
            EndpointPath::Deletions => self.deletions.review(request),
            EndpointPath::Pods(path) => self.pods.review(path, request),
        }
    }

    fn publish(&self, event: PodEvent) {
        self.events.publish(event);
    }
}

#[cfg(test)]
mod tests;
