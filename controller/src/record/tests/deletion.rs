//! How an actor's objects are deleted.

use asya_shared::api::BindingRollout;
use serde_json::{Value, json};

use super::{actor, decode, metadata};
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

/// BIND-43: the desired state is an error while the transport is not configured, for example.
#[test]
fn rollout_of_a_deleted_binding_is_known_although_its_spec_is_invalid() {
    for (binding, expected) in [
        (json!({"rollout": "OnRestart"}), BindingRollout::OnRestart),
        (json!({"rollout": "Always"}), BindingRollout::Always),
        (json!({}), BindingRollout::Always),
        (
            json!({"rollout": "OnRestart", "strategy": "Template"}),
            BindingRollout::Always,
        ),
    ] {
        let spec = json!({"transport": 7, "binding": binding});
        let record = actor(&json!({"deletionTimestamp": DELETED}), &spec);
        assert_eq!(record.deletion.rollout, expected, "{binding}");
    }
}
