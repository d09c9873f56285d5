use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{BURST, EventReason, EventSeries, SWEEP, SeriesKey, WriteDecision};

fn key(actor: &str, reason: EventReason, text: &str) -> SeriesKey {
    SeriesKey {
        actor: actor.into(),
        reason,
        text: text.into(),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn increment(name: &str, count: i32) -> WriteDecision {
    let name = name.to_owned();
    WriteDecision::Increment { name, count }
}

/// OPS-7
#[test]
fn repetitions_increment_the_count_of_a_series() {
    let mut series = EventSeries::default();
    let invalid = |text| key("uid", EventReason::ValidationFailed, text);
    for (case, key, name, time, expected) in [
        ("first", invalid("a"), "1", 0, WriteDecision::Create),
        ("repeated", invalid("a"), "2", 10, increment("1", 2)),
        ("other text", invalid("b"), "3", 20, WriteDecision::Create),
        ("first text again", invalid("a"), "4", 30, increment("1", 3)),
        (
            "second text again",
            invalid("b"),
            "5",
            40,
            increment("3", 2),
        ),
        (
            "other reason",
            key("uid", EventReason::NotOwned, "a"),
            "6",
            50,
            WriteDecision::Create,
        ),
        (
            "other actor",
            key("other", EventReason::ValidationFailed, "a"),
            "7",
            60,
            WriteDecision::Create,
        ),
        (
            "just within the interval",
            invalid("a"),
            "8",
            389,
            increment("1", 4),
        ),
        (
            "series has expired",
            invalid("b"),
            "9",
            400,
            WriteDecision::Create,
        ),
        (
            "new series continues",
            invalid("b"),
            "10",
            401,
            increment("9", 2),
        ),
    ] {
        assert_eq!(series.next(&key, name, at(time)), expected, "{case}");
    }
    series.restart(&invalid("b"), "11");
    assert_eq!(
        series.next(&invalid("b"), "12", at(402)),
        increment("11", 2),
        "the count restarts after a deletion"
    );
    series.forget(&invalid("b"));
    assert_eq!(
        series.next(&invalid("b"), "13", at(402)),
        WriteDecision::Create,
        "a failed write does not start a series"
    );
}

/// OPS-7
#[test]
fn changing_texts_are_throttled_per_actor() {
    let mut series = EventSeries::default();
    let mut is_written = |actor, number: u32, time| {
        let key = key(actor, EventReason::QueueDeletionFailed, &number.to_string());
        series.next(&key, "name", at(time)) != WriteDecision::Drop
    };
    let burst = (0..100)
        .filter(|number| is_written("loud", *number, 0))
        .count();
    assert_eq!(burst, usize::try_from(BURST).unwrap());
    assert!(is_written("quiet", 0, 0));
    let minutes = SignedDuration::from_mins(5);
    let hour = SignedDuration::from_hours(1);
    assert!(!is_written("loud", 100, minutes.as_secs() - 1));
    assert!(is_written("loud", 101, minutes.as_secs()));
    assert!(!is_written("loud", 102, minutes.as_secs()));
    let later = (0..100)
        .filter(|number| is_written("loud", 200 + number, hour.as_secs()))
        .count();
    assert_eq!(later, 11, "one per five minutes since");
}

/// SAFE-43
#[test]
fn clock_that_was_ahead_silences_no_actor() {
    let day = SignedDuration::from_hours(24).as_secs();
    let mut series = EventSeries::default();
    let mut next = |text: &str, time| {
        let key = key("a", EventReason::QueueDeletionFailed, text);
        series.next(&key, "name", at(time))
    };
    for number in 0..BURST {
        assert_eq!(next(&number.to_string(), day), WriteDecision::Create);
    }
    assert_eq!(next("another", 0), WriteDecision::Drop);
    assert_eq!(next("another", 300), WriteDecision::Create);
    assert_eq!(
        next("0", 600),
        WriteDecision::Create,
        "its series has ended"
    );
}

/// OPS-7
#[test]
fn ended_series_are_swept() {
    let mut series = EventSeries::default();
    for number in 0..SWEEP {
        let key = key(&number.to_string(), EventReason::QueueCreated, "created");
        series.next(&key, "name", at(0));
    }
    series.next(
        &key("late", EventReason::QueueCreated, "created"),
        "name",
        at(3600),
    );
    assert_eq!((series.recent.len(), series.budgets.len()), (1, 1));
}
