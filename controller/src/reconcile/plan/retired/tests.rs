use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::QueueStatus;
use asya_shared::transport::ownership::DeletionRefusal;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    NextCheck, RetiredRemoval, RetiredStep, after_check, after_retired_removal, plan_check,
};
use crate::broker::DeleteIfEmptyOutcome;
use crate::reconcile::model::known_queues::{DeletePermission, KnownQueues, UnlistedQueues};
use crate::reconcile::model::observed::Observed;
use crate::reconcile::model::target_pods::TargetPods;
use crate::reconcile::plan::plan;
use crate::reconcile::tests::bindings::{binding_to, resolved};
use crate::reconcile::tests::fixtures::{actor, installation, observed, pod, record, spec, target};
use crate::record::{Key, PodRecord};

pub(in crate::reconcile) fn queue(transport: &str) -> QueueStatus {
    QueueStatus {
        transport: transport.to_owned(),
        name: "asya-a".to_owned(),
        ..QueueStatus::default()
    }
}

/// An actor on `mq` whose status has a queue on transport `recorded`, and retired ones.
pub(in crate::reconcile) fn moved(
    metadata: &Value,
    extra: &Value,
    recorded: &str,
    retired: &[&str],
) -> Observed {
    let named = |transport: &str| json!({"transport": transport, "name": "asya-a"});
    let status = json!({
        "queue": {"transport": recorded, "name": "asya-a", "verifiedGeneration": 1, "verifiedHash": "h"},
        "retiredQueues": retired.iter().map(|transport| named(transport)).collect::<Vec<_>>(),
    });
    observed(&actor(metadata, &spec(extra), &status))
}

pub(in crate::reconcile) fn plain(recorded: &str, retired: &[&str]) -> Observed {
    moved(&json!({}), &json!({}), recorded, retired)
}

pub(in crate::reconcile) fn transports(queues: &[QueueStatus]) -> Vec<&str> {
    queues.iter().map(|queue| &*queue.transport).collect()
}

/// QUE-13, QUE-3: `twin` leads to the desired queue, and nobody knows whose the queue on `fixed` is.
#[test]
fn created_queue_that_no_status_names_is_retired_unless_it_may_be_in_use() {
    let observed = plain("dead", &["aws"]);
    let created = ["mq", "dead", "aws", "twin", "fixed", "other"].map(queue);
    let retired = |owner: Option<Key>| {
        let desired = observed.desired.as_deref();
        let transports = installation().transports;
        let owner_of = |_: &QueueStatus| owner.clone();
        let status = &observed.previous;
        let unlisted = UnlistedQueues {
            confirmed: &created,
            maybe_created: &[],
        };
        let queues = KnownQueues::from_status(status, unlisted, desired, &transports, owner_of);
        let retired = queues.retired.into_iter();
        retired
            .map(|known| known.queue.transport)
            .collect::<Vec<_>>()
    };
    assert_eq!(retired(None), ["aws", "other"]);
    assert_eq!(retired(Some(Key::new("b", "a"))), ["aws"]);
}

