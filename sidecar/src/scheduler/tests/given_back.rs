//! Messages that the runtime gives back while its pod terminates.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::OWN;
use super::bench::{Bench, Script, message};
use crate::decide::EndActor;
use crate::runtime::{CallError, Readiness};

/// SC-69, SC-72, SC-82, RUN-20: it has not been processed.
#[tokio::test(start_paused = true)]
async fn end_actors_message_that_the_runtime_gives_back_is_processed_by_the_next_one() {
    // The second reply is the message, too, which is larger than a reply may be.
    for reply in [
        Script::Reply(unchanged()),
        Script::Fails(CallError::TooLarge(1 << 30)),
    ] {
        let mut bench = Bench::new();
        bench.rules.end = Some(EndActor::Happy);
        bench.runtime.script("1", reply);
        bench.broker.put(OWN, [message(1)]);
        let scheduler = bench.start();
        sleep(Duration::from_millis(2)).await;
        bench.runtime.ends();
        sleep(Duration::from_mins(1)).await;
        assert_eq!((bench.runtime.calls(), bench.broker.left()), (1, 1));
        bench.runtime.starts();
        bench.emptied().await;
        assert_eq!(bench.runtime.calls(), 2, "this runtime does not end");
        bench.stop(scheduler).await;
    }
}

/// SC-69, SC-72: this process was suspended, and the next runtime is there.
#[tokio::test(start_paused = true)]
async fn message_that_the_former_runtime_gave_back_is_requeued() {
    let mut bench = Bench::new();
    bench.rules.end = Some(EndActor::Happy);
    bench.runtime.script("1", Script::Reply(unchanged()));
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
    sleep(Duration::from_millis(2)).await;
    bench.runtime.ends();
    bench.runtime.starts();
    bench.emptied().await;
    assert_eq!(bench.runtime.calls(), 2);
    bench.stop(scheduler).await;
}

/// SC-69: handlers may return whole envelopes, and the runtime is checked again after the calls of others.
#[tokio::test(start_paused = true)]
async fn reply_of_a_runtime_that_is_only_checked_again_is_a_success() {
    let mut bench = Bench::new();
    bench.rules.end = Some(EndActor::Happy);
    bench.runtime.script("1", Script::Reply(unchanged()));
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
    sleep(Duration::from_millis(2)).await;
    bench.runtime.set(Readiness::Waiting);
    bench.emptied().await;
    assert_eq!((bench.runtime.calls(), bench.broker.left()), (1, 0));
    bench.stop(scheduler).await;
}

fn unchanged() -> Value {
    json!([{"route": {"actors": ["foo", "bar"], "current": 0}, "payload": 1}])
}
