//! Lookahead `auto` when the broker redelivers messages.

use std::time::Duration;

use tokio::time::sleep;

use super::bench::{Bench, Script, message};
use super::{NEXT, OWN};
use crate::config::Lookahead;

/// SC-34, SC-44: redelivered messages are not given back, so they would wait behind calls that are long by now, and
/// exceed the consumer timeout.
#[tokio::test(start_paused = true)]
async fn messages_of_a_lost_connection_are_not_prefetched_again() {
    let mut bench = Bench::new();
    bench.settings.lookahead = Lookahead::Auto;
    bench.broker.stop_counting_deliveries();
    bench.broker.put(OWN, (0..60).map(message));
    let scheduler = bench.start();
    bench.emptied().await;
    for id in 100..110_usize {
        let takes = Script::Takes(Duration::from_mins(5));
        bench.runtime.script(&id.to_string(), takes);
    }
    let first = Script::Takes(Duration::from_millis(200));
    bench.runtime.script_once("100", first);
    bench.broker.put(OWN, (100..110).map(message));
    sleep(Duration::from_millis(100)).await;
    assert!(bench.broker.messages(OWN).is_empty(), "prefetched");
    bench.broker.cut();
    sleep(Duration::from_mins(1)).await;
    assert_eq!(bench.broker.messages(OWN).len(), 9, "for other pods");
    bench.emptied().await;
    assert_eq!(bench.ids_in(NEXT).len(), 70);
    bench.stop(scheduler).await;
}

/// SC-32, SC-34, SC-44: giving it back costs a delivery, but the consumer timeout does not cover the calls that it
/// waits for.
#[tokio::test(start_paused = true)]
async fn redelivered_message_waits_five_minutes_behind_a_long_call() {
    let mut bench = Bench::new();
    bench.settings.lookahead = Lookahead::Auto;
    bench.broker.put(OWN, (0..60).map(message));
    let scheduler = bench.start();
    bench.emptied().await;
    let takes = Script::Takes(Duration::from_mins(20));
    bench.runtime.script("100", takes);
    bench.broker.put_delivered(OWN, (100..110).map(message), 1);
    sleep(Duration::from_mins(4)).await;
    assert!(bench.broker.messages(OWN).is_empty(), "kept");
    sleep(Duration::from_mins(2)).await;
    assert_eq!(bench.broker.messages(OWN).len(), 9, "for other pods");
    bench.emptied().await;
    assert_eq!(bench.ids_in(NEXT).len(), 70);
    bench.stop(scheduler).await;
}

/// SC-93: this includes messages that wait for a slot, or have waited for one.
#[tokio::test(start_paused = true)]
async fn age_of_the_oldest_message_counts_from_its_delivery() {
    let mut bench = Bench::new();
    bench.settings.lookahead = Lookahead::Fixed(1);
    for id in ["1", "2"] {
        bench
            .runtime
            .script(id, Script::Takes(Duration::from_mins(1)));
    }
    let scheduler = bench.start();
    sleep(Duration::from_millis(10)).await;
    bench.broker.set_blocked(true);
    bench.broker.put(OWN, (1..3).map(message));
    let age = || bench.metrics.oldest_in_flight.get();
    sleep(Duration::from_secs(30)).await;
    assert!((28.0..=30.0).contains(&age()), "waiting: {}", age());
    bench.broker.set_blocked(false);
    sleep(Duration::from_secs(90)).await;
    assert_eq!(bench.runtime.calls_of("2"), 1);
    assert!((118.0..=120.0).contains(&age()), "in a call: {}", age());
    bench.emptied().await;
    bench.stop(scheduler).await;
}
