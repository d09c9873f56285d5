//! Which of a target's pods have the sidecar, and why the others do not (BIND-7, BIND-8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::{BindingStrategy, NotInjected, PodCounts};
use asya_shared::inject::bound::InjectionReason;
use asya_shared::inject::bound::missing::{
    NOT_IN_TEMPLATE, REMOVED_BY_OTHER, STARTED_BEFORE_BINDING, WEBHOOK_UNAVAILABLE,
    is_fixed_by_replacement,
};
use asya_shared::names::label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::reconcile::desired::DesiredBinding;
use crate::record::{Metadata, PodRecord, UninjectedPodRecord};

/// How many pod names status lists for each reason.
const EXAMPLES: usize = 3;

const OPTED_OUT: &str = InjectionReason::OptedOut.as_str();
/// Reasons for which the webhook leaves the sidecar out until it reads that a dry run has passed (SAFE-1).
const WITHHELD: [&str; 2] = [
    InjectionReason::NotProved.as_str(),
    InjectionReason::ProbeRejected.as_str(),
];

/// How far a replica of the webhook that reaches the API server may be behind: it ends a watch without events after 20
/// s, and starts the next one within 10 s.
pub const WEBHOOK_MAX_LAG: Duration = Duration::from_secs(30);

/// A pod without the sidecar that its replacement would get.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodToReplace {
    pub name: Box<str>,
    pub uid: Box<str>,
    pub created: Option<Time>,
    pub sidecar: SidecarState,
}

/// How a pod's sidecar differs from that of a pod created now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SidecarState {
    /// It has an older sidecar.
    #[default]
    Outdated,
    /// It has no sidecar.
    Missing,
    /// A replica of the webhook left the sidecar out, because it had not read yet that the actor binds the target, or
    /// that a dry run has passed (SAFE-1).
    NotInjectedYet,
    /// The webhook injected the sidecar, but something removed it later.
    RemovedByOther,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct TargetPodCounts {
    /// The counts reported in status. They exclude terminating pods.
    pub pods: PodCounts,
    /// Ready pods with the sidecar.
    pub ready: i32,
    /// Those with the current actor hash (ROLL-8).
    pub current_ready: i32,
    /// Pods of this actor with the current actor hash.
    pub current: i32,
    /// Pods with that hash, also those that an earlier actor of this name got: a recreated actor has another UID, but
    /// its predecessor's pods prove that the target accepts the sidecar.
    pub injected_for_any_actor: i32,
    /// All pods, including terminating ones.
    pub total: i32,
    /// Pods to replace: those without the sidecar, and those whose replacement would have a different actor hash.
    pub outdated: Vec<PodToReplace>,
    /// These, and the pods of which only the platform hash is outdated.
    pub all_outdated: Vec<PodToReplace>,
}

impl TargetPodCounts {
    /// Pods to replace: with `include_platform`, also those of which only the platform hash is outdated (ROLL-8).
    pub fn replaceable(&self, include_platform: bool) -> &[PodToReplace] {
        if include_platform {
            &self.all_outdated
        } else {
            &self.outdated
        }
    }

    /// Drops pods to replace that the API server no longer has. The watch may lag behind a rollout that just ended, and
    /// the next rollout would count its deleted pods again (SAFE-10).
    pub fn retain_existing(&mut self, uids: &BTreeSet<Box<str>>) {
        self.outdated.retain(|pod| uids.contains(&pod.uid));
        self.all_outdated.retain(|pod| uids.contains(&pod.uid));
    }
}

/// Running totals, with the names of pods without a sidecar by reason.
#[derive(Default)]
struct PodCounter<'a> {
    counted: TargetPodCounts,
    without: BTreeMap<String, Vec<&'a str>>,
}

impl<'a> PodCounter<'a> {
    /// Counts the pod; returns whether it is not terminating.
    fn add_pod(&mut self, metadata: &Metadata) -> bool {
        self.counted.total += 1;
        self.counted.pods.matched += i32::from(!metadata.deleting);
        !metadata.deleting
    }

    fn add_injected(&mut self, pod: &PodRecord, hash: Option<&str>) {
        let counted = &mut self.counted;
        counted.pods.injected += 1;
        counted.ready += i32::from(pod.ready);
        let pod_hash = pod.injection.as_ref().and_then(|it| it.hash.as_deref());
        let is_current = actor_hash(pod_hash) == actor_hash(hash);
        counted.current_ready += i32::from(pod.ready && is_current);
        counted.current += i32::from(is_current && hash.is_some());
        if pod_hash == hash {
            return;
        }
        counted.pods.outdated += 1;
        let pod = outdated_pod(&pod.metadata, pod.created.as_ref(), SidecarState::Outdated);
        if !is_current {
            counted.outdated.push(pod.clone());
        }
        counted.all_outdated.push(pod);
    }

    fn add_uninjected(
        &mut self,
        metadata: &'a Metadata,
        created: Option<&Time>,
        since: Option<&Time>,
        reason: String,
    ) {
        if is_fixed_by_replacement(&reason) {
            let sidecar = match &*reason {
                REMOVED_BY_OTHER => SidecarState::RemovedByOther,
                reason if WITHHELD.contains(&reason) => SidecarState::NotInjectedYet,
                WEBHOOK_UNAVAILABLE | STARTED_BEFORE_BINDING if is_early(created, since) => {
                    SidecarState::NotInjectedYet
                }
                _ => SidecarState::Missing,
            };
            let pod = outdated_pod(metadata, created, sidecar);
            self.counted.outdated.push(pod.clone());
            self.counted.all_outdated.push(pod);
        }
        let names = self.without.entry(reason).or_default();
        names.push(&metadata.key.name);
    }

