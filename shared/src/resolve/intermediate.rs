//! Objects between a target and its pods that alone identify the owner of the pods, such as the `RayCluster`s of a
//! `RayService` (SAFE-30).

use std::collections::{BTreeMap, BTreeSet};

use super::{GroupKind, ObjectRef, OwnerRule, PodMatch, pods_by, resolver};
use crate::api::{ResolvedTarget, WorkloadRef};

/// Objects of an intermediate kind in one namespace: controller owner by name.
pub type IntermediateOwners = BTreeMap<Box<str>, Option<ObjectRef>>;

/// The pods of a binding according to status (see [`pods_of`](super::pods_of)), corrected by the intermediate objects
/// seen in the cache: adds those that the target owns and drops those with another owner.
#[must_use]
pub fn pods_with_intermediates(
    target: &WorkloadRef,
    resolved: Option<&ResolvedTarget>,
    intermediates: &IntermediateOwners,
) -> PodMatch {
    let target_resolver = resolver(target.group(), &target.kind);
    let pods = pods_by(target_resolver, &target.name, resolved);
    let Some(kind) = target_resolver.intermediate() else {
        return pods;
    };
    let uid = resolved.and_then(|it| it.uid.as_deref());
    let is_own = |owner: &Option<ObjectRef>| {
        let owner = owner.as_ref();
        owner.is_some_and(|owner| is_target(owner, target, uid))
    };
    let owned = intermediates.iter().filter(|(_, owner)| is_own(owner));
    let resolved = resolved.into_iter().flat_map(|it| in_chain(kind, it));
    let resolved = resolved.filter(|name| intermediates.get(*name).is_none_or(&is_own));
    let names: BTreeSet<&str> = owned.map(|(name, _)| &**name).chain(resolved).collect();
    PodMatch {
        owner: owned_by_any(kind, names.into_iter().map(str::to_owned)),
        ..pods
    }
}

/// Whether the target's pods may belong to objects that have not been seen yet.
#[must_use]
pub fn has_intermediate_owners(target: &WorkloadRef) -> bool {
    let target_resolver = resolver(target.group(), &target.kind);
    target_resolver.intermediate().is_some()
}

/// Whether an owner is the target: by UID once known, before that by kind and name.
fn is_target(owner: &ObjectRef, target: &WorkloadRef, uid: Option<&str>) -> bool {
    let searched = GroupKind {
        group: target.group(),
        kind: &target.kind,
    };
    owner.group_kind() == searched
        && owner.name == target.name
        && uid.is_none_or(|uid| owner.uid.as_deref() == Some(uid))
}

/// The target's objects of an intermediate kind, as recorded in status.
pub(super) fn in_chain<'a>(
    kind: GroupKind<'static>,
    resolved: &'a ResolvedTarget,
) -> impl Iterator<Item = &'a str> {
    let links = resolved
        .chain
        .iter()
        .filter_map(|link| link.split_once('/'));
    links
        .filter(move |(it, _)| *it == kind.kind)
        .map(|(_, name)| name)
}

/// Matches pods of any of these objects.
pub(super) fn owned_by_any(
    kind: GroupKind<'static>,
    names: impl IntoIterator<Item = String>,
) -> OwnerRule {
    let rules = names
        .into_iter()
        .map(|name| OwnerRule::Named { kind, name });
    OwnerRule::AnyOf(rules.collect())
}
