//! The messages that were sent, and the results that are expected and that arrived (SC-108).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

/// Number of messages in a fan-out.
pub const PARTS: usize = 3;

/// Where a message ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    Out,
    Happy,
    Error,
}

/// What the first actor's handler does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    Pass,
    Split,
    Consume,
    Fail,
    /// Exceeds its deadline.
    Hang,
    /// Nothing: the message is published directly to its end actor.
    Direct(End),
}

/// A message that was published.
#[derive(Clone, Debug)]
pub struct Sent {
    pub id: String,
    pub task: Task,
    /// As sent, without the instructions for the handler.
    pub payload: Value,
    /// Whether the broker is known to have stored it.
    pub certain: bool,
}

impl Sent {
    /// The expected results: ids, end actors and payloads.
    fn outcomes(&self) -> Vec<(String, End, Value)> {
        let one = |end| vec![(self.id.clone(), end, self.payload.clone())];
        match self.task {
            Task::Pass => one(End::Out),
            Task::Consume => one(End::Happy),
            Task::Fail | Task::Hang => one(End::Error),
            Task::Direct(end) => one(end),
            Task::Split => (0..PARTS).map(|part| self.part(part)).collect(),
        }
    }

    fn part(&self, part: usize) -> (String, End, Value) {
        let id = match part {
            0 => self.id.clone(),
            part => format!("{}-{part}", self.id),
        };
        let mut payload = self.payload.clone();
        payload["part"] = json!(part);
        (id, End::Out, payload)
    }
}

/// The comparison of sent messages with results.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Results that are missing.
    pub lost: Vec<String>,
    /// Number of duplicate results.
    pub duplicates: usize,
    /// Number of messages whose runtime was killed while it processed them (SC-49).
    pub crashed: usize,
    /// Unexpected results: unknown, at the wrong end actor, or with another payload.
    pub wrong: Vec<String>,
}

/// Compares sent messages with the results that arrived.
pub fn judge(sent: &[Sent], found: &[(End, Value)]) -> Verdict {
    let mut expected = BTreeMap::new();
    for message in sent {
        for (id, end, payload) in message.outcomes() {
            expected.insert((id, end), (message, payload));
        }
    }
    let mut verdict = Verdict::default();
    let mut came: BTreeMap<(String, End), usize> = BTreeMap::new();
    // By id, and by whether the first actor had the message, in which case all its parts are gone.
    let mut crashed: BTreeMap<(String, bool), usize> = BTreeMap::new();
    // A result at the wrong end actor is not lost.
    let mut misplaced = BTreeSet::new();
    for (end, message) in found {
        let id = message["id"].as_str().unwrap_or_default().to_owned();
        let key = (id.clone(), *end);
        if *end == End::Error && message["payload"]["error"] == "runtime_crashed" {
            let at_first = message["route"]["current"] == 0;
            *crashed.entry((id, at_first)).or_default() += 1;
            continue;
        }
        let Some((sender, payload)) = expected.get(&key) else {
            verdict
                .wrong
                .push(format!("unexpected in {end:?}: {message}"));
            misplaced.insert(id);
            continue;
        };
        if let Some(why) = difference(sender.task, payload, message) {
            verdict.wrong.push(format!("{id} in {end:?}: {why}"));
        }
        *came.entry(key).or_default() += 1;
    }
    verdict.crashed = crashed.values().sum();
    for (key, (message, _)) in &expected {
        let excuses = [(key.0.clone(), false), (message.id.clone(), true)]
            .iter()
            .filter_map(|crash| crashed.get(crash))
            .sum::<usize>();
        let times = came.get(key).copied().unwrap_or_default() + excuses;
        verdict.duplicates += times.saturating_sub(1);
        let is_missing =
            times == 0 && !misplaced.contains(&key.0) && !misplaced.contains(&message.id);
        if is_missing && message.certain {
            verdict.lost.push(key.0.clone());
        }
    }
    verdict
}

/// How a message differs from the expected result.
fn difference(task: Task, payload: &Value, message: &Value) -> Option<String> {
    let found = &message["payload"];
    let is_right = match task {
        Task::Fail => {
            found["error"] == "processing_error" && contains(&found["original_payload"], payload)
        }
        Task::Hang => {
            let error = found["error"].as_str().unwrap_or_default();
            error.starts_with("Runtime timeout exceeded")
                && contains(&found["original_payload"], payload)
        }
        // The source message as received, with the instructions for the handler.
        Task::Consume => contains(found, payload),
        Task::Pass | Task::Split | Task::Direct(_) => found == payload,
    };
    (!is_right).then(|| shortened(found))
}

/// Whether an object has all members of another.
fn contains(object: &Value, members: &Value) -> bool {
    members.as_object().is_some_and(|members| {
        members
            .iter()
            .all(|(name, value)| object.get(name) == Some(value))
    })
}

fn shortened(value: &Value) -> String {
    value.to_string().chars().take(500).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(id: &str, task: Task) -> Sent {
        let (id, payload) = (id.to_owned(), json!({"id": id}));
        Sent {
            id,
            task,
            payload,
            certain: true,
        }
    }

    fn out(id: &str, payload: &Value) -> (End, Value) {
        (End::Out, json!({"id": id, "payload": payload}))
    }

    fn crash(id: &str, current: usize) -> (End, Value) {
        let message = json!({"id": id, "route": {"current": current}, "payload": {"error": "runtime_crashed"}});
        (End::Error, message)
    }

    /// SC-108
    #[test]
    fn what_is_missing_is_lost_and_what_comes_again_is_a_duplicate() {
        let messages = [
            sent("a", Task::Pass),
            sent("b", Task::Pass),
            sent("c", Task::Pass),
        ];
        let a = out("a", &json!({"id": "a"}));
        let verdict = judge(&messages, &[a.clone(), a, crash("c", 1)]);
        assert_eq!(verdict.lost, ["b"]);
        assert_eq!((verdict.duplicates, verdict.crashed), (1, 1));
        assert!(verdict.wrong.is_empty());
    }

    #[test]
    fn a_crash_at_the_first_actor_takes_all_parts_with_it_and_at_the_second_one_part() {
        let messages = [sent("a", Task::Split)];
        assert_eq!(judge(&messages, &[crash("a", 0)]).lost, [""; 0]);
        assert_eq!(judge(&messages, &[crash("a-1", 1)]).lost, ["a", "a-2"]);
    }

    #[test]
    fn what_may_not_have_been_stored_cannot_be_lost() {
        let mut message = sent("a", Task::Pass);
        message.certain = false;
        assert_eq!(judge(&[message], &[]).lost, [""; 0]);
    }

    #[test]
    fn other_payloads_wrong_ends_and_unknown_messages_are_wrong() {
        let messages = [
            sent("a", Task::Pass),
            sent("b", Task::Fail),
            sent("c", Task::Hang),
        ];
        let error = |id: &str, error: &str| {
            let payload = json!({"error": error, "original_payload": {"id": id}});
            (End::Error, json!({"id": id, "payload": payload}))
        };
        let right = [
            out("a", &json!({"id": "a"})),
            error("b", "processing_error"),
            error("c", "Runtime timeout exceeded after 5s"),
        ];
        assert!(judge(&messages, &right).wrong.is_empty());
        let wrong = [
            out("a", &json!({"id": "A"})),
            error("b", "timeout"),
            error("a", "processing_error"),
            out("x", &json!({"id": "x"})),
        ];
        let verdict = judge(&messages, &wrong);
        assert_eq!(verdict.wrong.len(), wrong.len());
        assert_eq!(verdict.lost, ["c"], "what is at a wrong end is not lost");
    }
}
