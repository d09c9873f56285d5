//! No command on queues loses a message.

mod interrupted;
mod purges;

use std::time::Duration;

use clap::Parser;
use serde_json::json;

use super::access::{DeadLetters, Names};
use super::act;
use super::broker::QueueClient;
use super::dlq::{DlqOutcome, purge, redrive};
use super::memory::{Memory, Stored};
use super::message::compose;
use super::peek::peek;
use super::render::{dead_letters, sent as sent_text};
use super::send::{SendOutcome, Wait, send};
use crate::answer::{Answer, Failure};
use crate::args::queue::DlqArgs;
use crate::args::{Cli, Command};
use crate::interrupt::Interrupt;
use crate::output::Format;

fn names() -> Names {
    Names {
        transport: "mq".to_owned(),
        queue: "asya-embed".to_owned(),
        dlq: None,
        actor: "embed".to_owned(),
        happy_end: "asya-happy-end".to_owned(),
        error_end: "asya-error-end".to_owned(),
    }
}

fn dlq(shared: bool) -> DeadLetters {
    DeadLetters {
        queue: "dlq".to_owned(),
        shared,
    }
}

fn message(id: &str, actor: &str) -> String {
    let body = compose(id, actor, "1").unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

fn outcome(done: u64, others: u64) -> DlqOutcome {
    DlqOutcome {
        done,
        others,
        ..DlqOutcome::default()
    }
}

async fn redriven(
    broker: &mut Memory,
    shared: bool,
    max: Option<u64>,
) -> Result<DlqOutcome, Failure> {
    let never = Interrupt::never();
    redrive(broker, &names(), &dlq(shared), max, &never).await
}

#[tokio::test]
async fn look_changes_neither_order_nor_count() {
    let mut broker = Memory::with(&[("q", &["a", "b", "c"])]);
    let peeked = peek(&mut broker, "q", 2, false).await.unwrap();
    assert_eq!(peeked.rows.len(), 2);
    assert_eq!(broker.bodies("q"), ["a", "b", "c"]);
    assert!(peeked.rows.iter().all(|row| row.payload.is_none()));
}

#[tokio::test]
async fn message_is_written_as_its_fields_are_in_json_and_yaml() {
    let message = String::from_utf8(compose("a", "embed", r#"{"order":  1}"#).unwrap().to_vec());
    let bodies = [&*message.unwrap(), "poison"];
    let mut broker = Memory::with(&[("q", &bodies)]);
    for (format, expected) in [
        (
            Format::Yaml,
            [
                "route:\n- embed\n",
                "payload:\n  order: 1\n",
                "payload: poison\n",
            ],
        ),
        (
            Format::Json,
            [
                r#""route": ["#,
                r#""payload": {"order":  1}"#,
                r#""payload": "poison""#,
            ],
        ),
    ] {
        let mut rows = peek(&mut broker, "q", 2, true).await.unwrap().rows;
        let text = rows.iter_mut().map(|row| {
            row.prepare(format);
            format.write(row, String::new).unwrap()
        });
        let text: String = text.collect();
        for part in expected {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("RawValue"), "{text}");
    }
}

/// Three peeks at a message that may be delivered three times.
#[tokio::test]
async fn looks_never_exhaust_the_deliveries_of_a_message() {
    let mut broker = Memory::with(&[("q", &["a", "b"])]);
    broker.limit = Some(3);
    let (mut relocated, mut notes) = (0, Vec::new());
    for _ in 0..10 {
        let peeked = peek(&mut broker, "q", 2, true).await.unwrap();
        relocated += peeked.relocated;
        notes.extend(peeked.notes("q"));
        let mut bodies = broker.bodies("q");
        bodies.sort_unstable();
        assert_eq!(bodies, ["a", "b"]);
    }
    assert!(relocated > 0);
    let note = "2 of them went to the end of q, as new messages: with one more delivery, the broker might dead-letter or \
                drop them (the limit is 3, as its test says)";
    assert!(notes.iter().any(|it| it == note), "{notes:?}");
}

#[tokio::test]
async fn dead_letters_return_to_the_queue_of_their_actor() {
    let (mine, other) = (message("1", "embed"), message("2", "chat"));
    let bodies = [&*mine, &*other, "poison", &*mine];
    for (shared, moved, left) in [
        (false, &bodies[..], &[][..]),
        (true, &[&*mine, &*mine], &[&*other, "poison"]),
    ] {
        let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", &bodies)]);
        let done = redriven(&mut broker, shared, None).await;
        let (moved_count, others) = (moved.len() as u64, left.len() as u64);
        assert_eq!(done.unwrap(), outcome(moved_count, others));
        assert_eq!(broker.bodies("asya-embed"), moved);
        assert_eq!(broker.bodies("dlq"), left);
    }
}

#[tokio::test]
async fn source_of_a_dead_letter_counts_more_than_its_route() {
    let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", &["poison", "poison"])]);
    let stored = broker.queues.get_mut("dlq").unwrap();
    stored[0].source = Some("asya-chat".to_owned());
    stored[1].source = Some("asya-embed".to_owned());
    let done = redriven(&mut broker, true, None).await;
    assert_eq!(done.unwrap(), outcome(1, 1));
    assert_eq!(broker.queues["dlq"][0].source.as_deref(), Some("asya-chat"));
}

#[tokio::test]
async fn redrive_that_fails_loses_nothing_and_says_how_far_it_came() {
    let bodies = ["1", "2", "3", "4"];
    let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", &bodies)]);
    broker.accepts = Some(2);
    let failed = redriven(&mut broker, false, None).await;
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("done before that: 2"), "{text}");
    broker.disconnect();
    assert_eq!(broker.bodies("asya-embed"), ["1", "2"]);
    assert_eq!(broker.bodies("dlq"), ["3", "4"]);
}

#[tokio::test]
async fn failure_to_put_back_what_belongs_to_others_says_how_many_were_moved() {
    let (mine, other) = (message("1", "embed"), message("2", "chat"));
    let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", &[&*mine, &*other])]);
    // With this limit, the messages of others are put back as copies, which the broker does not accept.
    (broker.limit, broker.accepts) = (Some(1), Some(1));
    let failed = redriven(&mut broker, true, None).await;
    let text = failed.unwrap_err().to_string();
    assert!(text.contains("done before that: 1"), "{text}");
    broker.disconnect();
    assert_eq!(broker.bodies("asya-embed"), [&*mine]);
    assert_eq!(broker.bodies("dlq"), [&*other]);
}

#[tokio::test]
async fn redrive_obeys_its_maximum_and_uses_what_the_broker_can_do() {
    let bodies = ["1", "2", "3"];
    for (moves, max, expected) in [(true, None, 3), (true, Some(2), 2), (false, Some(0), 0_u32)] {
        let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", &bodies)]);
        broker.moves = moves;
        let done = redriven(&mut broker, false, max).await;
        assert_eq!(done.unwrap().done, u64::from(expected));
        assert_eq!(broker.bodies("asya-embed"), bodies[..expected as usize]);
    }
}

async fn sent(broker: &mut Memory, wait: bool) -> super::send::Sent {
    let body = compose("1", "embed", "1").unwrap();
    let wait = wait.then_some(Wait {
        limit: Duration::ZERO,
        with_payload: true,
    });
    let sent = send(broker, &names(), "1", body, wait, Interrupt::never).await;
    sent.unwrap()
}

#[tokio::test]
async fn message_is_followed_to_its_end() {
    for (end, outcome) in [
        ("asya-happy-end", SendOutcome::Succeeded),
        ("asya-error-end", SendOutcome::Failed),
    ] {
        let queues: [(&str, &[&str]); 3] = [
            ("asya-embed", &[]),
            ("asya-happy-end", &["old"]),
            ("asya-error-end", &[]),
        ];
        let mut broker = Memory::with(&queues);
        broker.delivers_to = Some(end.to_owned());
        assert_eq!(sent(&mut broker, false).await.outcome, SendOutcome::Sent);
        let found = sent(&mut broker, true).await;
        assert_eq!(
            (found.outcome, found.seen_in.as_deref()),
            (outcome, Some(end))
        );
        assert_eq!(found.message.unwrap().payload.unwrap().text(), "1");
        assert_eq!(broker.bodies("asya-happy-end")[0], "old");
    }
}

#[tokio::test]
async fn consumers_of_an_end_keep_their_messages() {
    let mut broker = Memory::with(&[("asya-embed", &[]), ("asya-happy-end", &["old"])]);
    broker.consumers = 1;
    let found = sent(&mut broker, true).await;
    assert_eq!(found.outcome, SendOutcome::NotSeen);
    assert_eq!(broker.queues["asya-happy-end"][0].deliveries, 0);
    let notes = found.notes.join("\n");
    assert!(notes.contains("consumers of asya-happy-end: 1"), "{notes}");
    assert!(
        notes.contains("there is no queue asya-error-end"),
        "{notes}"
    );
}

#[tokio::test]
async fn message_that_is_not_seen_is_said_to_wait_for_somebody_who_receives_it() {
    for (waiting, consumers, delivers_to, note) in [
        (
            &[][..],
            0,
            None,
            "1 message waits in asya-embed, which has no consumers",
        ),
        (
            &["old"],
            0,
            None,
            "2 messages wait in asya-embed, which has no consumers",
        ),
        (
            &[],
            2,
            None,
            "1 message waits in asya-embed, this one perhaps",
        ),
        (
            &[],
            2,
            Some("asya-next"),
            "no message waits in asya-embed: this one is being processed",
        ),
    ] {
        let ends: [(&str, &[&str]); 4] = [
            ("asya-embed", waiting),
            ("asya-next", &[]),
            ("asya-happy-end", &[]),
            ("asya-error-end", &[]),
        ];
        let mut broker = Memory::with(&ends);
        broker.consumers = consumers;
        broker.delivers_to = delivers_to.map(str::to_owned);
        let found = sent(&mut broker, true).await;
        assert_eq!(found.outcome, SendOutcome::NotSeen);
        assert!(found.notes[0].starts_with(note), "{:?}", found.notes);
    }
}

#[tokio::test]
async fn message_that_was_sent_is_reported_even_if_it_cannot_be_followed() {
    let mut broker = Memory::with(&[("asya-embed", &[]), ("asya-happy-end", &[])]);
    broker.reports = Some(2);
    let found = sent(&mut broker, true).await;
    assert_eq!((&*found.id, &*found.queue), ("1", "asya-embed"));
    assert_eq!(found.outcome, SendOutcome::NotSeen);
    assert_eq!(found.outcome.answer(), Answer::Unknown);
    let notes = found.notes.join("\n");
    assert!(
        notes.contains("following it failed: the connection was lost"),
        "{notes}"
    );
    assert_eq!(broker.bodies("asya-embed").len(), 1);
}

#[tokio::test]
async fn message_that_the_broker_did_not_confirm_keeps_its_id_and_may_be_stored() {
    for wait in [false, true] {
        let mut broker = Memory::with(&[("asya-embed", &[])]);
        broker.is_lost_after_sends = true;
        let found = sent(&mut broker, wait).await;
        assert_eq!(found.outcome.answer(), Answer::Unknown);
        assert_eq!(
            found.notes,
            ["the connection was lost; look for this id before you send the message again"]
        );
        assert_eq!(
            sent_text(&found, None),
            "message 1 may be in asya-embed: the broker has not confirmed it\n"
        );
        assert_eq!(
            serde_json::to_value(&found).unwrap(),
            json!({"id": "1", "queue": "asya-embed", "outcome": "unknown"})
        );
        assert_eq!(broker.bodies("asya-embed").len(), 1);
    }
}

#[tokio::test]
async fn message_that_was_found_is_reported_even_if_it_cannot_be_put_back() {
    let queues: [(&str, &[&str]); 2] = [("asya-embed", &[]), ("asya-happy-end", &[])];
    let mut broker = Memory::with(&queues);
    broker.delivers_to = Some("asya-happy-end".to_owned());
    // With this limit, it is put back as a copy, which the broker does not accept.
    (broker.limit, broker.accepts) = (Some(1), Some(1));
    let found = sent(&mut broker, true).await;
    assert_eq!(found.outcome, SendOutcome::Succeeded);
    broker.disconnect();
    assert_eq!(broker.bodies("asya-happy-end").len(), 1);
}

fn dlq_args(action: &str) -> DlqArgs {
    let args = ["kubectl-asya", "dlq", "embed", action, "--yes"];
    match Cli::parse_from(args).command {
        Command::Dlq(args) => args,
        other => panic!("{other:?}"),
    }
}

/// Scripts read the list, whatever its length.
#[tokio::test]
async fn list_of_no_dead_letters_is_an_empty_list_in_json() {
    for (bodies, expected) in [(&[][..], 0), (&["poison"], 1)] {
        let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", bodies)]);
        let args = dlq_args("list");
        let (report, _) = act(&mut broker, &names(), &dlq(false), &args, Interrupt::never)
            .await
            .unwrap();
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["messages"].as_array().map(Vec::len), Some(expected));
    }
    let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", &[])]);
    let args = dlq_args("redrive");
    let (report, _) = act(&mut broker, &names(), &dlq(false), &args, Interrupt::never)
        .await
        .unwrap();
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["messages"], json!(null), "nothing is listed: {json}");
}

/// An interrupted peek hides messages on SQS for a while.
#[tokio::test]
async fn messages_that_others_hold_are_not_reported_as_none() {
    for (action, held, expected) in [
        ("redrive", 0, "nothing to do: dlq has no messages\n"),
        ("purge", 0, "nothing to do: dlq has no messages\n"),
        (
            "redrive",
            3,
            "nothing was done: other consumers hold the messages of dlq now: 3; try again in a minute\n",
        ),
        (
            "purge",
            3,
            "nothing was done: other consumers hold the messages of dlq now: 3; try again in a minute\n",
        ),
    ] {
        let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", &[])]);
        broker.processing = Some(held);
        let args = dlq_args(action);
        let done = act(&mut broker, &names(), &dlq(false), &args, Interrupt::never).await;
        assert_eq!(dead_letters(&done.unwrap().0, None), expected, "{action}");
    }
}
