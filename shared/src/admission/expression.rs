//! CEL match conditions for what labels cannot express. An evaluation error would reject the pods of a required
//! binding, so every field is guarded by `has()` (CFG-6).

use std::collections::{BTreeMap, BTreeSet};

use super::syntax::is_name;
use crate::resolve::{GroupKind, OwnerRule};
use crate::validate::CONTROL_ANNOTATIONS;

/// Maximum number of names in one expression (CFG-3).
const MOST_NAMES: usize = 200;
/// Maximum length of an expression, in bytes (CFG-3).
const LONGEST: usize = 16 * 1024;
/// Longest Deployment name that is never truncated. A `ReplicaSet`'s name has at most 253 characters and ends with a
/// dash and a hash of at most ten; the Deployment controller truncates the Deployment's name to fit.
const UNSHORTENED: usize = 242;

/// The namespaces that every cluster has for itself. A subset of
/// [`is_excluded_namespace`](crate::names::is_excluded_namespace): the selectors of the entries name only namespaces
/// with bindings, so that the condition is the second of two, for the namespaces in which a mistake would stop the
/// cluster.
const SYSTEM_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// Excludes the operator's namespace and the system namespaces (CFG-5).
pub(super) fn not_excluded(own: &str) -> String {
    let all: BTreeSet<&str> = SYSTEM_NAMESPACES.into_iter().chain([own]).collect();
    format!(
        "!has(request.namespace) || !(request.namespace in [{}])",
        quoted(all.into_iter())
    )
}

/// Never blocks a deletion, whatever the spec says (ADM-5).
pub(super) const NOT_DELETING: &str =
    "!has(object.metadata) || !has(object.metadata.deletionTimestamp)";

/// Skips updates that change neither the spec nor a control annotation, because they cannot change the outcome.
pub(super) fn spec_changes() -> String {
    let value = |object: &str| {
        let all = format!("{object}.metadata.annotations");
        format!("(has({all}) && name in {all} ? {all}[name] : '')")
    };
    format!(
        "request.operation != 'UPDATE' || !has(object.metadata.generation) || !has(oldObject.metadata.generation) || \
         object.metadata.generation != oldObject.metadata.generation || [{}].exists(name, {} != {})",
        quoted(CONTROL_ANNOTATIONS.into_iter().map(|(name, _)| name)),
        value("object"),
        value("oldObject"),
    )
}

/// Matches pods whose controller owner satisfies one of these rules. `None` if no pod can match.
pub(super) fn owned_by<'a>(rules: impl IntoIterator<Item = &'a OwnerRule>) -> Option<String> {
    let mut owners = Owners::default();
    rules.into_iter().for_each(|rule| owners.add(rule));
    let exact = owners.expression(true)?;
    if owners.names() <= MOST_NAMES && exact.len() <= LONGEST {
        return Some(exact);
    }
    owners.expression(false)
}

/// Possible names of owners of one kind.
#[derive(Default)]
struct Names<'a> {
    any: bool,
    exact: BTreeSet<&'a str>,
    prefixes: BTreeSet<&'a str>,
    deployments: BTreeSet<&'a str>,
}

#[derive(Default)]
struct Owners<'a>(BTreeMap<GroupKind<'a>, Names<'a>>);

const REPLICA_SET: GroupKind<'static> = GroupKind {
    group: "apps",
    kind: "ReplicaSet",
};

impl<'a> Owners<'a> {
    fn add(&mut self, rule: &'a OwnerRule) {
        match rule {
            OwnerRule::Kind(kind) => self.of(*kind).any = true,
            OwnerRule::Named { kind, name } if is_name(name) => {
                self.of(*kind).exact.insert(name);
            }
            OwnerRule::ReplicaSetOf { deployment } if is_name(deployment) => {
                let names = self.of(REPLICA_SET);
                match deployment.get(..UNSHORTENED) {
                    Some(stem) => names.prefixes.insert(stem),
                    None => names.deployments.insert(deployment),
                };
            }
            OwnerRule::AnyOf(rules) => rules.iter().for_each(|rule| self.add(rule)),
            // No object can have this name.
            OwnerRule::Named { .. } | OwnerRule::ReplicaSetOf { .. } => {}
        }
    }

    fn of(&mut self, kind: GroupKind<'a>) -> &mut Names<'a> {
        self.0.entry(kind).or_default()
    }

    fn names(&self) -> usize {
        let all = self.0.values();
        all.map(|it| it.exact.len() + it.prefixes.len() + it.deployments.len())
            .sum()
    }

    /// Matches by kind and name, or by kind alone.
    fn expression(&self, by_name: bool) -> Option<String> {
        let kinds: Vec<String> = self
            .0
            .iter()
            .map(
                |(kind, names)| match names.condition().filter(|_| by_name) {
                    Some(name) => format!("({} && {name})", is_a(*kind)),
                    None => format!("({})", is_a(*kind)),
                },
            )
            .collect();
        (!kinds.is_empty()).then(|| {
            format!(
                "has(object.metadata) && has(object.metadata.ownerReferences) && \
                 object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && \
                 has(o.apiVersion) && has(o.kind) && has(o.name) && ({}))",
                kinds.join(" || ")
            )
        })
    }
}

impl Names<'_> {
    /// `None` if any name matches.
    fn condition(&self) -> Option<String> {
        if self.any {
            return None;
        }
        let list = |names: &BTreeSet<&str>| quoted(names.iter().copied());
        let exact = format!("o.name in [{}]", list(&self.exact));
        let prefixes = format!("[{}].exists(p, o.name.startsWith(p))", list(&self.prefixes));
        let deployments = format!(
            "(o.name.contains('-') && o.name.substring(0, o.name.lastIndexOf('-')) in [{}])",
            list(&self.deployments)
        );
        let all = [
            (&self.exact, exact),
            (&self.prefixes, prefixes),
            (&self.deployments, deployments),
        ];
        let all: Vec<_> = all
            .into_iter()
            .filter(|(names, _)| !names.is_empty())
            .map(|(_, condition)| condition)
            .collect();
        Some(format!("({})", all.join(" || ")))
    }
}

fn is_a(kind: GroupKind<'_>) -> String {
    let GroupKind { group, kind } = kind;
    if group.is_empty() {
        return format!("o.kind == '{kind}' && !o.apiVersion.contains('/')");
    }
    format!("o.kind == '{kind}' && o.apiVersion.startsWith('{group}/')")
}

/// Formats names as CEL strings. They were validated before, so none contains a quote.
fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| format!("'{name}'")).collect();
    names.join(",")
}
