//! Rules of an actor `foo`, for tests.

use std::time::Duration;

use asya_wire::queue::{Naming, Template};

use super::{Body, Decision, DeliveryState, Outcome, Queues, Rules};

/// Decides about a message without tracing.
pub fn decide(rules: &Rules, body: &[u8], outcome: Outcome<'_>, state: &DeliveryState) -> Decision {
    let body = Body {
        received: body,
        request: body,
    };
    super::decide(rules, body, outcome, state)
}

/// Rules with all defaults.
pub fn rules() -> Rules {
    Rules {
        actor: "foo".to_owned(),
        happy_end: "happy-end".to_owned(),
        error_end: "error-end".to_owned(),
        end: None,
        queues: Queues {
            template: Template::default(),
            namespace: String::new(),
            naming: Naming::RabbitMq,
        },
        timeout: Duration::from_mins(5),
        crash_retries: 1,
        max_message_size: 64 << 20,
    }
}
