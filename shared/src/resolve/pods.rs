//! Matches a target's pods by both labels and controller owner (RES-5).

use super::object::group_of;
use super::owned::{APPS, DAEMON_SET, LEADER_WORKER_SET, REPLICA_SET, STATEFUL_SET};
use super::{GroupKind, Integration, Selector};

/// Label that the Deployment controller sets on each of its pods: the suffix of the name of their `ReplicaSet`.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// The maximum length of an object's name; the Deployment controller truncates a Deployment's name to fit.
const LONGEST_NAME: usize = 253;
/// How much of a name counts in a lookup: names of `ReplicaSet`s may be truncated.
const LOOKUP_LENGTH: usize = 128;

/// Matches the pods of a target. An unmanaged pod with copied labels does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodMatch {
    /// Selector for the pods' labels.
    pub labels: Selector,
    /// Rule for the pods' controller owner.
    pub owner: OwnerRule,
}

/// Rule for the controller owner of a pod.
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
    /// Any of these rules matches.
    AnyOf(Vec<OwnerRule>),
}

/// The controller owner of a pod, as in its metadata.
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
    /// Matches no pod.
    pub(super) fn nothing() -> Self {
        Self {
            labels: Selector::default(),
            owner: OwnerRule::AnyOf(Vec::new()),
        }
    }

    /// Whether a pod with these labels and this controller owner matches.
    #[must_use]
    pub fn matches<'p>(
        &self,
        label: impl Fn(&str) -> Option<&'p str>,
        controller: Option<&Controller<'_>>,
    ) -> bool {
        controller.is_some_and(|owner| self.owner.matches(&label, owner))
            && self.labels.matches(&label)
    }

    /// Every matching pod has at least one of these names among its [`lookup_names_of_pod`]; `None` if a matching pod
    /// may have any names.
    #[must_use]
    pub fn lookup_names(&self) -> Option<Vec<&str>> {
        let mut names = Vec::new();
        if self.owner.add_lookup_names(&mut names) {
            return Some(names);
        }
        let value = Integration::labels().find_map(|key| self.labels.value_of(key))?;
        Some(vec![lookup_part(value)])
    }
}

/// The names under which a pod with these labels and this controller owner is found.
#[must_use]
pub fn lookup_names_of_pod<'p>(
    label: impl Fn(&str) -> Option<&'p str>,
    controller: Option<&Controller<'p>>,
) -> Vec<&'p str> {
    let owner = controller.map(|owner| owner.name);
    let deployment = owner.and_then(|name| stem(name, label(POD_TEMPLATE_HASH)?));
    let values = Integration::labels().filter_map(&label);
    let names = owner.into_iter().chain(deployment).chain(values);
    names.map(lookup_part).collect()
}

fn lookup_part(name: &str) -> &str {
    name.get(..LOOKUP_LENGTH).unwrap_or(name)
}

impl OwnerRule {
    /// The rule for pods of a workload, if its kind determines one.
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
            // leaders belong to a StatefulSet of its name, workers to one StatefulSet per leader
            _ if (GroupKind { group, kind }) == LEADER_WORKER_SET => STATEFUL_SET,
            _ => return None,
        };
        Some(Self::Named {
            kind,
            name: name.to_owned(),
        })
    }

    /// Whether the rule names every owner, so that it distinguishes the target's pods from those of other owners.
    #[must_use]
    pub fn names_owners(&self) -> bool {
        match self {
            Self::Kind(_) => false,
            Self::Named { .. } | Self::ReplicaSetOf { .. } => true,
            Self::AnyOf(rules) => rules.iter().all(Self::names_owners),
        }
    }

    /// Adds names of which every matching owner has one; returns whether there are such names.
    fn add_lookup_names<'r>(&'r self, names: &mut Vec<&'r str>) -> bool {
        match self {
            Self::Kind(_) => false,
            Self::Named { name, .. } => {
                names.push(lookup_part(name));
                true
            }
            Self::ReplicaSetOf { deployment } => {
                names.push(lookup_part(deployment));
                true
            }
            Self::AnyOf(rules) => rules.iter().all(|rule| rule.add_lookup_names(names)),
        }
    }

    /// Whether pods of this controller can belong to the target, whatever their labels.
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
    stem(name, hash).is_some_and(|stem| {
        stem == deployment || (name.len() == LONGEST_NAME && deployment.starts_with(stem))
    })
}

/// The name of a `ReplicaSet` without its hash.
fn stem<'n>(name: &'n str, hash: &str) -> Option<&'n str> {
    let rest = name.strip_suffix(hash).filter(|_| !hash.is_empty())?;
    rest.strip_suffix('-')
}
