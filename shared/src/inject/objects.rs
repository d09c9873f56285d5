//! The objects that we apply: an actor's workload (WRK-1, WRK-2) and `ServiceAccount` (SA-1), and the script of its
//! namespace (RUN-1).

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::labels::{selector, to_json};
use super::template::{PodInputs, pod_template};
use crate::api::WorkloadKind;
use crate::applied::{HashedManifest, child_labels, owner_reference};
use crate::names::{
    RUNTIME_ADAPTERS_KEY, RUNTIME_CONFIG_MAP, RUNTIME_SCRIPT_KEY, annotation, label,
};

/// What is written of a workload's number of pods (WRK-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// Scaling is off: this many, always.
    Enforced(i32),
    /// Scaling is on: a new workload begins with this many, and from then on the number is not ours.
    Initial(i32),
}

/// A workload as we apply it.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadObject {
    /// The whole object, as it is kept.
    pub kept: HashedManifest,
    /// Who writes its number of pods.
    pub replicas: Replicas,
    /// Its template's hash, which its pods carry as annotation.
    pub template_hash: String,
    /// Seconds that its pods have to stop.
    pub grace_seconds: u32,
}

/// The Deployment or `StatefulSet` of the actor with this uid.
#[must_use]
pub fn workload(inputs: &PodInputs<'_>, uid: &str, replicas: Replicas) -> WorkloadObject {
    let kind = inputs.workload.kind_in_force();
    let template = pod_template(inputs);
    let template_hash = template
        .pointer("/metadata/annotations")
        .and_then(|annotations| annotations.get(annotation::TEMPLATE_HASH)?.as_str())
        .unwrap_or_default()
        .to_owned();
    let grace_seconds = template
        .pointer("/spec/terminationGracePeriodSeconds")
        .and_then(Value::as_u64)
        .and_then(|seconds| u32::try_from(seconds).ok())
        .unwrap_or_else(|| inputs.spec.timeout_in_force().graceful_shutdown);

    let mut spec = Map::new();
    spec.insert(
        "selector".to_owned(),
        json!({"matchLabels": to_json(selector(inputs.actor, kind))}),
    );
    spec.insert("template".to_owned(), template);
    if kind == WorkloadKind::StatefulSet {
        spec.insert("serviceName".to_owned(), Value::from(inputs.actor));
        spec.insert("podManagementPolicy".to_owned(), Value::from("Parallel"));
        if let Some(claims) = inputs
            .workload
            .volume_claim_templates
            .as_ref()
            .filter(|claims| !claims.is_empty())
        {
            spec.insert("volumeClaimTemplates".to_owned(), json!(claims));
        }
    }
    if let Replicas::Enforced(replicas) = replicas {
        spec.insert("replicas".to_owned(), Value::from(replicas));
    }
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {
            "name": inputs.actor,
            "namespace": inputs.namespace,
            "labels": child_labels(inputs.actor),
            "ownerReferences": [owner_reference(inputs.actor, uid)],
        },
        "spec": spec,
    });
    WorkloadObject {
        kept: HashedManifest::new(object),
        replicas,
        template_hash,
        grace_seconds,
    }
}

impl WorkloadObject {
    /// The object to begin with. Its hash is that of the kept one, so that it is not applied again.
    #[must_use]
    pub fn first(&self) -> Cow<'_, Value> {
        let mut object = Cow::Borrowed(&self.kept.object);
        if let Replicas::Initial(replicas) = self.replicas {
            object.to_mut()["spec"]["replicas"] = Value::from(replicas);
        }
        object
    }
}

/// The name of the `ServiceAccount` of an actor with an IAM role.
#[must_use]
pub fn service_account_name(actor: &str) -> String {
    format!("asya-{actor}")
}

/// The `ServiceAccount` by which the pods of the actor with this uid assume an IAM role (SA-1).
#[must_use]
pub fn service_account(namespace: &str, actor: &str, uid: &str, role_arn: &str) -> HashedManifest {
    HashedManifest::new(json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": service_account_name(actor),
            "namespace": namespace,
            "labels": child_labels(actor),
            "annotations": {annotation::ROLE_ARN: role_arn},
            "ownerReferences": [owner_reference(actor, uid)],
        },
    }))
}

/// The `ConfigMap` with the runtime script and the adapters. All actors of the namespace share it, so it has no owner
/// (RUN-2, BIND-30).
#[must_use]
pub fn runtime_config_map(namespace: &str, script: &str, adapters: &str) -> HashedManifest {
    HashedManifest::new(json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": RUNTIME_CONFIG_MAP,
            "namespace": namespace,
            "labels": {
                label::NAME: RUNTIME_CONFIG_MAP,
                label::COMPONENT: RUNTIME_CONFIG_MAP,
                label::PART_OF: "asya",
            },
        },
        "data": {RUNTIME_SCRIPT_KEY: script, RUNTIME_ADAPTERS_KEY: adapters},
    }))
}

#[cfg(test)]
mod tests;
