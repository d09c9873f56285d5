//! Settlements that take long, or are put off.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::bench::{Bench, Script, message};
use super::{NEXT, OWN};
use crate::decide::EndActor;
use crate::runtime::{CallError, Readiness};
use crate::scheduler::Exit;

/// SC-40, SC-70: at SQS it may take as long as a visibility timeout.
#[tokio::test(start_paused = true)]
async fn slot_is_free_while_a_message_is_rejected() {
    let mut bench = Bench::new();
    bench.rules.end = Some(EndActor::Other);
    let fails = Script::Reply(json!([{"error": "processing_error"}]));
    bench.runtime.script("1", fails);
    bench.broker.put(OWN, [message(1), message(2)]);
    bench.broker.hang();
    let scheduler = bench.start();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.broker.rejected().len(), 1);
    assert_eq!(bench.runtime.calls_of("2"), 1);
    bench.stop(scheduler).await;
}

/// SC-40, SC-49
#[tokio::test(start_paused = true)]
async fn others_are_called_while_a_message_that_crashed_alone_is_rejected() {
    let mut bench = Bench::new();
    bench.rules.end = Some(EndActor::Other);
    bench.settings.concurrency = 2;
    bench.runtime.set(Readiness::Ready { concurrency: 2 });
    let crashes = Script::FailsAfter(Duration::from_millis(20), CallError::Ended);
    bench.runtime.script("0", crashes);
    let takes = Script::Takes(Duration::from_millis(50));
    bench.runtime.script("1", takes);
    bench.broker.put(OWN, [message(0), message(1)]);
    bench.broker.hang();
    let scheduler = bench.start();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.broker.rejected().len(), 1);
    assert_eq!(bench.runtime.calls_of("0"), 4, "three times alone");
    bench.broker.put(OWN, [message(2)]);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.runtime.calls_of("2"), 1);
    bench.stop(scheduler).await;
}

/// SC-80
#[tokio::test(start_paused = true)]
async fn unresponsive_broker_delays_the_exit_by_a_second() {
    let mut bench = Bench::new();
    bench.settings.concurrency = 8;
    bench.runtime.set(Readiness::Ready { concurrency: 8 });
    for id in 0..8 {
        let takes = Script::Takes(Duration::from_hours(1));
        bench.runtime.script(&id.to_string(), takes);
    }
    bench.broker.put(OWN, (0..8).map(message));
    let scheduler = bench.start();
    sleep(Duration::from_secs(1)).await;
    bench.broker.hang();
    let stopped = Instant::now();
    assert_eq!(bench.stop(scheduler).await, Exit::Stopped);
    assert_eq!(stopped.elapsed().as_secs(), 28);
}

/// SC-78: SQS would hide it for the visibility timeout.
#[tokio::test(start_paused = true)]
async fn message_that_is_delivered_just_before_the_end_is_given_back() {
    let bench = Bench::new();
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
    // It asks for a message, and looks at nothing but its end then.
    bench.stop(scheduler).await;
    assert_eq!(bench.broker.deliveries(), 1);
    let text = bench.metrics.text().expect("text");
    let given_back = text
        .lines()
        .find(|line| line.contains("given_back_total{") && line.contains("shutdown"));
    assert!(
        given_back.is_some_and(|line| line.ends_with(" 1")),
        "{text}"
    );
}

/// SC-34, SC-91, SC-93: the broker has delivered it once.
#[tokio::test(start_paused = true)]
async fn message_that_is_kept_and_processed_again_counts_as_one_delivery() {
    let bench = Bench::new();
    bench.broker.put(OWN, [message(1)]);
    bench.broker.set_missing(NEXT, true);
    bench.broker.keep();
    let scheduler = bench.start();
    sleep(Duration::from_secs(15)).await;
    assert_eq!(bench.runtime.calls(), 2);
    let oldest = bench.metrics.oldest_in_flight.get();
    assert!(oldest >= 13.0, "{oldest}");
    let text = bench.metrics.text().expect("text");
    let received = text
        .lines()
        .find(|line| line.contains("messages_received_total{"));
    assert!(received.is_some_and(|line| line.ends_with(" 1")), "{text}");
    bench.broker.set_missing(NEXT, false);
    bench.emptied().await;
    assert_eq!(bench.ids_in(NEXT), ["1"]);
    bench.stop(scheduler).await;
}
