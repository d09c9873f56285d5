//! How an actor's objects are deleted.

use serde_json::{Value, json};

use super::{decode, metadata};
use crate::record::ActorRecord;

const DELETED: &str = "2026-01-01T00:00:00Z";

/// FW-23 (g)
#[test]
fn finalizer_or_status_says_that_an_actor_is_orphaned() {
    let orphans = |extra: Value, status: Value| {
        let spec = json!({"transport": "mq"});
        let actor = json!({"metadata": metadata(&extra), "spec": spec, "status": status});
        decode::<ActorRecord>(&actor).deletion.orphans
    };
    let deleting =
        |finalizers: Value| json!({"deletionTimestamp": DELETED, "finalizers": finalizers});
    let ours = json!(["asya.sh/finalizer"]);
    let orphaning = json!(["asya.sh/finalizer", "orphan"]);
    let foreground = json!(["asya.sh/finalizer", "foregroundDeletion"]);
    assert!(orphans(deleting(orphaning), json!({})));
    assert!(!orphans(deleting(foreground), json!({})));
    assert!(!orphans(deleting(ours.clone()), json!({})));
    let recorded = json!({"orphaned": true});
    assert!(orphans(deleting(ours), recorded.clone()), "after a restart");
    assert!(!orphans(json!({}), recorded), "restored from a backup");
}