/// QUE-13: such a queue may not exist, or be someone else's.
#[test]
fn queue_that_may_exist_holds_neither_a_name_nor_a_deletion_until_it_is_confirmed() {
    let mut actor = actor(
        &json!({}),
        &spec(&json!({})),
        &json!({
            "queue": {"transport": "mq", "name": "asya-a"},
            "retiredQueues": [
                {"transport": "other", "name": "asya-a", "unconfirmed": true},
                {"transport": "gone", "name": "asya-a", "unconfirmed": true},
                {"transport": "dead", "name": "asya-a"},
            ],
        }),
    );
    let known = |actor: &Value, confirmed: &[QueueStatus], owner: Option<Key>| {
        let observed = observed(actor);
        let desired = observed.desired.as_deref();
        let transports = installation().transports;
        let maybe_created = ["aws", "other", "mq", "twin"].map(queue);
        let unlisted = UnlistedQueues {
            confirmed,
            maybe_created: &maybe_created,
        };
        let status = &observed.previous;
        let owner_of = |_: &QueueStatus| owner.clone();
        let queues = KnownQueues::from_status(status, unlisted, desired, &transports, owner_of);
        let to_delete = queues.to_delete().map(|(it, _)| it.transport.clone());
        let to_delete = to_delete.collect::<Vec<_>>().join(" ");
        let maybe_created = transports_of(&queues.maybe_created);
        (to_delete, maybe_created)
    };
    let unconfirmed = || ("mq dead".to_owned(), "aws other".to_owned());
    assert_eq!(known(&actor, &[], None), unconfirmed(), "{actor}");
    let other = queue("other");
    let confirmed = ("mq dead other".to_owned(), "aws".to_owned());
    assert_eq!(known(&actor, &[other], None), confirmed, "found since");
    let owner = Some(Key::new("b", "a"));
    assert_eq!(known(&actor, &[], owner).1, "", "another actor's name");
    actor["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(known(&actor, &[], None), unconfirmed(), "being deleted");
}

/// QUE-13
#[test]
fn queue_that_may_exist_is_checked_unless_the_actor_keeps_its_queues() {
    let check = |extra: &Value, pods: &[&str]| {
        let mut observed = moved(&json!({}), extra, "mq", &[]);
        observed.queues.maybe_created = vec![queue("other")];
        observed.pods = pods.iter().map(|hash| pod("p", hash)).collect();
        observed.known_pods.clone_from(&observed.pods);
        let check = plan_check(&observed);
        let current = check.current.map(|it| it.transport);
        let pods = check.known_pods.len();
        let [deleted, looked_up] =
            [check.maybe_created, check.never_verified].map(|it| transports_of(&it));
        (deleted, looked_up, current, pods)
    };
    let current = plain("mq", &[])
        .standalone()
        .unwrap()
        .workload
        .template_hash
        .clone();
    let text = str::to_owned;
    let deleted = (text("other"), text(""), Some(text("mq")), 1);
    assert_eq!(check(&json!({}), &[&current]), deleted);
    let looked_up = (text(""), text("other"), None, 0);
    assert_eq!(check(&json!({}), &[&current, "before"]), looked_up);
    let retain = json!({"queue": {"deletionPolicy": "Retain"}});
    assert_eq!(check(&retain, &[]), (text(""), text(""), None, 0));
}

/// QUE-13
#[test]
fn retired_queue_is_confirmed_by_its_tag_alone() {
    use DeleteIfEmptyOutcome::{Deleted, InUse, NotOwned, Recheck};
    let second = Duration::from_secs(1);
    let step = |confirmed, tagged, outcome| {
        after_retired_removal(confirmed, &RetiredRemoval { outcome, tagged })
    };
    for confirmed in [true, false] {
        for tagged in [true, false] {
            assert_eq!(step(confirmed, tagged, Deleted), RetiredStep::Forget);
            let foreign = NotOwned(DeletionRefusal::NoOwnerTag);
            assert_eq!(step(confirmed, tagged, foreign), RetiredStep::Forget);
        }
        assert_eq!(step(true, confirmed, InUse), RetiredStep::Keep);
        assert_eq!(step(true, confirmed, Recheck(second)), RetiredStep::Keep);
    }
    assert_eq!(step(false, true, InUse), RetiredStep::Confirm);
    assert_eq!(step(false, true, Recheck(second)), RetiredStep::Confirm);
    assert_eq!(step(false, false, InUse), RetiredStep::Forget);
    assert_eq!(step(false, false, Recheck(second)), RetiredStep::Keep);
}

fn transports_of(queues: &[QueueStatus]) -> String {
    transports(queues).join(" ")
}

/// QUE-13, QUE-12, FIN-4
#[test]
fn brokers_are_queried_only_about_queues_that_are_ours_to_delete() {
    let all = &["other", "dead", "nowhere", "fixed", "mq"];
    assert_eq!(
        transports(&plan_check(&plain("dead", all)).queues),
        ["other", "dead"],
        "neither an unreachable queue nor the desired one"
    );
    let none = |observed: &Observed| plan_check(observed).queues.is_empty();
    let skip = json!({"annotations": {"asya.sh/skip-queue-deletion": "true"}});
    assert!(none(&moved(&skip, &json!({}), "mq", all)));
    let retain = json!({"queue": {"deletionPolicy": "Retain"}});
    assert!(none(&moved(&json!({}), &retain, "mq", all)));
    let invalid = json!({"transport": "nowhere"});
    assert!(none(&moved(&json!({}), &invalid, "mq", all)));
    let mut unmanaged = plain("mq", all);
    unmanaged.queues_managed = false;
    assert!(none(&unmanaged));
    let mut lost = plain("mq", &["other"]);
    lost.queues.retired[0].permission = DeletePermission::HeldBy(Key::new("b", "a"));
    assert!(none(&lost));
}

/// QUE-13
#[test]
fn retired_queue_is_kept_while_pods_of_an_earlier_template_may_consume_from_it() {
    let mut observed = plain("mq", &["other"]);
    let current = observed
        .standalone()
        .unwrap()
        .workload
        .template_hash
        .clone();
    observed.pods = vec![pod("new", &current), pod("old", "before")];
    assert_eq!(plan_check(&observed).queues, []);
    let finished = PodRecord {
        finished: true,
        ..(*observed.pods[1]).clone()
    };
    observed.pods[1] = Arc::new(finished);
    assert_eq!(plan_check(&observed).queues, [queue("other")]);
}

/// The pods of a binding, each with the hash of its sidecar, `current` for that of its spec.
#[derive(Default)]
struct BindingPods<'a> {
    /// Those of the target, once they are listed.
    target: Option<&'a [&'a str]>,
    predecessors: &'a [&'a str],
    unmanaged: &'a [&'a str],
    /// All with the actor's label, the target's included.
    known: &'a [&'a str],
    finished: bool,
}

