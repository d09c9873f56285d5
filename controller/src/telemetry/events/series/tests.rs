use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::{BURST, EventReason, SWEEP, Series, Telling, Topic};

fn topic(actor: &str, note: EventReason, text: &str) -> Topic {
    Topic {
        actor: actor.into(),
        note,
        text: text.into(),
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn again(name: &str, count: i32) -> Telling {
    let name = name.to_owned();
    Telling::Again { name, count }
}

/// OPS-7
#[test]
fn repetitions_are_counted_and_anything_else_is_a_new_event() {
    let mut series = Series::default();
    let invalid = |text| topic("uid", EventReason::ValidationFailed, text);
    for (what, topic, name, time, wanted) in [
        ("first", invalid("a"), "1", 0, Telling::First),
        ("repeated", invalid("a"), "2", 10, again("1", 2)),
        ("other text", invalid("b"), "3", 20, Telling::First),
        ("first text again", invalid("a"), "4", 30, again("1", 3)),
        ("second text again", invalid("b"), "5", 40, again("3", 2)),
        (
            "other reason",
            topic("uid", EventReason::NotOwned, "a"),
            "6",
            50,
            Telling::First,
        ),
        (
            "other actor",
            topic("other", EventReason::ValidationFailed, "a"),
            "7",
            60,
            Telling::First,
        ),
        ("just a series", invalid("a"), "8", 389, again("1", 4)),
        ("series has ended", invalid("b"), "9", 400, Telling::First),
        ("a new series", invalid("b"), "10", 401, again("9", 2)),
    ] {
        assert_eq!(series.next(&topic, name, at(time)), wanted, "{what}");
    }
    series.begin_anew(&invalid("b"), "11");
    assert_eq!(
        series.next(&invalid("b"), "12", at(402)),
        again("11", 2),
        "what was deleted is not counted up"
    );
    series.forget(&invalid("b"));
    assert_eq!(
        series.next(&invalid("b"), "13", at(402)),
        Telling::First,
        "what was not written is told anew"
    );
}

/// OPS-7: writes stay bounded whatever the texts are.
#[test]
fn changing_texts_are_throttled_per_actor() {
    let mut series = Series::default();
    let mut told = |actor, number: u32, time| {
        let topic = topic(actor, EventReason::QueueDeletionFailed, &number.to_string());
        series.next(&topic, "name", at(time)) != Telling::Silence
    };
    let at_once = (0..100).filter(|number| told("loud", *number, 0)).count();
    assert_eq!(at_once, usize::try_from(BURST).unwrap());
    assert!(told("quiet", 0, 0));
    let (minutes, hour) = (SignedDuration::from_mins(5), SignedDuration::from_hours(1));
    assert!(!told("loud", 100, minutes.as_secs() - 1));
    assert!(told("loud", 101, minutes.as_secs()));
    assert!(!told("loud", 102, minutes.as_secs()));
    let later = (0..100)
        .filter(|number| told("loud", 200 + number, hour.as_secs()))
        .count();
    assert_eq!(later, 11, "one for each five minutes since");
}

/// OPS-7
#[test]
fn ended_series_are_swept() {
    let mut series = Series::default();
    for number in 0..SWEEP {
        let topic = topic(&number.to_string(), EventReason::QueueCreated, "made");
        series.next(&topic, "name", at(0));
    }
    series.next(
        &topic("late", EventReason::QueueCreated, "made"),
        "name",
        at(3600),
    );
    assert_eq!((series.told.len(), series.budgets.len()), (1, 1));
}
