//! Processes the items of the work queue and decides when to requeue them.

use std::time::Duration;

use asya_shared::backoff::Backoff;
use tracing::{Instrument, debug, info_span, warn};

use crate::context::Context;
use crate::fault::{BackoffKind, Requeue};
use crate::reconcile;
use crate::reconcile::work_item::WorkItem;
use crate::record::Key;
use crate::work_queue::{Attempt, RunOutcome};

/// Initial delay of the slow backoff, for faults that no event will resolve.
const SLOW_BACKOFF_BASE: Duration = Duration::from_secs(30);

/// Resync interval and limits of retries.
#[derive(Clone, Copy, Debug)]
pub struct RequeuePolicy {
    /// Resync interval of every actor, with a jitter of 10 %; zero disables it (FW-5).
    pub resync: Duration,
    /// Maximum delay of a retry (FW-6).
    pub max_backoff: Duration,
}

/// Processes one work item and returns when to run it again.
pub async fn run(
    context: &Context,
    work: WorkItem,
    attempt: Attempt,
    policy: RequeuePolicy,
) -> RunOutcome {
    match work {
        WorkItem::Actor(key) => match reconcile_actor(context, key, attempt).await {
            Some(requeue) => policy.outcome(requeue, attempt),
            None => RunOutcome::Done,
        },
        WorkItem::RuntimeScript => match context
            .runtime_script
            .ensure_in_runtime_namespace(&context.config_maps)
            .await
        {
            Ok(None) => RunOutcome::Done,
            Ok(Some(requeue)) => policy.outcome(requeue, attempt),
            Err(error) => {
                warn!(%error, "cannot write the runtime script's ConfigMap in the runtime namespace");
                RunOutcome::FAILED
            }
        },
    }
}

/// Reconciles an actor once, with its metrics and a tracing span (FW-10).
async fn reconcile_actor(context: &Context, key: Key, attempt: Attempt) -> Option<Requeue> {
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
    let timer = context.metrics.start_reconcile();
    let result = reconcile::reconcile(context, &key, attempt)
        .instrument(span.clone())
        .await;
    let _entered = span.enter();
    let requeue = match &result {
        Ok(requeue) => {
            match requeue {
                None | Some(Requeue::AwaitChange) => timer.succeeded(),
                Some(_) => timer.requeued(),
            }
            *requeue
        }
        Err(error) if error.is_failure() => {
            timer.failed(error.kind());
            warn!(%error, kind = error.kind(), "reconcile failed");
            Some(error.requeue())
        }
        Err(error) => {
            timer.requeued();
            debug!(%error, kind = error.kind(), "reconcile again");
            Some(error.requeue())
        }
    };
    if attempt.last && requeue.and_then(Requeue::backoff).is_some() {
        context.metrics.retries_exhausted();
        warn!("no more retries until an event (--retry-attempts)");
    }
    requeue
}

impl RequeuePolicy {
    fn outcome(self, requeue: Requeue, attempt: Attempt) -> RunOutcome {
        match requeue {
            Requeue::AwaitChange if self.resync.is_zero() => RunOutcome::Done,
            Requeue::AwaitChange => {
                RunOutcome::RequeueAfter(self.resync.mul_f64(0.9 + 0.2 * fastrand::f64()))
            }
            Requeue::Now => RunOutcome::RequeueAfter(Duration::ZERO),
            Requeue::After(delay) => RunOutcome::RequeueAfter(delay),
            Requeue::Backoff => self.failed(BackoffKind::Backoff, attempt, None),
            Requeue::SlowBackoff => self.failed(BackoffKind::SlowBackoff, attempt, None),
            Requeue::BackoffOrAfter(failure, timer) => self.failed(failure, attempt, Some(timer)),
        }
    }

