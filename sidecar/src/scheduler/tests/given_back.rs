//! Messages that the runtime gives back while its pod terminates.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::OWN;
use super::bench::{Bench, Script, message};
use crate::decide::EndActor;
use crate::runtime::Readiness;

/// SC-69, SC-72, SC-82, RUN-20: it has not been processed.
#[tokio::test(start_paused = true)]
async fn end_actors_message_that_the_runtime_gives_back_is_processed_by_the_next_one() {
    let mut bench = Bench::new();
    bench.rules.end = Some(EndActor::Happy);
    let unchanged = json!([{"route": {"actors": ["foo", "bar"], "current": 0}, "payload": 1}]);
    bench.runtime.script("1", Script::Reply(unchanged));
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
    sleep(Duration::from_millis(2)).await;
    bench.runtime.set(Readiness::Waiting);
    sleep(Duration::from_mins(1)).await;
    assert_eq!((bench.runtime.calls(), bench.broker.left()), (1, 1));
    bench.runtime.set(Readiness::Ready { concurrency: 1 });
    bench.emptied().await;
    assert_eq!(bench.runtime.calls(), 2, "this runtime does not end");
    bench.stop(scheduler).await;
}
