//! Which of a target's pods have the sidecar, and why the others have none (BIND-7, BIND-8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asya_shared::api::{NotInjected, PodCounts};
use asya_shared::names::label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::fault::Reason;
use crate::record::{Metadata, PodRecord, UninjectedPodRecord};

/// How many pod names status lists for each reason.
const EXAMPLES: usize = 3;

const STARTED_BEFORE: &str = "StartedBeforeBinding";
const WEBHOOK_UNAVAILABLE: &str = "WebhookUnavailable";
const REMOVED: &str = "RemovedByOther";
const OPTED_OUT: &str = "OptedOut";
const SPEC_CONFLICT: &str = "SpecConflict";
const NOT_PROVED: &str = "NotProved";
const PROBE_REJECTED: &str = "ProbeRejected";

/// A pod without the current actor part of the sidecar. Its replacement would have it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutdatedPod {
    pub name: Box<str>,
    pub uid: Box<str>,
    pub created: Option<Time>,
    pub lacks: Lacks,
}

/// What a pod lacks compared with one created now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lacks {
    /// The current sidecar: it has an older one.
    #[default]
    Today,
    /// Any sidecar.
    Any,
    /// The sidecar that the webhook injected: something removed it later.
    Given,
}

/// Counts of a target's pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// The counts reported in status. They exclude terminating pods.
    pub pods: PodCounts,
    /// Ready pods with the sidecar.
    pub ready: i32,
    /// Those with the current actor part (ROLL-8).
    pub current_ready: i32,
    /// Pods of this actor with the current actor part.
    pub current: i32,
    /// Pods with that part, whichever actor they are marked for.
    pub admitted: i32,
    /// All pods, including terminating ones.
    pub total: i32,
    /// Pods whose replacement would have a different actor part.
    pub lacking: Vec<OutdatedPod>,
    /// These and all other pods with an outdated sidecar.
    pub older: Vec<OutdatedPod>,
}

impl Counted {
    /// Pods to replace: with `at_once` also those that only have an outdated platform part (ROLL-8).
    pub fn replaceable(&self, at_once: bool) -> &[OutdatedPod] {
        if at_once { &self.older } else { &self.lacking }
    }

    /// Drops pods to replace that the API server no longer has. The watch may lag behind a rollout that just ended, and
    /// the next rollout would count its deleted pods again (SAFE-10).
    pub fn keep(&mut self, uids: &BTreeSet<Box<str>>) {
        self.lacking.retain(|pod| uids.contains(&pod.uid));
        self.older.retain(|pod| uids.contains(&pod.uid));
    }
}

/// Running totals, with the names of pods without a sidecar by reason.
#[derive(Default)]
struct Counting<'a> {
    counted: Counted,
    without: BTreeMap<String, Vec<&'a str>>,
}

impl<'a> Counting<'a> {
    /// Counts the pod; returns whether it is not terminating.
    fn exists(&mut self, metadata: &Metadata) -> bool {
        self.counted.total += 1;
        self.counted.pods.matched += i32::from(!metadata.deleting);
        !metadata.deleting
    }

    fn has_sidecar(&mut self, pod: &PodRecord, hash: Option<&str>) {
        let counted = &mut self.counted;
        counted.pods.injected += 1;
        counted.ready += i32::from(pod.ready);
        let said = pod.injection.as_ref().and_then(|it| it.hash.as_deref());
        let is_current = actor_part(said) == actor_part(hash);
        counted.current_ready += i32::from(pod.ready && is_current);
        counted.current += i32::from(is_current && hash.is_some());
        if said == hash {
            return;
        }
        counted.pods.outdated += 1;
        let pod = lacking(&pod.metadata, pod.created.as_ref(), Lacks::Today);
        if !is_current {
            counted.lacking.push(pod.clone());
        }
        counted.older.push(pod);
    }

    fn has_none(&mut self, metadata: &'a Metadata, created: Option<&Time>, reason: String) {
        if is_curable(&reason) {
            let lacks = if reason == REMOVED {
                Lacks::Given
            } else {
                Lacks::Any
            };
            let pod = lacking(metadata, created, lacks);
            self.counted.lacking.push(pod.clone());
            self.counted.older.push(pod);
        }
        let names = self.without.entry(reason).or_default();
        names.push(&metadata.key.name);
    }

    fn end(self) -> Counted {
        let mut counted = self.counted;
        counted.pods.not_injected = counted.pods.matched - counted.pods.injected;
        let reasons = self.without.into_iter().map(|(reason, mut names)| {
            // Sorted, so that status does not change between reconciles.
            names.sort_unstable();
            NotInjected {
                reason,
                count: names.len().try_into().unwrap_or(i32::MAX),
                examples: names
                    .into_iter()
                    .take(EXAMPLES)
                    .map(str::to_owned)
                    .collect(),
            }
        });
        counted.pods.reasons = reasons.collect();
        counted
    }
}

