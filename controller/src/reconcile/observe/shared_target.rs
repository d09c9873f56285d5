//! Observes the handover of a target between two actors (BIND-45).

use asya_shared::api::{AsyncActorStatus, BindingStrategy, ModeSpec};
use asya_shared::resolve::{Family, Resolution, Target};
use asya_shared::validate;
use serde_json::Value;

use crate::binding::Found;
use crate::binding::probe_pod::bare_pod;
use crate::binding::specimen::Specimen;
use crate::context::Context;
use crate::fault::{Error, Fault, Reason};
use crate::reconcile::model::binding::{PartOwner, Resolved};
use crate::reconcile::model::handover::{Ceded, Successor};
use crate::record::{ActorRecord, Key};

/// Observes whose part is in the target's pod template, and what is left to hand over.
pub(super) async fn see(
    context: &Context,
    (actor, strategy, previous): (&ActorRecord, BindingStrategy, &AsyncActorStatus),
    target: &Result<Box<Resolved>, Fault>,
) -> Result<(Option<PartOwner>, Option<Ceded>), Error> {
    let resolved = match target {
        Ok(resolved) => resolved,
        Err(fault) if fault.reason == Reason::AlreadyBound => {
            return Ok((None, ceded(context, actor, previous).await?));
        }
        Err(_) => return Ok((None, None)),
    };
    let owner = part_owner(context, actor, resolved);
    // With strategy Template, the next apply replaces the part.
    let abandoned = if strategy == BindingStrategy::Pod && owner.is_none() {
        abandoned(context, actor, previous, resolved).await?
    } else {
        None
    };
    Ok((owner, abandoned))
}

/// What the actor applied to the pod template of a target that an older actor binds; `None` if nothing, or if that is
/// unknown.
async fn ceded(
    context: &Context,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
) -> Result<Option<Ceded>, Error> {
    let (key, bindings) = (&actor.metadata.key, &context.bindings);
    let (Some(applied), Some(target)) = (&previous.template, bindings.target_of(key)) else {
        return Ok(None);
    };
    let Some(older) = bindings.owner_before(key) else {
        return Ok(None);
    };
    let found = bindings.read(&context.client, &target);
    let reading = match found.await.map_err(Error::Api)? {
        Found::Read(reading) => reading,
        Found::Absent => return Ok(Some(Ceded::Gone)),
        Found::NotYet | Found::OfKind(_) => return Ok(None),
    };
    let Resolution::Found(target) = &reading.resolution else {
        return Ok(None);
    };
    let Target {
        workload, owner, ..
    } = &**target;
    let part = reading.templated.as_ref();
    let is_its = workload.uid.as_deref() == Some(&*applied.uid)
        && part.is_some_and(|it| it.is_of(&actor.metadata.uid));
    if !is_its {
        return Ok(Some(Ceded::Gone));
    }
    let successor = successor(context, &older);
    let pod = if successor.in_force {
        pod_of(context, actor, target).await?
    } else {
        None
    };
    Ok(Some(Ceded::Stands {
        workload: workload.clone(),
        owned: owner.is_some(),
        successor,
        pod,
    }))
}

/// What an actor that no longer exists left in the pod template of this actor's target, once new pods would get this
/// actor's sidecar. Nobody else would remove it (BIND-45).
async fn abandoned(
    context: &Context,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
    resolved: &Resolved,
) -> Result<Option<Ceded>, Error> {
    let uid = &*actor.metadata.uid;
    let own = (uid, actor.generation);
    let successor = Successor::of(own, previous, BindingStrategy::Pod);
    if resolved.part_of_other(uid).is_none() || !successor.in_force || actor.annotations.paused {
        return Ok(None);
    }
    let target = &resolved.target;
    Ok(Some(Ceded::Stands {
        workload: target.workload.clone(),
        owned: target.owner.is_some(),
        successor,
        pod: pod_of(context, actor, target).await?,
    }))
}

/// The other actor whose part is in the target's pod template; `None` if there is none, or if it no longer exists.
fn part_owner(context: &Context, actor: &ActorRecord, resolved: &Resolved) -> Option<PartOwner> {
    let uid = resolved.part_of_other(&actor.metadata.uid)?;
    let actors = &context.stores.actors;
    let keys = actors.keys_in(&actor.metadata.key.namespace);
    let mut all = keys.iter().filter_map(|key| actors.get(key));
    let owner = all.find(|it| *it.metadata.uid == *uid)?;
    Some(PartOwner {
        name: owner.metadata.key.name.as_ref().into(),
        paused: owner.annotations.paused,
    })
}

/// A pod of the target without any sidecar.
async fn pod_of(
    context: &Context,
    actor: &ActorRecord,
    target: &Target,
) -> Result<Option<Value>, Error> {
    let (bindings, namespace) = (&context.bindings, &actor.metadata.key.namespace);
    let body = bindings.body(&context.client, namespace, &target.workload);
    let body = body.await.map_err(Error::Api)?;
    let family = actor.binds_to.as_ref().map(Family::of_target);
    let specimen = Specimen::of(&target.pods, family.unwrap_or(Family::Generic));
    Ok(body
        .zip(specimen)
        .and_then(|(body, specimen)| bare_pod(&body, &specimen)))
}

fn successor(context: &Context, key: &Key) -> Successor {
    let actor = context.stores.actors.get(key);
    let Some(actor) = actor.filter(|it| it.works()) else {
        return Successor::default();
    };
    let status = actor.told_status();
    let spec = actor.spec.as_ref();
    let spec = spec.and_then(|raw| validate::decode(raw.get()).ok());
    match spec.as_ref().and_then(|spec| spec.mode().ok()) {
        Some(ModeSpec::Binding(it)) => {
            let actor = (&*actor.metadata.uid, actor.generation);
            Successor::of(actor, &status, it.strategy)
        }
        _ => Successor::default(),
    }
}
