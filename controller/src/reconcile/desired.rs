//! The desired state of an actor, or why its spec cannot be acted on.

mod binding;
pub mod scaling;
mod standalone;

use std::sync::Arc;

use asya_shared::api::{AsyncActorSpec, AsyncActorStatus, ModeSpec, QueueStatus, WorkloadKind};
use asya_shared::config::{QueueNames, Transport, TransportsConfig};
use asya_shared::scaling::{ScaleTarget, ScalingObjects, TriggerError};
use asya_shared::transport::ActorQueue;
use asya_shared::validate::{self, Recorded, Subject, Write};

use crate::context::Installation;
use crate::fault::{Fault, Reason};
use crate::reconcile::desired::scaling::build_scaling_objects;
use crate::record::ActorRecord;

pub use binding::{DesiredBinding, missing_secret_fault};
pub use standalone::Standalone;

#[derive(Debug)]
pub struct Desired {
    pub spec: AsyncActorSpec,
    /// The transport that the spec names.
    pub transport: Transport,
    /// Names of the actor's queues.
    pub names: QueueNames,
    /// Hash of the queue's desired configuration.
    pub queue_hash: String,
    /// The state that depends on the actor's mode.
    pub mode: DesiredMode,
}

/// The desired state that is specific to a mode.
#[derive(Debug)]
pub enum DesiredMode {
    /// The operator manages the workload.
    Standalone(Box<Standalone>),
    /// Another controller manages it.
    Binding(Box<DesiredBinding>),
}

impl Desired {
    /// The actor's queue, as recorded in status.
    pub fn queue(&self) -> QueueStatus {
        QueueStatus {
            transport: self.transport.name.clone(),
            name: self.names.queue.clone(),
            ..QueueStatus::default()
        }
    }

    /// The actor's queue with the dead letter queue that is created with it.
    pub fn queue_with_dead_letters(&self) -> QueueStatus {
        let own = self.transport.own_dead_letters(&self.names.queue);
        QueueStatus {
            dead_letters: own.into_iter().collect(),
            ..self.queue()
        }
    }

    /// The queues that an earlier spec of `actor` may have had on other transports, and what they would be created as.
    pub fn queues_elsewhere(
        &self,
        actor: &ActorRecord,
        transports: &TransportsConfig,
    ) -> Vec<(QueueStatus, ActorQueue)> {
        let key = &actor.metadata.key;
        let address = self.transport.broker().address(&self.names.queue);
        let others = transports.iter().filter_map(|transport| {
            let names = transport.names_of(&key.namespace, &key.name);
            let is_ours = transport.enabled && transport.queues().auto_create;
            let is_other = transport.broker().address(&names.queue) != address;
            (is_ours && is_other).then_some((transport, names))
        });
        let queues = others.map(|(transport, names)| {
            let status = QueueStatus {
                transport: transport.name.clone(),
                name: names.queue.clone(),
                dead_letters: Vec::from_iter(transport.own_dead_letters(&names.queue)),
                ..QueueStatus::default()
            };
            (status, queue_of(actor, &self.spec, names))
        });
        queues.collect()
    }

    /// The queue of `actor`, as it should be at its broker.
    pub fn queue_of(&self, actor: &ActorRecord) -> ActorQueue {
        queue_of(actor, &self.spec, self.names.clone())
    }

    /// The KEDA objects that scale `target` by the actor's queue, or why no trigger can be built for the queue yet;
    /// `None` while scaling is off.
    pub fn scaling_objects(
        &self,
        actor: &ActorRecord,
        previous: &AsyncActorStatus,
        target: ScaleTarget<'_>,
    ) -> Option<Result<ScalingObjects, TriggerError>> {
        let Self {
            spec,
            transport,
            names,
            ..
        } = self;
        build_scaling_objects(actor, previous, spec, transport, names, target)
    }

    /// `None` for a binding.
    pub fn standalone(&self) -> Option<&Standalone> {
        match &self.mode {
            DesiredMode::Standalone(standalone) => Some(standalone),
            DesiredMode::Binding(_) => None,
        }
    }

    /// `None` for a standalone actor.
    pub fn desired_binding(&self) -> Option<&DesiredBinding> {
        match &self.mode {
            DesiredMode::Standalone(_) => None,
            DesiredMode::Binding(bound) => Some(bound),
        }
    }
}

