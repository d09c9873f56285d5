//! Runtimes that do not exit after a call has timed out, so that the sidecar exits.

use std::time::Duration;

use tokio::time::sleep;

use super::bench::{Bench, Script, message};
use super::{Exit, OWN};
use crate::decide::EndActor;
use crate::runtime::{CallError, Readiness};

/// SC-52, SC-70: each sidecar knows nothing of the previous one, but the queue counts deliveries.
#[tokio::test(start_paused = true)]
async fn end_actors_message_that_always_hangs_the_runtime_is_rejected() {
    for (classic, attempts) in [(false, 3), (true, 2)] {
        let mut bench = Bench::new();
        if classic {
            bench.broker.stop_counting_deliveries();
        }
        bench.rules.end = Some(EndActor::Error);
        bench.runtime.restarts_in(Duration::from_hours(1));
        let hangs = Script::FailsAfter(Duration::from_secs(10), CallError::TimedOut);
        bench.runtime.script("1", hangs);
        bench.broker.put(OWN, [message(1)]);
        for attempt in 1..=attempts {
            bench.runtime.set(Readiness::Ready { concurrency: 1 });
            let scheduler = bench.start();
            while bench.runtime.timed_out_calls() < attempt {
                sleep(Duration::from_millis(10)).await;
            }
            sleep(Duration::from_secs(5)).await;
            bench.runtime.set(Readiness::Stuck);
            assert_eq!(scheduler.await.expect("an end"), Exit::RuntimeStuck);
        }
        assert_eq!(bench.runtime.calls(), attempts, "{classic}");
        assert_eq!((bench.broker.left(), bench.broker.rejected().len()), (0, 1));
        assert_eq!(bench.broker.failed(), attempts - 1, "they count");
    }
}
