//! Crashes of the runtime while several calls are open.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::bench::{Bench, Script, message};
use super::{NEXT, OWN, error_end};
use crate::decide;
use crate::runtime::{CallError, Readiness};

/// A sidecar with four slots. Calls take 50 ms; those of `guilty` messages crash the runtime after 20 ms.
fn bench(guilty: &[usize], messages: usize) -> Bench {
    let mut bench = Bench::new();
    bench.settings.concurrency = 4;
    bench.runtime.set(Readiness::Ready { concurrency: 4 });
    for id in 0..messages {
        let takes = Script::Takes(Duration::from_millis(50));
        bench.runtime.script(&id.to_string(), takes);
    }
    for id in guilty {
        let crashes = Script::FailsAfter(Duration::from_millis(20), CallError::Ended);
        bench.runtime.script(&id.to_string(), crashes);
    }
    bench.broker.put(OWN, (0..messages).map(message));
    bench
}

fn sorted(mut ids: Vec<String>) -> Vec<usize> {
    ids.sort();
    let mut ids: Vec<usize> = ids.iter().map(|id| id.parse().expect("a number")).collect();
    ids.sort_unstable();
    ids
}

/// SC-49: each pass through the queue costs the guilty message one crash with others and one alone.
#[tokio::test(start_paused = true)]
async fn only_the_message_that_crashes_the_runtime_alone_goes_to_error_end() {
    for (classic, guilty, retries) in [
        (true, &[1][..], 1),
        (false, &[1], 1),
        (true, &[0, 2], 1),
        (false, &[3, 7, 8], 1),
        (true, &[1, 2], 0),
        (false, &[1], 2),
    ] {
        let mut bench = bench(guilty, 12);
        bench.rules.crash_retries = retries;
        if classic {
            bench.broker.stop_counting_deliveries();
        }
        let scheduler = bench.start();
        bench.emptied().await;
        let innocent: Vec<usize> = (0..12).filter(|id| !guilty.contains(id)).collect();
        assert_eq!(sorted(bench.ids_in(&error_end())), guilty, "{classic}");
        assert_eq!(sorted(bench.ids_in(NEXT)), innocent, "each once");
        assert_eq!(
            bench.payloads_in(&error_end())[0]["error"],
            "runtime_crashed"
        );
        let most = 2 * (u64::from(retries) + 1) * guilty.len() as u64;
        assert!(
            (1..=most).contains(&bench.runtime.crashes()),
            "{}",
            bench.runtime.crashes()
        );
        let given_back = guilty.len() * retries as usize;
        assert_eq!(bench.broker.failed(), given_back, "only the guilty ones");
        assert_eq!(bench.runtime.most_open(), 4, "SC-42");
        bench.stop(scheduler).await;
    }
}

/// SC-49, SC-70: a crash with others does not count as an attempt of an end actor's message.
#[tokio::test(start_paused = true)]
async fn end_actor_rejects_only_the_message_that_crashes_the_runtime_alone() {
    let mut bench = bench(&[2], 8);
    bench.rules.end = Some(decide::EndActor::Other);
    let scheduler = bench.start();
    bench.emptied().await;
    let rejected = bench.broker.rejected();
    assert_eq!(rejected.len(), 1);
    assert_eq!(rejected[0].body, message(2));
    assert_eq!(
        bench.runtime.calls_of("2"),
        4,
        "one with others, three alone"
    );
    for id in [0, 1, 3, 4, 5, 6, 7] {
        let calls = bench.runtime.calls_of(&id.to_string());
        assert!((1..=2).contains(&calls), "{id}: {calls}");
    }
    bench.stop(scheduler).await;
}

/// SC-43, SC-49: new messages would wait until the last call that must be alone is done.
#[tokio::test(start_paused = true)]
async fn nothing_is_consumed_while_messages_are_called_alone() {
    let bench = bench(&[], 20);
    bench.runtime.script_once(
        "0",
        Script::FailsAfter(Duration::from_millis(20), CallError::Ended),
    );
    let scheduler = bench.start();
    while bench.runtime.crashes() == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    for id in 0..4 {
        let takes = Script::Takes(Duration::from_secs(10));
        bench.runtime.script(&id.to_string(), takes);
    }
    while bench.ids_in(NEXT).len() < 3 {
        assert_eq!(bench.broker.messages(OWN).len(), 16, "for other pods");
        sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(bench.runtime.crashes(), 1);
    bench.emptied().await;
    assert_eq!(bench.ids_in(NEXT).len(), 20);
    bench.stop(scheduler).await;
}

/// SC-48, SC-49: the runtime is down again when the first message is called alone.
#[tokio::test(start_paused = true)]
async fn message_that_was_not_read_is_still_called_alone() {
    let bench = bench(&[1], 4);
    let scheduler = bench.start();
    while bench.runtime.crashes() == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    for id in ["0", "2", "3"] {
        bench
            .runtime
            .script_once(id, Script::Fails(CallError::NotRead));
    }
    bench.emptied().await;
    assert_eq!(sorted(bench.ids_in(&error_end())), [1]);
    assert_eq!(sorted(bench.ids_in(NEXT)), [0, 2, 3]);
    assert_eq!(bench.broker.failed(), 1, "the guilty one");
    bench.stop(scheduler).await;
}

/// SC-49, SC-78, SC-82: messages that wait to be called alone are requeued.
#[tokio::test(start_paused = true)]
async fn shutdown_gives_back_what_waits_to_be_called_alone() {
    let bench = bench(&[1], 4);
    bench.runtime.restarts_in(Duration::from_mins(1));
    let scheduler = bench.start();
    while bench.runtime.crashes() == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_secs(10)).await;
    let stopped = Instant::now();
    bench.stop(scheduler).await;
    assert!(stopped.elapsed() < Duration::from_millis(300));
    assert_eq!((bench.broker.left(), bench.broker.failed()), (4, 0));
}

/// SC-32, SC-49: otherwise the broker would take them back at its consumer timeout, possibly forever.
#[tokio::test(start_paused = true)]
async fn crash_counts_for_all_whose_messages_cannot_be_called_alone_in_time() {
    let bench = bench(&[1], 4);
    bench.runtime.restarts_in(Duration::from_hours(1));
    let scheduler = bench.start();
    sleep(Duration::from_mins(4)).await;
    assert_eq!(
        (bench.broker.messages(OWN).len(), bench.broker.failed()),
        (0, 0)
    );
    sleep(Duration::from_mins(2)).await;
    assert_eq!(
        (bench.broker.messages(OWN).len(), bench.broker.failed()),
        (4, 4)
    );
    bench.stop(scheduler).await;
}

/// SC-49: a new process does not know of earlier crashes, but must not let them continue.
#[tokio::test(start_paused = true)]
async fn crashes_of_a_message_are_bounded_if_the_sidecar_is_replaced_meanwhile() {
    for classic in [true, false] {
        let bench = bench(&[1], 4);
        if classic {
            bench.broker.stop_counting_deliveries();
        }
        let mut scheduler = bench.start();
        for _ in 0..3 {
            sleep(Duration::from_millis(600)).await;
            scheduler = bench.kill(&scheduler);
        }
        bench.emptied().await;
        assert_eq!(sorted(bench.ids_in(&error_end())), [1], "{classic}");
        assert_eq!(sorted(bench.ids_in(NEXT)), [0, 2, 3]);
        assert!(
            bench.runtime.crashes() <= 3 + 4,
            "{}",
            bench.runtime.crashes()
        );
        bench.stop(scheduler).await;
    }
}
