//! The scheduler with an in-memory broker and runtime, and a virtual clock.

mod bench;
mod crashes;
mod expired;
mod given_back;
mod lookahead;
mod reports;
mod settling;
mod simulation;
mod stuck;
mod unroutable;

use std::time::Duration;

use asya_wire::ERROR_END;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use self::bench::{Bench, Script, message};
use super::Exit;
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
async fn no_message_is_consumed_while_the_runtime_is_unavailable() {
    let bench = Bench::new();
    bench.runtime.set(Readiness::Waiting);
    bench.broker.put(OWN, (0..100).map(message));
    let scheduler = bench.start();
    sleep(Duration::from_mins(2)).await;
    assert_eq!(
        (bench.broker.left(), bench.broker.most_in_flight()),
        (100, 0)
    );
    bench.runtime.set(Readiness::Ready { concurrency: 1 });
    bench.emptied().await;
    assert_eq!(bench.ids_in(NEXT).len(), 100);
    assert_eq!(bench.stop(scheduler).await, Exit::Stopped);
}

/// SC-42
#[tokio::test(start_paused = true)]
async fn open_requests_never_exceed_the_slots() {
    for (wanted, serves, most) in [(1, 8, 1), (4, 8, 4), (8, 3, 3)] {
        let mut bench = Bench::new();
        bench.settings.concurrency = wanted;
        bench.runtime.set(Readiness::Ready {
            concurrency: serves,
        });
        bench.broker.put(OWN, (0..50).map(message));
        let scheduler = bench.start();
        bench.emptied().await;
        assert_eq!(bench.runtime.most_open(), most);
        assert_eq!(bench.stop(scheduler).await, Exit::Stopped);
    }
}

/// SC-46
#[tokio::test(start_paused = true)]
async fn single_slot_preserves_message_order() {
    for lookahead in [Lookahead::Fixed(0), Lookahead::Fixed(16), Lookahead::Auto] {
        let mut bench = Bench::new();
        bench.settings.lookahead = lookahead;
        bench.broker.put(OWN, (0..200).map(message));
        let scheduler = bench.start();
        bench.emptied().await;
        let expected: Vec<String> = (0..200).map(|number| number.to_string()).collect();
        assert_eq!(bench.ids_in(NEXT), expected, "{lookahead:?}");
        bench.stop(scheduler).await;
    }
}

/// SC-45
#[tokio::test(start_paused = true)]
async fn lookahead_hides_confirm_latency() {
    let mut took = Vec::new();
    for lookahead in [Lookahead::Fixed(0), Lookahead::Fixed(16)] {
        let mut bench = Bench::new();
        bench.settings.lookahead = lookahead;
        for id in 0..500 {
            let takes = Script::Takes(Duration::from_millis(1));
            bench.runtime.script(&id.to_string(), takes);
        }
        bench.broker.put(OWN, (0..500).map(message));
        let started = Instant::now();
        let scheduler = bench.start();
        bench.emptied().await;
        took.push(started.elapsed());
        bench.stop(scheduler).await;
    }
    assert!(took[1] < took[0].mul_f64(0.7), "{took:?}");
}

/// SC-43, SC-44
#[tokio::test(start_paused = true)]
async fn messages_queued_behind_a_long_call_are_requeued() {
    let mut bench = Bench::new();
    bench.settings.lookahead = Lookahead::Auto;
    bench.broker.put(OWN, (0..60).map(message));
    let scheduler = bench.start();
    bench.emptied().await;
    bench
        .runtime
        .script("100", Script::Takes(Duration::from_mins(1)));
    bench.broker.put(OWN, (100..110).map(message));
    sleep(Duration::from_millis(900)).await;
    assert_eq!(
        bench.broker.messages(OWN).len(),
        0,
        "messages are prefetched while calls are fast"
    );
    sleep(Duration::from_millis(200)).await;
    assert_eq!(
        bench.broker.messages(OWN).len(),
        9,
        "requeued for other pods"
    );
    bench.emptied().await;
    assert_eq!(bench.ids_in(NEXT).len(), 70);
    bench.stop(scheduler).await;
}

/// SC-29
#[tokio::test(start_paused = true)]
async fn nothing_is_dispatched_or_requeued_while_the_broker_is_blocked() {
    let mut bench = Bench::new();
    bench.settings.lookahead = Lookahead::Fixed(3);
    let scheduler = bench.start();
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
    bench.stop(scheduler).await;
}

/// SC-26, SC-34, SC-77
#[tokio::test(start_paused = true)]
async fn missing_queue_causes_at_most_six_calls_a_minute_and_no_loss() {
    let bench = Bench::new();
    bench.broker.set_missing(NEXT, true);
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
    sleep(Duration::from_mins(5)).await;
    assert!(
        (10..=30).contains(&bench.runtime.calls()),
        "{}",
        bench.runtime.calls()
    );
    bench.broker.set_missing(NEXT, false);
    bench.emptied().await;
    assert_eq!(bench.broker.failed(), bench.runtime.calls() - 1);
    assert_eq!(bench.ids_in(NEXT), ["1"]);
    bench.stop(scheduler).await;
}