    fn failed(self, failure: BackoffKind, attempt: Attempt, timer: Option<Duration>) -> RunOutcome {
        let after = match failure {
            BackoffKind::Backoff => None,
            BackoffKind::SlowBackoff => {
                let backoff = Backoff::new(SLOW_BACKOFF_BASE, self.max_backoff).with_jitter(0.2);
                Some(backoff.jittered(attempt.failures, fastrand::f64()))
            }
        };
        RunOutcome::Failed { after, timer }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::RequeuePolicy;
    use crate::fault::{BackoffKind, Requeue};
    use crate::work_queue::{Attempt, RunOutcome};

    const FIRST: Attempt = Attempt {
        failures: 0,
        last: false,
    };

    fn every(resync: u64) -> RequeuePolicy {
        RequeuePolicy {
            resync: Duration::from_secs(resync),
            max_backoff: Duration::from_mins(5),
        }
    }

    /// FW-5 (b, c)
    #[test]
    fn idle_actor_is_resynced_with_ten_percent_jitter() {
        let delays: Vec<_> = (0..100)
            .map(|_| match every(1000).outcome(Requeue::AwaitChange, FIRST) {
                RunOutcome::RequeueAfter(delay) => delay.as_secs(),
                outcome => panic!("{outcome:?}"),
            })
            .collect();
        assert!(delays.iter().all(|it| (900..=1100).contains(it)));
        assert!(delays.iter().any(|it| *it != delays[0]), "{delays:?}");
        assert_eq!(
            every(0).outcome(Requeue::AwaitChange, FIRST),
            RunOutcome::Done
        );
    }

    /// FW-5 (d)
    #[test]
    fn retries_and_timers_do_not_depend_on_the_resync_interval() {
        let delay = Duration::from_secs(65);
        for resync in [0, 1, 36_000] {
            let policy = every(resync);
            for (requeue, expected) in [
                (Requeue::Backoff, RunOutcome::FAILED),
                (Requeue::After(delay), RunOutcome::RequeueAfter(delay)),
                (Requeue::Now, RunOutcome::RequeueAfter(Duration::ZERO)),
            ] {
                assert_eq!(policy.outcome(requeue, FIRST), expected, "{resync}");
            }
        }
    }

    /// FW-28: actors whose calls failed in one outage must not retry at the same moment.
    #[test]
    fn slow_backoff_is_jittered() {
        let delays: Vec<_> = (0..100)
            .map(|_| every(1000).outcome(Requeue::SlowBackoff, FIRST))
            .collect();
        assert!(delays.iter().any(|it| *it != delays[0]), "{delays:?}");
    }

    /// FW-28, FW-32
    #[test]
    fn every_requeue_has_its_delay() {
        let policy = every(1000);
        let delay = Duration::from_secs(65);
        assert_eq!(
            policy.outcome(Requeue::Now, FIRST),
            RunOutcome::RequeueAfter(Duration::ZERO)
        );
        assert_eq!(
            policy.outcome(Requeue::After(delay), FIRST),
            RunOutcome::RequeueAfter(delay)
        );
        assert_eq!(policy.outcome(Requeue::Backoff, FIRST), RunOutcome::FAILED);
        let timer = Some(delay);
        assert_eq!(
            policy.outcome(Requeue::BackoffOrAfter(BackoffKind::Backoff, delay), FIRST),
            RunOutcome::Failed { after: None, timer }
        );
        let outcome = policy.outcome(
            Requeue::BackoffOrAfter(BackoffKind::SlowBackoff, delay),
            FIRST,
        );
        assert!(
            matches!(outcome, RunOutcome::Failed { after: Some(after), timer: Some(timer) } if after < delay && timer == delay),
            "{outcome:?}"
        );
        for (failures, min, max) in [(0, 24, 30), (1, 48, 60), (2, 96, 120), (9, 240, 300)] {
            let attempt = Attempt {
                failures,
                last: false,
            };
            let RunOutcome::Failed {
                after: Some(after),
                timer: None,
            } = policy.outcome(Requeue::SlowBackoff, attempt)
            else {
                panic!()
            };
            assert!(
                (min..=max).contains(&after.as_secs()),
                "{failures}: {after:?}"
            );
        }
    }
}
