//! Whether a command may act on an actor's queues.

use asya_shared::api::AsyncActorStatus;
use serde::Deserialize;
use serde_json::Value;

use crate::actor::{
    CONFLICT, deletion_policy, has_confirmed_queue, is_orphaned, keeps_queue, queue_conflict,
};
use crate::answer::Failure;
use crate::args::queue::{DlqAction, QueueArgs};

/// What a command does with an actor's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueUse {
    /// Counts them.
    Count,
    /// Takes them, and puts them back.
    Take,
    /// Deletes them.
    Delete,
    /// Puts them into the actor's queue.
    Fill,
}

impl From<&QueueArgs> for QueueUse {
    fn from(args: &QueueArgs) -> Self {
        match args.peek {
            Some(_) => Self::Take,
            None => Self::Count,
        }
    }
}

impl From<DlqAction> for QueueUse {
    fn from(action: DlqAction) -> Self {
        match action {
            DlqAction::List => Self::Take,
            DlqAction::Purge => Self::Delete,
            DlqAction::Redrive => Self::Fill,
        }
    }
}

/// Rejects an actor whose queues are not certainly its own, or will be deleted together with new messages in them.
pub fn must_allow(name: &str, actor: &Value, intent: QueueUse) -> Result<(), Failure> {
    must_own_queue(name, actor)?;
    match intent {
        QueueUse::Count => Ok(()),
        QueueUse::Take => must_know_queue(name, actor),
        QueueUse::Delete => {
            must_know_queue(name, actor)?;
            must_have_confirmed_queue(name, actor)
        }
        QueueUse::Fill => {
            must_know_queue(name, actor)?;
            must_have_confirmed_queue(name, actor)?;
            must_keep_messages(name, actor)
        }
    }
}

/// Rejects an actor whose queue name is another actor's: the queue has that actor's messages.
fn must_own_queue(name: &str, actor: &Value) -> Result<(), Failure> {
    match queue_conflict(actor) {
        None => Ok(()),
        Some(why) => Err(Failure::new(format!(
            "AsyncActor {name} has no queue of its own ({CONFLICT}): {why}"
        ))),
    }
}

/// Rejects an actor whose status cannot be read: it may name another queue than the configuration does.
fn must_know_queue(name: &str, actor: &Value) -> Result<(), Failure> {
    let status = &actor["status"];
    if status.is_null() {
        return Ok(());
    }
    let read = AsyncActorStatus::deserialize(status);
    read.map(drop).map_err(|error| {
        Failure::new(format!(
            "cannot read the status of AsyncActor {name}, which names its queues ({error}); use the kubectl asya of \
             the operator's release"
        ))
    })
}

/// Rejects an actor whose queue name follows from the configuration alone: the queue may be another's, which the
/// operator checks before it puts the name into the status.
fn must_have_confirmed_queue(name: &str, actor: &Value) -> Result<(), Failure> {
    if has_confirmed_queue(actor) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "the operator has not confirmed yet that AsyncActor {name} has a queue of its own (status.queue), and the one \
         of its name may be another actor's; `kubectl asya status {name}` says what it waits for"
    )))
}

