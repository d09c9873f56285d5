use std::collections::BTreeSet;

use aws_sdk_sqs::config::http::HttpResponse;

use super::fake::Fake;
use super::*;
use crate::queue::access::{DeadLetters, Names};
use crate::queue::dlq::{DlqOutcome, purge, redrive};
use crate::queue::message::compose;
use crate::queue::peek::peek;

#[test]
fn message_may_be_stored_unless_the_server_refuses_it() {
    let answered = |code: u16| {
        let response = HttpResponse::new(code.try_into().unwrap(), "".into());
        SdkError::service_error((), response)
    };
    for (error, expected) in [
        (SdkError::construction_failure("no region"), false),
        (answered(400), false),
        (answered(503), true),
        (SdkError::timeout_error("late"), true),
    ] {
        assert_eq!(may_be_done(&error), expected, "{error:?}");
    }
}

#[test]
fn limit_of_receives_is_a_number_or_text() {
    for (policy, limit) in [
        (r#"{"maxReceiveCount":3}"#, Some(3)),
        (
            r#"{"maxReceiveCount":"4","deadLetterTargetArn":"a"}"#,
            Some(4),
        ),
        ("{}", None),
        ("", None),
    ] {
        assert_eq!(max_receives(policy), limit, "{policy}");
    }
}

#[test]
fn delivery_counts_receives_before_this_one_and_knows_its_source() {
    let message = Message::builder()
        .body("{}")
        .attributes(Known::ApproximateReceiveCount, "3")
        .attributes(
            Known::DeadLetterQueueSourceArn,
            "arn:aws:sqs:eu-west-1:000000000000:asya-embed",
        );
    let found = delivery(message.build(), Hold::new(Instant::now()));
    assert_eq!(
        (found.deliveries, found.source.as_deref()),
        (Some(2), Some("asya-embed"))
    );
}

/// docs/cli.md: no proxy leads to a port-forward. The SDK reads the variables, which only another process can be given.
#[tokio::test]
async fn port_forward_is_reached_without_a_proxy() {
    if std::env::var("HTTP_PROXY").as_deref() != Ok(NOTHING) {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let name = concat!(module_path!(), "::port_forward_is_reached_without_a_proxy");
        let (_, name) = name.split_once("::").unwrap();
        let again = again.args([name, "--exact"]).env("HTTP_PROXY", NOTHING);
        let output = again.env_remove("NO_PROXY").env_remove("no_proxy").output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
    let server = Fake::start(&[("q", &[])]).await;
    let size = server.client().await.size("q").await.unwrap();
    assert_eq!(size.unwrap().waiting, 0);
}

/// A proxy that does not answer.
const NOTHING: &str = "http://127.0.0.1:1";

const ME: &str = "embed";

/// An actor with a dead letter queue that others share.
fn names() -> (Names, DeadLetters) {
    let names = Names {
        transport: "sqs".to_owned(),
        queue: "asya-embed".to_owned(),
        dlq: None,
        actor: ME.to_owned(),
        happy_end: "asya-happy-end".to_owned(),
        error_end: "asya-error-end".to_owned(),
    };
    let dlq = DeadLetters {
        queue: "asya-dlq".to_owned(),
        shared: true,
    };
    (names, dlq)
}

/// Messages of these actors, whose payloads are their numbers.
fn messages<'a>(actors: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let bodies = actors.into_iter().enumerate().map(|(at, actor)| {
        let body = compose(&at.to_string(), actor, &at.to_string()).unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    });
    bodies.collect()
}

/// Four messages, of which only the last is the actor's.
fn mixed() -> (Vec<String>, Vec<String>, Vec<String>) {
    let actors = ["chat", "chat", "ocr", ME].into_iter().cycle().take(40);
    let all = messages(actors);
    let is_mine = |it: &String| it.contains(ME);
    let (mine, others) = all.iter().cloned().partition(is_mine);
    (all, mine, others)
}

/// QUE-14: dead letters of other actors are held while the queue is searched.
#[tokio::test]
async fn search_of_a_shared_queue_may_take_longer_than_messages_are_hidden() {
    for (refuses, deletes) in [(false, false), (false, true), (true, false), (true, true)] {
        let (all, mine, others) = mixed();
        let fake = Fake::start(&[("asya-dlq", &all), ("asya-embed", &[])]).await;
        fake.state().receiving = 25;
        if refuses {
            fake.state().refuses_extensions = true;
            fake.state().stride = 29;
        }
        let (names, dlq) = names();
        let mut sqs = fake.client().await;
        let done = if deletes {
            purge(&mut sqs, &names, &dlq, None, 40, &Interrupt::never()).await
        } else {
            redrive(&mut sqs, &names, &dlq, None, &Interrupt::never()).await
        };
        let expected = DlqOutcome {
            done: 10,
            others: 30,
            ..DlqOutcome::default()
        };
        assert_eq!(done, Ok(expected), "{refuses} {deletes}");
        assert!(fake.state().now > 60);
        assert_eq!(fake.bodies("asya-dlq"), others);
        assert_eq!(fake.visible("asya-dlq"), 30, "all are back");
        let mut moved = fake.bodies("asya-embed");
        moved.sort_unstable();
        let mut expected = if deletes { Vec::new() } else { mine };
        expected.sort_unstable();
        assert_eq!(moved, expected);
        let state = fake.state();
        let mut left = state.queues["asya-dlq"].iter();
        let once = left.all(|it| it.receives == 1);
        assert_eq!(once, !refuses, "those that are held are not received again");
    }
}

