use std::sync::Arc;

use asya_shared::api::QueueStatus;
use asya_shared::resolve::{Related, Resolution, Target, resolver};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{NextCheck, Retired, after_check, list, looks};
use crate::reconcile::model::binding::{BindingSeen, Resolved};
use crate::reconcile::model::bound_pods::BoundPods;
use crate::reconcile::model::known_queues::Hold;
use crate::reconcile::model::observed::Observed;
use crate::reconcile::plan::decision::Plan;
use crate::reconcile::plan::plan;
use crate::reconcile::tests::fixtures::{actor, observed, pod, record, spec};
use crate::record::{Key, PodRecord};

fn queue(transport: &str) -> QueueStatus {
    QueueStatus {
        transport: transport.to_owned(),
        name: "asya-a".to_owned(),
        ..QueueStatus::default()
    }
}

/// An actor on `mq` whose status has a queue on `now`, and retired ones.
fn moved(metadata: &Value, extra: &Value, now: &str, retired: &[&str]) -> Observed {
    let named = |transport: &str| json!({"transport": transport, "name": "asya-a"});
    let status = json!({
        "queue": {"transport": now, "name": "asya-a", "verifiedGeneration": 1, "verifiedHash": "h"},
        "retiredQueues": retired.iter().map(|transport| named(transport)).collect::<Vec<_>>(),
    });
    observed(&actor(metadata, &spec(extra), &status))
}

fn plain(now: &str, retired: &[&str]) -> Observed {
    moved(&json!({}), &json!({}), now, retired)
}

fn transports(queues: &[QueueStatus]) -> Vec<&str> {
    queues.iter().map(|queue| &*queue.transport).collect()
}

fn fates(after: &Retired) -> (Vec<&str>, Vec<&str>) {
    let told = after.told.iter();
    let fate = |text: &'_ String| {
        text.split_once("actor's: ")
            .map_or(0, |(head, _)| head.len() + 9)
    };
    (
        transports(&after.listed),
        told.map(|text| &text[fate(text)..]).collect(),
    )
}

/// QUE-13
#[test]
fn verified_queue_is_retired_when_another_one_is_verified() {
    let observed = plain("other", &[]);
    let after = list(&observed, Some(&queue("mq")), &[]);
    assert_eq!(
        after.listed,
        [QueueStatus {
            verified_hash: Some("h".to_owned()),
            ..queue("other")
        }],
    );
    assert_eq!(
        after.told,
        [
            "queue asya-a on transport other is no longer this actor's: it is deleted when it is empty, at the latest with this actor"
        ]
    );
    assert_eq!(
        list(&plain("mq", &["other"]), Some(&queue("mq")), &[]),
        Retired {
            listed: vec![queue("other")],
            told: Vec::new()
        },
        "told once"
    );
    assert_eq!(
        list(&observed, observed.previous.queue.as_ref(), &[]),
        Retired::default(),
        "not before another is there"
    );
    assert_eq!(list(&observed, None, &[]), Retired::default());
}

/// QUE-13
#[test]
fn retired_queue_is_unlisted_when_it_is_deleted_or_desired_again() {
    let observed = plain("other", &["dead", "nowhere"]);
    let after = list(&observed, Some(&queue("mq")), &[queue("dead")]);
    assert_eq!(transports(&after.listed), ["nowhere", "other"]);
    let back = plain("other", &["mq", "dead"]);
    let after = list(&back, Some(&queue("mq")), &[]);
    assert_eq!(transports(&after.listed), ["dead", "other"]);
}

/// QUE-13, QUE-3, QUE-7
#[test]
fn queue_that_is_not_ours_to_delete_is_dropped_with_a_message() {
    let retain = json!({"queue": {"deletionPolicy": "Retain"}});
    let stays = "it stays, because queue.deletionPolicy is Retain";
    let kept = moved(&json!({}), &retain, "other", &["dead", "nowhere"]);
    assert_eq!(
        fates(&list(&kept, Some(&queue("mq")), &[])),
        (vec![], vec![stays; 3])
    );
    let fixed = plain("fixed", &[]);
    let after = list(&fixed, Some(&queue("mq")), &[]);
    assert_eq!(
        fates(&after),
        (
            vec![],
            vec!["it stays, because the transport has autoCreate: false"]
        )
    );
    let mut lost = plain("other", &["dead"]);
    let owner = Hold::Lost(Key::new("b", "a"));
    lost.queues.retired[0].hold = owner.clone();
    lost.queues.verified.as_mut().unwrap().hold = owner;
    let after = list(&lost, Some(&queue("mq")), &[]);
    assert_eq!(fates(&after), (vec![], vec!["it belongs to b/a"; 2]));
    let skip = json!({"annotations": {"asya.sh/skip-queue-deletion": "true"}});
    let skipped = moved(&skip, &json!({}), "other", &[]);
    let after = list(&skipped, Some(&queue("mq")), &[]);
    assert_eq!(
        transports(&after.listed),
        ["other"],
        "the annotation may go again"
    );
}

/// QUE-13, QUE-12, FIN-4
#[test]
fn brokers_are_queried_only_about_queues_that_are_ours_to_delete() {
    let all = &["other", "dead", "nowhere", "fixed", "mq"];
    assert_eq!(
        transports(&looks(&plain("dead", all))),
        ["other", "dead"],
        "not one that is out of reach, nor one that is wanted again"
    );
    let none = |observed: &Observed| looks(observed).is_empty();
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
    lost.queues.retired[0].hold = Hold::Lost(Key::new("b", "a"));
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
    assert_eq!(looks(&observed), []);
    let finished = PodRecord {
        finished: true,
        ..(*observed.pods[1]).clone()
    };
    observed.pods[1] = Arc::new(finished);
    assert_eq!(looks(&observed), [queue("other")]);
}

