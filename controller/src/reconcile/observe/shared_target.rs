//! What two actors make of one target while it changes hands (BIND-45).

use asya_shared::api::{AsyncActorStatus, ModeSpec};
use asya_shared::resolve::{Resolution, Target};
use asya_shared::validate;

use crate::binding::Found;
use crate::reconcile::plan::template::{Ceded, Heir};
use crate::reconcile::{Context, Error};
use crate::record::{ActorRecord, Key};

/// What the actor applied to the pod template of a target that an older one binds; `None`: nothing, or nobody can tell.
pub(super) async fn ceded(
    context: &Context,
    actor: &ActorRecord,
    previous: &AsyncActorStatus,
) -> Result<Option<Ceded>, Error> {
    let (key, bindings) = (&actor.metadata.key, &context.bindings);
    let (Some(applied), Some(target)) = (&previous.template, bindings.target_of(key)) else {
        return Ok(None);
    };
    let Some(heir) = bindings.owner_before(key) else {
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
    Ok(Some(if is_its {
        Ceded::Stands {
            workload: workload.clone(),
            owned: owner.is_some(),
            heir: heir_of(context, &heir),
        }
    } else {
        Ceded::Gone
    }))
}

fn heir_of(context: &Context, key: &Key) -> Heir {
    let actor = context.stores.actors.get(key);
    let Some(actor) = actor.filter(|it| it.works()) else {
        return Heir::default();
    };
    let status = actor.told_status();
    let spec = actor.spec.as_ref();
    let spec = spec.and_then(|raw| validate::decode(raw.get()).ok());
    match spec.as_ref().and_then(|spec| spec.mode().ok()) {
        Some(ModeSpec::Binding(it)) => Heir::of(&status, actor.generation, it.strategy),
        _ => Heir::default(),
    }
}
