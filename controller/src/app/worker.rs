//! Processes the items of the work queue and decides when to requeue them.

use std::time::Duration;

use asya_shared::backoff::Backoff;
use tracing::{Instrument, info_span, warn};

use crate::context::Context;
use crate::fault::{Error, Failure, Requeue};
use crate::reconcile;
use crate::reconcile::work_item::WorkItem;
use crate::record::Key;
use crate::work_queue::{Attempt, RunOutcome};

/// First delay of the slow backoff, for faults that no event will resolve.
const SLOWLY: Duration = Duration::from_secs(30);

/// How often actors are resynced, and how long retries may be delayed.
#[derive(Clone, Copy, Debug)]
pub struct RequeuePolicy {
    /// Resync interval of every actor, with a jitter of 10 %; zero disables it (FW-5).
    pub resync: Duration,
    /// Longest delay of a retry (FW-6).
    pub longest: Duration,
}

/// Processes one work item and returns when to run it again.
pub async fn run(
    context: &Context,
    work: WorkItem,
    attempt: Attempt,
    pace: RequeuePolicy,
) -> RunOutcome {
    match work {
        WorkItem::Actor(key) => match pass(context, key, attempt).await {
            Some(retry) => pace.outcome(retry, attempt),
            None => RunOutcome::Done,
        },
        WorkItem::RuntimeScript => match context.runtime.ensure_home(&context.config_maps).await {
            Ok(None) => RunOutcome::Done,
            Ok(Some(retry)) => pace.outcome(retry, attempt),
            Err(error) => {
                warn!(%error, "cannot write the runtime script's ConfigMap in its home namespace");
                RunOutcome::FAILED
            }
        },
    }
}

/// Reconciles an actor once, with its metrics and a tracing span (FW-10).
async fn pass(context: &Context, key: Key, attempt: Attempt) -> Option<Requeue> {
    let actor = context.stores.actors.get(&key);
    let (uid, generation) =
        actor.map_or_else(Default::default, |a| (a.metadata.uid.clone(), a.generation));
    let span = info_span!(
        "reconcile",
        namespace = &*key.namespace,
        actor = &*key.name,
        %uid,
        generation,
        id = fastrand::u32(..)
    );
    let timer = context.metrics.pass();
    let result = reconcile::reconcile(context, &key, attempt)
        .instrument(span.clone())
        .await;
    let _entered = span.enter();
    let retry = match &result {
        Ok(retry) => {
            match retry {
                None | Some(Requeue::AwaitChange) => timer.succeeded(),
                Some(_) => timer.looks_again(),
            }
            *retry
        }
        Err(Error::Stale(_) | Error::Busy(..)) => {
            timer.looks_again();
            result.as_ref().err().map(Error::retry)
        }
        Err(error) => {
            timer.failed(error.kind());
            warn!(%error, kind = error.kind(), "reconcile failed");
            Some(error.retry())
        }
    };
    if attempt.last && retry.and_then(Requeue::failure).is_some() {
        context.metrics.gave_up();
        warn!("no more retries until an event (--retry-attempts)");
    }
    retry
}

impl RequeuePolicy {
    fn outcome(self, retry: Requeue, attempt: Attempt) -> RunOutcome {
        match retry {
            Requeue::AwaitChange if self.resync.is_zero() => RunOutcome::Done,
            Requeue::AwaitChange => {
                RunOutcome::Again(self.resync.mul_f64(0.9 + 0.2 * fastrand::f64()))
            }
            Requeue::Now => RunOutcome::Again(Duration::ZERO),
            Requeue::After(delay) => RunOutcome::Again(delay),
            Requeue::Backoff => self.failed(Failure::Backoff, attempt, None),
            Requeue::SlowBackoff => self.failed(Failure::SlowBackoff, attempt, None),
            Requeue::FailedAnd(failure, timer) => self.failed(failure, attempt, Some(timer)),
        }
    }

    fn failed(self, failure: Failure, attempt: Attempt, timer: Option<Duration>) -> RunOutcome {
        let after = match failure {
            Failure::Backoff => None,
            Failure::SlowBackoff => {
                let full = Backoff::new(SLOWLY, self.longest).after(attempt.failures);
                Some(full.mul_f64(0.8 + 0.2 * fastrand::f64()))
            }
        };
        RunOutcome::Failed { after, timer }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::RequeuePolicy;
    use crate::fault::{Failure, Requeue};
    use crate::work_queue::{Attempt, RunOutcome};

    const FIRST: Attempt = Attempt {
        failures: 0,
        last: false,
    };

    fn every(resync: u64) -> RequeuePolicy {
        RequeuePolicy {
            resync: Duration::from_secs(resync),
            longest: Duration::from_mins(5),
        }
    }

    /// FW-5
    #[test]
    fn idle_actor_is_resynced_with_ten_percent_jitter() {
        for _ in 0..100 {
            let RunOutcome::Again(delay) = every(1000).outcome(Requeue::AwaitChange, FIRST) else {
                panic!()
            };
            assert!((900..=1100).contains(&delay.as_secs()), "{delay:?}");
        }
        assert_eq!(
            every(0).outcome(Requeue::AwaitChange, FIRST),
            RunOutcome::Done
        );
    }

    /// FW-28, FW-32
    #[test]
    fn every_retry_has_its_delay() {
        let pace = every(1000);
        let delay = Duration::from_secs(65);
        assert_eq!(
            pace.outcome(Requeue::Now, FIRST),
            RunOutcome::Again(Duration::ZERO)
        );
        assert_eq!(
            pace.outcome(Requeue::After(delay), FIRST),
            RunOutcome::Again(delay)
        );
        assert_eq!(pace.outcome(Requeue::Backoff, FIRST), RunOutcome::FAILED);
        let timer = Some(delay);
        assert_eq!(
            pace.outcome(Requeue::FailedAnd(Failure::Backoff, delay), FIRST),
            RunOutcome::Failed { after: None, timer }
        );
        let slowly = pace.outcome(Requeue::FailedAnd(Failure::SlowBackoff, delay), FIRST);
        assert!(
            matches!(slowly, RunOutcome::Failed { after: Some(after), timer: Some(it) } if after < delay && it == delay),
            "{slowly:?}"
        );
        for (failures, least, most) in [(0, 24, 30), (1, 48, 60), (2, 96, 120), (9, 240, 300)] {
            let attempt = Attempt {
                failures,
                last: false,
            };
            let RunOutcome::Failed {
                after: Some(after),
                timer: None,
            } = pace.outcome(Requeue::SlowBackoff, attempt)
            else {
                panic!()
            };
            assert!(
                (least..=most).contains(&after.as_secs()),
                "{failures}: {after:?}"
            );
        }
    }
}
