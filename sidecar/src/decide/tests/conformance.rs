//! The corpus: messages and replies, and what the former sidecar sends for them, but for the differences that
//! docs/spec/sidecar.md, section 20 lists.

use serde::Deserialize;
use serde_json::Value;

use super::{at_end, rules, told};
use crate::decide::{Action, End, Facts, Outcome, decide};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    end: bool,
    message: Value,
    /// Absent: the runtime is not called.
    reply: Option<Value>,
    #[serde(default)]
    sent: Vec<Sent>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Sent {
    to: String,
    message: Value,
}

/// SC-110
#[test]
fn what_is_sent_is_what_the_former_sidecar_sends() {
    let corpus: Vec<Case> = serde_json::from_str(include_str!("corpus.json")).expect("the corpus");
    assert!(corpus.len() >= 20, "{}", corpus.len());
    for case in corpus {
        let rules = if case.end {
            at_end(End::Happy)
        } else {
            rules()
        };
        let (message, reply) = (
            case.message.to_string(),
            case.reply.map(|reply| reply.to_string()),
        );
        let facts = Facts::default();
        let received = decide(&rules, message.as_bytes(), Outcome::Received, &facts);
        let decision = match &reply {
            None => received,
            Some(reply) => {
                assert_eq!(received.actions, [Action::Call], "{}", case.name);
                decide(
                    &rules,
                    message.as_bytes(),
                    Outcome::Replied(reply.as_bytes()),
                    &facts,
                )
            }
        };
        assert!(
            told(&decision).contains("acknowledge"),
            "{}: {}",
            case.name,
            told(&decision)
        );
        let sent = decision
            .actions
            .into_iter()
            .filter_map(|action| match action {
                Action::Send(letter) => Some(Sent {
                    to: letter.actor,
                    message: serde_json::from_slice(&letter.body).expect("a message"),
                }),
                _ => None,
            });
        assert_eq!(sent.collect::<Vec<_>>(), case.sent, "{}", case.name);
    }
}
