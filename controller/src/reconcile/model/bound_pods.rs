//! Which of a target's pods have the sidecar, and why the others have none (BIND-7, BIND-8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asya_shared::api::{NotInjected, PodCounts};
use asya_shared::names::label;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::fault::Reason;
use crate::record::{Metadata, PodRecord, UninjectedPodRecord};

/// Names of pods that status gives for a reason.
const EXAMPLES: usize = 3;

const STARTED_BEFORE: &str = "StartedBeforeBinding";
const WEBHOOK_UNAVAILABLE: &str = "WebhookUnavailable";
const REMOVED: &str = "RemovedByOther";
const OPTED_OUT: &str = "OptedOut";
const SPEC_CONFLICT: &str = "SpecConflict";
const NOT_PROVED: &str = "NotProved";
const PROBE_REJECTED: &str = "ProbeRejected";

/// A pod that lacks the actor's part of the sidecar, and would have it if it were made anew.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutdatedPod {
    /// Its name.
    pub name: Box<str>,
    /// Its uid.
    pub uid: Box<str>,
    /// When it was made.
    pub created: Option<Time>,
    /// What it lacks.
    pub lacks: Lacks,
}

/// What a pod lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lacks {
    /// The sidecar of today: it has an older one.
    #[default]
    Today,
    /// A sidecar.
    Any,
    /// The sidecar that the webhook gave it: somebody took that away.
    Given,
}

/// A target's pods, counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// For status; pods that are on their way out are not among them.
    pub pods: PodCounts,
    /// Pods with a sidecar that take work.
    pub ready: i32,
    /// Those of them that have what the actor asks for today (ROLL-8).
    pub current_ready: i32,
    /// Pods with the actor's part of today.
    pub current: i32,
    /// Pods that have that part, whichever actor's they say that they are.
    pub admitted: i32,
    /// Every pod that exists.
    pub total: i32,
    /// Pods that would be other ones if they were made anew.
    pub lacking: Vec<OutdatedPod>,
    /// The same, with all that is older than today's.
    pub older: Vec<OutdatedPod>,
}

impl Counted {
    /// Pods that are to be replaced: `at_once` all that are not of today (ROLL-8).
    pub fn replaceable(&self, at_once: bool) -> &[OutdatedPod] {
        if at_once { &self.older } else { &self.lacking }
    }

    /// Forgets pods to replace that the API server no longer has: the watch may lag behind a rollout that just ended,
    /// and the next one would replace its pods (SAFE-10).
    pub fn keep(&mut self, uids: &BTreeSet<Box<str>>) {
        self.lacking.retain(|pod| uids.contains(&pod.uid));
        self.older.retain(|pod| uids.contains(&pod.uid));
    }
}

/// Pods while they are counted, with the names of those that have no sidecar, by reason.
#[derive(Default)]
struct Counting<'a> {
    counted: Counted,
    without: BTreeMap<String, Vec<&'a str>>,
}

impl<'a> Counting<'a> {
    /// Answers whether the pod stays.
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
            // The smallest names, so that status stays the same between passes.
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
    /// Counts `pods` of the actor with this uid, which has been bound since then.
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

    /// Condition `Injected`.
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

/// The part of the two hashes that restarts pods when it changes (ROLL-8).
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

/// `None`: it has the sidecar.
fn reason_of_marked(pod: &PodRecord, uid: &str, since: Option<&Time>) -> Option<String> {
    let by_age = || by_age(pod.created.as_ref(), since);
    let reason = match &pod.injection {
        Some(injection) if *injection.by == *uid && injection.intact => return None,
        Some(injection) if *injection.by == *uid => REMOVED,
        // The mark of another actor, which is gone.
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

/// One of the same second was made before the webhook could know.
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

/// Pods of a target.
#[derive(Clone, Debug, Default)]
pub struct BoundPods {
    /// Those that carry an actor's label.
    pub marked: Vec<Arc<PodRecord>>,
    /// Those that do not.
    pub bare: Vec<Arc<UninjectedPodRecord>>,
}

impl BoundPods {
    /// How many of them are not on their way out.
    pub fn staying(&self) -> i32 {
        let marked = self.marked.iter().map(|pod| pod.metadata.deleting);
        let bare = self.bare.iter().map(|pod| pod.metadata.deleting);
        let staying = marked.chain(bare).filter(|deleting| !deleting);
        staying.count().try_into().unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests;