    fn finish(self) -> TargetPodCounts {
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

impl TargetPodCounts {
    /// Counts `pods` for the actor with this uid, which has been bound since `since`.
    pub fn of(pods: &TargetPods, uid: &str, bound: &DesiredBinding, since: Option<&Time>) -> Self {
        Self::count(
            pods,
            uid,
            bound.strategy,
            bound.injected_hash.as_deref(),
            since,
        )
    }

    fn count(
        pods: &TargetPods,
        uid: &str,
        strategy: BindingStrategy,
        hash: Option<&str>,
        since: Option<&Time>,
    ) -> Self {
        let unannotated =
            |created: Option<&Time>| reason_without_annotation(strategy, created, since);
        let mut counter = PodCounter::default();
        for pod in &pods.labelled {
            if !counter.add_pod(&pod.metadata) {
                continue;
            }
            counter.counted.injected_for_any_actor +=
                i32::from(has_actor_hash(pod, actor_hash(hash)));
            match labelled_pod_reason(pod, uid, unannotated) {
                None => counter.add_injected(pod, hash),
                Some(reason) => {
                    counter.add_uninjected(&pod.metadata, pod.created.as_ref(), since, reason);
                }
            }
        }
        for pod in &pods.uninjected {
            if counter.add_pod(&pod.metadata) {
                let reason = uninjected_pod_reason(pod, unannotated);
                counter.add_uninjected(&pod.metadata, pod.created.as_ref(), since, reason);
            }
        }
        counter.finish()
    }
}

/// The actor hash of an injected hash. Pods are restarted when it changes (ROLL-8).
pub fn actor_hash(hash: Option<&str>) -> Option<&str> {
    hash.map(|hash| hash.split_once('.').map_or(hash, |(actor, _)| actor))
}

fn outdated_pod(
    metadata: &Metadata,
    created: Option<&Time>,
    sidecar: SidecarState,
) -> PodToReplace {
    PodToReplace {
        name: metadata.key.name.as_ref().into(),
        uid: metadata.uid.clone(),
        created: created.cloned(),
        sidecar,
    }
}

fn has_actor_hash(pod: &PodRecord, hash: Option<&str>) -> bool {
    let injection = pod.injection.as_ref().filter(|it| it.intact);
    hash.is_some() && injection.and_then(|injection| actor_hash(injection.hash.as_deref())) == hash
}

/// Why a labelled pod has no sidecar of this actor; `None` if it has one.
fn labelled_pod_reason(
    pod: &PodRecord,
    uid: &str,
    unannotated: impl Fn(Option<&Time>) -> &'static str,
) -> Option<String> {
    let reason = match &pod.injection {
        Some(injection) if *injection.by == *uid && injection.intact => return None,
        Some(injection) if *injection.by == *uid => REMOVED_BY_OTHER,
        // The webhook answered, and injected the sidecar of another actor, because it did not know this one yet.
        Some(_) => STARTED_BEFORE_BINDING,
        None => {
            let foreign = pod.copied_label.as_ref();
            let opts_out = foreign.and_then(|it| it.labels.get(label::INJECT)) == Some("false");
            let reported_reason = foreign.and_then(|it| it.not_injected.as_deref());
            if opts_out {
                OPTED_OUT
            } else {
                reported_reason.unwrap_or_else(|| unannotated(pod.created.as_ref()))
            }
        }
    };
    Some(reason.to_owned())
}

fn uninjected_pod_reason(
    pod: &UninjectedPodRecord,
    unannotated: impl Fn(Option<&Time>) -> &'static str,
) -> String {
    if pod.opts_out() {
        return OPTED_OUT.to_owned();
    }
    let reported_reason = pod.not_injected.as_deref();
    reported_reason
        .unwrap_or_else(|| unannotated(pod.created.as_ref()))
        .to_owned()
}

/// Why a pod without any annotation of the webhook has no sidecar. A pod created in the same second as the binding
/// counts as older: the webhook may not have known the binding yet.
fn reason_without_annotation(
    strategy: BindingStrategy,
    created: Option<&Time>,
    since: Option<&Time>,
) -> &'static str {
    let after = created
        .zip(since)
        .is_some_and(|(created, since)| created.0 > since.0);
    match strategy {
        _ if !after => STARTED_BEFORE_BINDING,
        BindingStrategy::Pod => WEBHOOK_UNAVAILABLE,
        BindingStrategy::Template => NOT_IN_TEMPLATE,
    }
}

/// Whether a pod was created before every replica of the webhook must have known the actor. Our clock may be ahead of
/// the API server's, so a replacement may seem to be older than the binding.
fn is_early(created: Option<&Time>, since: Option<&Time>) -> bool {
    created.zip(since).is_some_and(|(created, since)| {
        created.0 <= since.0.checked_add(WEBHOOK_MAX_LAG).unwrap_or(since.0)
    })
}

#[derive(Clone, Debug, Default)]
pub struct TargetPods {
    /// Pods with an actor's label.
    pub labelled: Vec<Arc<PodRecord>>,
    /// Pods without one.
    pub uninjected: Vec<Arc<UninjectedPodRecord>>,
}

impl TargetPods {
    /// When the newest of these pods was created, by the API server's clock.
    pub fn newest(&self) -> Option<Time> {
        let labelled = self.labelled.iter().map(|pod| &pod.created);
        let uninjected = self.uninjected.iter().map(|pod| &pod.created);
        labelled.chain(uninjected).flatten().max().cloned()
    }

    /// Number of pods that are not terminating.
    pub fn active_count(&self) -> i32 {
        let labelled = self.labelled.iter().map(|pod| pod.metadata.deleting);
        let uninjected = self.uninjected.iter().map(|pod| pod.metadata.deleting);
        let active = labelled.chain(uninjected).filter(|deleting| !deleting);
        active.count().try_into().unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests;
