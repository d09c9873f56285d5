//! The desired objects of an actor whose workload we manage.

use asya_shared::api::{AsyncActorSpec, AsyncActorStatus, Workload, WorkloadKind};
use asya_shared::applied::HashedManifest;
use asya_shared::config::{QueueNames, Transport};
use asya_shared::inject::{
    PodInputs, Replicas, WorkloadObject, service_account, service_account_name, workload,
};
use asya_shared::scaling::{ScaleTarget, ScalingObjects, TriggerError};

use super::scaling::build_scaling_objects;
use crate::context::Installation;
use crate::record::ActorRecord;

#[derive(Debug)]
pub struct Standalone {
    pub kind: WorkloadKind,
    /// The `ServiceAccount` with which its pods assume their IAM role, if they have one.
    pub service_account: Option<HashedManifest>,
    /// The workload, as applied.
    pub workload: WorkloadObject,
    /// The KEDA objects, or why no trigger can be built for the queue yet; `None` while scaling is off.
    pub scaling: Option<Result<ScalingObjects, TriggerError>>,
}

/// Inputs to the desired objects.
pub(super) struct StandaloneInputs<'a> {
    pub(super) installation: &'a Installation,
    pub(super) actor: &'a ActorRecord,
    pub(super) previous: &'a AsyncActorStatus,
    /// Whether an autoscaler still scales the workload, desired or not.
    pub(super) scaled: bool,
    pub(super) spec: &'a AsyncActorSpec,
    pub(super) template: &'a Workload,
    pub(super) transport: &'a Transport,
    pub(super) names: &'a QueueNames,
}

impl StandaloneInputs<'_> {
    pub(super) fn desired(&self) -> Standalone {
        let Self {
            installation,
            actor,
            previous,
            scaled,
            spec,
            template,
            transport,
            names,
        } = *self;
        let key = &actor.metadata.key;
        let uid = &*actor.metadata.uid;
        let role = transport.role_of_pods(actor.annotations.role_arn.as_deref());
        let account = role.map(|_| service_account_name(&key.name));
        let target = ScaleTarget::workload(template.effective_kind(), &key.name);
        let scaling = build_scaling_objects(actor, previous, spec, transport, names, target);
        let inputs = PodInputs {
            namespace: &key.namespace,
            actor: &key.name,
            spec,
            workload: template,
            transport,
            settings: &installation.settings,
            runtime_hash: &installation.runtime_hash,
            service_account: account.as_deref(),
        };
        let replicas = Replicas::of(spec, template, scaled, previous.desired_replicas);
        Standalone {
            kind: template.effective_kind(),
            service_account: role.map(|role| service_account(&key.namespace, &key.name, uid, role)),
            workload: workload(&inputs, uid, replicas),
            scaling,
        }
    }
}
