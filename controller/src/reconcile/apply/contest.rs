//! Records contention over our `ScaledObject` (CONF-5), and over replicas that another controller sets (CONF-4).

use std::time::Duration;

use asya_shared::resolve::ObjectRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ApiResource;

use super::rival;
use crate::context::Context;
use crate::fault::{Error, Fault, Reason};
use crate::reconcile::contention::Part;
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::contention::field_owner::{Segment, applied_at, missing, written_at};
use crate::reconcile::contention::history::{FieldEvent, FieldLoss};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::Ensured;
use crate::record::{AppliedRecord, Key, ScaledObject, ScaledObjectRecord};

const KIND: &str = "ScaledObject";

/// Records contention over the `ScaledObject`, after scaling was reconciled.
pub(super) async fn book(
    context: &Context,
    observed: &Observed,
    what: FieldDecision,
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let news = match what {
        FieldDecision::Over => Some(FieldEvent::Needless),
        FieldDecision::Stands(wait) | FieldDecision::Wait(wait) => {
            ensured.contests.look_again(wait);
            None
        }
        FieldDecision::Write => {
            let mut applied = ensured.applied.iter();
            applied
                .any(|it| it.kind == KIND)
                .then_some(FieldEvent::Written)
        }
        FieldDecision::Lost(specs) => {
            ensured.contests.look_again(Duration::ZERO);
            let (field, rival) = lost(context, observed).await?;
            Some(FieldEvent::Lost(FieldLoss {
                field,
                object: format!("{KIND}/{}", observed.key().name),
                rival,
                specs,
                last: false,
            }))
        }
        FieldDecision::Stop => {
            if let Some(scaled) = &mut ensured.scaling {
                let text = format!(
                    "ScaledObject {}: what the actor wants of it was changed again and again, so it is not written any more, and KEDA scales by what stands there (condition Conflict says by whom)",
                    observed.key().name
                );
                let fault = Fault::until_change(Reason::BindingConflict, text);
                scaled.fault = scaled.fault.take().or(Some(fault));
            }
            None
        }
    };
    let news = news.map(|news| (Part::ScaledObject, news));
    ensured.contests.news.extend(news);
    Ok(())
}

/// Records contention over the target's replicas (CONF-4).
pub(super) async fn book_replicas(
    context: &Context,
    observed: &Observed,
    what: FieldDecision,
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let Some(resolved) = observed.resolved() else {
        return Ok(());
    };
    let workload = &resolved.target.workload;
    let news = match what {
        FieldDecision::Over => Some(FieldEvent::Needless),
        FieldDecision::Write => None,
        FieldDecision::Stands(wait) | FieldDecision::Wait(wait) => {
            ensured.contests.look_again(wait);
            None
        }
        FieldDecision::Stop => {
            if let Some(scaled) = &mut ensured.scaling {
                let text = format!(
                    "ScaledObject {}: it is paused, because somebody else sets the replicas of {workload} again and again (condition Conflict says who)",
                    observed.key().name
                );
                let fault = Fault::until_change(Reason::BindingConflict, text);
                scaled.fault = scaled.fault.take().or(Some(fault));
            }
            None
        }
        FieldDecision::Lost(specs) => {
            let path = Segment::path(&["spec", "replicas"]);
            let field = Segment::text(&path);
            let found = rival_of_replicas(context, observed, workload, &path).await?;
            found.map(|rival| {
                ensured.contests.look_again(Duration::ZERO);
                FieldEvent::Lost(FieldLoss {
                    field,
                    object: workload.to_string(),
                    rival: Some(rival),
                    specs,
                    last: false,
                })
            })
        }
    };
    let news = news.map(|news| (Part::Replicas, news));
    ensured.contests.news.extend(news);
    Ok(())
}

/// Returns who changed the replicas since the autoscaler began to scale this workload. Older writes do not count: an
/// HPA with a new target reports the number it wanted of its last one for up to 15 s.
async fn rival_of_replicas(
    context: &Context,
    observed: &Observed,
    workload: &ObjectRef,
    path: &[Segment],
) -> Result<Option<String>, Error> {
    let Some(resource) = context.bindings.resource_of(workload) else {
        return Ok(None);
    };
    let key = Key::new(&observed.key().namespace, &workload.name);
    let Some(live) = rival::metadata(context, &resource, &key).await? else {
        return Ok(None);
    };
    let Some(rival) = rival::named(&live, path).filter(|it| !is_autoscaler(it)) else {
        return Ok(None);
    };
    let resource = ApiResource::erase::<ScaledObject>(&());
    let ours = rival::metadata(context, &resource, observed.key()).await?;
    let scales_since = ours.and_then(|it| {
        let entries = it.managed_fields.as_deref().unwrap_or_default();
        applied_at(entries, ScaledObjectRecord::MANAGER)
    });
    let set = written_at(live.managed_fields.as_deref().unwrap_or_default(), path);
    let is_older = set
        .zip(scales_since)
        .is_some_and(|(set, since)| set < since);
    Ok(Some(rival).filter(|_| !is_older))
}

/// An HPA writes replicas before it reports the number it wants, and KEDA scales up from zero.
fn is_autoscaler(rival: &str) -> bool {
    let name = rival.split(' ').next().unwrap_or_default();
    ["kube-controller-manager", "keda-operator", "keda"].contains(&name)
}

/// Returns the first field we no longer own, and its current owner.
async fn lost(context: &Context, observed: &Observed) -> Result<(String, Option<String>), Error> {
    let unknown = || ("spec".to_owned(), None);
    let Some(Ok(wanted)) = observed.scaling_objects() else {
        return Ok(unknown());
    };
    let resource = ApiResource::erase::<ScaledObject>(&());
    let live = rival::metadata(context, &resource, observed.key()).await?;
    let Some(live) = live else {
        return Ok(unknown());
    };
    let path = missing(
        live.managed_fields.as_deref().unwrap_or_default(),
        ScaledObjectRecord::MANAGER,
        &wanted.scaled_object.object,
    );
    Ok(path.map_or_else(unknown, |path| told(&live, &path)))
}

fn told(live: &ObjectMeta, path: &[Segment]) -> (String, Option<String>) {
    (Segment::text(path), rival::named(live, path))
}
