//! Random sequences of calls.
//!
//! Where the two servers' values differ, such as uids and versions, a call refers to them by role: each side fills in
//! its own.

use std::fmt;

use asya_simulation::api_server::schema::is_custom;
use fastrand::Rng;
use serde_json::{Value, json};

use super::kinds::{Kind, pick};

/// Names of the objects. All calls of a sequence are for one kind.
pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// `"@uid:NAME"` in a body stands for the uid of the object with that name.
pub const UID_OF: &str = "@uid:";

/// A `resourceVersion` in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Absent,
    /// The version that the client has read last.
    Seen,
    /// An older version that the client has read.
    Stale,
    /// A version that no object has.
    Nonexistent,
}

/// A uid in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uid {
    Absent,
    Seen,
    Wrong,
}

/// A step of a JSON patch; left out if it needs something that the client has not read.
#[derive(Clone, Debug)]
pub enum Step {
    TestUid(Uid),
    /// Tests the list of finalizers, and adds one.
    AddFinalizer(&'static str),
    /// Tests the list of finalizers, and removes the first.
    RemoveFinalizer,
    /// Tests the list of owners, and removes the first.
    RemoveOwner,
    /// Transfers the fields that this manager has updated to a manager that applies.
    TakeOver(&'static str, &'static str),
    /// A fixed step.
    Plain(Value),
}

/// The operation of a call.
#[derive(Clone, Debug)]
pub enum Action {
    Get,
    Create(Value),
    /// Replaces the object with what the client has read, changed by a merge patch.
    Update(Value, Version),
    Apply(Value, Version, Uid, bool),
    Merge(Value, Version),
    Json(Vec<Step>),
    Delete(Uid, Version, Option<&'static str>),
    /// Lists with this limit, or without a limit.
    List(Option<u8>),
    /// Continues the list whose token was received last, even if it was continued before.
    Continue,
    /// Watches from the nth version read, counted from the end.
    Watch(usize),
}

/// A call.
#[derive(Clone, Debug)]
pub struct Call {
    pub name: &'static str,
    pub action: Action,
    pub status: bool,
    pub manager: Option<&'static str>,
    pub metadata_only: bool,
    /// `labelSelector`, `fieldSelector`.
    pub selectors: (Option<&'static str>, Option<&'static str>),
}

const LABELS: [Option<&str>; 7] = [
    None,
    None,
    Some("team=one"),
    Some("team!=one"),
    Some("team"),
    Some("!team,app=x"),
    Some("team in (one,two)"),
];
const FIELDS: [Option<&str>; 5] = [
    None,
    None,
    None,
    Some("metadata.name=a"),
    Some("metadata.name!=b"),
];
const MANAGERS: [&str; 3] = ["one", "two", "three"];
const PROPAGATION: [Option<&str>; 5] = [
    None,
    None,
    Some("Background"),
    Some("Orphan"),
    Some("Foreground"),
];
const FINALIZERS: [&str; 2] = ["example.com/f", "example.com/g"];

/// A sequence of calls on objects of a kind. The last call watches from the first version.
pub fn sequence(kind: &Kind, random: &mut Rng, length: usize) -> Vec<Call> {
    let mut calls: Vec<Call> = (0..length).map(|_| call(kind, random)).collect();
    calls.push(Call {
        name: "",
        action: Action::Watch(usize::MAX),
        status: false,
        manager: None,
        metadata_only: random.u8(..4) == 0,
        selectors: (pick(random, &LABELS), pick(random, &FIELDS)),
    });
    calls
}

fn call(kind: &Kind, random: &mut Rng) -> Call {
    // Most calls are for the first object, so that they affect each other.
    let name = if random.bool() {
        "a"
    } else {
        pick(random, &NAMES)
    };
    let status = kind.has_status() && random.u8(..4) == 0;
    let action = action(kind, random, status);
    let is_write = !matches!(
        action,
        Action::Get | Action::List(_) | Action::Continue | Action::Watch(_)
    );
    let can_be_status = match action {
        Action::Update(..) | Action::Apply(..) | Action::Merge(..) => true,
        // In a status write, only custom resources ignore all metadata; for other kinds the operator writes no status.
        Action::Json(_) => is_custom(kind.resource),
        _ => false,
    };
    let has_manager = matches!(action, Action::Apply(..)) || random.bool();
    Call {
        name,
        status: status && can_be_status,
        manager: has_manager
            .then(|| pick(random, &MANAGERS))
            .filter(|_| is_write),
        // Created objects are read as a whole, because an update needs them.
        metadata_only: random.u8(..6) == 0
            && !matches!(action, Action::Create(_) | Action::Apply(..)),
        selectors: (pick(random, &LABELS), pick(random, &FIELDS)),
        action,
    }
}

fn action(kind: &Kind, random: &mut Rng, status: bool) -> Action {
    let version = |random: &mut Rng| {
        pick(
            random,
            &[
                Version::Absent,
                Version::Absent,
                Version::Seen,
                Version::Seen,
                Version::Stale,
                Version::Nonexistent,
            ],
        )
    };
    let uid = |random: &mut Rng| {
        pick(
            random,
            &[Uid::Absent, Uid::Absent, Uid::Seen, Uid::Seen, Uid::Wrong],
        )
    };
    let change = |random: &mut Rng| {
        if status {
            kind.status(random)
        } else {
            change(kind, random)
        }
    };
    match random.u8(..40) {
        0..3 => Action::Get,
        3..8 => Action::Create(object(kind, random)),
        8..13 => Action::Update(change(random), version(random)),
        13..22 => {
            let config = if status {
                kind.status(random)
            } else {
                object(kind, random)
            };
            // For other kinds the operator writes no status.
            let uid = if status && !is_custom(kind.resource) {
                Uid::Absent
            } else {
                uid(random)
            };
            Action::Apply(config, version(random), uid, random.bool())
        }
        22..26 => Action::Merge(change(random), version(random)),
        26..31 => Action::Json((0..random.usize(1..3)).map(|_| step(random)).collect()),
        31..35 => {
            let propagation = pick(random, &PROPAGATION);
            // The real server compares a version with none if it has removed its own finalizers. The operator sets no
            // version here.
            let version = if propagation == Some("Background") {
                Version::Absent
            } else {
                version(random)
            };
            Action::Delete(uid(random), version, propagation)
        }
        35..37 => Action::List(random.bool().then(|| random.u8(1..3))),
        37..39 => Action::Continue,
        _ => Action::Watch(random.usize(..6)),
    }
}

fn metadata(random: &mut Rng) -> Value {
    let mut metadata = json!({});
    if random.bool() {
        metadata["labels"]["team"] = json!(pick(random, &["one", "two"]));
    }
    if random.bool() {
        metadata["labels"]["app"] = json!("x");
    }
    if random.u8(..3) == 0 {
        metadata["annotations"]["example.com/note"] = json!(pick(random, &["1", "2"]));
    }
    if random.u8(..4) == 0 {
        metadata["finalizers"] = json!([pick(random, &FINALIZERS)]);
    }
    if random.u8(..4) == 0 {
        metadata["ownerReferences"] = json!([owner(random)]);
    }
    metadata
}

fn owner(random: &mut Rng) -> Value {
    let name = pick(random, &["b", "c"]);
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("{UID_OF}{name}")})
}

