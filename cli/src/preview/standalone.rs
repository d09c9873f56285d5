//! The objects of an actor with its own workload, rendered by the operator's code.

use asya_shared::api::{AsyncActorSpec, AsyncActorStatus, Workload, WorkloadKind};
use asya_shared::config::{QueueNames, Transport};
use asya_shared::inject::{PodInputs, Replicas, service_account, service_account_name, workload};
use asya_shared::names::manager;
use asya_shared::probe::{ProbeMetadata, from_template, unbound_owner};
use asya_shared::scaling::{ScaleTarget, ScalingInputs, TriggerError, scaling_objects};
use serde_json::{Map, Value};

use crate::installation::Installation;

/// An actor to preview, and where its queue is.
#[derive(Clone, Copy)]
pub struct PreviewedActor<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    pub role_arn: Option<&'a str>,
    pub spec: &'a AsyncActorSpec,
    pub previous: &'a AsyncActorStatus,
    pub installation: &'a Installation,
    pub transport: &'a Transport,
    pub names: &'a QueueNames,
}

/// An object that the operator applies.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// As applied to an existing object.
    pub applied: Value,
    pub created: Value,
    pub manager: &'static str,
}

/// The workload of a standalone actor.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnWorkload {
    pub kind: WorkloadKind,
    pub service_account: Option<Child>,
    pub workload: Child,
    /// Initial number of pods of a new workload.
    pub replicas: i32,
}

impl Child {
    fn new(object: Value, manager: &'static str) -> Self {
        Self {
            created: object.clone(),
            applied: object,
            manager,
        }
    }

    /// As Kind/name.
    pub fn object(&self) -> String {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!(
            "{}/{}",
            text(&self.applied["kind"]),
            text(&self.applied["metadata"]["name"])
        )
    }
}

/// The actor's workload, with this hash of the runtime script.
pub fn own_workload(
    subject: &PreviewedActor<'_>,
    template: &Workload,
    scaled: bool,
    runtime_hash: &str,
) -> OwnWorkload {
    let PreviewedActor {
        namespace,
        name,
        uid,
        spec,
        ..
    } = *subject;
    let role = subject.transport.role_of_pods(subject.role_arn);
    let account = role.map(|_| service_account_name(name));
    let replicas = Replicas::of(spec, template, scaled, subject.previous.desired_replicas);
    let inputs = PodInputs {
        namespace,
        actor: name,
        spec,
        workload: template,
        transport: subject.transport,
        settings: &subject.installation.settings,
        runtime_hash,
        service_account: account.as_deref(),
    };
    let rendered = workload(&inputs, uid, replicas);
    OwnWorkload {
        kind: template.effective_kind(),
        service_account: role.map(|role| {
            let account = service_account(namespace, name, uid, role);
            Child::new(account.object, manager::SERVICE_ACCOUNT)
        }),
        workload: Child {
            created: rendered.to_create().into_owned(),
            applied: rendered.applied.object,
            manager: manager::WORKLOAD,
        },
        replicas: replicas.at_start(),
    }
}

/// KEDA's objects, in the order in which they are applied; none while scaling is off.
///
/// # Errors
/// If a value that KEDA needs is not known yet.
pub fn scaling(
    subject: &PreviewedActor<'_>,
    target: ScaleTarget<'_>,
) -> Result<Vec<Child>, TriggerError> {
    let Some(scaling) = subject.spec.effective_scaling() else {
        return Ok(Vec::new());
    };
    let queue = subject.previous.queue.as_ref();
    let is_current = queue
        .filter(|it| (&it.transport, &it.name) == (&subject.transport.name, &subject.names.queue));
    let objects = scaling_objects(&ScalingInputs {
        namespace: subject.namespace,
        actor: subject.name,
        uid: subject.uid,
        scaling,
        target,
        transport: subject.transport,
        names: subject.names,
        queue_url: is_current.and_then(|it| it.url.as_deref()),
    })?;
    let all = [
        objects.config_map,
        objects.trigger_authentication,
        Some(objects.scaled_object),
    ];
    let all = all.into_iter().flatten();
    Ok(all
        .map(|it| Child::new(it.object, manager::SCALED_OBJECT))
        .collect())
}

/// A pod of the workload, for a dry run. Omits a service account that the operator has yet to create, since the API
/// server rejects pods of an account that does not exist.
pub fn pod(own: &OwnWorkload) -> Option<Value> {
    let claims = own.workload.created.pointer("/spec/volumeClaimTemplates");
    let metadata = ProbeMetadata {
        labels: Map::new(),
        owner: unbound_owner(),
    };
    let template = own.workload.created.pointer("/spec/template")?;
    let mut pod = from_template(template, claims, &metadata)?;
    if let (Some(_), Some(spec)) = (&own.service_account, pod["spec"].as_object_mut()) {
        spec.remove("serviceAccountName");
        spec.remove("serviceAccount");
    }
    Some(pod)
}

#[cfg(test)]
mod tests;
