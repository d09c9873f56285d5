//! Ownership between objects: by the UID of the controller owner, never by name alone (RES-2).

use serde_json::Value;

use super::object::group_of;
use super::{
    Caveat, CaveatReason, GroupKind, ObjectRef, OwnerRule, Related, Selector, controller_of,
};

pub(super) const APPS: &str = "apps";
pub(super) const KNATIVE: &str = "serving.knative.dev";

pub(super) const DEPLOYMENT: GroupKind<'static> = GroupKind {
    group: APPS,
    kind: "Deployment",
};
pub(super) const STATEFUL_SET: GroupKind<'static> = GroupKind {
    group: APPS,
    kind: "StatefulSet",
};
pub(super) const DAEMON_SET: GroupKind<'static> = GroupKind {
    group: APPS,
    kind: "DaemonSet",
};
pub(super) const REPLICA_SET: GroupKind<'static> = GroupKind {
    group: APPS,
    kind: "ReplicaSet",
};
pub(super) const LEADER_WORKER_SET: GroupKind<'static> = GroupKind {
    group: "leaderworkerset.x-k8s.io",
    kind: "LeaderWorkerSet",
};
pub(super) const SERVICE: GroupKind<'static> = GroupKind {
    group: KNATIVE,
    kind: "Service",
};
pub(super) const CONFIGURATION: GroupKind<'static> = GroupKind {
    group: KNATIVE,
    kind: "Configuration",
};
pub(super) const REVISION: GroupKind<'static> = GroupKind {
    group: KNATIVE,
    kind: "Revision",
};

/// Label with the name of a pod's `LeaderWorkerSet`.
const LWS_NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// Label with the index of a pod in its group; the leader has 0.
const LWS_WORKER: &str = "leaderworkerset.sigs.k8s.io/worker-index";

/// A workload that belongs to a target.
#[derive(Clone, Copy)]
pub(super) struct Owned<'a> {
    pub(super) object: &'a Value,
}

impl<'a> Owned<'a> {
    pub(super) fn name(self) -> &'a str {
        let name = self.object.pointer("/metadata/name");
        name.and_then(Value::as_str).unwrap_or_default()
    }

    /// A label in the pod template.
    pub(super) fn pod_label(self, key: &str) -> Option<&'a str> {
        let template = template(self.object)?;
        template.pointer("/metadata/labels")?.get(key)?.as_str()
    }

    pub(super) fn label(self, key: &str) -> Option<&'a str> {
        let labels = self.object.pointer("/metadata/labels")?;
        labels.get(key)?.as_str()
    }
}

/// The pod template of a workload; of a `LeaderWorkerSet` the leaders' template.
#[must_use]
pub fn template(workload: &Value) -> Option<&Value> {
    let one = workload.pointer("/spec/template");
    let of_leaders = || {
        let both = workload.pointer("/spec/leaderWorkerTemplate")?;
        let leaders = both.get("leaderTemplate").filter(|it| !it.is_null());
        leaders.or_else(|| both.get("workerTemplate"))
    };
    one.or_else(of_leaders)
}

/// The caveat for a `LeaderWorkerSet` that recreates a whole group when a container of one of its pods restarts, as it
/// does by default; `remedy` completes the message (RES-24).
pub(super) fn group_restart_caveat(
    workload: &ObjectRef,
    object: &Value,
    remedy: &str,
) -> Option<Caveat> {
    if workload.group_kind() != LEADER_WORKER_SET {
        return None;
    }
    let policy = object.pointer("/spec/leaderWorkerTemplate/restartPolicy");
    let policy = policy.and_then(Value::as_str).unwrap_or_default();
    // `Default` is the former name of `None`.
    let keeps_group = matches!(policy, "None" | "Default");
    (!keeps_group).then(|| {
        Caveat::new(
            CaveatReason::BindingCaveat,
            format!(
                "{workload}: a container that restarts, one of Asya's included, makes it recreate all pods of the \
                 group; {remedy}"
            ),
        )
    })
}

