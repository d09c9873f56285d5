//! Results of dry runs of pods with the sidecar, as kept in status, and when to make the next one (SAFE-1 to SAFE-5).
//!
//! The webhook injects the sidecar into pods of an optional binding only while status says that the API server admits
//! pods with the current actor part. Conditions are not read here: others may write them, and they lag (FW-30).

use std::collections::BTreeSet;

use asya_shared::api::InjectionStatus;
use asya_shared::inject::bound::{Gate, InjectedHash};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

/// An error of the API server may quote a whole pod.
const LONGEST_MESSAGE: usize = 1024;

/// Result of a dry run in this reconcile.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Probed {
    /// No dry run was made.
    #[default]
    Untried,
    /// The API server admits a pod with the sidecar.
    Admitted,
    /// The pod came back without the sidecar, for this reason. It proves nothing about a pod with the sidecar.
    NotInjected(String),
    /// The API server rejects a pod with the sidecar, with this error.
    Refused(String),
}

/// What is known before a dry run.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The recorded status; `None` if there is none or an earlier release wrote it.
    pub before: Option<&'a InjectionStatus>,
    /// The injected hash that a pod created now would carry.
    pub hash: &'a str,
    /// Generation of the actor's spec.
    pub generation: i64,
    /// Resources that need limits in this namespace; `None` until its quotas have been listed.
    pub limits: Option<&'a BTreeSet<Box<str>>>,
    /// A pod of the target was admitted with this actor part, for this actor.
    pub injected: bool,
    /// The same for any actor uid: an actor that was deleted and created again has another one.
    pub admitted: bool,
}

impl Known<'_> {
    /// Whether a dry run would add knowledge: the actor part, the spec or the release differs from the last one.
    pub fn wants_probe(&self) -> bool {
        let Some(limits) = self.limits else {
            return false;
        };
        let Some(before) = self.before else {
            return !self.injected;
        };
        // The webhook reads the limits from status, so they must be recorded there first.
        if !says_limits(before, limits) {
            return false;
        }
        let Some(hash) = InjectedHash::parse(self.hash) else {
            return false;
        };
        Gate::of(Some(before), &hash.actor) != Gate::Open
            || before.generation != Some(self.generation)
            || before.platform.as_deref() != Some(&hash.platform)
    }

    /// The status to record after this reconcile.
    pub fn after(&self, probed: &Probed, binds: bool, now: Timestamp) -> Option<InjectionStatus> {
        let hash = InjectedHash::parse(self.hash)?;
        let legacy = self.before.is_none() && !binds;
        let tells = matches!(probed, Probed::Admitted | Probed::Refused(_)) || self.injected;
        if legacy && !tells {
            return None;
        }
        let mut status = self.before.cloned().unwrap_or_default();
        if let Some(limits) = self.limits {
            status.limits = limits.iter().map(|it| it.clone().into_string()).collect();
        }
        match probed {
            Probed::Untried | Probed::NotInjected(_) if !legacy => {
                // The dry run that is still due confirms this or closes the gate.
                if self.admitted && status.refused.as_ref() != Some(&hash.actor) {
                    status.proved = Some(hash.actor);
                }
            }
            Probed::Refused(text) => {
                status.proved = status.proved.filter(|part| *part != hash.actor);
                status.refused = Some(hash.actor);
                status.message = Some(shortened(text));
            }
            // A status from an earlier release: running pods prove what a dry run would.
            Probed::Untried | Probed::NotInjected(_) | Probed::Admitted => {
                status.proved = Some(hash.actor);
                (status.refused, status.message) = (None, None);
            }
        }
        if legacy || matches!(probed, Probed::Admitted | Probed::Refused(_)) {
            status.generation = Some(self.generation);
            status.platform = Some(hash.platform);
        }
        if self.before.is_none_or(|before| differs(before, &status)) {
            // Truncated to seconds, the resolution of a pod's creation timestamp.
            let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
            status.since = Some(Time(now));
        }
        Some(status)
    }
}

fn says_limits(status: &InjectionStatus, limits: &BTreeSet<Box<str>>) -> bool {
    let said = status.limits.iter().map(String::as_str);
    said.eq(limits.iter().map(|it| &**it))
}

/// Whether the webhook decides differently from now on.
fn differs(before: &InjectionStatus, after: &InjectionStatus) -> bool {
    (&before.proved, &before.refused, &before.limits)
        != (&after.proved, &after.refused, &after.limits)
}

fn shortened(text: &str) -> String {
    let end = text.floor_char_boundary(LONGEST_MESSAGE);
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