/// Rejects an actor that will be deleted together with the messages in its queue.
fn must_keep_messages(name: &str, actor: &Value) -> Result<(), Failure> {
    let waits = deletion_policy(actor).waits_until_empty();
    let is_deleted = actor["metadata"]["deletionTimestamp"].is_string();
    if !is_deleted || waits || keeps_queue(actor) || is_orphaned(actor) {
        return Ok(());
    }
    Err(Failure::new(format!(
        "AsyncActor {name} is being deleted, and its queue with all messages in it; `kubectl asya retain {name}` keeps \
         them, also now, if the operator has not deleted the queue yet"
    )))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::args::{Cli, Command};

    fn refusal(actor: &Value, intent: QueueUse) -> Option<String> {
        must_allow("e", actor, intent)
            .err()
            .map(|why| why.to_string())
    }

    /// QUE-3: while the broker does not answer, only this field reports the conflict, not the condition.
    #[test]
    fn mark_of_another_actor_counts_whatever_else_the_status_says() {
        let condition =
            json!({"type": "TransportReady", "status": "False", "reason": "BrokerUnreachable"});
        for (status, is_refused) in [
            (json!({"queueMarkedForOther": true}), true),
            (
                json!({"queueMarkedForOther": true, "conditions": [condition]}),
                true,
            ),
            (json!({"queueMarkedForOther": true, "replicas": "x"}), true),
            (json!({"queueMarkedForOther": "yes"}), true),
            (json!({"queueMarkedForOther": false}), false),
            (json!({}), false),
            (Value::Null, false),
        ] {
            let found = refusal(&json!({"status": status}), QueueUse::Count);
            let expected = "AsyncActor e has no queue of its own (QueueConflict): the broker marks it as that of another \
                            actor or cluster (status.queueMarkedForOther)";
            assert_eq!(found.as_deref(), is_refused.then_some(expected), "{status}");
        }
    }

    /// QUE-3: the condition counts as well, even if another field cannot be read.
    #[test]
    fn field_that_cannot_be_read_does_not_hide_a_conflict() {
        let condition = json!({
            "type": "TransportReady", "status": "False", "reason": "QueueConflict", "message": "it is n/e's",
        });
        let actor = json!({"status": {"conditions": [condition], "replicas": "x"}});
        assert_eq!(
            refusal(&actor, QueueUse::Count).as_deref(),
            Some("AsyncActor e has no queue of its own (QueueConflict): it is n/e's")
        );
    }

    /// QUE-3: without the status, the queue would be the configured one, which may be another's.
    #[test]
    fn messages_of_an_actor_whose_status_cannot_be_read_are_left_alone() {
        let unreadable = json!({"status": {"queue": {"name": 1}}});
        for (intent, is_refused) in [
            (QueueUse::Count, false),
            (QueueUse::Take, true),
            (QueueUse::Delete, true),
            (QueueUse::Fill, true),
        ] {
            let found = refusal(&unreadable, intent);
            assert_eq!(found.is_some(), is_refused, "{intent:?}");
            assert!(
                found.is_none_or(|it| it.starts_with("cannot read the status of AsyncActor e")),
                "{intent:?}"
            );
        }
    }

    /// QUE-3: the name that follows from the configuration may be that of another actor's queue.
    #[test]
    fn only_what_changes_no_queue_is_done_before_the_operator_has_confirmed_it() {
        let queue = |transport: &str| json!({"queue": {"transport": transport, "name": "asya-e"}});
        let condition = |reason: &str, generation: u64| {
            let condition = json!({
                "type": "TransportReady", "status": "True", "reason": reason, "observedGeneration": generation,
                "message": "", "lastTransitionTime": "2026-11-23T11:00:00Z",
            });
            json!({"conditions": [condition]})
        };
        for (status, is_confirmed) in [
            (Value::Null, false),
            (json!({}), false),
            (queue("mq"), true),
            // Since then, the spec names another transport.
            (queue("old"), false),
            // The operator does not manage queues, so it names none.
            (condition("TransportValidated", 2), true),
            (condition("TransportValidated", 1), false),
            (condition("QueueReady", 2), false),
        ] {
            let actor = json!({
                "metadata": {"generation": 2}, "spec": {"transport": "mq"}, "status": status,
            });
            let of = |intent| must_allow("e", &actor, intent).is_ok();
            let found = [
                QueueUse::Count,
                QueueUse::Take,
                QueueUse::Delete,
                QueueUse::Fill,
            ]
            .map(of);
            let expected = [true, true, is_confirmed, is_confirmed];
            assert_eq!(found, expected, "{status}");
        }
        let found = refusal(&json!({}), QueueUse::Delete);
        let expected = "the operator has not confirmed yet that AsyncActor e has a queue of its own (status.queue), \
                        and the one of its name may be another actor's; `kubectl asya status e` says what it waits for";
        assert_eq!(found.as_deref(), Some(expected));
    }

    /// QUE-40, QUE-46, QUE-47, FIN-4, FW-23
    #[test]
    fn no_message_is_put_into_a_queue_that_is_deleted_with_it() {
        let expected = "AsyncActor e is being deleted, and its queue with all messages in it; `kubectl asya retain e` \
                        keeps them, also now, if the operator has not deleted the queue yet";
        let policy = |it: &str| json!({"queue": {"deletionPolicy": it}});
        let skip = |it: &str| json!({"asya.sh/skip-queue-deletion": it});
        let none = json!({});
        for (annotations, spec, is_refused) in [
            (&none, json!({}), true),
            (&none, policy("Delete"), true),
            (&skip("false"), json!({}), true),
            (&none, policy("Retain"), false),
            (&none, policy("DeleteIfEmpty"), false),
            (&none, policy("Drain"), false),
            (&none, policy("OfALaterRelease"), false),
            (&skip("true"), json!({}), false),
            (&none, json!({"deletionPolicy": "Orphan"}), false),
        ] {
            let mut actor = json!({"metadata": {"annotations": annotations}, "spec": spec});
            actor["spec"]["transport"] = json!("mq");
            actor["status"] = json!({
                "queue": {"transport": "mq", "name": "asya-e"},
            });
            assert_eq!(refusal(&actor, QueueUse::Fill), None, "{actor}");
            actor["metadata"]["deletionTimestamp"] = json!("2026-11-23T11:00:00Z");
            let found = refusal(&actor, QueueUse::Fill);
            assert_eq!(found.as_deref(), is_refused.then_some(expected), "{actor}");
            assert_eq!(refusal(&actor, QueueUse::Take), None, "{actor}");
        }
    }

    #[test]
    fn each_command_is_known_by_what_it_does_with_messages() {
        for (line, intent) in [
            ("queue e", QueueUse::Count),
            ("queue e --peek 1", QueueUse::Take),
            ("dlq e list", QueueUse::Take),
            ("dlq e purge", QueueUse::Delete),
            ("dlq e redrive", QueueUse::Fill),
        ] {
            let words = ["kubectl-asya"].into_iter().chain(line.split(' '));
            let found = match Cli::parse_from(words).command {
                Command::Queue(args) => QueueUse::from(&args),
                Command::Dlq(args) => args.action.into(),
                other => panic!("{other:?}"),
            };
            assert_eq!(found, intent, "{line}");
        }
    }
}