impl Counted {
    /// Counts `pods` for the actor with this uid, which has been bound since `since`.
    pub fn of(pods: &BoundPods, uid: &str, hash: Option<&str>, since: Option<&Time>) -> Self {
        let mut counting = Counting::default();
        for pod in &pods.marked {
            if !counting.exists(&pod.metadata) {
                continue;
            }
            counting.counted.admitted += i32::from(has_part(pod, actor_part(hash)));
            match reason_of_marked(pod, uid, since) {
                None => counting.has_sidecar(pod, hash),
                Some(reason) => counting.has_none(&pod.metadata, pod.created.as_ref(), reason),
            }
        }
        for pod in &pods.bare {
            if counting.exists(&pod.metadata) {
                let reason = reason_of_bare(pod, since);
                counting.has_none(&pod.metadata, pod.created.as_ref(), reason);
            }
        }
        counting.end()
    }

    /// Status, reason and message of condition `Injected`.
    pub fn injected(&self) -> (Option<bool>, Reason, String) {
        let pods = &self.pods;
        if pods.matched == 0 {
            let text = "the target has no pods to tell by";
            return (None, Reason::NotProven, text.to_owned());
        }
        if pods.not_injected == 0 {
            let text = "every pod of the target has the sidecar";
            return (Some(true), Reason::AllPodsInjected, text.to_owned());
        }
        let reasons: Vec<_> = pods.reasons.iter().map(|it| &*it.reason).collect();
        let conflicts = reasons.contains(&SPEC_CONFLICT);
        let text = format!(
            "not every pod of the target has the sidecar: {}; {}",
            reasons.join(", "),
            what_to_do(&reasons)
        );
        let reason = if conflicts {
            Reason::SpecConflict
        } else {
            Reason::PodsNotInjected
        };
        (Some(false), reason, text)
    }
}

/// The actor part of an injected hash, which restarts pods when it changes (ROLL-8).
pub fn actor_part(hash: Option<&str>) -> Option<&str> {
    hash.map(|hash| hash.split_once('.').map_or(hash, |(actor, _)| actor))
}

fn is_curable(reason: &str) -> bool {
    [
        STARTED_BEFORE,
        WEBHOOK_UNAVAILABLE,
        REMOVED,
        NOT_PROVED,
        PROBE_REJECTED,
    ]
    .contains(&reason)
}

fn lacking(metadata: &Metadata, created: Option<&Time>, lacks: Lacks) -> OutdatedPod {
    OutdatedPod {
        name: metadata.key.name.as_ref().into(),
        uid: metadata.uid.clone(),
        created: created.cloned(),
        lacks,
    }
}

fn what_to_do(reasons: &[&str]) -> &'static str {
    match reasons {
        [OPTED_OUT] => "remove label asya.sh/inject from the pod template of the target",
        [SPEC_CONFLICT] => {
            "rename the container or volume of the target that has a name of Asya's, as the pod's Events tell"
        }
        _ => "status.pods names pods; restart those that started before the binding",
    }
}

fn has_part(pod: &PodRecord, part: Option<&str>) -> bool {
    let injection = pod.injection.as_ref().filter(|it| it.intact);
    part.is_some() && injection.and_then(|it| actor_part(it.hash.as_deref())) == part
}

/// Why a labelled pod has no sidecar of this actor; `None` if it has one.
fn reason_of_marked(pod: &PodRecord, uid: &str, since: Option<&Time>) -> Option<String> {
    let by_age = || by_age(pod.created.as_ref(), since);
    let reason = match &pod.injection {
        Some(injection) if *injection.by == *uid && injection.intact => return None,
        Some(injection) if *injection.by == *uid => REMOVED,
        // Marked for another actor, which no longer exists.
        Some(_) => by_age(),
        None => {
            let unmarked = pod.unmarked.as_ref();
            let opts_out = unmarked.and_then(|it| it.labels.get(label::INJECT)) == Some("false");
            let told = unmarked.and_then(|it| it.not_injected.as_deref());
            if opts_out {
                OPTED_OUT
            } else {
                told.unwrap_or_else(by_age)
            }
        }
    };
    Some(reason.to_owned())
}

fn reason_of_bare(pod: &UninjectedPodRecord, since: Option<&Time>) -> String {
    if pod.opts_out() {
        return OPTED_OUT.to_owned();
    }
    let told = pod.not_injected.as_deref();
    told.unwrap_or_else(|| by_age(pod.created.as_ref(), since))
        .to_owned()
}

/// A pod created in the same second as the binding counts as older: the webhook could not know the binding yet.
fn by_age(created: Option<&Time>, since: Option<&Time>) -> &'static str {
    let after = created
        .zip(since)
        .is_some_and(|(created, since)| created.0 > since.0);
    if after {
        WEBHOOK_UNAVAILABLE
    } else {
        STARTED_BEFORE
    }
}

#[derive(Clone, Debug, Default)]
pub struct BoundPods {
    /// Pods with an actor's label.
    pub marked: Vec<Arc<PodRecord>>,
    /// Pods without one.
    pub bare: Vec<Arc<UninjectedPodRecord>>,
}

impl BoundPods {
    /// Number of pods that are not terminating.
    pub fn staying(&self) -> i32 {
        let marked = self.marked.iter().map(|pod| pod.metadata.deleting);
        let bare = self.bare.iter().map(|pod| pod.metadata.deleting);
        let staying = marked.chain(bare).filter(|deleting| !deleting);
        staying.count().try_into().unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests;