/// The retired queues of a binding to delete, and those to look up only, by transport.
fn retired_of_binding(pods: &BindingPods<'_>) -> (String, String) {
    let spec = json!({
        "transport": "mq", "runtime": {"targetURL": "http://127.0.0.1:8000"},
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    let status = json!({
        "queue": {"transport": "mq", "name": "asya-a", "verifiedGeneration": 1, "verifiedHash": "h"},
        "retiredQueues": [
            {"transport": "other", "name": "asya-a", "verifiedHash": "h"}, {"transport": "dead", "name": "asya-a"},
        ],
    });
    let mut observed = observed(&actor(&json!({}), &spec, &status));
    let current = observed
        .desired_binding()
        .unwrap()
        .injected_hash
        .clone()
        .unwrap();
    let sidecar = |hash: &&str| {
        let hash = if *hash == "current" { &*current } else { hash };
        record::<PodRecord>(&json!({
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1",
                "labels": {"asya.sh/asya": "a"},
                "annotations": {"asya.sh/injected-by": "actor-uid", "asya.sh/injected-hash": hash},
            },
            "spec": {"containers": [{"name": "asya-runtime"}, {"name": "asya-sidecar"}]},
            "status": {"phase": if pods.finished { "Failed" } else { "Running" }},
        }))
    };
    let sidecars = |hashes: &[&str]| hashes.iter().map(sidecar).collect::<Vec<_>>();
    let mut binding = binding_to(resolved(target()));
    binding.injection.pods = pods.target.map(|target| TargetPods {
        labelled: sidecars(target),
        uninjected: Vec::new(),
    });
    observed.predecessor_pods = sidecars(pods.predecessors);
    observed.unmanaged_pods = sidecars(pods.unmanaged);
    observed.known_pods = sidecars(pods.known);
    observed.binding = Some(binding.into());
    let check = plan_check(&observed);
    let plan = plan(&observed, Timestamp::UNIX_EPOCH).active();
    assert_eq!(plan.retired.queues, check.queues);
    (
        transports_of(&check.queues),
        transports_of(&check.never_verified),
    )
}

const ONLY_LOOKED_UP: (&str, &str) = ("", "dead");
const DELETED: (&str, &str) = ("other dead", "");

/// SAFE-29, QUE-13
#[test]
fn retired_queue_of_a_binding_is_deleted_once_no_sidecar_consumes_from_it() {
    for (target, expected) in [
        (None, ONLY_LOOKED_UP),
        (Some(&["current", "older.platform"][..]), ONLY_LOOKED_UP),
        (Some(&["current"][..]), DELETED),
        (Some(&[][..]), DELETED),
    ] {
        let pods = BindingPods {
            target,
            known: target.unwrap_or_default(),
            ..BindingPods::default()
        };
        let (deleted, looked_up) = retired_of_binding(&pods);
        assert_eq!((&*deleted, &*looked_up), expected, "{target:?}");
    }
}

/// SAFE-29, FW-22, FW-23 (e)
#[test]
fn retired_queue_of_a_binding_is_kept_while_pods_outside_its_target_may_consume_from_it() {
    let older = &["older.platform"][..];
    let current = &["current"][..];
    let at_rest = || BindingPods {
        target: Some(current),
        known: current,
        ..BindingPods::default()
    };
    for (case, hashes, expected) in [
        ("of another queue", older, ONLY_LOOKED_UP),
        ("of the current queue", current, DELETED),
    ] {
        let predecessors = BindingPods {
            predecessors: hashes,
            ..at_rest()
        };
        let unmanaged = BindingPods {
            unmanaged: hashes,
            ..at_rest()
        };
        let relabelled = BindingPods {
            known: hashes,
            ..at_rest()
        };
        for pods in [predecessors, unmanaged, relabelled] {
            let (deleted, looked_up) = retired_of_binding(&pods);
            assert_eq!((&*deleted, &*looked_up), expected, "{case}");
        }
    }
    let finished = BindingPods {
        target: Some(&[]),
        predecessors: older,
        known: older,
        finished: true,
        ..BindingPods::default()
    };
    let (deleted, looked_up) = retired_of_binding(&finished);
    assert_eq!((&*deleted, &*looked_up), DELETED, "finished");
}

/// QUE-13
#[test]
fn queue_is_verified_again_after_a_retired_one_is_gone() {
    for (checked, deleted, rechecks, schedule) in [
        (2, 0, false, NextCheck::Scheduled),
        (2, 1, true, NextCheck::Now),
        (2, 2, true, NextCheck::None),
    ] {
        let next = after_check(checked, deleted);
        assert_eq!((next.rechecks_queue, next.schedule), (rechecks, schedule));
    }
}
