//! The engine with a broker in memory, a runtime in memory, and a virtual clock.

mod bench;
mod simulation;

use std::time::Duration;

use asya_wire::ERROR_END;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use self::bench::{Bench, Script, message};
use super::End;
use crate::broker::Refusal;
use crate::config::Lookahead;
use crate::decide;
use crate::runtime::{CallError, Readiness};

const NEXT: &str = "asya-bar";
const OWN: &str = "asya-foo";

fn error_end() -> String {
    format!("asya-{ERROR_END}")
}

/// SC-11, SC-13, SC-14
#[tokio::test(start_paused = true)]
async fn no_message_is_taken_while_the_runtime_is_away() {
    let bench = Bench::new();
    bench.runtime.set(Readiness::Waiting);
    bench.broker.put(OWN, (0..100).map(message));
    let engine = bench.start();
    sleep(Duration::from_mins(2)).await;
    assert_eq!(
        (bench.broker.left(), bench.broker.most_in_flight()),
        (100, 0)
    );
    bench.runtime.set(Readiness::Ready { concurrency: 1 });
    bench.emptied().await;
    assert_eq!(bench.ids_in(NEXT).len(), 100);
    assert_eq!(bench.stop(engine).await, End::Stopped);
}

/// SC-42
#[tokio::test(start_paused = true)]
async fn never_more_requests_are_open_than_slots() {
    for (wanted, serves, most) in [(1, 8, 1), (4, 8, 4), (8, 3, 3)] {
        let mut bench = Bench::new();
        bench.settings.concurrency = wanted;
        bench.runtime.set(Readiness::Ready {
            concurrency: serves,
        });
        bench.broker.put(OWN, (0..50).map(message));
        let engine = bench.start();
        bench.emptied().await;
        assert_eq!(bench.runtime.most_open(), most);
        assert_eq!(bench.stop(engine).await, End::Stopped);
    }
}

/// SC-46
#[tokio::test(start_paused = true)]
async fn with_one_slot_messages_leave_in_the_order_they_came() {
    for lookahead in [Lookahead::Fixed(0), Lookahead::Fixed(16), Lookahead::Auto] {
        let mut bench = Bench::new();
        bench.settings.lookahead = lookahead;
        bench.broker.put(OWN, (0..200).map(message));
        let engine = bench.start();
        bench.emptied().await;
        let expected: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        assert_eq!(bench.ids_in(NEXT), expected, "{lookahead:?}");
        bench.stop(engine).await;
    }
}

/// SC-43, SC-44
#[tokio::test(start_paused = true)]
async fn what_waits_behind_a_long_call_is_given_back() {
    let mut bench = Bench::new();
    bench.settings.lookahead = Lookahead::Auto;
    bench.broker.put(OWN, (0..60).map(message));
    let engine = bench.start();
    bench.emptied().await;
    bench
        .runtime
        .script("100", Script::Takes(Duration::from_mins(1)));
    bench.broker.put(OWN, (100..110).map(message));
    sleep(Duration::from_millis(900)).await;
    assert_eq!(
        bench.broker.messages(OWN).len(),
        0,
        "while calls are quick, messages wait here"
    );
    sleep(Duration::from_millis(200)).await;
    assert_eq!(
        bench.broker.messages(OWN).len(),
        9,
        "another pod can have them"
    );
    bench.emptied().await;
    assert_eq!(bench.ids_in(NEXT).len(), 70);
    bench.stop(engine).await;
}

/// SC-29
#[tokio::test(start_paused = true)]
async fn nothing_is_handed_over_or_given_back_while_the_broker_is_blocked() {
    let mut bench = Bench::new();
    bench.settings.lookahead = Lookahead::Fixed(3);
    let engine = bench.start();
    sleep(Duration::from_millis(10)).await;
    bench.broker.set_blocked(true);
    bench.broker.put(OWN, (0..10).map(message));
    sleep(Duration::from_mins(30)).await;
    assert_eq!((bench.runtime.calls(), bench.broker.left()), (0, 10));
    assert!(
        bench
            .broker
            .messages(OWN)
            .iter()
            .all(|message| message.delivered == 0)
    );
    bench.broker.set_blocked(false);
    bench.emptied().await;
    assert_eq!(bench.ids_in(NEXT).len(), 10);
    bench.stop(engine).await;
}

