#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::{Value, json};

use super::super::tests::queue_of;
use super::*;
use crate::config::testing::{sqs, transport};
use crate::transport::ActorQueue;

/// UID of `kube-system` of our cluster.
const HERE: &str = "here";
const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:asya-dlq";

fn declared(config: &Value) -> QueueDeclaration {
    sqs(config).declaration(&queue_of(&transport("sqs", config)))
}

fn with_dlq() -> QueueDeclaration {
    declared(&json!({"tags": {"team": "nlp"}, "queues": {"dlq": {"enabled": true}}}))
}

/// The queue created from `desired`, as returned by SQS, with these changes.
fn found(
    desired: &QueueDeclaration,
    attributes: &[(&str, &str)],
    tags: &[(&str, &str)],
) -> FoundQueue {
    let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    let mut found = FoundQueue {
        attributes: desired
            .attributes_with(Some(ARN))
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        tags: desired.tags_with(HERE),
    };
    found.attributes.extend(attributes.iter().map(owned));
    found.tags.extend(tags.iter().map(owned));
    found
}

fn drift(comparison: Comparison) -> Drift {
    match comparison {
        Comparison::Drifted(drift) => drift,
        other => panic!("{other:?}"),
    }
}

/// SQS-2, SQS-6
#[test]
fn queue_as_we_create_it_matches() {
    let desired = with_dlq();
    assert_eq!(
        desired.compare(&found(&desired, &[], &[("mine", "x")]), Some(ARN), HERE),
        Comparison::Matches,
        "tags of the user do no harm"
    );
    let shown = format!(r#"{{"maxReceiveCount":"3","deadLetterTargetArn":"{ARN}"}}"#);
    assert_eq!(
        desired.compare(
            &found(&desired, &[(REDRIVE_POLICY, &shown)], &[]),
            Some(ARN),
            HERE
        ),
        Comparison::Matches,
        "another spelling is no drift"
    );
}

/// SQS-4
#[test]
fn visibility_redrive_policy_and_tags_are_updated_and_retention_is_kept() {
    let desired = with_dlq();
    let attributes = [
        (VISIBILITY_TIMEOUT, "30"),
        (RETENTION, "1209600"),
        (REDRIVE_POLICY, ""),
    ];
    let drift = drift(desired.compare(
        &found(&desired, &attributes, &[("team", "cv")]),
        Some(ARN),
        HERE,
    ));
    assert_eq!(
        drift.attributes.keys().copied().collect::<Vec<_>>(),
        [REDRIVE_POLICY, VISIBILITY_TIMEOUT]
    );
    assert_eq!(drift.attributes[VISIBILITY_TIMEOUT], "600");
    assert_eq!(
        drift.attributes[REDRIVE_POLICY],
        format!(r#"{{"deadLetterTargetArn":"{ARN}","maxReceiveCount":3}}"#)
    );
    assert_eq!(
        drift.tags,
        BTreeMap::from([("team".to_owned(), "nlp".to_owned())])
    );
}

/// SQS-6
#[test]
fn changed_retry_count_is_drift() {
    let desired = with_dlq();
    let other = format!(r#"{{"deadLetterTargetArn":"{ARN}","maxReceiveCount":9}}"#);
    let drift = drift(desired.compare(
        &found(&desired, &[(REDRIVE_POLICY, &other)], &[]),
        Some(ARN),
        HERE,
    ));
    assert!(drift.attributes.contains_key(REDRIVE_POLICY));
}

/// QUE-14
#[test]
fn disabled_dead_letter_queue_is_detached_and_a_users_policy_is_kept() {
    let desired = declared(&json!({}));
    let policy = |arn: &str| format!(r#"{{"deadLetterTargetArn":"{arn}","maxReceiveCount":3}}"#);
    let ours = policy(ARN);
    let drift = drift(desired.compare(
        &found(&desired, &[(REDRIVE_POLICY, &ours)], &[]),
        None,
        HERE,
    ));
    assert_eq!(drift.attributes[REDRIVE_POLICY], "");
    let users = policy("arn:aws:sqs:us-east-1:000000000000:mine");
    assert_eq!(
        desired.compare(
            &found(&desired, &[(REDRIVE_POLICY, &users)], &[]),
            None,
            HERE
        ),
        Comparison::Matches
    );
}

/// SQS-7, FW-35
#[test]
fn tags_identify_the_owner_of_a_queue() {
    let desired = with_dlq();
    let tagged = |tags: &[(&str, &str)]| {
        let mut queue = found(&desired, &[], &[]);
        queue.tags.clear();
        queue
            .tags
            .extend(tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        desired.compare(&queue, Some(ARN), HERE)
    };
    for (tags, owner) in [
        (vec![(ACTOR, "bar"), (NAMESPACE, "n")], "n/bar"),
        (vec![(ACTOR, "foo"), (NAMESPACE, "m")], "m/foo"),
        (vec![(ACTOR, "bar")], "n/bar"),
        (vec![(TYPE, "dlq")], "the dead letter queues"),
    ] {
        assert_eq!(tagged(&tags), Comparison::OwnedByOther(owner.to_owned()));
    }
    assert_eq!(drift(tagged(&[])).tags.len(), 5, "no owner: adopted");
    assert_eq!(
        drift(tagged(&[(ACTOR, "foo")])).tags.len(),
        4,
        "own queue, from before the namespace was tagged"
    );
    let restored = [
        (ACTOR, "foo"),
        (NAMESPACE, "n"),
        ("team", "nlp"),
        ("asya.sh/uid", "before"),
        (CLUSTER, HERE),
    ];
    assert_eq!(
        drift(tagged(&restored)).tags,
        BTreeMap::from([("asya.sh/uid".to_owned(), "uid-1".to_owned())])
    );
}

/// QUE-7, SQS-5
#[test]
fn unmanaged_queue_needs_the_configured_visibility_timeout() {
    let other = [(VISIBILITY_TIMEOUT, "30")];
    let said = declared(&json!({"visibilityTimeout": 60, "queues": {"autoCreate": false}}));
    let queue = found(&said, &other, &[("asya.sh/uid", "before")]);
    assert_eq!(
        said.compare(&queue, None, HERE),
        Comparison::Mismatch {
            desired: "VisibilityTimeout=60".to_owned(),
            found: "VisibilityTimeout=30".to_owned(),
        }
    );
    let unset = declared(&json!({"queues": {"autoCreate": false}}));
    assert_eq!(
        unset.compare(&found(&unset, &other, &[]), None, HERE),
        Comparison::Matches
    );
    let absurd = declared(&json!({"visibilityTimeout": 50_000, "queues": {"autoCreate": false}}));
    let most = [(VISIBILITY_TIMEOUT, "43200")];
    assert_eq!(
        absurd.compare(&found(&absurd, &most, &[]), None, HERE),
        Comparison::Matches
    );
}

/// SQS-6
#[test]
fn retention_of_a_dead_letter_queue_is_raised_and_never_lowered() {
    let dlq = with_dlq().dlq.unwrap();
    let kept = |seconds: &str| {
        let queue = FoundQueue {
            attributes: BTreeMap::from([(RETENTION.to_owned(), seconds.to_owned())]),
            tags: dlq.tags_with(HERE),
        };
        dlq.compare(&queue, HERE)
    };
    assert_eq!(
        drift(kept("345600")).attributes,
        BTreeMap::from([(RETENTION, "1209600".to_owned())])
    );
    assert_eq!(kept("1209600"), Comparison::Matches);
    assert_eq!(kept("1209601"), Comparison::Matches);
    let mut actors = FoundQueue::default();
    actors.tags.insert(ACTOR.to_owned(), "dlq".to_owned());
    actors.tags.insert(NAMESPACE.to_owned(), "n".to_owned());
    assert_eq!(
        dlq.compare(&actors, HERE),
        Comparison::OwnedByOther("n/dlq".to_owned())
    );
}

/// QUE-32, QUE-33, QUE-35
#[test]
fn queue_of_another_cluster_is_not_changed_unless_the_actor_adopts_it() {
    let config = json!({"queues": {"dlq": {"enabled": true, "name": "{queue}-dlq"}}});
    let transport = transport("sqs", &config);
    let adopting = |adopts: Option<&str>| {
        let adopts = adopts.map(str::to_owned);
        sqs(&config).declaration(&ActorQueue {
            adopts,
            ..queue_of(&transport)
        })
    };
    let cluster_tag = |cluster: &str| BTreeMap::from([(CLUSTER.to_owned(), cluster.to_owned())]);
    let there = || Comparison::OtherCluster("there".to_owned());
    let to_mark = || {
        Comparison::Drifted(Drift {
            tags: cluster_tag(HERE),
            ..Drift::default()
        })
    };
    for (tagged, adopts, desired) in [
        (Some(HERE), None, Comparison::Matches),
        (Some("there"), None, there()),
        (Some("there"), Some("elsewhere"), there()),
        (Some("there"), Some("there"), to_mark()),
        (None, None, to_mark()),
    ] {
        let declared = adopting(adopts);
        let dlq = declared.dlq.clone().unwrap();
        let mut queue = found(&declared, &[], &[]);
        let mut dead = FoundQueue {
            attributes: queue.attributes.clone(),
            tags: dlq.tags.clone(),
        };
        dead.attributes
            .insert(RETENTION.to_owned(), "1209600".to_owned());
        queue.tags.remove(CLUSTER);
        for tags in [&mut queue.tags, &mut dead.tags] {
            tags.extend(tagged.map(cluster_tag).unwrap_or_default());
        }
        assert_eq!(
            declared.compare(&queue, Some(ARN), HERE),
            desired,
            "{tagged:?} {adopts:?}"
        );
        assert_eq!(dlq.compare(&dead, HERE), desired, "{tagged:?} {adopts:?}");
        if let Comparison::Drifted(drift) = desired {
            assert!(drift.is_only_cluster_tag());
            queue.tags.remove("asya.sh/uid");
            let more = super::tests::drift(declared.compare(&queue, Some(ARN), HERE));
            assert!(!more.is_only_cluster_tag());
        }
    }
}

/// QUE-39
#[test]
fn shared_dead_letter_queue_of_another_cluster_is_no_conflict() {
    let shared = with_dlq().dlq.unwrap();
    let mut found_dlq = FoundQueue::default();
    found_dlq
        .tags
        .insert(CLUSTER.to_owned(), "there".to_owned());
    found_dlq
        .tags
        .insert("team".to_owned(), "theirs".to_owned());
    assert_eq!(shared.compare(&found_dlq, HERE), Comparison::Matches);

    let users = declared(&json!({"queues": {"autoCreate": false}}));
    let mut queue = found(&users, &[], &[]);
    queue.tags.insert(CLUSTER.to_owned(), "there".to_owned());
    assert_eq!(users.compare(&queue, None, HERE), Comparison::Matches);
}

/// QUE-34, FW-35
#[test]
fn actor_may_delete_only_a_queue_tagged_for_it() {
    let owner = with_dlq().owner().clone();
    let ours = [(ACTOR, "foo"), (NAMESPACE, "n"), (UID, "uid-1")];
    let of_cluster = |cluster: &str| Some(DeletionRefusal::OtherCluster(cluster.to_owned()));
    let tagged = |cluster| [&ours[..], &[(CLUSTER, cluster)]].concat();
    for (tags, desired) in [
        (tagged(HERE), None),
        (tagged("there"), of_cluster("there")),
        // created before queues had a cluster tag
        (ours.to_vec(), None),
        (ours[..2].to_vec(), Some(DeletionRefusal::NoOwnerTag)),
        (
            vec![ours[0], ours[1], (UID, "of another cluster")],
            Some(DeletionRefusal::NoOwnerTag),
        ),
        (vec![], Some(DeletionRefusal::NoOwnerTag)),
        (
            vec![(ACTOR, "bar"), (NAMESPACE, "n"), (CLUSTER, HERE)],
            Some(DeletionRefusal::OtherOwner("n/bar".to_owned())),
        ),
        // dead letter queues, whose tags name no actor
        (vec![(TYPE, DLQ), (CLUSTER, HERE)], None),
        (vec![(TYPE, DLQ), (CLUSTER, "there")], of_cluster("there")),
        (vec![(TYPE, DLQ)], Some(DeletionRefusal::NoOwnerTag)),
    ] {
        let mut found = FoundQueue::default();
        let named = tags
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        found.tags.extend(named);
        assert_eq!(found.deletion_refusal(&owner, HERE), desired, "{tags:?}");
    }
}

/// QUE-36
#[test]
fn arn_identifies_a_queue_unless_each_server_gives_it() {
    let id = |arn: &str| {
        let mut found = FoundQueue::default();
        found
            .attributes
            .insert("QueueArn".to_owned(), arn.to_owned());
        found.unique_arn().map(str::to_owned)
    };
    let arn = "arn:aws:sqs:eu-west-1:111111111111:asya-000000000000";
    assert_eq!(id(arn).as_deref(), Some(arn));
    assert_eq!(id(ARN), None);
    assert_eq!(FoundQueue::default().unique_arn(), None);
}