/// QUE-13
#[test]
fn renaming_a_transport_retires_no_queue() {
    let same = |observed: &Observed| {
        let after = list(observed, Some(&queue("mq")), &[]);
        (after == Retired::default(), looks(observed).is_empty())
    };
    assert_eq!(same(&plain("twin", &[])), (true, true));
    assert_eq!(same(&plain("mq", &["twin"])), (true, true));
    assert!(!same(&plain("other", &[])).0, "another broker");

    let hash = plain("mq", &[]).desired.unwrap().queue_hash.clone();
    let gone = |hash: &str| {
        let status = json!({"queue": {"transport": "former", "name": "asya-a", "verifiedGeneration": 1, "verifiedHash": hash}});
        observed(&actor(&json!({}), &spec(&json!({})), &status))
    };
    assert!(same(&gone(&hash)).0, "renamed in the configuration");
    assert!(!same(&gone("h")).0, "nobody knows what it was");
}

/// SAFE-29, QUE-13
#[test]
fn retired_queue_of_a_binding_is_deleted_once_no_sidecar_consumes_from_it() {
    let spec = json!({
        "transport": "mq", "runtime": {"targetURL": "http://127.0.0.1:8000"},
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
    });
    let status = json!({
        "queue": {"transport": "mq", "name": "asya-a", "verifiedGeneration": 1, "verifiedHash": "h"},
        "retiredQueues": [{"transport": "other", "name": "asya-a"}],
    });
    let looked = |pods: Option<Vec<&str>>| {
        let mut seen = observed(&actor(&json!({}), &spec, &status));
        let wanted = seen.bound().unwrap().injected_hash.clone().unwrap();
        let sidecar = |hash: &str| {
            let hash = if hash == "wanted" { &*wanted } else { hash };
            record::<PodRecord>(&json!({
                "metadata": {
                    "name": "p", "namespace": "ns", "uid": "p", "resourceVersion": "1",
                    "labels": {"asya.sh/asya": "a"},
                    "annotations": {"asya.sh/injected-by": "actor-uid", "asya.sh/injected-hash": hash},
                },
                "spec": {"containers": [{"name": "asya-runtime"}, {"name": "asya-sidecar"}]},
            }))
        };
        let pods = pods.map(|pods| BoundPods {
            marked: pods.into_iter().map(sidecar).collect(),
            bare: Vec::new(),
        });
        seen.binding = Some(BindingSeen {
            target: Some(Ok(Box::new(Resolved {
                target: target(),
                replicas: Some(1),
                spec: "spec".into(),
                templated: None,
            }))),
            pods,
            ..BindingSeen::default()
        });
        let looks = looks(&seen);
        match plan(&seen, Timestamp::UNIX_EPOCH) {
            Plan::Bind(plan) => assert_eq!(plan.retired, looks),
            other => panic!("{other:?}"),
        }
        transports(&looks).len()
    };
    assert_eq!(looked(None), 0, "nobody has listed the pods");
    assert_eq!(looked(Some(vec!["wanted", "older.platform"])), 0);
    assert_eq!(looked(Some(vec!["wanted"])), 1);
    assert_eq!(looked(Some(vec![])), 1, "scaled to zero");
}

fn target() -> Target {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "ns", "uid": "web-uid"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    match resolver("apps", "Deployment").resolve(&object, &Related::default()) {
        Resolution::Found(target) => *target,
        other => panic!("{other:?}"),
    }
}

/// QUE-36
#[test]
fn queue_in_another_account_is_retired_but_not_the_same_queue_by_another_transport() {
    let at = |url: &str| QueueStatus {
        url: Some(format!("https://sqs.eu-west-1.amazonaws.com/{url}")),
        ..queue("mq")
    };
    let (mine, moved_on) = (at("111111111111/asya-a"), at("222222222222/asya-a"));
    for (hold, now, retires) in [
        // The old account is not configured any more.
        (Hold::Wanted, &moved_on, true),
        (Hold::Wanted, &mine, false),
        (Hold::Wanted, &queue("mq"), false),
        // Only one of the two transports specifies its account.
        (Hold::Ours, &mine, false),
        (Hold::Ours, &moved_on, true),
    ] {
        let mut seen = plain("other", &["dead"]);
        let verified = seen.queues.verified.as_mut().unwrap();
        verified.queue.url.clone_from(&mine.url);
        verified.hold = hold.clone();
        seen.queues.retired[0].hold = hold.clone();
        seen.queues.retired[0].queue.url.clone_from(&mine.url);
        let after = list(&seen, Some(now), &[]);
        let wanted: &[&str] = if retires { &["dead", "other"] } else { &[] };
        assert_eq!(transports(&after.listed), wanted, "{hold:?} {:?}", now.url);
        assert_eq!(
            after.told.len(),
            usize::from(retires),
            "the one that was left just now"
        );
    }
}

/// QUE-13
#[test]
fn queue_is_verified_again_after_a_retired_one_is_gone() {
    for (asked, gone, rechecks, schedule) in [
        (2, 0, false, NextCheck::Scheduled),
        (2, 1, true, NextCheck::Now),
        (2, 2, true, NextCheck::None),
    ] {
        let next = after_check(asked, gone);
        assert_eq!((next.rechecks_queue, next.schedule), (rechecks, schedule));
    }
}
