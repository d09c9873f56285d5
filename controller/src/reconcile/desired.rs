//! What an actor's spec asks for, or why that is not possible.

mod binding;
pub mod deletion;
pub mod drain;
pub mod scaling;
mod standalone;

use std::sync::Arc;

use asya_shared::api::{AsyncActorSpec, AsyncActorStatus, ModeSpec, QueueStatus, WorkloadKind};
use asya_shared::config::Transport;
use asya_shared::scaling::{ScaleTarget, ScalingObjects, Untriggerable};
use asya_shared::transport::{QueueNames, QueueOf};
use asya_shared::validate::{self, Subject, Write};

use crate::context::Installation;
use crate::fault::{Fault, Reason};
use crate::reconcile::desired::scaling::scaling_of;
use crate::record::ActorRecord;

pub use binding::Bound;
pub use standalone::Standalone;

/// The desired state of an actor.
#[derive(Debug)]
pub struct Desired {
    pub spec: AsyncActorSpec,
    /// The transport that the spec names.
    pub transport: Transport,
    /// Names of the actor's queues.
    pub names: QueueNames,
    /// Hash of everything that its queue should be.
    pub queue_hash: String,
    /// What depends on the actor's mode.
    pub mode: Mode,
}

/// What only one of the two modes asks for.
#[derive(Debug)]
pub enum Mode {
    /// The operator manages the workload.
    Standalone(Box<Standalone>),
    /// Another controller manages it.
    Binding(Box<Bound>),
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

    /// The queue of `actor`, as its broker has to know it.
    pub fn queue_of(&self, actor: &ActorRecord) -> QueueOf {
        queue_of(actor, &self.spec, self.names.clone())
    }

    /// KEDA's objects that scale `target` by the actor's queue, or why the queue cannot be described to KEDA yet;
    /// `None` while scaling is off.
    pub fn scaling_of(
        &self,
        actor: &ActorRecord,
        previous: &AsyncActorStatus,
        target: ScaleTarget<'_>,
    ) -> Option<Result<ScalingObjects, Untriggerable>> {
        let Self {
            spec,
            transport,
            names,
            ..
        } = self;
        scaling_of(actor, previous, spec, (transport, names), target)
    }

    /// `None` for a binding.
    pub fn standalone(&self) -> Option<&Standalone> {
        match &self.mode {
            Mode::Standalone(own) => Some(own),
            Mode::Binding(_) => None,
        }
    }

    /// `None` for a standalone actor.
    pub fn bound(&self) -> Option<&Bound> {
        match &self.mode {
            Mode::Standalone(_) => None,
            Mode::Binding(bound) => Some(bound),
        }
    }
}

fn queue_of(actor: &ActorRecord, spec: &AsyncActorSpec, names: QueueNames) -> QueueOf {
    let key = &actor.metadata.key;
    QueueOf {
        names,
        namespace: key.namespace.to_string(),
        actor: key.name.to_string(),
        uid: actor.metadata.uid.to_string(),
        timeout: spec.timeout_in_force(),
        adopts: actor.annotations.adopts().map(str::to_owned),
    }
}

/// Decodes and validates the spec. A fault is of the transport or of the spec; either way nothing is retried before
/// something changes (VAL-19, VAL-20).
///
/// `previous` is the status of the last reconcile. `scaled` are the kinds for which a workload with the actor's name is
/// being scaled, desired or not.
pub fn desired(
    installation: &Installation,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    scaled: &[WorkloadKind],
) -> Result<Arc<Desired>, Fault> {
    let invalid = |text: String| Fault::until_change(Reason::ValidationError, text);
    if let Some(unknown) = &actor.annotations.unknown {
        return Err(invalid(unknown.to_string()));
    }
    let key = &actor.metadata.key;
    let raw = actor.spec.as_ref().map_or("null", |raw| raw.get());
    let spec = validate::decode(raw).map_err(|violation| invalid(violation.to_string()))?;
    let subject = Subject {
        name: &key.name,
        namespace: &key.namespace,
        spec: &spec,
        role_arn: actor.annotations.role_arn.as_deref(),
        write: if is_new(previous) {
            Write::Create
        } else {
            Write::Stored
        },
        transports: &installation.transports,
        privileged_sidecars: installation.settings.privileged_sidecars,
    };
    let violations = validate::check(&subject);
    if !violations.is_empty() {
        return Err(invalid(validate::joined(&violations)));
    }
    let transport = installation.transports.usable(&spec.transport);
    let transport = transport
        .map_err(|unusable| Fault::until_change(Reason::InvalidTransport, unusable.to_string()))?;
    let names = transport.names_of(&key.namespace, &key.name);
    let mode = match spec.mode().map_err(|error| invalid(error.to_string()))? {
        ModeSpec::Standalone(template) => {
            let inputs = standalone::Inputs {
                installation,
                actor,
                previous,
                scaled: scaled.contains(&template.kind_in_force()),
                spec: &spec,
                template,
                transport,
                names: &names,
            };
            Mode::Standalone(Box::new(inputs.desired()))
        }
        ModeSpec::Binding(in_force) => Mode::Binding(Box::new(Bound::new(
            installation,
            actor,
            &subject,
            &in_force,
            transport,
        ))),
    };
    let queue_hash = transport.hash_of(&queue_of(actor, &spec, names.clone()));
    Ok(Arc::new(Desired {
        queue_hash,
        names,
        transport: transport.clone(),
        mode,
        spec,
    }))
}

/// Whether nothing with the actor's name has been created yet: by us, who record it in status, or by the former
/// operator, which recorded nothing but left a status without a mode (VAL-11).
fn is_new(previous: &AsyncActorStatus) -> bool {
    let of_former = previous.mode.is_none() && *previous != AsyncActorStatus::default();
    previous.queue.is_none() && previous.inventory.is_empty() && !of_former
}

#[cfg(test)]
mod tests;
