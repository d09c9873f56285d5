//! Records contention over the fields of a binding's target and of our `ScaledObject` (CONF-3 to CONF-5).

use std::time::Duration;

use asya_shared::names::annotation::AUTOSCALER_CLASS;
use kube::api::ApiResource;

use super::rival;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::contention::field_owner::{Segment, missing, named};
use crate::reconcile::contention::history::{FieldEvent, FieldLoss};
use crate::reconcile::model::outcome::Ensured;
use crate::reconcile::plan::contest::ContestedField;
use crate::reconcile::plan::replicas::{self, REPLICAS};
use crate::record::{AppliedRecord, Key, ScaledObject, ScaledObjectRecord};

/// A field, as shown to users, and who took it.
type Taken = (String, Option<String>);

/// Records what became of a contested field; `written`: this reconcile wrote it.
pub(super) async fn record(
    context: &Context,
    actor: &Key,
    (field, decision, written): (&ContestedField, FieldDecision, bool),
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let contests = &mut ensured.contests;
    let event = match decision {
        FieldDecision::Over => Some(FieldEvent::Needless),
        FieldDecision::Stands(wait) | FieldDecision::Wait(wait) => {
            contests.look_again(wait);
            None
        }
        FieldDecision::Write => written.then_some(FieldEvent::Written),
        FieldDecision::Lost(specs) => {
            let taken = taken(context, actor, field).await?;
            taken.map(|(path, rival)| {
                contests.look_again(Duration::ZERO);
                FieldEvent::Lost(FieldLoss {
                    field: path,
                    object: field.object(&actor.name),
                    rival,
                    specs,
                    last: false,
                })
            })
        }
        FieldDecision::Stop => {
            if let Some(scaled) = &mut ensured.scaling {
                scaled.fault = scaled.fault.take().or(field.stopped(&actor.name));
            }
            None
        }
    };
    contests
        .news
        .extend(event.map(|event| (field.part(), event)));
    Ok(())
}

/// Finds out who took a field; `None`: nobody whose write counts.
async fn taken(
    context: &Context,
    actor: &Key,
    field: &ContestedField,
) -> Result<Option<Taken>, Error> {
    let namespace = &actor.namespace;
    match field {
        ContestedField::ScaledObject(wanted) => {
            let unknown = || ("spec".to_owned(), None);
            let Some(wanted) = wanted else {
                return Ok(Some(unknown()));
            };
            let live = rival::metadata(context, &scaled_objects(), actor).await?;
            let found = live.and_then(|live| {
                let entries = live.managed_fields.as_deref().unwrap_or_default();
                let path = missing(entries, ScaledObjectRecord::MANAGER, wanted)?;
                Some((Segment::text(&path), named(&live, &path)))
            });
            Ok(Some(found.unwrap_or_else(unknown)))
        }
        ContestedField::Claim(owner) => {
            let path = Segment::path(&["metadata", "annotations", AUTOSCALER_CLASS]);
            let rival = rival::find(context, namespace, owner, &path).await?;
            Ok(Some((Segment::text(&path), rival)))
        }
        ContestedField::Replicas(workload) => {
            let Some(resource) = context.bindings.resource_of(workload) else {
                return Ok(None);
            };
            let key = Key::new(namespace, &workload.name);
            let live = rival::metadata(context, &resource, &key).await?;
            let Some((live, rival)) = live.and_then(|live| {
                let rival = replicas::rival(&live)?;
                Some((live, rival))
            }) else {
                return Ok(None);
            };
            let ours = rival::metadata(context, &scaled_objects(), actor).await?;
            if replicas::is_set_before(&live, ours.as_ref()) {
                return Ok(None);
            }
            let path = Segment::text(&Segment::path(&REPLICAS));
            Ok(Some((path, Some(rival))))
        }
    }
}

fn scaled_objects() -> ApiResource {
    ApiResource::erase::<ScaledObject>(&())
}
