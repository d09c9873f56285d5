//! Which pods are a target's: by labels and by controller owner, both (RES-5).

use super::object::group_of;
use super::owned::{APPS, DAEMON_SET, LEADER_WORKER_SET, REPLICA_SET, STATEFUL_SET};
use super::{GroupKind, Selector};

/// Label that the Deployment controller puts on each of its pods: the last part of their `ReplicaSet`'s name.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// The longest name of an object; the Deployment controller shortens a Deployment's name to it.
const LONGEST_NAME: usize = 253;

/// The pods of a target. A loose pod with copied labels is none of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodMatch {
    /// What their labels say.
    pub labels: Selector,
    /// Whose they are.
    pub owner: OwnerRule,
}

/// Whose a pod must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerRule {
    /// Its controller owner is of this kind.
    Kind(GroupKind<'static>),
    /// Its controller owner is this object.
    Named {
        /// Kind of the owner.
        kind: GroupKind<'static>,
        /// Name of the owner.
        name: String,
    },
    /// Its controller owner is a `ReplicaSet` of this Deployment.
    ReplicaSetOf {
        /// Name of the Deployment.
        deployment: String,
    },
    /// One of these holds.
    AnyOf(Vec<OwnerRule>),
}

/// The controller owner of a pod, as its metadata names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Controller<'a> {
    /// API group and version.
    pub api_version: &'a str,
    /// Kind.
    pub kind: &'a str,
    /// Name.
    pub name: &'a str,
}

impl PodMatch {
    /// No pod is one of them.
    pub(super) fn nothing() -> Self {
        Self {
            labels: Selector::default(),
            owner: OwnerRule::AnyOf(Vec::new()),
        }
    }

    /// Whether a pod with these labels and this controller owner is one of them.
    #[must_use]
    pub fn matches<'p>(
        &self,
        label: impl Fn(&str) -> Option<&'p str>,
        controller: Option<&Controller<'_>>,
    ) -> bool {
        controller.is_some_and(|owner| self.owner.matches(&label, owner))
            && self.labels.matches(&label)
    }
}

impl OwnerRule {
    /// The owner of the pods of a workload, where its kind tells.
    #[must_use]
    pub fn of_workload(api_version: &str, kind: &str, name: &str) -> Option<Self> {
        let group = group_of(api_version);
        if (group, kind) == (APPS, "Deployment") {
            return Some(Self::ReplicaSetOf {
                deployment: name.to_owned(),
            });
        }
        let kind = match (group, kind) {
            (APPS, "StatefulSet") => STATEFUL_SET,
            (APPS, "DaemonSet") => DAEMON_SET,
            (APPS, "ReplicaSet") => REPLICA_SET,
            // leaders are of a StatefulSet of its name, workers of one per leader
            _ if (GroupKind { group, kind }) == LEADER_WORKER_SET => STATEFUL_SET,
            _ => return None,
        };
        Some(Self::Named {
            kind,
            name: name.to_owned(),
        })
    }

    /// Whether pods of this controller can be pods of the target, whatever their labels say.
    #[must_use]
    pub fn is_met_by(&self, owner: &Controller<'_>) -> bool {
        let hash = owner.name.rsplit_once('-').map(|(_, hash)| hash);
        let label = |key: &str| hash.filter(|_| key == POD_TEMPLATE_HASH);
        self.matches(&label, owner)
    }

    fn matches<'p>(
        &self,
        label: &impl Fn(&str) -> Option<&'p str>,
        owner: &Controller<'_>,
    ) -> bool {
        let is_a = |kind: &GroupKind<'_>| {
            group_of(owner.api_version) == kind.group && owner.kind == kind.kind
        };
        match self {
            Self::Kind(kind) => is_a(kind),
            Self::Named { kind, name } => is_a(kind) && owner.name == name,
            Self::ReplicaSetOf { deployment } => {
                is_a(&REPLICA_SET)
                    && label(POD_TEMPLATE_HASH)
                        .is_some_and(|hash| is_replica_set_of(owner.name, deployment, hash))
            }
            Self::AnyOf(rules) => rules.iter().any(|rule| rule.matches(label, owner)),
        }
    }
}

fn is_replica_set_of(name: &str, deployment: &str, hash: &str) -> bool {
    let stem = name
        .strip_suffix(hash)
        .filter(|_| !hash.is_empty())
        .and_then(|rest| rest.strip_suffix('-'));
    stem.is_some_and(|stem| {
        stem == deployment || (name.len() == LONGEST_NAME && deployment.starts_with(stem))
    })
}