fn object(kind: &Kind, random: &mut Rng) -> Value {
    let mut object = kind.content(random, true);
    object["metadata"] = metadata(random);
    object
}

/// A merge patch.
fn change(kind: &Kind, random: &mut Rng) -> Value {
    match random.u8(..6) {
        0 => json!({"metadata": {"labels": {"team": pick(random, &[json!("one"), Value::Null])}}}),
        1 => {
            json!({"metadata": {"annotations": {"example.com/note": pick(random, &[json!("1"), Value::Null])}}})
        }
        2 => {
            json!({"metadata": {"finalizers": pick(random, &[json!([]), json!(FINALIZERS), Value::Null])}})
        }
        3 => json!({"metadata": {"ownerReferences": pick(random, &[json!([]), Value::Null])}}),
        4 => object(kind, random),
        _ => kind.content(random, false),
    }
}

fn step(random: &mut Rng) -> Step {
    let path = |path: &str| format!("/metadata/{path}");
    match random.u8(..10) {
        0 => Step::TestUid(pick(random, &[Uid::Seen, Uid::Wrong])),
        1..3 => Step::AddFinalizer(pick(random, &FINALIZERS)),
        3..5 => Step::RemoveFinalizer,
        5 => Step::RemoveOwner,
        6 => Step::TakeOver(pick(random, &MANAGERS), pick(random, &MANAGERS)),
        7 => Step::Plain(
            json!({"op": "test", "path": path("labels/team"), "value": pick(random, &[json!("one"), Value::Null])}),
        ),
        8 => Step::Plain(json!({"op": "replace", "path": path("labels/team"), "value": "two"})),
        _ => Step::Plain(json!({"op": "remove", "path": path("annotations/example.com~1note")})),
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, action, .. } = self;
        let place = if self.status {
            format!("{name}/status")
        } else {
            (*name).to_owned()
        };
        match action {
            Action::Get => write!(f, "get {place}"),
            Action::Create(content) => write!(f, "create {place} {content}"),
            Action::Update(change, version) => write!(
                f,
                "update {place}, changed by {change}, version {version:?}"
            ),
            Action::Apply(content, version, uid, force) => {
                write!(
                    f,
                    "apply {place} {content}, version {version:?}, uid {uid:?}, force {force}"
                )
            }
            Action::Merge(change, version) => {
                write!(f, "merge patch {place} {change}, version {version:?}")
            }
            Action::Json(steps) => write!(f, "JSON patch {place} {steps:?}"),
            Action::Delete(uid, version, propagation) => {
                write!(
                    f,
                    "delete {place}, uid {uid:?}, version {version:?}, propagation {propagation:?}"
                )
            }
            Action::List(limit) => write!(f, "list, limit {limit:?}"),
            Action::Continue => f.write_str("continue the list"),
            Action::Watch(usize::MAX) => f.write_str("watch from the first version seen"),
            Action::Watch(back) => write!(f, "watch from the version seen {back} before the last"),
        }?;
        if let Some(manager) = self.manager {
            write!(f, ", as {manager}")?;
        }
        if matches!(action, Action::List(_) | Action::Watch(_)) {
            write!(f, ", selectors {:?}", self.selectors)?;
        }
        if self.metadata_only {
            f.write_str(", metadata only")?;
        }
        Ok(())
    }
}
