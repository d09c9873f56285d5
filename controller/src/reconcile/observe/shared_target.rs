//! Observes the handover of a target between two actors (BIND-45).

use asya_shared::api::{AsyncActorStatus, ModeSpec};
use asya_shared::resolve::{Family, Resolution, Target};
use asya_shared::validate;

use super::probe_pod::bare_pod;
use crate::binding::Found;
use crate::binding::specimen::Specimen;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::model::handover::{Ceded, Successor};
use crate::record::{ActorRecord, Key};

/// What the actor applied to the pod template of a target that an older actor binds; `None` if nothing, or if that is
/// unknown.
pub(super) async fn ceded(
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
        workload,
        owner,
        pods,
        ..
    } = &**target;
    let part = reading.templated.as_ref();
    let is_its = workload.uid.as_deref() == Some(&*applied.uid)
        && part.is_some_and(|it| it.is_of(&actor.metadata.uid));
    if !is_its {
        return Ok(Some(Ceded::Gone));
    }
    let successor = successor(context, &older);
    let pod = if successor.in_force {
        let body = bindings.body(&context.client, &key.namespace, workload);
        let body = body.await.map_err(Error::Api)?;
        let family = actor.binds_to.as_ref().map(Family::of_target);
        let specimen = Specimen::of(pods, family.unwrap_or(Family::Generic));
        body.zip(specimen)
            .and_then(|(body, specimen)| bare_pod(&body, &specimen))
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