impl Related {
    /// The objects of a kind whose controller owner has this UID.
    pub(super) fn owned_by<'a>(
        &'a self,
        kind: GroupKind<'static>,
        uid: &'a str,
    ) -> impl Iterator<Item = Owned<'a>> {
        let objects = self.objects.get(&kind).into_iter().flatten();
        let owned = objects.filter(move |it| {
            controller_of(it).is_some_and(|owner| owner.uid.as_deref() == Some(uid))
        });
        owned.map(|object| Owned { object })
    }
}

/// A workload reached by following owner references down from the target.
pub(super) struct ReachedWorkload<'a> {
    pub(super) object: &'a Value,
    pub(super) workload: ObjectRef,
    /// The objects between target and workload, including the workload.
    pub(super) chain: Vec<ObjectRef>,
}

/// Workload kinds, and the intermediate kinds between a target and its workloads.
pub(super) const TRAVERSED_KINDS: [GroupKind<'static>; 8] = [
    DEPLOYMENT,
    STATEFUL_SET,
    DAEMON_SET,
    REPLICA_SET,
    LEADER_WORKER_SET,
    SERVICE,
    CONFIGURATION,
    REVISION,
];

/// Kinds that create pods themselves.
const WORKLOADS: [GroupKind<'static>; 5] = [
    DEPLOYMENT,
    STATEFUL_SET,
    DAEMON_SET,
    REPLICA_SET,
    LEADER_WORKER_SET,
];

/// How many levels below a target its workload may be.
const DEEPEST: usize = 4;

pub(super) fn is_workload(kind: GroupKind<'_>) -> bool {
    WORKLOADS.into_iter().any(|it| it == kind)
}

/// All workloads below an object, down to [`DEEPEST`] levels.
pub(super) fn workloads_below<'a>(related: &'a Related, uid: &'a str) -> Vec<ReachedWorkload<'a>> {
    let mut found = Vec::new();
    let mut level: Vec<(&str, Vec<ObjectRef>)> = vec![(uid, Vec::new())];
    for _ in 0..DEEPEST {
        let mut next = Vec::new();
        for (uid, chain) in level {
            for kind in TRAVERSED_KINDS {
                for owned in related.owned_by(kind, uid) {
                    let Some(itself) = ObjectRef::of(owned.object) else {
                        continue;
                    };
                    let mut chain = chain.clone();
                    chain.push(itself.clone());
                    if is_workload(kind) {
                        found.push(ReachedWorkload {
                            object: owned.object,
                            workload: itself,
                            chain,
                        });
                    } else if let Some(uid) = owned
                        .object
                        .pointer("/metadata/uid")
                        .and_then(Value::as_str)
                    {
                        next.push((uid, chain));
                    }
                }
            }
        }
        level = next;
    }
    found
}

/// The selector in a workload's spec.
pub(super) fn selector_of(workload: &Value) -> Option<Selector> {
    let api_version = workload.get("apiVersion")?.as_str()?;
    let kind = workload.get("kind")?.as_str()?;
    if (group_of(api_version), kind) == (LEADER_WORKER_SET.group, LEADER_WORKER_SET.kind) {
        return Some(leaders_of(workload.pointer("/metadata/name")?.as_str()?));
    }
    Selector::from_json(workload.pointer("/spec/selector")?).ok()
}

/// Selects leaders only, because only they serve requests for their group.
fn leaders_of(name: &str) -> Selector {
    Selector::of_labels([(LWS_NAME, name), (LWS_WORKER, "0")])
}

/// Matches pods of the `ReplicaSet`s of this Deployment.
pub(super) fn of_deployment(name: impl Into<String>) -> OwnerRule {
    OwnerRule::ReplicaSetOf {
        deployment: name.into(),
    }
}

/// Matches pods of this `StatefulSet`.
pub(super) fn of_stateful_set(name: impl Into<String>) -> OwnerRule {
    OwnerRule::Named {
        kind: STATEFUL_SET,
        name: name.into(),
    }
}