fn queue_of(actor: &ActorRecord, spec: &AsyncActorSpec, names: QueueNames) -> ActorQueue {
    let key = &actor.metadata.key;
    ActorQueue {
        names,
        namespace: key.namespace.to_string(),
        actor: key.name.to_string(),
        uid: actor.metadata.uid.to_string(),
        timeout: spec.effective_timeout(),
        adopts: actor.annotations.adopts().map(str::to_owned),
    }
}

/// Decodes and validates the spec. Faults of the transport or the spec are not retried until something changes (VAL-19,
/// VAL-20).
///
/// `previous` is the status of the last reconcile. `scaled` are the kinds for which a workload with the actor's name is
/// being scaled, desired or not.
pub fn desired(
    installation: &Installation,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    scaled: &[WorkloadKind],
) -> Result<Arc<Desired>, Fault> {
    let key = &actor.metadata.key;
    let spec = decode_spec(actor)?;
    let workloads = recorded_workloads(previous);
    let subject = Subject {
        name: &key.name,
        namespace: &key.namespace,
        spec: &spec,
        role_arn: actor.annotations.role_arn.as_deref(),
        write: write_of(previous, &workloads),
        transports: &installation.transports,
        privileged_sidecars: installation.settings.privileged_sidecars,
    };
    let violations = validate::check(&subject);
    if !violations.is_empty() {
        return Err(invalid(&validate::joined(&violations)));
    }
    let transport = installation.transports.usable(&spec.transport);
    let transport = transport
        .map_err(|unusable| Fault::until_change(Reason::InvalidTransport, unusable.to_string()))?;
    let names = transport.names_of(&key.namespace, &key.name);
    let mode = match spec.mode().map_err(|error| invalid(&error))? {
        ModeSpec::Standalone(template) => {
            let inputs = standalone::StandaloneInputs {
                installation,
                actor,
                previous,
                scaled: scaled.contains(&template.effective_kind()),
                spec: &spec,
                template,
                transport,
                names: &names,
            };
            DesiredMode::Standalone(Box::new(inputs.desired()))
        }
        ModeSpec::Binding(effective) => DesiredMode::Binding(Box::new(DesiredBinding::new(
            installation,
            actor,
            &subject,
            &effective,
            transport,
        ))),
    };
    let queue_hash = transport.desired_hash(&queue_of(actor, &spec, names.clone()));
    Ok(Arc::new(Desired {
        queue_hash,
        names,
        transport: transport.clone(),
        mode,
        spec,
    }))
}

/// Decodes the spec, unless an annotation or its size is invalid.
fn decode_spec(actor: &ActorRecord) -> Result<AsyncActorSpec, Fault> {
    if let Some(unknown) = &actor.annotations.unknown {
        return Err(invalid(unknown));
    }
    if let Some(violation) = validate::spec_size(actor.spec_bytes, None) {
        return Err(invalid(&violation));
    }
    let raw = actor.spec.as_ref().map_or("null", |raw| raw.get());
    validate::decode(raw).map_err(|violation| invalid(&violation))
}

fn invalid(violation: &impl ToString) -> Fault {
    Fault::until_change(Reason::ValidationError, violation.to_string())
}

/// A new actor is validated like one that is being created, any other against what has been created for it (VAL-11).
fn write_of<'a>(previous: &'a AsyncActorStatus, workloads: &'a [WorkloadKind]) -> Write<'a> {
    if is_new(previous) {
        return Write::Create;
    }
    Write::Stored(Recorded {
        workloads,
        transport: previous.queue.as_ref().map(|it| &*it.transport),
    })
}

fn recorded_workloads(previous: &AsyncActorStatus) -> Vec<WorkloadKind> {
    let kinds = [WorkloadKind::Deployment, WorkloadKind::StatefulSet].into_iter();
    let is_recorded = |kind: &WorkloadKind| {
        let mut entries = previous.inventory.iter();
        entries.any(|it| it.group == "apps" && it.kind == kind.name())
    };
    kinds.filter(is_recorded).collect()
}

/// Whether nothing has been created for the actor yet. We record what we create in status; the Go operator recorded
/// nothing, but left a status without a mode (VAL-11).
fn is_new(previous: &AsyncActorStatus) -> bool {
    let has_former_status = previous.mode.is_none() && *previous != AsyncActorStatus::default();
    previous.queue.is_none() && previous.inventory.is_empty() && !has_former_status
}

#[cfg(test)]
mod tests;
