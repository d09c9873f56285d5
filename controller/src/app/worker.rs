//! What the work queue runs, and when it runs it again.

use std::time::Duration;

use tracing::{Instrument, info_span, warn};

use crate::context::Context;
use crate::fault::{Error, Failure, Requeue};
use crate::reconcile;
use crate::reconcile::work_item::WorkItem;
use crate::record::Key;
use crate::work_queue::{Attempt, Outcome};

/// Where nothing will wake us: the first delay.
const SLOWLY: Duration = Duration::from_secs(30);

/// How often actors are seen without an event.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Every actor is seen again after this long, give or take a tenth; zero is never (FW-5).
    pub resync: Duration,
    /// Longest delay of a retry (FW-6).
    pub longest: Duration,
}

/// Does a piece of work. Answers when it is due again.
pub async fn run(context: &Context, work: WorkItem, attempt: Attempt, pace: Pace) -> Outcome {
    match work {
        WorkItem::Actor(key) => match pass(context, key, attempt).await {
            Some(retry) => pace.outcome(retry, attempt),
            None => Outcome::Done,
        },
        WorkItem::RuntimeScript => match context.runtime.ensure_home(&context.config_maps).await {
            Ok(None) => Outcome::Done,
            Ok(Some(retry)) => pace.outcome(retry, attempt),
            Err(error) => {
                warn!(%error, "the runtime script is not in its home namespace");
                Outcome::FAILED
            }
        },
    }
}

/// One pass over an actor, with its metrics and the context of its log lines (FW-10).
async fn pass(context: &Context, key: Key, attempt: Attempt) -> Option<Requeue> {
    let actor = context.stores.actors.get(&key);
    let (uid, generation) =
        actor.map_or_else(Default::default, |a| (a.metadata.uid.clone(), a.generation));
    let span = info_span!("pass", namespace = &*key.namespace, actor = &*key.name, %uid, generation, id = fastrand::u32(..));
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
            warn!(%error, kind = error.kind(), "pass failed");
            Some(error.retry())
        }
    };
    if attempt.last && retry.and_then(Requeue::failure).is_some() {
        context.metrics.gave_up();
        warn!("not tried again until an event (--retry-attempts)");
    }
    retry
}

impl Pace {
    fn outcome(self, retry: Requeue, attempt: Attempt) -> Outcome {
        match retry {
            Requeue::AwaitChange if self.resync.is_zero() => Outcome::Done,
            Requeue::AwaitChange => {
                Outcome::Again(self.resync.mul_f64(0.9 + 0.2 * fastrand::f64()))
            }
            Requeue::Now => Outcome::Again(Duration::ZERO),
            Requeue::After(delay) => Outcome::Again(delay),
            Requeue::Backoff => self.failed(Failure::Backoff, attempt, None),
            Requeue::SlowBackoff => self.failed(Failure::SlowBackoff, attempt, None),
            Requeue::FailedAnd(failure, timer) => self.failed(failure, attempt, Some(timer)),
        }
    }

    fn failed(self, failure: Failure, attempt: Attempt, timer: Option<Duration>) -> Outcome {
        let after = match failure {
            Failure::Backoff => None,
            Failure::SlowBackoff => {
                let full = SLOWLY
                    .saturating_mul(1 << attempt.failures.min(8))
                    .min(self.longest);
                Some(full.mul_f64(0.8 + 0.2 * fastrand::f64()))
            }
        };
        Outcome::Failed { after, timer }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Pace;
    use crate::fault::{Failure, Requeue};
    use crate::work_queue::{Attempt, Outcome};

    const FIRST: Attempt = Attempt {
        failures: 0,
        last: false,
    };

    fn every(resync: u64) -> Pace {
        Pace {
            resync: Duration::from_secs(resync),
            longest: Duration::from_mins(5),
        }
    }

    /// FW-5
    #[test]
    fn actor_at_rest_is_seen_again_after_the_interval_give_or_take_a_tenth() {
        for _ in 0..100 {
            let Outcome::Again(delay) = every(1000).outcome(Requeue::AwaitChange, FIRST) else {
                panic!()
            };
            assert!((900..=1100).contains(&delay.as_secs()), "{delay:?}");
        }
        assert_eq!(every(0).outcome(Requeue::AwaitChange, FIRST), Outcome::Done);
    }

    /// FW-28, FW-32
    #[test]
    fn every_retry_has_its_delay() {
        let pace = every(1000);
        let delay = Duration::from_secs(65);
        assert_eq!(
            pace.outcome(Requeue::Now, FIRST),
            Outcome::Again(Duration::ZERO)
        );
        assert_eq!(
            pace.outcome(Requeue::After(delay), FIRST),
            Outcome::Again(delay)
        );
        assert_eq!(pace.outcome(Requeue::Backoff, FIRST), Outcome::FAILED);
        let timer = Some(delay);
        assert_eq!(
            pace.outcome(Requeue::FailedAnd(Failure::Backoff, delay), FIRST),
            Outcome::Failed { after: None, timer }
        );
        let slowly = pace.outcome(Requeue::FailedAnd(Failure::SlowBackoff, delay), FIRST);
        assert!(
            matches!(slowly, Outcome::Failed { after: Some(after), timer: Some(it) } if after < delay && it == delay),
            "{slowly:?}"
        );
        for (failures, least, most) in [(0, 24, 30), (1, 48, 60), (2, 96, 120), (9, 240, 300)] {
            let attempt = Attempt {
                failures,
                last: false,
            };
            let Outcome::Failed {
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
