//! What the work queue runs, and when it runs it again.

use std::time::Duration;

use tracing::{Instrument, info_span, warn};

use crate::reconcile::{self, Context, Error, Failure, Retry};
use crate::record::Key;
use crate::work_queue::{Attempt, Outcome};

/// Where nothing will wake us: the first delay.
const SLOWLY: Duration = Duration::from_secs(30);

/// A piece of work for the leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// Bring an actor a step closer to what it asks for.
    Actor(Key),
    /// Keep the runtime script in its home namespace (RUN-3).
    RuntimeScript,
}

impl Work {
    /// The actor that it is about.
    pub fn actor(&self) -> Option<&Key> {
        match self {
            Self::Actor(key) => Some(key),
            Self::RuntimeScript => None,
        }
    }
}

/// How often actors are seen without an event.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Every actor is seen again after this long, give or take a tenth; zero is never (FW-5).
    pub resync: Duration,
    /// Longest delay of a retry (FW-6).
    pub longest: Duration,
}

/// Does a piece of work. Answers when it is due again.
pub async fn run(context: &Context, work: Work, attempt: Attempt, pace: Pace) -> Outcome {
    match work {
        Work::Actor(key) => match pass(context, key, attempt).await {
            Some(retry) => pace.outcome(retry, attempt),
            None => Outcome::Done,
        },
        Work::RuntimeScript => match context.runtime.ensure_home(&context.config_maps).await {
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
async fn pass(context: &Context, key: Key, attempt: Attempt) -> Option<Retry> {
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
                None | Some(Retry::OnChange) => timer.succeeded(),
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
    if attempt.last && retry.and_then(Retry::failure).is_some() {
        context.metrics.gave_up();
        warn!("not tried again until an event (--retry-attempts)");
    }
    retry
}

impl Pace {
    fn outcome(self, retry: Retry, attempt: Attempt) -> Outcome {
        match retry {
            Retry::OnChange if self.resync.is_zero() => Outcome::Done,
            Retry::OnChange => Outcome::Again(self.resync.mul_f64(0.9 + 0.2 * fastrand::f64())),
            Retry::Now => Outcome::Again(Duration::ZERO),
            Retry::After(delay) => Outcome::Again(delay),
            Retry::Soon => self.failed(Failure::Soon, attempt, None),
            Retry::Slowly => self.failed(Failure::Slowly, attempt, None),
            Retry::FailedAnd(failure, timer) => self.failed(failure, attempt, Some(timer)),
        }
    }

    fn failed(self, failure: Failure, attempt: Attempt, timer: Option<Duration>) -> Outcome {
        let after = match failure {
            Failure::Soon => None,
            Failure::Slowly => {
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
    use crate::reconcile::{Failure, Retry};
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
            let Outcome::Again(delay) = every(1000).outcome(Retry::OnChange, FIRST) else {
                panic!()
            };
            assert!((900..=1100).contains(&delay.as_secs()), "{delay:?}");
        }
        assert_eq!(every(0).outcome(Retry::OnChange, FIRST), Outcome::Done);
    }

    /// FW-28, FW-32
    #[test]
    fn every_retry_has_its_delay() {
        let pace = every(1000);
        let delay = Duration::from_secs(65);
        assert_eq!(
            pace.outcome(Retry::Now, FIRST),
            Outcome::Again(Duration::ZERO)
        );
        assert_eq!(
            pace.outcome(Retry::After(delay), FIRST),
            Outcome::Again(delay)
        );
        assert_eq!(pace.outcome(Retry::Soon, FIRST), Outcome::FAILED);
        let timer = Some(delay);
        assert_eq!(
            pace.outcome(Retry::FailedAnd(Failure::Soon, delay), FIRST),
            Outcome::Failed { after: None, timer }
        );
        let slowly = pace.outcome(Retry::FailedAnd(Failure::Slowly, delay), FIRST);
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
            } = pace.outcome(Retry::Slowly, attempt)
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
