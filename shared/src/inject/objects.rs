//! The objects that we apply: an actor's workload (WRK-1, WRK-2) and `ServiceAccount` (SA-1), and the runtime script of
//! its namespace (RUN-1).

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::labels::{selector, to_json};
use super::template::{PodInputs, pod_template};
use crate::api::{AsyncActorSpec, Workload, WorkloadKind};
use crate::applied::{HashedManifest, child_labels, owner_reference};
use crate::names::{
    RUNTIME_ADAPTERS_KEY, RUNTIME_CONFIG_MAP, RUNTIME_SCRIPT_KEY, annotation, label,
};

/// How we set the replicas of a workload (WRK-3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replicas {
    /// Scaling is off: always enforce this number.
    Enforced(i32),
    /// Scaling is on: create the workload with this number and leave the field to the autoscaler from then on.
    Initial(i32),
}

impl Replicas {
    /// While an autoscaler scales the workload (`scaled`), `spec.replicas` is not ours. A
    /// recreated workload starts with the last desired number of pods (WRK-3).
    #[must_use]
    pub fn of(
        spec: &AsyncActorSpec,
        template: &Workload,
        scaled: bool,
        previous: Option<i32>,
    ) -> Self {
        match spec.effective_scaling() {
            Some(scaling) => {
                let max = scaling.max_replicas.max(scaling.min_replicas);
                let initial = previous.unwrap_or(scaling.min_replicas);
                Self::Initial(initial.clamp(scaling.min_replicas, max))
            }
            None if scaled => Self::Initial(template.effective_replicas()),
            None => Self::Enforced(template.effective_replicas()),
        }
    }

    /// The number that a new workload starts with.
    #[must_use]
    pub fn at_start(self) -> i32 {
        let (Self::Enforced(replicas) | Self::Initial(replicas)) = self;
        replicas
    }
}

/// A workload and what the controller needs to know about it.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadObject {
    /// The object as applied to an existing workload.
    pub applied: HashedManifest,
    /// How its replicas are set.
    pub replicas: Replicas,
    /// Hash of the pod template, which the pods carry as an annotation.
    pub template_hash: String,
    /// Termination grace period of its pods, in seconds.
    pub grace_seconds: u32,
}

/// Renders the Deployment or `StatefulSet` of the actor with this UID.
#[must_use]
pub fn workload(inputs: &PodInputs<'_>, uid: &str, replicas: Replicas) -> WorkloadObject {
    let kind = inputs.workload.effective_kind();
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
        .unwrap_or_else(|| inputs.spec.effective_timeout().graceful_shutdown);

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
        applied: HashedManifest::new(object),
        replicas,
        template_hash,
        grace_seconds,
    }
}

impl WorkloadObject {
    /// The object to create. It carries the hash of [`Self::applied`], so that it is not applied again right away.
    #[must_use]
    pub fn to_create(&self) -> Cow<'_, Value> {
        let mut object = Cow::Borrowed(&self.applied.object);
        if let Replicas::Initial(replicas) = self.replicas {
            object.to_mut()["spec"]["replicas"] = Value::from(replicas);
        }
        object
    }
}

/// Name of the `ServiceAccount` of an actor with an IAM role.
#[must_use]
pub fn service_account_name(actor: &str) -> String {
    format!("asya-{actor}")
}

/// The `ServiceAccount` with which the pods of the actor with this UID assume an IAM role (SA-1).
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
/// reference (RUN-2, BIND-30).
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
