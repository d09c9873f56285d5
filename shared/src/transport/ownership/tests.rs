#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn tag(text: &str) -> OwnerTag {
    let (cluster, actor) = text.split_once(':').unwrap();
    OwnerTag {
        cluster: cluster.to_owned(),
        namespace: "ns".to_owned(),
        actor: actor.to_owned(),
    }
}

/// QUE-32, QUE-33, QUE-35
#[test]
fn marks_identify_the_owner_of_a_queue() {
    let elsewhere = |cluster: &str| ActorOwnership::OtherCluster(cluster.to_owned());
    let ours = tag("b:foo");
    for (tags, adopts, expected) in [
        (&[][..], None, ActorOwnership::Available),
        (&["b:foo"], None, ActorOwnership::Ours),
        // kept by another actor, which may be gone
        (
            &["b:bar"],
            None,
            ActorOwnership::OtherActor("ns/bar".to_owned()),
        ),
        (
            &["b:bar"],
            Some("b"),
            ActorOwnership::OtherActor("ns/bar".to_owned()),
        ),
        (&["b:bar", "b:foo"], None, ActorOwnership::Available),
        (&["c:foo"], None, elsewhere("c")),
        (&["c:foo"], Some("a"), elsewhere("c")),
        (&["c:foo"], Some("c"), ActorOwnership::Available),
        // adopted, but the old tag still exists
        (&["b:foo", "c:foo"], Some("c"), ActorOwnership::Available),
        // of another actor of that cluster
        (
            &["c:bar"],
            Some("c"),
            ActorOwnership::OtherActor("ns/bar".to_owned()),
        ),
        // handed over by the administrator of the broker
        (&["b:foo", "c:bar"], Some("c"), ActorOwnership::Ours),
        // created by two clusters at the same moment
        (&["b:foo", "c:foo"], None, ActorOwnership::Ours),
        (&["b:foo", "a:foo"], None, elsewhere("a")),
        (&["d:foo", "c:foo"], Some("d"), elsewhere("c")),
    ] {
        let all: Vec<OwnerTag> = tags.iter().map(|text| tag(text)).collect();
        let all: Vec<&OwnerTag> = all.iter().collect();
        assert_eq!(ours.evaluate(&all, adopts), expected, "{tags:?} {adopts:?}");
    }
    let of_other_namespace = OwnerTag {
        namespace: "other".to_owned(),
        ..ours.clone()
    };
    assert_eq!(
        ours.evaluate(&[&of_other_namespace], None),
        ActorOwnership::OtherActor("other/foo".to_owned())
    );
    let elsewhere = OwnerTag {
        cluster: "c".to_owned(),
        ..of_other_namespace
    };
    let owner = ActorOwnership::OtherActor("other/foo".to_owned());
    assert_eq!(ours.evaluate(&[&elsewhere], Some("c")), owner);
    assert!(!ours.supersedes(&elsewhere, Some("c")));
    assert!(ours.supersedes(&tag("b:bar"), None));
    assert!(ours.supersedes(&tag("c:foo"), Some("c")));
    assert!(!ours.supersedes(&tag("c:foo"), None));
    assert!(!ours.supersedes(&ours, Some("b")));
}

/// QUE-34
#[test]
fn actor_may_delete_only_a_queue_marked_for_it() {
    let ours = tag("b:foo");
    for (tags, expected) in [
        (&["b:foo"][..], None),
        (&["b:foo", "c:foo"], None),
        (&[], Some(DeletionRefusal::NoOwnerTag)),
        (
            &["b:bar"],
            Some(DeletionRefusal::OtherOwner("ns/bar".to_owned())),
        ),
        (
            &["c:foo"],
            Some(DeletionRefusal::OtherCluster("c".to_owned())),
        ),
        (
            &["b:foo", "a:foo"],
            Some(DeletionRefusal::OtherCluster("a".to_owned())),
        ),
    ] {
        let all: Vec<OwnerTag> = tags.iter().map(|text| tag(text)).collect();
        let all: Vec<&OwnerTag> = all.iter().collect();
        assert_eq!(ours.deletion_refusal(&all), expected, "{tags:?}");
    }
}
