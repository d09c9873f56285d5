#![allow(clippy::unwrap_used, clippy::expect_used)]

use super::*;

fn mark(text: &str) -> Mark {
    let (cluster, actor) = text.split_once(':').unwrap();
    Mark {
        cluster: cluster.to_owned(),
        namespace: "ns".to_owned(),
        actor: actor.to_owned(),
    }
}

/// QUE-32, QUE-33
#[test]
fn marks_identify_the_owner_of_a_queue() {
    let elsewhere = |cluster: &str| Belongs::Elsewhere(cluster.to_owned());
    let ours = mark("b:foo");
    for (marks, adopts, wanted) in [
        (&[][..], None, Belongs::Free),
        (&["b:foo"], None, Belongs::Here),
        (&["b:bar"], None, Belongs::Free),
        (&["b:bar", "b:foo"], None, Belongs::Free),
        (&["c:foo"], None, elsewhere("c")),
        (&["c:foo"], Some("a"), elsewhere("c")),
        (&["c:foo"], Some("c"), Belongs::Free),
        // taken over, but the old mark still exists
        (&["b:foo", "c:foo"], Some("c"), Belongs::Free),
        // created by two clusters at the same moment
        (&["b:foo", "c:foo"], None, Belongs::Here),
        (&["b:foo", "a:foo"], None, elsewhere("a")),
        (&["d:foo", "c:foo"], Some("d"), elsewhere("c")),
    ] {
        let all: Vec<Mark> = marks.iter().map(|text| mark(text)).collect();
        let all: Vec<&Mark> = all.iter().collect();
        assert_eq!(ours.among(&all, adopts), wanted, "{marks:?} {adopts:?}");
    }
    assert!(ours.replaces(&mark("b:bar"), None));
    assert!(ours.replaces(&mark("c:foo"), Some("c")));
    assert!(!ours.replaces(&mark("c:foo"), None));
    assert!(!ours.replaces(&ours, Some("b")));
}

/// QUE-34
#[test]
fn only_a_queue_that_is_marked_for_the_actor_is_its_to_delete() {
    let ours = mark("b:foo");
    for (marks, wanted) in [
        (&["b:foo"][..], None),
        (&["b:foo", "c:foo"], None),
        (&[], Some(NotOurs::Unmarked)),
        (&["b:bar"], Some(NotOurs::Of("ns/bar".to_owned()))),
        (&["c:foo"], Some(NotOurs::OfCluster("c".to_owned()))),
        (
            &["b:foo", "a:foo"],
            Some(NotOurs::OfCluster("a".to_owned())),
        ),
    ] {
        let all: Vec<Mark> = marks.iter().map(|text| mark(text)).collect();
        let all: Vec<&Mark> = all.iter().collect();
        assert_eq!(ours.withholds(&all), wanted, "{marks:?}");
    }
}
