//! Retries of failed runs.

use super::*;

/// FW-6
#[tokio::test(start_paused = true)]
async fn failures_back_off_per_key_and_a_success_resets() {
    let bench = Bench::new(settings(), |_, nth| async move {
        if [6, 8].contains(&nth) {
            RunOutcome::Done
        } else {
            FAILED
        }
    });
    bench.queue.enqueue("a");
    bench.until(40_000).await;
    bench.queue.enqueue("b");
    bench.queue.enqueue("a");
    bench.until(41_500).await;
    assert_eq!(
        bench.starts("a"),
        [0, 1000, 3000, 7000, 15_000, 25_000, 35_000, 40_000, 41_000]
    );
    assert_eq!(bench.starts("b"), [40_000, 41_000]);
    let failures: Vec<_> = bench.runs()[..9]
        .iter()
        .map(|run| run.attempt.failures)
        .collect();
    assert_eq!(failures, [0, 1, 2, 3, 4, 5, 6, 0, 0]);
    assert_eq!(bench.observer.retried.load(Ordering::Relaxed), 8);
}

/// FW-28
#[tokio::test(start_paused = true)]
async fn error_delay_replaces_the_backoff() {
    let bench = Bench::new(settings(), |_, nth| async move {
        let after = (nth == 1).then(|| Duration::from_secs(65));
        if nth < 3 {
            RunOutcome::Failed { after, timer: None }
        } else {
            RunOutcome::Done
        }
    });
    bench.queue.enqueue("a");
    bench.until(600_000).await;
    assert_eq!(bench.starts("a"), [0, 1000, 66_000, 70_000]);
}

/// FW-6, FW-7
#[tokio::test(start_paused = true)]
async fn timer_of_a_failed_run_is_kept_and_does_not_count_as_a_retry() {
    let seconds = Duration::from_secs;
    let bench = Bench::new(settings(), move |_, nth| async move {
        RunOutcome::Failed {
            after: Some(seconds(60)),
            timer: (nth < 3).then(|| seconds(if nth == 1 { 20 } else { 90 })),
        }
    });
    bench.queue.enqueue("a");
    bench.until(150_000).await;
    assert_eq!(bench.starts("a"), [0, 60_000, 80_000, 140_000]);
    let failures: Vec<_> = bench
        .runs()
        .iter()
        .map(|run| run.attempt.failures)
        .collect();
    assert_eq!(
        failures,
        [0, 1, 2, 2],
        "a run started by a timer is not a retry"
    );

    let few = settings_with(|settings| settings.retry.attempts = 1);
    let bench = Bench::new(few, move |_, _| async move {
        RunOutcome::Failed {
            after: None,
            timer: Some(seconds(30)),
        }
    });
    bench.queue.enqueue("a");
    bench.until(70_000).await;
    assert_eq!(
        bench.starts("a"),
        [0, 1000, 31_000, 61_000],
        "also after the last attempt"
    );
}

/// FW-6
#[tokio::test(start_paused = true)]
async fn event_between_retries_runs_immediately_and_does_not_count_as_a_retry() {
    let bench = Bench::new(settings(), |_, _| async { FAILED });
    bench.queue.enqueue("a");
    for at in [5000, 6500] {
        bench.until(at).await; // the retry at 3000 failed, and the next one is due at 7000
        bench.queue.enqueue("a");
    }
    bench.until(20_000).await;
    assert_eq!(
        bench.starts("a"),
        [0, 1000, 3000, 5000, 6500, 10_500, 18_500]
    );
    let failures: Vec<_> = bench
        .runs()
        .iter()
        .map(|run| run.attempt.failures)
        .collect();
    assert_eq!(failures, [0, 1, 2, 3, 3, 3, 4]);
}

/// FW-6
#[tokio::test(start_paused = true)]
async fn after_the_last_attempt_only_an_event_starts_a_run() {
    let bench = Bench::new(
        settings_with(|s| s.retry.attempts = 2),
        |_, nth| async move { if nth == 4 { RunOutcome::Done } else { FAILED } },
    );
    bench.queue.enqueue("a");
    for at in [100_000, 200_000, 300_000] {
        bench.until(at).await;
        bench.queue.enqueue("a");
    }
    bench.until(302_000).await;
    let starts = [0, 1000, 3000, 100_000, 200_000, 300_000, 301_000];
    assert_eq!(bench.starts("a"), starts);
    let last: Vec<_> = bench.runs().iter().map(|run| run.attempt.last).collect();
    assert_eq!(
        last,
        [false, false, true, true, true, false, false],
        "the success at 200 s resets the failures"
    );
}

#[tokio::test(start_paused = true)]
async fn panic_fails_only_its_own_key() {
    let bench = Bench::new(settings(), |key, nth| {
        assert!(key != "sync" || nth > 0, "before the first await");
        async move {
            sleep(Duration::from_millis(10)).await;
            assert!(key != "async" || nth > 0, "after the first await");
            RunOutcome::Done
        }
    });
    for key in ["sync", "async", "fine"] {
        bench.queue.enqueue(key);
    }
    bench.until(5000).await;
    bench.queue.enqueue("fine");
    bench.until(60_000).await;
    assert_eq!(bench.starts("sync"), [0, 1000]);
    assert_eq!(bench.starts("async"), [0, 1010]);
    assert_eq!(bench.starts("fine"), [0, 5000]);
    assert_eq!(bench.observer.panicked.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn extreme_delay_does_not_overflow() {
    let bench = Bench::new(settings(), |_, _| async {
        RunOutcome::RequeueAfter(Duration::MAX)
    });
    bench.queue.enqueue("a");
    bench.until(60_000).await;
    assert_eq!(bench.queue.sizes().waiting, 1);
}

/// FW-6
#[test]
fn retries_are_jittered() {
    let retry = RetryPolicy::default();
    let delays: Vec<_> = (0..100).map(|_| retry.delay(3)).collect();
    let min = Duration::from_millis(3200);
    let max = Duration::from_secs(4);
    assert!(delays.iter().all(|delay| (min..=max).contains(delay)));
    assert!(delays.iter().any(|delay| *delay != delays[0]));
    assert!(retry.delay(u32::MAX) <= Duration::from_mins(5));
    assert!(retry.delay(u32::MAX) >= Duration::from_mins(4));
}