/// QUE-14: a message whose hold has expired may be another consumer's: it is not moved, and is redelivered.
#[tokio::test]
async fn message_is_moved_once_however_long_that_takes() {
    let all = messages([ME, ME, ME]);
    let fake = Fake::start(&[("asya-dlq", &all), ("asya-embed", &[])]).await;
    fake.state().sending = 100;
    let (names, dlq) = names();
    let mut sqs = fake.client().await;
    let done = redrive(&mut sqs, &names, &dlq, None, &Interrupt::never()).await;
    let expected = DlqOutcome {
        done: 3,
        others: 0,
        may_remain: 3,
        interrupted: false,
    };
    assert_eq!(done, Ok(expected));
    assert_eq!(fake.bodies("asya-embed"), all);
    assert_eq!(fake.bodies("asya-dlq"), [""; 0]);
}

/// QUE-14: SQS accepts the deletion of a message that it has redelivered, but keeps the message.
#[tokio::test]
async fn message_that_was_moved_and_comes_again_is_removed() {
    let all = messages([ME; 12]);
    let fake = Fake::start(&[("asya-dlq", &all), ("asya-embed", &[])]).await;
    fake.state().ignored_deletions = 1;
    let (names, dlq) = names();
    let mut sqs = fake.client().await;
    let done = redrive(&mut sqs, &names, &dlq, None, &Interrupt::never()).await;
    assert_eq!(done.unwrap().done, 12);
    assert_eq!(fake.bodies("asya-embed"), all);
    assert_eq!(fake.bodies("asya-dlq"), [""; 0]);
}

#[tokio::test]
async fn queue_that_delivers_the_same_messages_for_ever_is_not_searched_for_ever() {
    let all = messages(["chat"; 30]);
    let fake = Fake::start(&[("asya-dlq", &all), ("asya-embed", &[])]).await;
    fake.state().receiving = 60;
    fake.state().refuses_extensions = true;
    let (names, dlq) = names();
    let mut sqs = fake.client().await;
    let failed = redrive(&mut sqs, &names, &dlq, None, &Interrupt::never()).await;
    assert_eq!(
        failed.unwrap_err().to_string(),
        "of 30 messages, the broker delivers the same 10 again and again; try again later; done before that: 0, the \
         others are still in asya-dlq"
    );
    assert_eq!(fake.bodies("asya-dlq"), all);
}

#[tokio::test]
async fn message_that_sqs_has_given_back_already_needs_not_be_put_back() {
    let all = messages(["chat"; 3]);
    let fake = Fake::start(&[("asya-dlq", &all)]).await;
    let mut sqs = fake.client().await;
    let taken = sqs.take("asya-dlq", 3).await.unwrap();
    fake.state().now += 61;
    assert_eq!(sqs.put_back("asya-dlq", taken).await, Ok(()));
    let taken = sqs.take("asya-dlq", 3).await.unwrap();
    fake.state().now += 61;
    for delivery in taken {
        let removed = sqs.remove("asya-dlq", delivery).await;
        assert_eq!(removed, Ok(Settlement::Lapsed));
    }
    assert_eq!(fake.bodies("asya-dlq"), all);
}

#[tokio::test]
async fn long_look_shows_each_message_once() {
    let all = messages(["chat"; 25]);
    let fake = Fake::start(&[("asya-dlq", &all)]).await;
    fake.state().receiving = 35;
    let mut sqs = fake.client().await;
    let peeked = peek(&mut sqs, "asya-dlq", 40, false).await.unwrap();
    let ids: BTreeSet<_> = peeked.rows.iter().map(|it| it.id.clone()).collect();
    assert_eq!((peeked.rows.len(), ids.len()), (25, 25));
}

/// QUE-14: otherwise, SQS would keep moving messages after the command has ended.
#[tokio::test]
async fn interrupt_cancels_the_move_of_the_server() {
    let done = |interrupted| DlqOutcome {
        done: 2,
        interrupted,
        ..DlqOutcome::default()
    };
    let come = || Interrupt::when(std::future::ready(()));
    let refused =
        "SQS, queue asya-dlq: UnsupportedOperation:; SQS goes on moving the messages of asya-dlq";
    for (task, refuses, interrupt, expected, left) in [
        ("RUNNING", false, come(), Ok(done(true)), "CANCELLED"),
        (
            "RUNNING",
            true,
            come(),
            Err(Failure::new(refused)),
            "RUNNING",
        ),
        (
            "COMPLETED",
            false,
            Interrupt::never(),
            Ok(done(false)),
            "COMPLETED",
        ),
    ] {
        let all = messages([ME; 5]);
        let fake = Fake::start(&[("asya-dlq", &all), ("asya-embed", &[])]).await;
        fake.state().task = Some(task);
        fake.state().refuses_to_cancel = refuses;
        let (names, mut dlq) = names();
        dlq.shared = false;
        let mut sqs = fake.client().await;
        let moved = redrive(&mut sqs, &names, &dlq, None, &interrupt).await;
        assert_eq!(moved, expected);
        assert_eq!(fake.state().task, Some(left));
    }
}

#[test]
fn receipts_that_hold_nothing_are_known_by_every_name_of_their_error() {
    for (code, expected) in [
        ("MessageNotInflight", true),
        ("AWS.SimpleQueueService.MessageNotInflight", true),
        ("ReceiptHandleIsInvalid", true),
        ("InvalidParameterValue", true),
        ("InvalidParameterValueException", true),
        ("AccessDenied", false),
        ("ThrottlingException", false),
    ] {
        assert_eq!(is_lapsed(code), expected, "{code}");
    }
}