/// SC-26, SC-77
#[tokio::test(start_paused = true)]
async fn a_missing_queue_costs_at_most_six_calls_a_minute_and_loses_nothing() {
    let bench = Bench::new();
    bench.broker.set_missing(NEXT, true);
    bench.broker.put(OWN, [message(1)]);
    let engine = bench.start();
    sleep(Duration::from_mins(5)).await;
    assert!(
        (10..=30).contains(&bench.runtime.calls()),
        "{}",
        bench.runtime.calls()
    );
    bench.broker.set_missing(NEXT, false);
    bench.emptied().await;
    assert_eq!(bench.ids_in(NEXT), ["1"]);
    bench.stop(engine).await;
}

/// SC-28, SC-75
#[tokio::test(start_paused = true)]
async fn of_a_fan_out_only_what_is_missing_is_sent_again() {
    let bench = Bench::new();
    bench.runtime.script("1", Script::Reply(fan_out(5)));
    bench.broker.refuse([Refusal::NotNow, Refusal::NoQueue]);
    bench.broker.put(OWN, [message(1)]);
    let engine = bench.start();
    bench.emptied().await;
    let mut ids = bench.ids_in(NEXT);
    ids.sort();
    assert_eq!(ids, ["1", "1-1", "1-2", "1-3", "1-4"]);
    assert_eq!(bench.runtime.calls(), 1);
    bench.stop(engine).await;
}

fn fan_out(count: usize) -> Value {
    let element = |n| json!({"route": {"actors": ["foo", "bar"], "current": 1}, "payload": n});
    (0..count).map(element).collect()
}

/// SC-83
#[tokio::test(start_paused = true)]
async fn a_result_that_is_too_large_is_told_to_error_end() {
    let bench = Bench::new();
    bench
        .broker
        .refuse([Refusal::TooLarge, Refusal::TooLarge, Refusal::TooLarge]);
    bench.broker.put(OWN, [message(1)]);
    let engine = bench.start();
    bench.emptied().await;
    let sent = bench.payloads_in(&error_end());
    assert_eq!(sent[0]["error"], "message_too_large");
    assert_eq!(sent[0].get("original_payload"), None);
    assert!(bench.ids_in(NEXT).is_empty());
    bench.stop(engine).await;
}

/// SC-48, SC-49, SC-77
#[tokio::test(start_paused = true)]
async fn a_runtime_that_dies_with_a_message_gets_it_once_more() {
    let bench = Bench::new();
    bench.runtime.script("1", Script::Fails(CallError::Ended));
    bench
        .runtime
        .script_once("2", Script::Fails(CallError::Ended));
    bench
        .runtime
        .script_once("3", Script::Fails(CallError::NotRead));
    bench.broker.put(OWN, (1..4).map(message));
    let engine = bench.start();
    bench.emptied().await;
    let mut ids = bench.ids_in(NEXT);
    ids.sort();
    assert_eq!(ids, ["2", "3"]);
    assert_eq!(
        bench.payloads_in(&error_end())[0]["error"],
        "runtime_crashed"
    );
    assert_eq!(
        (bench.runtime.calls_of("1"), bench.runtime.calls_of("2")),
        (2, 2)
    );
    bench.stop(engine).await;
}

/// SC-51, SC-52
#[tokio::test(start_paused = true)]
async fn a_timeout_leaves_one_copy_in_error_end_and_hits_no_other_call() {
    let mut bench = Bench::new();
    bench.settings.concurrency = 2;
    bench.runtime.set(Readiness::Ready { concurrency: 2 });
    bench.runtime.script(
        "1",
        Script::FailsAfter(Duration::from_secs(10), CallError::TimedOut),
    );
    bench.runtime.script_once(
        "2",
        Script::FailsAfter(Duration::from_secs(11), CallError::Ended),
    );
    bench.broker.put(OWN, (1..3).map(message));
    let engine = bench.start();
    bench.emptied().await;
    assert_eq!(bench.ids_in(&error_end()), ["1"]);
    assert_eq!(bench.ids_in(NEXT), ["2"]);
    assert_eq!(bench.runtime.hang_ups(), 1);
    bench.stop(engine).await;
}

/// SC-12, SC-17, SC-52
#[tokio::test(start_paused = true)]
async fn a_runtime_that_never_starts_or_never_ends_ends_the_process() {
    for (readiness, expected) in [
        (Readiness::Never, End::RuntimeNeverReady),
        (Readiness::Stuck, End::RuntimeStuck),
    ] {
        let bench = Bench::new();
        let engine = bench.start();
        bench.runtime.set(readiness);
        assert_eq!(engine.await.expect("an end"), expected);
    }
}

