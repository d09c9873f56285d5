//! Failed readings: how many are tolerated, and what an open circuit means.

use super::*;

/// QUE-20, QUE-10: one page that timed out must not make thousands of actors ask the broker and write status.
#[tokio::test(start_paused = true)]
async fn one_failed_list_changes_nothing() {
    let health = health_check(&["a", "b", "c-idle", "other-one"], None, 0, 0);
    health.check().await;
    health.source.depth_changes.lock().clear();
    tokio::time::advance(Duration::from_mins(2)).await;
    for _ in 0..5 {
        health.observer.fails.store(true, SeqCst);
        health.check().await;
        health.count().await;
        health.observer.fails.store(false, SeqCst);
        health.check().await;
    }
    assert_eq!(*health.source.rechecks.lock(), []);
    assert_eq!(*health.source.depth_changes.lock(), [""; 0]);
    assert_eq!(known(&health), 4);
}

/// QUE-10, QUE-9
#[tokio::test(start_paused = true)]
async fn what_the_open_circuit_returns_is_no_failed_reading() {
    let health = health_check(&["a", "b-idle"], None, 0, 0);
    health.check().await;
    tokio::time::advance(Duration::from_mins(2)).await;
    health.observer.is_open.store(true, SeqCst);
    for _ in 0..5 {
        health.check().await;
        health.count().await;
    }
    assert_eq!(*health.source.rechecks.lock(), []);
    assert_eq!(known(&health), 2);
    let before = health.observer.checks.load(SeqCst);
    health.observer.is_open.store(false, SeqCst);
    health.repeat().await;
    health.repeat().await;
    let repeated = health.observer.checks.load(SeqCst) - before;
    assert_eq!(repeated, 1, "as soon as possible, but only once");
}

/// QUE-10, QUE-20
#[tokio::test(start_paused = true)]
async fn outage_removes_counts_and_rechecks_each_actor_once_per_regular_check() {
    let health = health_check(&["a", "b-idle"], None, 0, 0);
    health.check().await;
    tokio::time::advance(Duration::from_mins(2)).await;
    health.observer.is_down.store(true, SeqCst);
    health.count().await;
    assert_eq!(known(&health), 1, "only that of a was counted");
    health.repeat().await;
    health.repeat().await;
    let unknown = |name: &str| (name.to_owned(), RecheckReason::Unknown(outage()));
    assert_eq!(
        *health.source.rechecks.lock(),
        [unknown("a"), unknown("b-idle")]
    );
    assert_eq!(known(&health), 0);
}

/// QUE-20, QUE-10
#[tokio::test(start_paused = true)]
async fn third_failed_check_in_a_row_removes_counts_and_rechecks_each_actor() {
    let health = health_check(&["a", "b-idle", "c-paused"], None, 0, 0);
    health.check().await;
    health.source.depth_changes.lock().clear();
    tokio::time::advance(Duration::from_mins(2)).await;
    health.observer.fails.store(true, SeqCst);
    for expected in [0, 0, 1, 2] {
        health.check().await;
        let unknown = RecheckReason::Unknown(unreachable());
        let rechecks = health.source.rechecks.lock();
        assert!(rechecks.iter().all(|(_, reason)| *reason == unknown));
        let names: Vec<&str> = rechecks.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a", "b-idle"].repeat(expected));
        drop(rechecks);
        assert_eq!(known(&health), if expected == 0 { 3 } else { 0 });
    }
    let removed = health.source.depth_changes.lock();
    assert_eq!(*removed, ["a", "b-idle", "c-paused"], "once each");
}

/// QUE-20
#[tokio::test(start_paused = true)]
async fn third_failed_count_in_a_row_removes_the_count() {
    let health = health_check(&["a"], None, 0, 0);
    health.count().await;
    tokio::time::advance(Duration::from_mins(2)).await;
    health.observer.fails.store(true, SeqCst);
    for expected in [1, 1, 0, 0] {
        health.count().await;
        assert_eq!(known(&health), expected);
    }
    assert_eq!(health.source.depth_changes.lock().len(), 2);
    assert_eq!(*health.source.rechecks.lock(), []);
}

/// QUE-10: neither two long check intervals nor missing counts hide an outage.
#[tokio::test(start_paused = true)]
async fn outage_is_found_long_before_the_next_check() {
    // Without counts, the outage begins at a check. With counts, it is found whenever it begins, also for idle actors.
    for (count, found_after) in [(0, 440), (30, 140)] {
        let health = health_check(&["a", "b-idle", "other-one"], None, 300, count);
        let outage = async {
            tokio::time::sleep(Duration::from_mins(11)).await;
            health.observer.fails.store(true, SeqCst);
            tokio::time::sleep(Duration::from_secs(found_after)).await;
            let rechecks = health.source.rechecks.lock();
            let names = rechecks.iter().map(|(name, _)| name.clone());
            names.collect::<HashSet<_>>().len()
        };
        let found = tokio::select! {
            () = health.run() => 0,
            found = outage => found,
        };
        assert_eq!(found, 3, "counts every {count} s");
        let checks = health.observer.checks.load(SeqCst);
        assert!(checks <= 2 * 10, "few repeated checks: {checks}");
    }
}

/// QUE-20: a count that the broker no longer updates is not reported forever.
#[tokio::test(start_paused = true)]
async fn third_reading_in_a_row_without_a_count_removes_the_count() {
    let health = health_check(&["a", "b-idle"], None, 0, 0);
    let advance = || tokio::time::advance(Duration::from_mins(2));
    health.check().await;
    advance().await;
    let uncounted = |is_uncounted| health.observer.is_uncounted.store(is_uncounted, SeqCst);
    for _ in 0..3 {
        uncounted(true);
        health.count().await;
        health.check().await;
        assert_eq!(known(&health), 2, "not in a row");
        uncounted(false);
        health.check().await;
    }
    uncounted(true);
    // A failure is one of them.
    health.observer.fails.store(true, SeqCst);
    health.count().await;
    health.observer.fails.store(false, SeqCst);
    for (reads_all, expected) in [(false, 2), (true, 1), (true, 1), (true, 0)] {
        if reads_all {
            health.check().await;
        } else {
            health.count().await;
        }
        assert_eq!(known(&health), expected);
    }
    assert!(
        health.failures.is_empty(),
        "nothing has failed since, so nothing is repeated"
    );
    assert_eq!(*health.source.rechecks.lock(), []);
    advance().await;
    uncounted(false);
    health.check().await;
    assert_eq!(known(&health), 2);
}