/// SC-28, SC-75
#[tokio::test(start_paused = true)]
async fn only_unconfirmed_messages_of_a_fan_out_are_retried() {
    let bench = Bench::new();
    bench.runtime.script("1", Script::Reply(fan_out(5)));
    bench.broker.refuse([Refusal::Nacked, Refusal::NoQueue]);
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
    bench.emptied().await;
    let mut ids = bench.ids_in(NEXT);
    ids.sort();
    assert_eq!(ids, ["1", "1-1", "1-2", "1-3", "1-4"]);
    assert_eq!(bench.runtime.calls(), 1);
    bench.stop(scheduler).await;
}

fn fan_out(count: usize) -> Value {
    let element = |n| json!({"route": {"actors": ["foo", "bar"], "current": 1}, "payload": n});
    (0..count).map(element).collect()
}

/// SC-83
#[tokio::test(start_paused = true)]
async fn result_that_is_too_large_is_reported_to_error_end() {
    let bench = Bench::new();
    bench
        .broker
        .refuse([Refusal::TooLarge, Refusal::TooLarge, Refusal::TooLarge]);
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
    bench.emptied().await;
    let sent = bench.payloads_in(&error_end());
    assert_eq!(sent[0]["error"], "message_too_large");
    assert_eq!(sent[0].get("original_payload"), None);
    assert!(bench.ids_in(NEXT).is_empty());
    bench.stop(scheduler).await;
}

/// SC-34, SC-48, SC-49, SC-77
#[tokio::test(start_paused = true)]
async fn message_is_retried_once_after_a_runtime_crash() {
    let bench = Bench::new();
    bench.runtime.script("1", Script::Fails(CallError::Ended));
    bench
        .runtime
        .script_once("2", Script::Fails(CallError::Ended));
    bench
        .runtime
        .script_once("3", Script::Fails(CallError::NotRead));
    bench.broker.put(OWN, (1..4).map(message));
    let scheduler = bench.start();
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
    assert_eq!(bench.broker.failed(), 2, "the third was not read");
    bench.stop(scheduler).await;
}

/// SC-51, SC-52
#[tokio::test(start_paused = true)]
async fn timeout_yields_one_message_in_error_end_and_spares_other_calls() {
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
    let scheduler = bench.start();
    bench.emptied().await;
    assert_eq!(bench.ids_in(&error_end()), ["1"]);
    assert_eq!(bench.ids_in(NEXT), ["2"]);
    assert_eq!(bench.runtime.timed_out_calls(), 1);
    bench.stop(scheduler).await;
}

/// SC-12, SC-17, SC-52
#[tokio::test(start_paused = true)]
async fn runtime_that_never_starts_or_never_exits_terminates_the_process() {
    for (readiness, expected) in [
        (Readiness::Never, Exit::RuntimeNeverReady),
        (Readiness::Stuck, Exit::RuntimeStuck),
    ] {
        let bench = Bench::new();
        let scheduler = bench.start();
        bench.runtime.set(readiness);
        assert_eq!(scheduler.await.expect("an end"), expected);
    }
}

/// SC-68, SC-70, SC-77
#[tokio::test(start_paused = true)]
async fn end_actor_makes_three_attempts_and_then_rejects() {
    let mut bench = Bench::new();
    bench.rules.end = Some(decide::EndActor::Error);
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
    let scheduler = bench.start();
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
    bench.stop(scheduler).await;
}

/// SC-13, SC-70: the attempts count although the runtime takes longer to restart than the pause between them.
#[tokio::test(start_paused = true)]
async fn end_actors_message_that_kills_its_runtime_is_rejected_after_three_attempts() {
    let mut bench = Bench::new();
    bench.rules.end = Some(decide::EndActor::Other);
    bench.runtime.restarts_in(Duration::from_secs(30));
    bench.runtime.script("1", Script::Fails(CallError::Ended));
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
    bench.emptied().await;
    assert_eq!(bench.runtime.calls_of("1"), 3);
    assert_eq!(bench.broker.rejected()[0].delivered, 1, "never requeued");
    bench.stop(scheduler).await;
}

/// SC-15, SC-78, SC-79, SC-81
#[tokio::test(start_paused = true)]
async fn shutdown_finishes_running_calls_and_requeues_the_rest() {
    let mut bench = Bench::new();
    bench.settings.lookahead = Lookahead::Fixed(4);
    bench
        .runtime
        .script("0", Script::Takes(Duration::from_secs(20)));
    bench.broker.put(OWN, (0..10).map(message));
    let scheduler = bench.start();
    sleep(Duration::from_secs(1)).await;
    let stopped = Instant::now();
    let health = bench.health.clone();
    let is_alive = tokio::spawn(async move {
        sleep(Duration::from_secs(15)).await;
        health.is_alive()
    });
    assert_eq!(bench.stop(scheduler).await, Exit::Stopped);
    assert_eq!(stopped.elapsed().as_secs(), 19);
    assert!(is_alive.await.expect("an answer"), "SC-15");
    assert_eq!(
        (bench.ids_in(NEXT), bench.broker.left()),
        (vec!["0".to_owned()], 9)
    );
    assert_eq!(bench.runtime.calls(), 1);
}

