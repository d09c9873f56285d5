//! Lookups of pods by name.

use super::super::owned::{REPLICA_SET, STATEFUL_SET};
use super::super::pods::{OwnerRule, PodMatch, lookup_names_of_pod};
use super::super::{Controller, Selector};

/// A rule, labels that pods must have, kind and name of a pod's controller, and a name of the lookup.
type Row<'a> = (
    OwnerRule,
    &'a [(&'a str, &'a str)],
    &'a str,
    &'a str,
    Option<&'a str>,
);

/// OPS-32: a lookup misses no pod.
#[test]
fn every_matching_pod_has_a_name_of_the_lookup() {
    let long = "d".repeat(253);
    let truncated = format!("{}-abc", "d".repeat(249));
    let replica_set_of = |name: &str| OwnerRule::ReplicaSetOf {
        deployment: name.to_owned(),
    };
    let of_set = OwnerRule::Named {
        kind: STATEFUL_SET,
        name: "db".to_owned(),
    };
    let kserve = ("serving.kserve.io/inferenceservice", "m");
    let hash = ("pod-template-hash", "abc");
    let rows: [Row; 5] = [
        (of_set, &[], "StatefulSet", "db", Some("db")),
        (
            replica_set_of("web"),
            &[],
            "ReplicaSet",
            "web-abc",
            Some("web"),
        ),
        (
            replica_set_of(&long),
            &[],
            "ReplicaSet",
            &truncated,
            Some(&long[..128]),
        ),
        (
            OwnerRule::Kind(REPLICA_SET),
            &[kserve],
            "ReplicaSet",
            "m-1-abc",
            Some("m"),
        ),
        (
            OwnerRule::Kind(REPLICA_SET),
            &[],
            "ReplicaSet",
            "any-abc",
            None,
        ),
    ];
    for (owner, selector, kind, controller, expected) in rows {
        let any_of = OwnerRule::AnyOf(vec![replica_set_of("other"), owner.clone()]);
        for owner in [owner, any_of] {
            let pods = PodMatch {
                labels: Selector::of_labels(selector.iter().copied()),
                owner,
            };
            let labels = [&[hash], selector].concat();
            let label = |key: &str| labels.iter().find(|it| it.0 == key).map(|it| it.1);
            let controller = Controller {
                api_version: "apps/v1",
                kind,
                name: controller,
            };
            assert!(pods.matches(label, Some(&controller)), "{pods:?}");
            let names = pods.lookup_names();
            let of_pod = lookup_names_of_pod(label, Some(&controller));
            match (names, expected) {
                (None, None) => {}
                (Some(names), Some(expected)) => {
                    assert!(names.contains(&expected), "{names:?}");
                    assert!(of_pod.contains(&expected), "{of_pod:?}");
                }
                other => panic!("{other:?}"),
            }
        }
    }
    let nothing = PodMatch::nothing();
    assert_eq!(nothing.lookup_names(), Some(Vec::new()));
}
