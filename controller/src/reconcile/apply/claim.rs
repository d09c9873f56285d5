//! Tells the owner of a target that the queue scales it, or that it does no more, and books where that was taken back
//! (SO-5, CONF-3).

use std::time::Duration;

use asya_shared::names::annotation::AUTOSCALER_CLASS;

use super::{Ensured, Rolled, parent, rival};
use crate::reconcile::conflict::ledger::{Loss, News};
use crate::reconcile::conflict::rival::Segment;
use crate::reconcile::conflict::{Part, Specs};
use crate::reconcile::observe::Observed;
use crate::reconcile::plan::claim::Claiming;
use crate::reconcile::{Context, Error};

/// Runs the plan, after the rollout with which it may have been written.
pub(super) async fn claim(
    context: &Context,
    observed: &Observed,
    what: Claiming,
    ensured: &mut Ensured,
) -> Result<(), Error> {
    let news = match what {
        Claiming::Over => Some(News::Needless),
        Claiming::Stop => None,
        Claiming::Stands(wait) | Claiming::Wait(wait) => {
            look_again(ensured, wait);
            None
        }
        Claiming::Write(is_made) => match &*ensured.rolled {
            Rolled::Asked(..) => is_made.then_some(News::Written),
            Rolled::Rest => write(context, observed, is_made, ensured).await?,
            _ => None,
        },
        Claiming::Lost(specs) => {
            look_again(ensured, Duration::ZERO);
            lost(context, observed, specs).await?
        }
    };
    let news = news.map(|news| (Part::Autoscaler, news));
    ensured.contests.news.extend(news);
    Ok(())
}

fn look_again(ensured: &mut Ensured, wait: Duration) {
    let again = &mut ensured.contests.again;
    *again = Some(again.map_or(wait, |known| known.min(wait)));
}

async fn write(
    context: &Context,
    observed: &Observed,
    is_made: bool,
    ensured: &mut Ensured,
) -> Result<Option<News>, Error> {
    if let Err(fault) = parent::claim(context, observed, is_made).await? {
        if let Some(scaled) = &mut ensured.scaling {
            scaled.fault = scaled.fault.take().or(Some(fault));
        }
        return Ok(None);
    }
    Ok(is_made.then_some(News::Written))
}

async fn lost(context: &Context, observed: &Observed, specs: Specs) -> Result<Option<News>, Error> {
    let claim = observed.resolved().and_then(|it| it.target.scale.claim());
    let Some(owner) = claim.map(|it| &it.owner) else {
        return Ok(None);
    };
    let path = Segment::path(&["metadata", "annotations", AUTOSCALER_CLASS]);
    let rival = rival::find(context, observed, owner, &path).await?;
    Ok(Some(News::Lost(Loss {
        field: format!("metadata.annotations[{AUTOSCALER_CLASS}]"),
        object: owner.to_string(),
        rival,
        specs,
        last: false,
    })))
}
