//! Finds out who changed an object of ours before it is restored (WRK-8).

use super::rival;
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::contention::field_owner::{Segment, missing, named};
use crate::reconcile::contention::restoring::Restored;
use crate::reconcile::plan::restore::Drift;

/// Reported where no single field is found, because items of lists are not compared.
const CONTAINERS: [&str; 4] = ["spec", "template", "spec", "containers"];
const REPLICAS: [&str; 2] = ["spec", "replicas"];

/// Returns the first field of each object that we no longer own, and its current owner.
pub(super) async fn causes(context: &Context, drifts: Vec<Drift>) -> Result<Vec<Restored>, Error> {
    let mut found = Vec::with_capacity(drifts.len());
    for drift in drifts {
        let live = rival::metadata(context, &drift.resource, &drift.key).await?;
        let entries = live.as_ref().and_then(|it| it.managed_fields.as_deref());
        let path = match &drift.wanted {
            None => Segment::path(&REPLICAS),
            Some(wanted) => missing(entries.unwrap_or_default(), drift.manager, wanted)
                .unwrap_or_else(|| Segment::path(&CONTAINERS)),
        };
        found.push(Restored {
            part: drift.part,
            uid: drift.uid,
            object: format!("{}/{}", drift.resource.kind, drift.key.name),
            rival: live.and_then(|live| named(&live, &path)),
            field: Segment::text(&path),
        });
    }
    Ok(found)
}
