//! Observes the handoff of a pod template between two actors that bind the same target (BIND-45).

use asya_shared::api::{AsyncActorStatus, BindingStrategy, ModeSpec};
use asya_shared::probe::{ProbeMetadata, pod_without_sidecar};
use asya_shared::resolve::{Integration, Resolution, Target};
use asya_shared::validate;
use serde_json::Value;

use crate::binding::TargetState;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::binding::{ActorInTemplate, Resolved};
use crate::reconcile::model::template_handoff::{TemplateHandoff, TemplateRecipient};
use crate::record::{ActorRecord, Key};

/// The fields that the actor applied to the pod template of a target that an older actor binds; `None` if there are
/// none, or if that is unknown.
pub(super) async fn observe_template_handoff(
    context: &Context,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
) -> Result<Option<TemplateHandoff>, Error> {
    let key = &actor.metadata.key;
    let bindings = &context.bindings;
    let (Some(applied), Some(target)) = (&previous.template, bindings.target_of(key)) else {
        return Ok(None);
    };
    let Some(older) = bindings.older_binding(key) else {
        return Ok(None);
    };
    let state = bindings.read_target(&context.client, &target);
    let snapshot = match state.await.map_err(Error::Api)? {
        TargetState::Present(snapshot) => snapshot,
        TargetState::NotFound => return Ok(Some(TemplateHandoff::Removed)),
        TargetState::NotSynced | TargetState::KindUnavailable(_) => return Ok(None),
    };
    let Resolution::Found(target) = &snapshot.resolution else {
        return Ok(None);
    };
    let Target {
        workload, owner, ..
    } = &**target;
    let ownership = snapshot.our_template_fields.as_ref();
    let is_in_template = workload.uid.as_deref() == Some(&*applied.uid)
        && ownership.is_some_and(|it| it.may_belong_to(&actor.metadata.uid));
    if !is_in_template {
        return Ok(Some(TemplateHandoff::Removed));
    }
    let recipient = recipient(context, &older);
    let pod = if recipient.injects {
        pod_without_sidecar_of(context, actor, target).await?
    } else {
        None
    };
    Ok(Some(TemplateHandoff::InTemplate {
        workload: workload.clone(),
        owned: owner.is_some(),
        recipient,
        pod,
    }))
}

/// The stale fields of a deleted actor in the pod template of this actor's target, once new pods would get this actor's
/// sidecar. Nothing else would remove them (BIND-45).
pub(super) async fn observe_stale_fields(
    context: &Context,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    resolved: &Resolved,
) -> Result<Option<TemplateHandoff>, Error> {
    let uid = &*actor.metadata.uid;
    let strategy = BindingStrategy::Pod;
    let recipient = TemplateRecipient::from_status(uid, actor.generation, previous, strategy);
    if resolved.other_actor_in_template(uid).is_none()
        || !recipient.injects
        || actor.annotations.paused
    {
        return Ok(None);
    }
    let target = &resolved.target;
    Ok(Some(TemplateHandoff::InTemplate {
        workload: target.workload.clone(),
        owned: target.owner.is_some(),
        recipient,
        pod: pod_without_sidecar_of(context, actor, target).await?,
    }))
}

/// The other actor whose fields are in the target's pod template; `None` if there is none, or if it no longer exists.
pub(super) fn template_actor(
    context: &Context,
    actor: &ActorRecord,
    resolved: &Resolved,
) -> Option<ActorInTemplate> {
    let uid = resolved.other_actor_in_template(&actor.metadata.uid)?;
    let actors = &context.stores.actors;
    let keys = actors.keys_in(&actor.metadata.key.namespace);
    let mut all = keys.iter().filter_map(|key| actors.get(key));
    let template_actor = all.find(|actor| *actor.metadata.uid == *uid)?;
    Some(ActorInTemplate {
        name: template_actor.metadata.key.name.as_ref().into(),
        paused: template_actor.annotations.paused,
    })
}

async fn pod_without_sidecar_of(
    context: &Context,
    actor: &ActorRecord,
    target: &Target,
) -> Result<Option<Value>, Error> {
    let bindings = &context.bindings;
    let namespace = &actor.metadata.key.namespace;
    let body = bindings.read_object(&context.client, namespace, &target.workload);
    let body = body.await.map_err(Error::Api)?;
    let integration = actor.binds_to.as_ref().map(Integration::of_target);
    let metadata = ProbeMetadata::of(&target.pods, integration.unwrap_or(Integration::Generic));
    Ok(body
        .zip(metadata)
        .and_then(|(body, metadata)| pod_without_sidecar(&body, &metadata)))
}

fn recipient(context: &Context, key: &Key) -> TemplateRecipient {
    let actor = context.stores.actors.get(key);
    let Some(actor) = actor.filter(|it| it.receives_messages()) else {
        return TemplateRecipient::default();
    };
    let status = actor.decode_status();
    let spec = actor.spec.as_ref();
    let spec = spec.and_then(|raw| validate::decode(raw.get()).ok());
    match spec.as_ref().and_then(|spec| spec.mode().ok()) {
        Some(ModeSpec::Binding(binding)) => {
            let uid = &actor.metadata.uid;
            TemplateRecipient::from_status(uid, actor.generation, &status, binding.strategy)
        }
        _ => TemplateRecipient::default(),
    }
}
