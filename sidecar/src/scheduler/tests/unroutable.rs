//! Messages whose next actor has no queue, ahead of others.

use std::ops::Range;
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::bench::{Bench, Script, message};
use super::{NEXT, OWN};
use crate::broker::{MAX_STALLED, Refusal};

const MISSING: &str = "asya-nowhere";

/// A queue with these unroutable messages ahead of these good ones.
fn bench(unroutable: Range<usize>, good: Range<usize>) -> Bench {
    let bench = Bench::new();
    bench.broker.set_missing(MISSING, true);
    for id in unroutable.clone() {
        let reply = json!([{"route": {"actors": ["foo", "nowhere"], "current": 1}, "payload": id}]);
        bench.runtime.script(&id.to_string(), Script::Reply(reply));
    }
    bench.broker.put(OWN, unroutable.map(message));
    bench.broker.put(OWN, good.map(message));
    bench
}

/// Waits for messages at the next actor; returns how long that took.
async fn arrived(bench: &Bench, count: usize) -> Duration {
    let started = Instant::now();
    while bench.ids_in(NEXT).len() < count {
        assert!(
            started.elapsed() < Duration::from_hours(1),
            "{:?}",
            bench.ids_in(NEXT)
        );
        sleep(Duration::from_millis(7)).await;
    }
    started.elapsed()
}

/// SC-26, SC-31: with one slot and no lookahead, others are processed while publishing its result is retried.
#[tokio::test(start_paused = true)]
async fn unroutable_message_holds_up_no_other() {
    for classic in [true, false] {
        let bench = bench(0..1, 1..51);
        if classic {
            bench.broker.stop_counting_deliveries();
        }
        let scheduler = bench.start();
        let took = arrived(&bench, 50).await;
        assert!(took < Duration::from_secs(2), "{classic}: {took:?}");
        assert_eq!((bench.runtime.calls_of("0"), bench.broker.left()), (1, 1));
        assert_eq!(bench.runtime.most_open(), 1, "SC-42");
        bench.broker.set_missing(MISSING, false);
        bench.emptied().await;
        assert_eq!(bench.ids_in(MISSING), ["0"]);
        bench.stop(scheduler).await;
    }
}

/// SC-26, SC-31, SC-34: there are more than can be compensated for, and the queue would deliver them before all others
/// forever.
#[tokio::test(start_paused = true)]
async fn many_unroutable_messages_on_a_classic_queue_go_behind_the_others() {
    let bench = bench(0..40, 40..90);
    bench.broker.stop_counting_deliveries();
    let scheduler = bench.start();
    let took = arrived(&bench, 50).await;
    assert!(took < Duration::from_mins(2), "{took:?}");
    assert_eq!(bench.broker.most_in_flight(), 1 + MAX_STALLED);
    let (calls, hour) = (bench.runtime.calls(), Duration::from_hours(1));
    sleep(hour).await;
    let each = (bench.runtime.calls() - calls) / 40;
    assert!((1..=360).contains(&each), "{each} calls an hour");
    assert_eq!(bench.broker.left(), 40, "SC-72");
    bench.broker.set_missing(MISSING, false);
    bench.emptied().await;
    let mut ids = bench.ids_in(MISSING);
    ids.sort();
    let mut all: Vec<String> = (0..40).map(|id: usize| id.to_string()).collect();
    all.sort();
    assert_eq!(ids, all, "each once");
    bench.stop(scheduler).await;
}

/// SC-26, SC-34: each failure counts, so that the queue's delivery limit moves the message to its DLQ.
#[tokio::test(start_paused = true)]
async fn unroutable_message_stays_the_same_on_a_queue_that_counts_deliveries() {
    let bench = bench(0..1, 1..2);
    let scheduler = bench.start();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.broker.failed(), bench.runtime.calls_of("0") - 1);
    assert!((5..=6).contains(&bench.runtime.calls_of("0")));
    bench.broker.cut();
    sleep(Duration::from_millis(100)).await;
    let waiting = bench.broker.messages(OWN);
    assert_eq!(waiting.len(), 1);
    let delivered = usize::try_from(waiting[0].delivered).expect("few");
    assert_eq!(delivered, bench.runtime.calls_of("0"));
    bench.stop(scheduler).await;
}

/// SC-28, SC-31: letting others in would only run handlers whose results cannot be stored either.
#[tokio::test(start_paused = true)]
async fn full_queue_slows_its_senders_down() {
    let bench = bench(0..0, 1..4);
    bench
        .broker
        .refuse([Refusal::Nacked, Refusal::Nacked, Refusal::Nacked]);
    let scheduler = bench.start();
    bench.emptied().await;
    assert_eq!(
        (bench.runtime.calls(), bench.broker.most_in_flight()),
        (3, 1)
    );
    assert_eq!(bench.ids_in(NEXT), ["1", "2", "3"], "in order");
    bench.stop(scheduler).await;
}

/// SC-84: a message delivered in place of a large one needs memory as well.
#[tokio::test(start_paused = true)]
async fn nothing_is_delivered_in_the_place_of_a_large_message() {
    let bench = bench(0..0, 1..3);
    let large = "x".repeat(1 << 20);
    let reply = json!([{"route": {"actors": ["foo", "nowhere"], "current": 1}, "payload": large}]);
    bench.runtime.script("1", Script::Reply(reply));
    let scheduler = bench.start();
    sleep(Duration::from_secs(9)).await;
    assert_eq!(
        (bench.runtime.calls(), bench.broker.most_in_flight()),
        (1, 1)
    );
    bench.broker.set_missing(MISSING, false);
    bench.emptied().await;
    assert_eq!(
        (bench.ids_in(MISSING), bench.ids_in(NEXT)),
        (vec!["1".to_owned()], vec!["2".to_owned()])
    );
    bench.stop(scheduler).await;
}
