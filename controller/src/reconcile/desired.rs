//! What an actor's spec asks for, or why it cannot be had.

use asya_shared::api::{
    AsyncActorSpec, AsyncActorStatus, ModeSpec, QueueStatus, Workload, WorkloadKind,
};
use asya_shared::applied::Sealed;
use asya_shared::config::Transport;
use asya_shared::inject::{
    PodInputs, Replicas, WorkloadObject, service_account, service_account_name, workload,
};
use asya_shared::scaling::{
    ScaleTarget, ScalingInputs, ScalingObjects, Untriggerable, scaling_objects,
};
use asya_shared::transport::{QueueNames, QueueOf};
use asya_shared::validate::{self, Subject, Write};

use super::{Fault, Installation, Reason};
use crate::record::ActorRecord;

/// What a spec asks for.
#[derive(Debug)]
pub struct Desired {
    /// The spec.
    pub spec: AsyncActorSpec,
    /// The transport that it names.
    pub transport: Transport,
    /// The actor's queues.
    pub names: QueueNames,
    /// Hash of all that its queue should be.
    pub queue_hash: String,
    /// Kind of the workload.
    pub kind: WorkloadKind,
    /// The `ServiceAccount` by which its pods assume their IAM role, if they have one.
    pub service_account: Option<Sealed>,
    /// The workload, as it is applied.
    pub workload: WorkloadObject,
    /// What makes KEDA scale it, or why KEDA cannot be told of the queue yet; `None` while scaling is off.
    pub scaling: Option<Result<ScalingObjects, Untriggerable>>,
}

impl Desired {
    /// The actor's queue, as status names it.
    pub fn queue(&self) -> QueueStatus {
        QueueStatus {
            transport: self.transport.name.clone(),
            name: self.names.queue.clone(),
            ..QueueStatus::default()
        }
    }

    /// The queue of `actor`, as its broker must know it.
    pub fn queue_of(&self, actor: &ActorRecord) -> QueueOf {
        queue_of(actor, &self.spec, self.names.clone())
    }

    /// What belongs to the actor alone; `None` as long as KEDA cannot be told of its queue.
    pub fn children(&self) -> Option<impl Iterator<Item = &Sealed>> {
        let scaling = self.scaling.as_ref().map(Result::as_ref).transpose().ok()?;
        let of_keda = scaling.into_iter().flat_map(|objects| {
            let authentication = objects.trigger_authentication.as_ref();
            authentication.into_iter().chain([&objects.scaled_object])
        });
        let own = self.service_account.iter().chain([&self.workload.kept]);
        Some(own.chain(of_keda))
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
    }
}

/// Reads the spec and judges it. The fault of one that cannot be acted on is of the transport or of the
/// spec; either way nothing is tried before something changes (VAL-19, VAL-20).
///
/// `previous` is the status of the last pass; `scaled` tells that the workload is still being scaled, wanted or not.
pub fn desired(
    installation: &Installation,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    scaled: bool,
) -> Result<Box<Desired>, Fault> {
    let invalid = |text: String| Fault::until_change(Reason::ValidationError, text);
    let key = &actor.metadata.key;
    let raw = actor.spec.as_ref().map_or("null", |raw| raw.get());
    let spec = validate::decode(raw).map_err(|violation| invalid(violation.to_string()))?;
    let violations = validate::check(&Subject {
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
    });
    if !violations.is_empty() {
        return Err(invalid(validate::joined(&violations)));
    }
    let template = match spec.mode().map_err(|error| invalid(error.to_string()))? {
        ModeSpec::Standalone(workload) => workload,
        ModeSpec::Binding(_) => return Err(not_served("spec.workloadRef: binding to a workload")),
    };
    let transport = installation.transports.usable(&spec.transport);
    let transport = transport
        .map_err(|unusable| Fault::until_change(Reason::InvalidTransport, unusable.to_string()))?;
    let role = transport.role_of_pods(actor.annotations.role_arn.as_deref());
    let account = role.map(|_| service_account_name(&key.name));
    let names = transport.names_of(&key.namespace, &key.name);
    let is_it =
        |queue: &&QueueStatus| (&queue.transport, &queue.name) == (&transport.name, &names.queue);
    let queue = previous.queue.as_ref().filter(is_it);
    let scaling = spec.scaling_in_force().map(|scaling| {
        scaling_objects(&ScalingInputs {
            namespace: &key.namespace,
            actor: &key.name,
            uid: &actor.metadata.uid,
            scaling,
            target: ScaleTarget::workload(template.kind_in_force(), &key.name),
            transport,
            names: &names,
            queue_url: queue.and_then(|queue| queue.url.as_deref()),
        })
    });
    let workload = workload(
        &PodInputs {
            namespace: &key.namespace,
            actor: &key.name,
            spec: &spec,
            workload: template,
            transport,
            settings: &installation.settings,
            runtime_hash: &installation.runtime_hash,
            service_account: account.as_deref(),
        },
        &actor.metadata.uid,
        replicas(&spec, template, scaled, previous.desired_replicas),
    );
    let queue_hash = transport.hash_of(&queue_of(actor, &spec, names.clone()));
    Ok(Box::new(Desired {
        kind: template.kind_in_force(),
        queue_hash,
        service_account: role
            .map(|role| service_account(&key.namespace, &key.name, &actor.metadata.uid, role)),
        workload,
        scaling,
        names,
        transport: transport.clone(),
        spec,
    }))
}

/// VAL-11: nothing has been made yet that bears the actor's name, by us or by the former operator, which would have
/// said so.
fn is_new(previous: &AsyncActorStatus) -> bool {
    let mut conditions = previous.conditions.iter();
    let refused = Reason::ValidationError.to_string();
    let untouched = previous.conditions.is_empty()
        || conditions.any(|it| it.type_ == "WorkloadReady" && it.reason == refused);
    previous.queue.is_none() && previous.inventory.is_empty() && untouched
}

/// WRK-3: as long as an autoscaler drives the workload, the number of its pods is not ours.
/// One that is made again goes on with as many pods as there should be.
fn replicas(
    spec: &AsyncActorSpec,
    template: &Workload,
    scaled: bool,
    wanted_before: Option<i32>,
) -> Replicas {
    match spec.scaling_in_force() {
        Some(scaling) => {
            let most = scaling.max_replicas.max(scaling.min_replicas);
            let before = wanted_before.unwrap_or(scaling.min_replicas);
            Replicas::Initial(before.clamp(scaling.min_replicas, most))
        }
        None if scaled => Replicas::Initial(template.replicas_in_force()),
        None => Replicas::Enforced(template.replicas_in_force()),
    }
}

fn not_served(what: &str) -> Fault {
    Fault::until_change(
        Reason::NotServed,
        format!("{what} is not served by this version of the operator; remove it"),
    )
}