/// SC-68, SC-70, SC-77
#[tokio::test(start_paused = true)]
async fn an_end_actor_tries_three_times_and_then_rejects() {
    let mut bench = Bench::new();
    bench.rules.end = Some(decide::End::Error);
    bench
        .runtime
        .script("1", Script::Reply(json!([{"error": "processing_error"}])));
    bench
        .runtime
        .script_once("2", Script::Reply(json!([{"error": "processing_error"}])));
    bench
        .broker
        .put(OWN, [message(1), message(2), "no JSON".to_owned()]);
    let started = Instant::now();
    let engine = bench.start();
    bench.emptied().await;
    assert_eq!(
        (
            bench.runtime.calls_of("1"),
            bench.runtime.calls_of("2"),
            bench.runtime.calls()
        ),
        (3, 2, 6)
    );
    assert_eq!(bench.broker.rejected().len(), 1);
    assert!(
        started.elapsed() >= Duration::from_secs(6),
        "{:?}",
        started.elapsed()
    );
    assert!(bench.ids_in(&error_end()).is_empty());
    bench.stop(engine).await;
}

/// SC-78, SC-79, SC-81
#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_what_is_at_the_runtime_and_gives_the_rest_back() {
    let mut bench = Bench::new();
    bench.settings.lookahead = Lookahead::Fixed(4);
    bench
        .runtime
        .script("0", Script::Takes(Duration::from_secs(20)));
    bench.broker.put(OWN, (0..10).map(message));
    let engine = bench.start();
    sleep(Duration::from_secs(1)).await;
    let stopped = Instant::now();
    assert_eq!(bench.stop(engine).await, End::Stopped);
    assert_eq!(stopped.elapsed().as_secs(), 19);
    assert_eq!(
        (bench.ids_in(NEXT), bench.broker.left()),
        (vec!["0".to_owned()], 9)
    );
    assert_eq!(bench.runtime.calls(), 1);
}

/// SC-79
#[tokio::test(start_paused = true)]
async fn an_idle_process_ends_at_once_in_every_state() {
    for readiness in [Readiness::Waiting, Readiness::Ready { concurrency: 1 }] {
        let bench = Bench::new();
        bench.runtime.set(readiness);
        bench.broker.set_missing(NEXT, true);
        let engine = bench.start();
        sleep(Duration::from_secs(1)).await;
        let stopped = Instant::now();
        bench.stop(engine).await;
        assert!(
            stopped.elapsed() < Duration::from_millis(300),
            "{:?}",
            stopped.elapsed()
        );
    }
}

/// SC-80
#[tokio::test(start_paused = true)]
async fn at_the_end_of_the_grace_period_what_is_unfinished_is_given_back() {
    let bench = Bench::new();
    bench
        .runtime
        .script("0", Script::Takes(Duration::from_hours(1)));
    bench.broker.put(OWN, [message(0)]);
    let engine = bench.start();
    sleep(Duration::from_secs(1)).await;
    let stopped = Instant::now();
    assert_eq!(bench.stop(engine).await, End::Stopped);
    assert_eq!(stopped.elapsed().as_secs(), 27);
    assert_eq!(bench.broker.left(), 1);
}

/// SC-101
#[tokio::test(start_paused = true)]
async fn a_panic_gives_its_message_back_and_five_in_a_minute_end_the_process() {
    let bench = Bench::new();
    bench.runtime.script_once("1", Script::Panics);
    bench.broker.put(OWN, (0..3).map(message));
    let engine = bench.start();
    bench.emptied().await;
    let mut ids = bench.ids_in(NEXT);
    ids.sort();
    assert_eq!(ids, ["0", "1", "2"]);
    bench.runtime.script("9", Script::Panics);
    bench.broker.put(OWN, [message(9)]);
    assert_eq!(engine.await.expect("an end"), End::Panics);
    assert_eq!(bench.broker.left(), 1);
}

/// SC-21, SC-72, SC-74
#[tokio::test(start_paused = true)]
async fn a_call_of_a_lost_delivery_is_finished_and_its_result_is_not_sent() {
    let bench = Bench::new();
    bench
        .runtime
        .script_once("1", Script::Takes(Duration::from_secs(1)));
    bench.broker.put(OWN, [message(1)]);
    let engine = bench.start();
    sleep(Duration::from_millis(500)).await;
    bench.broker.cut();
    bench.emptied().await;
    assert_eq!(
        (bench.ids_in(NEXT), bench.runtime.calls()),
        (vec!["1".to_owned()], 2)
    );
    assert_eq!(
        bench.runtime.broken_off(),
        0,
        "a runtime that is hung up ends itself"
    );
    bench.stop(engine).await;
}