/// SC-79
#[tokio::test(start_paused = true)]
async fn idle_process_exits_at_once_in_every_state() {
    for readiness in [Readiness::Waiting, Readiness::Ready { concurrency: 1 }] {
        let bench = Bench::new();
        bench.runtime.set(readiness);
        bench.broker.set_missing(NEXT, true);
        let scheduler = bench.start();
        sleep(Duration::from_secs(1)).await;
        let stopped = Instant::now();
        bench.stop(scheduler).await;
        assert!(
            stopped.elapsed() < Duration::from_millis(300),
            "{:?}",
            stopped.elapsed()
        );
    }
}

/// SC-80
#[tokio::test(start_paused = true)]
async fn unfinished_messages_are_requeued_at_the_end_of_the_grace_period() {
    let bench = Bench::new();
    bench
        .runtime
        .script("0", Script::Takes(Duration::from_hours(1)));
    bench.broker.put(OWN, [message(0)]);
    let scheduler = bench.start();
    sleep(Duration::from_secs(1)).await;
    let stopped = Instant::now();
    assert_eq!(bench.stop(scheduler).await, Exit::Stopped);
    assert_eq!(stopped.elapsed().as_secs(), 27);
    assert_eq!(bench.broker.left(), 1);
}

/// SC-82: with a native sidecar, the runtime is killed first at the end of a pod's grace period.
#[tokio::test(start_paused = true)]
async fn runtime_that_terminates_just_before_the_sidecar_is_stopped_has_not_crashed() {
    for end in [None, Some(decide::EndActor::Error)] {
        let mut bench = Bench::new();
        (bench.rules.end, bench.rules.crash_retries) = (end, 0);
        bench.runtime.script("1", Script::Fails(CallError::Ended));
        bench.broker.put(OWN, [message(1)]);
        let scheduler = bench.start();
        let calls = if end.is_some() { 3 } else { 1 };
        while bench.runtime.calls() < calls {
            sleep(Duration::from_millis(1)).await;
        }
        sleep(Duration::from_millis(500)).await;
        let stopped = Instant::now();
        assert_eq!(bench.stop(scheduler).await, Exit::Stopped);
        assert!(stopped.elapsed() < Duration::from_millis(300));
        let failed = (bench.ids_in(&error_end()), bench.broker.rejected().len());
        assert_eq!((failed, bench.broker.left()), ((vec![], 0), 1), "{end:?}");
    }
}

/// SC-101
#[tokio::test(start_paused = true)]
async fn panic_requeues_its_message_and_five_in_a_minute_terminate_the_process() {
    let bench = Bench::new();
    bench.runtime.script_once("1", Script::Panics);
    bench.broker.put(OWN, (0..3).map(message));
    let scheduler = bench.start();
    bench.emptied().await;
    let mut ids = bench.ids_in(NEXT);
    ids.sort();
    assert_eq!(ids, ["0", "1", "2"]);
    bench.runtime.script("9", Script::Panics);
    bench.broker.put(OWN, [message(9)]);
    assert_eq!(scheduler.await.expect("an end"), Exit::Panics);
    assert_eq!(bench.broker.left(), 1);
}

/// SC-21, SC-72, SC-74
#[tokio::test(start_paused = true)]
async fn call_of_a_lost_delivery_finishes_and_its_result_is_discarded() {
    let bench = Bench::new();
    bench
        .runtime
        .script_once("1", Script::Takes(Duration::from_secs(1)));
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
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
        "a runtime whose connection is closed exits"
    );
    bench.stop(scheduler).await;
}

/// SC-31, SC-43
#[tokio::test(start_paused = true)]
async fn calls_of_lost_deliveries_reduce_the_demand_until_they_finish() {
    let mut bench = Bench::new();
    bench.settings.concurrency = 2;
    bench.runtime.set(Readiness::Ready { concurrency: 2 });
    for id in ["1", "2"] {
        let takes = Script::Takes(Duration::from_mins(1));
        bench.runtime.script_once(id, takes);
    }
    bench.broker.put(OWN, [message(1)]);
    let scheduler = bench.start();
    sleep(Duration::from_secs(1)).await;
    bench.broker.put(OWN, [message(2)]);
    sleep(Duration::from_secs(1)).await;
    bench.broker.cut();
    sleep(Duration::from_secs(50)).await;
    assert_eq!(
        bench.broker.messages(OWN).len(),
        2,
        "other pods can process them"
    );
    bench.emptied().await;
    assert_eq!(bench.ids_in(NEXT), ["1", "2"]);
    bench.stop(scheduler).await;
}
