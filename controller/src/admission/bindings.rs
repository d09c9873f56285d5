//! Bindings as the webhook configurations need them, read from the actor records.

use std::sync::Arc;

use asya_shared::admission::{EntryBinding, Policy, required_entry_name};
use asya_shared::api::{BindingStrategy, ModeSpec};
use asya_shared::inject::bound::{BoundPlan, PlanInputs};
use asya_shared::resolve::{self, Integration, PodMatch};
use asya_shared::validate;
use k8s_openapi::jiff::Timestamp;

use crate::cluster::store::KnownNamespaces;
use crate::context::Context;
use crate::record::{ActorRecord, Key};

/// A binding with strategy Pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct WebhookBinding {
    pub(super) key: Key,
    pub(super) uid: Box<str>,
    pub(super) integration: Integration,
    pub(super) pods: PodMatch,
    /// The target's pods may belong to objects that have not been seen yet, so that owners cannot identify all of them.
    has_intermediate_owners: bool,
    required: bool,
    /// Whether the binding has taken effect (`status.boundSince`).
    is_effective: bool,
    /// Actor hash of [`BoundPlan::hash`], which injected pods carry.
    pub(super) hash: Option<String>,
}

/// All bindings with strategy Pod, oldest first. Excludes a binding whose target another actor owns: a target has one
/// actor. Also excludes those outside the `known` namespaces, of which only some may be known.
pub(super) fn all(context: &Context, known: &KnownNamespaces) -> Vec<WebhookBinding> {
    let mut actors: Vec<Arc<ActorRecord>> = Vec::new();
    context.stores.actors.each(|actor| {
        let is_known = known.contains(&actor.metadata.key.namespace);
        if is_known && actor.binds_to.is_some() && actor.receives_messages() {
            actors.push(Arc::clone(actor));
        }
    });
    let age = |actor: &ActorRecord| {
        let created = actor.created.as_ref();
        (
            created.map_or(Timestamp::MIN, |time| time.0),
            actor.metadata.uid.clone(),
        )
    };
    actors.sort_by_cached_key(|actor| age(actor));
    let owns_target = |actor: &&Arc<ActorRecord>| {
        context
            .bindings
            .older_binding(&actor.metadata.key)
            .is_none()
    };
    let owners = actors.iter().filter(owns_target);
    let bindings = owners.filter_map(|actor| WebhookBinding::of(context, actor));
    bindings.collect()
}

impl WebhookBinding {
    fn of(context: &Context, actor: &ActorRecord) -> Option<Self> {
        let spec = validate::decode(actor.spec.as_ref()?.get()).ok()?;
        let Ok(ModeSpec::Binding(mode)) = spec.mode() else {
            return None;
        };
        let target = mode.target;
        let key = &actor.metadata.key;
        let namespace = target.namespace.as_deref().filter(|name| !name.is_empty());
        if mode.strategy != BindingStrategy::Pod
            || namespace.is_some_and(|name| name != &*key.namespace)
        {
            return None;
        }
        let status = actor.decode_status();
        let installation = &context.installation;
        let transport = installation.transports.usable(&spec.transport).ok();
        let plan = transport.filter(|_| mode.required).and_then(|transport| {
            BoundPlan::new(&PlanInputs {
                namespace: &key.namespace,
                actor: &key.name,
                uid: &actor.metadata.uid,
                spec: &spec,
                role_arn: actor.annotations.role_arn.as_deref(),
                transport,
                settings: &installation.settings,
                scripts_hash: &installation.scripts_hash,
            })
        });
        Some(Self {
            key: key.clone(),
            uid: actor.metadata.uid.clone(),
            integration: Integration::of_target(target),
            pods: resolve::pods_of(target, status.resolved_target.as_ref()),
            has_intermediate_owners: resolve::has_intermediate_owners(target),
            required: mode.required,
            is_effective: status.bound_since.is_some(),
            hash: plan.map(|plan| plan.hash().actor.clone()),
        })
    }

    /// Converts to the input of the configurations. `is_verified` takes the name of the entry.
    pub(super) fn binding(&self, is_verified: impl Fn(&str) -> bool) -> EntryBinding {
        EntryBinding {
            namespace: self.key.namespace.to_string(),
            actor: self.key.name.to_string(),
            integration: self.integration,
            pods: self.pods.clone(),
            has_intermediate_owners: self.has_intermediate_owners,
            policy: if self.required {
                let verified = is_verified(&self.entry());
                Policy::Required { verified }
            } else {
                Policy::Optional
            },
        }
    }

    /// Name of the binding's own entry, if it is required.
    pub(super) fn required_entry(&self) -> Option<String> {
        self.required.then(|| self.entry())
    }

    /// Whether the entry must fail closed once a dry run has verified injection.
    pub(super) fn needs_probe(&self) -> bool {
        self.required && self.is_effective
    }

    fn entry(&self) -> String {
        required_entry_name(&self.key.namespace, &self.key.name)
    }
}

#[cfg(test)]
impl WebhookBinding {
    /// A required binding that has taken effect, with uid `uid-of-<actor>`.
    pub(super) fn for_tests(
        namespace: &str,
        actor: &str,
        pods: PodMatch,
        hash: Option<&str>,
    ) -> Self {
        Self {
            key: Key::new(namespace, actor),
            uid: format!("uid-of-{actor}").into(),
            integration: Integration::Generic,
            pods,
            has_intermediate_owners: false,
            required: true,
            is_effective: true,
            hash: hash.map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::all;
    use crate::cluster::store::KnownNamespaces;
    use crate::cluster::watch_scope::WatchScope;
    use crate::reconcile::tests::fixtures::context;
    use crate::record::{ActorRecord, Projected};

    /// CFG-7 (b): beyond the limit, those at the end fail open.
    #[tokio::test]
    async fn oldest_binding_comes_first() {
        let context = context();
        let actors = &context.stores.actors;
        actors.list_pending(&WatchScope::Cluster);
        for (name, second) in [("a", 3), ("b", 1), ("c", 2)] {
            let object = json!({
                "metadata": {
                    "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1",
                    "creationTimestamp": format!("2026-01-01T00:00:0{second}Z"),
                },
                "spec": {
                    "transport": "mq",
                    "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                },
            });
            let actor: Projected<ActorRecord> = serde_json::from_str(&object.to_string()).unwrap();
            actors.apply(&WatchScope::Cluster, &actor);
        }
        actors.list_completed(&WatchScope::Cluster);
        let bindings = all(&context, &KnownNamespaces::All);
        let names: Vec<_> = bindings.iter().map(|it| &*it.key.name).collect();
        assert_eq!(names, ["b", "c", "a"]);
        // CFG-12: part of a list that failed.
        let others = KnownNamespaces::Only(["other".into()].into());
        assert_eq!(all(&context, &others), []);
    }
}
