//! Ctrl-C.

use std::task::Poll;

use super::super::render::interrupted;
use super::*;

/// An interrupt that comes once it has been checked for this often.
fn after(looks: u32) -> Interrupt {
    let mut left = looks;
    Interrupt::when(std::future::poll_fn(move |_| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        Poll::Pending
    }))
}

/// QUE-14: interrupts are checked for before messages are taken, and before each of them.
#[tokio::test]
async fn interrupt_ends_between_two_messages_and_puts_back_the_rest() {
    let (mine, other) = (message("1", "embed"), message("2", "chat"));
    let bodies = [&*mine, &*other, &*mine, &*mine];
    for (looks, done, others) in [(0, 0, 0), (1, 0, 0), (2, 1, 0), (3, 1, 1), (4, 2, 1)] {
        let expected = DlqOutcome {
            interrupted: true,
            ..outcome(done, others)
        };
        let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", &bodies)]);
        let redriven = redrive(&mut broker, &names(), &dlq(true), None, &after(looks)).await;
        assert_eq!(redriven, Ok(expected), "{looks}");
        let moved = usize::try_from(done).unwrap();
        assert_eq!(broker.bodies("asya-embed"), vec![&*mine; moved]);
        assert_eq!(broker.bodies("dlq").len(), 4 - moved);
        broker.disconnect();
        assert_eq!(broker.bodies("dlq").len(), 4 - moved, "all are put back");

        let mut broker = Memory::with(&[("dlq", &bodies)]);
        let purged = purge(&mut broker, &names(), &dlq(true), None, 4, &after(looks)).await;
        assert_eq!(purged, Ok(expected), "{looks}");
        assert_eq!(broker.bodies("dlq").len(), 4 - moved);
    }
}

#[tokio::test]
async fn interrupt_after_the_last_message_ends_nothing() {
    let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", &["1", "2"])]);
    let done = redrive(&mut broker, &names(), &dlq(false), None, &after(3)).await;
    assert_eq!(done, Ok(outcome(2, 0)));
}

/// QUE-14
#[tokio::test]
async fn interrupted_run_says_how_far_it_came() {
    for (action, looks, expected) in [
        (
            "redrive",
            2,
            "interrupted; messages moved from dlq to asya-embed: 1",
        ),
        ("purge", 2, "interrupted; messages deleted from dlq: 1"),
        ("purge", 0, "interrupted; messages deleted from dlq: 0"),
    ] {
        let mut broker = Memory::with(&[("asya-embed", &[]), ("dlq", &["1", "2"])]);
        broker.processing = Some(0);
        let args = dlq_args(action);
        let listen = || after(looks);
        let done = act(&mut broker, &names(), &dlq(false), &args, listen).await;
        let report = done.unwrap().0;
        assert_eq!(interrupted(&report), expected);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["interrupted"], json!(true), "{json}");
    }
}

#[tokio::test]
async fn interrupted_wait_says_that_the_message_was_sent() {
    for (wait, outcome) in [
        (Some(Duration::from_mins(1)), SendOutcome::Interrupted),
        (None, SendOutcome::Sent),
    ] {
        let mut broker = Memory::with(&[("asya-embed", &[]), ("asya-happy-end", &[])]);
        let wait = wait.map(|limit| Wait {
            limit,
            with_payload: false,
        });
        let body = compose("1", "embed", "1").unwrap();
        let sent = send(&mut broker, &names(), "1", body, wait, || after(1)).await;
        let sent = sent.unwrap();
        assert_eq!(sent.outcome, outcome);
        if outcome == SendOutcome::Interrupted {
            assert_eq!(outcome.answer(), Answer::Interrupted);
            assert_eq!(
                sent.notes,
                ["interrupted; message 1 was sent to asya-embed, and may still be processed"]
            );
        }
        assert_eq!(broker.bodies("asya-embed").len(), 1);
    }
}
