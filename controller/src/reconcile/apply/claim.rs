//! Writes or gives up the claim that tells a target's owner that the queue scales it, and records contention over it
//! (SO-5, CONF-3).

use std::time::Duration;

use asya_shared::names::annotation::AUTOSCALER_CLASS;

use super::{parent, rival};
use crate::context::Context;
use crate::fault::Error;
use crate::reconcile::contention::contest::FieldDecision;
use crate::reconcile::contention::field_owner::Segment;
use crate::reconcile::contention::history::{FieldEvent, FieldLoss};
use crate::reconcile::contention::{Part, Specs};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::outcome::{Ensured, Rolled};
use crate::reconcile::plan::claim::Claiming;

/// Executes the plan, after the rollout that may already have written the claim.
pub(super) async fn claim(
    context: &Context,
    observed: &Observed,
    what: Claiming,
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let contests = &mut ensured.contests;
    let news = match what {
        Claiming::GiveUp => {
            write(context, observed, false, ensured).await?;
            None
        }
        Claiming::Wanted(FieldDecision::Over) => Some(FieldEvent::Needless),
        Claiming::Wanted(FieldDecision::Stop) => None,
        Claiming::Wanted(FieldDecision::Stands(wait) | FieldDecision::Wait(wait)) => {
            contests.look_again(wait);
            None
        }
        Claiming::Wanted(FieldDecision::Write) => write(context, observed, true, ensured)
            .await?
            .then_some(FieldEvent::Written),
        Claiming::Wanted(FieldDecision::Lost(specs)) => {
            contests.look_again(Duration::ZERO);
            lost(context, observed, specs).await?
        }
    };
    let news = news.map(|news| (Part::Autoscaler, news));
    ensured.contests.news.extend(news);
    Ok(())
}

/// Returns whether the claim was written, now or with the rollout.
async fn write(
    context: &Context,
    observed: &Observed,
    is_made: bool,
    ensured: &mut Ensured,
) -> Result<bool, Error> {
    let refused = match &*ensured.rolled {
        Rolled::Asked(..) => None,
        Rolled::Rest => parent::claim(context, observed, is_made).await?.err(),
        _ => return Ok(false),
    };
    if let Some(fault) = refused {
        if let Some(scaled) = &mut ensured.scaling {
            scaled.fault = scaled.fault.take().or(Some(fault));
        }
        return Ok(false);
    }
    ensured.contests.claimed = Some(is_made);
    Ok(true)
}

async fn lost(
    context: &Context,
    observed: &Observed,
    specs: Specs,
) -> Result<Option<FieldEvent>, Error> {
    let claim = observed.resolved().and_then(|it| it.target.scale.claim());
    let Some(owner) = claim.map(|it| &it.owner) else {
        return Ok(None);
    };
    let path = Segment::path(&["metadata", "annotations", AUTOSCALER_CLASS]);
    let rival = rival::find(context, observed, owner, &path).await?;
    Ok(Some(FieldEvent::Lost(FieldLoss {
        field: format!("metadata.annotations[{AUTOSCALER_CLASS}]"),
        object: owner.to_string(),
        rival,
        specs,
        last: false,
    })))
}
