//! Conformance corpus: messages and replies, with the output of the Go sidecar except for the differences in
//! docs/spec/sidecar.md, section 20.

use serde::Deserialize;
use serde_json::Value;

use super::{end_actor, rules, told};
use crate::decide::testing::decide;
use crate::decide::{Action, DeliveryState, EndActor, Outcome};

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
fn messages_equal_those_of_the_former_sidecar() {
    let corpus: Vec<Case> = serde_json::from_str(include_str!("corpus.json")).expect("the corpus");
    assert!(corpus.len() >= 20, "{}", corpus.len());
    for case in corpus {
        let rules = if case.end {
            end_actor(EndActor::Happy)
        } else {
            rules()
        };
        let (message, reply) = (
            case.message.to_string(),
            case.reply.map(|reply| reply.to_string()),
        );
        let state = DeliveryState::default();
        let received = decide(&rules, message.as_bytes(), Outcome::Received, &state);
        let decision = match &reply {
            None => received,
            Some(reply) => {
                assert_eq!(received.actions, [Action::Call], "{}", case.name);
                decide(
                    &rules,
                    message.as_bytes(),
                    Outcome::Replied(reply.as_bytes()),
                    &state,
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
                Action::Send(message) => Some(Sent {
                    to: message.actor,
                    message: serde_json::from_slice(&message.body).expect("a message"),
                }),
                _ => None,
            });
        assert_eq!(sent.collect::<Vec<_>>(), case.sent, "{}", case.name);
    }
}
