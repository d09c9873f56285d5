//! Results of dry runs of pods with the sidecar, as kept in status, and when to make the next one (SAFE-1 to SAFE-5).
//!
//! The webhook injects the sidecar into pods of an optional binding only while status says that the API server admits
//! pods with the current actor hash. Conditions are not read here: others may write them, and they lag (FW-30).

use std::collections::BTreeSet;

use asya_shared::api::InjectionStatus;
use asya_shared::inject::bound::{InjectedHash, ProbeResult};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use crate::clock_skew::to_the_second;
use crate::reconcile::model::outcome::ProbeOutcome;

/// An error of the API server may quote a whole pod.
const MAX_MESSAGE_LENGTH: usize = 1024;

/// The state before a dry run.
#[derive(Clone, Copy, Debug)]
pub struct InjectionInputs<'a> {
    /// The recorded status; `None` if there is none or an earlier version wrote it.
    pub previous: Option<&'a InjectionStatus>,
    /// The injected hash that a pod created now would carry.
    pub hash: &'a str,
    /// Generation of the actor's spec.
    pub generation: i64,
    /// Resources that need limits in this namespace; `None` until its quotas have been listed.
    pub limits: Option<&'a BTreeSet<Box<str>>>,
    /// A pod of the target was admitted with this actor hash, for this actor.
    pub injected: bool,
    /// The same for any actor: a recreated one has another UID.
    pub injected_for_any_actor: bool,
}

impl InjectionInputs<'_> {
    /// Whether a new dry run is needed, because the actor hash, the spec or the version has changed since the last one.
    pub fn needs_probe(&self) -> bool {
        let Some(limits) = self.limits else {
            return false;
        };
        let Some(previous) = self.previous else {
            return !self.injected;
        };
        // The webhook reads the limits from status, so they must be recorded there first.
        if !has_limits(previous, limits) {
            return false;
        }
        let Some(hash) = InjectedHash::parse(self.hash) else {
            return false;
        };
        ProbeResult::from_status(Some(previous), &hash.actor) != ProbeResult::Verified
            || previous.generation != Some(self.generation)
            || previous.platform.as_deref() != Some(&hash.platform)
    }

    /// The status to record after this reconcile.
    pub fn status_after(
        &self,
        probed: &ProbeOutcome,
        binds: bool,
        now: Timestamp,
    ) -> Option<InjectionStatus> {
        let hash = InjectedHash::parse(self.hash)?;
        let legacy = self.previous.is_none() && !binds;
        let is_conclusive =
            matches!(probed, ProbeOutcome::Admitted | ProbeOutcome::Rejected(_)) || self.injected;
        if legacy && !is_conclusive {
            return None;
        }
        let mut status = self.previous.cloned().unwrap_or_default();
        if let Some(limits) = self.limits {
            status.limits = limits
                .iter()
                .map(|limit| limit.clone().into_string())
                .collect();
        }
        match probed {
            ProbeOutcome::NotRun | ProbeOutcome::NotInjected(_) if !legacy => {
                // The pending dry run confirms this or stops injection.
                if self.injected_for_any_actor
                    && status.rejected_actor_hash.as_ref() != Some(&hash.actor)
                {
                    status.verified_actor_hash = Some(hash.actor);
                }
            }
            ProbeOutcome::Rejected(text) => {
                status.verified_actor_hash = status
                    .verified_actor_hash
                    .filter(|verified| *verified != hash.actor);
                status.rejected_actor_hash = Some(hash.actor);
                status.message = Some(truncate(text));
            }
            // A status from an earlier version: running pods verify what a dry run would.
            ProbeOutcome::NotRun | ProbeOutcome::NotInjected(_) | ProbeOutcome::Admitted => {
                status.verified_actor_hash = Some(hash.actor);
                (status.rejected_actor_hash, status.message) = (None, None);
            }
        }
        if legacy || matches!(probed, ProbeOutcome::Admitted | ProbeOutcome::Rejected(_)) {
            status.generation = Some(self.generation);
            status.platform = Some(hash.platform);
        }
        if self
            .previous
            .is_none_or(|previous| affects_webhook(previous, &status))
        {
            // Truncated to seconds, the resolution of a pod's creation timestamp.
            let now = to_the_second(now);
            status.since = Some(Time(now));
        }
        Some(status)
    }
}

fn has_limits(status: &InjectionStatus, limits: &BTreeSet<Box<str>>) -> bool {
    let recorded = status.limits.iter().map(String::as_str);
    recorded.eq(limits.iter().map(|limit| &**limit))
}

/// Whether the change affects what the webhook decides.
fn affects_webhook(previous: &InjectionStatus, after: &InjectionStatus) -> bool {
    (
        &previous.verified_actor_hash,
        &previous.rejected_actor_hash,
        &previous.limits,
    ) != (
        &after.verified_actor_hash,
        &after.rejected_actor_hash,
        &after.limits,
    )
}

fn truncate(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_MESSAGE_LENGTH);
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
