//! How many required bindings have an entry, and which may fail closed.

use serde_json::json;

use super::{condition, entry, labelled, names, plain, required, rules};
use crate::admission::Binding;
use crate::resolve::Integration;

/// CFG-7 (a, b)
#[test]
fn required_entries_fill_objects_in_turn_and_the_rest_stay_fail_open() {
    let bindings = |count: usize| -> Vec<Binding> {
        let one = |n: usize| required(plain("a", &format!("w{n}")), true);
        (0..count).map(one).chain([plain("a", "web")]).collect()
    };
    let sizes = |count: usize| -> Vec<(String, usize)> {
        let objects = rules(&bindings(count)).objects.into_iter();
        objects
            .map(|it| (it.metadata.name.unwrap(), it.webhooks.unwrap().len()))
            .collect()
    };
    let object = |name: &str, size| (name.to_owned(), size);
    assert_eq!(sizes(100), [object("asya-injector", 101)]);
    assert_eq!(
        sizes(101),
        [object("asya-injector", 101), object("asya-injector-2", 1)]
    );
    assert_eq!(sizes(201)[2], object("asya-injector-3", 1));
    let full = rules(&bindings(502));
    let younger = |name: &str| ("a".to_owned(), name.to_owned());
    assert_eq!(full.unenforced_required, [younger("w500"), younger("w501")]);
    let entries = full
        .objects
        .iter()
        .flat_map(|it| it.webhooks.iter().flatten());
    let fail = entries.filter(|it| it.failure_policy.as_deref() == Some("Fail"));
    assert_eq!(fail.count(), 500);
}

/// CFG-7 (a, b), CFG-10: RBAC names ten objects, and one that cannot be written would keep the others as they are.
#[test]
fn beyond_ten_objects_required_bindings_share_fail_open_entries() {
    let workspace = |n: usize| {
        let name = format!("phi{n}");
        Binding {
            actor: name.clone(),
            ..labelled("b", Integration::Kaito, &[("kaito.sh/workspace", &name)])
        }
    };
    let full = (0..1000).map(|n| plain("a", &format!("w{n}")));
    let younger = [plain("a", "last"), workspace(1), workspace(2)];
    let all: Vec<_> = full
        .chain(younger)
        .map(|it| required(it, true))
        .chain([plain("a", "web")])
        .collect();
    let rules = rules(&all);
    assert_eq!(rules.objects.len(), 10);
    let last = rules.objects[9].metadata.name.as_deref();
    assert_eq!(last, Some("asya-injector-10"));
    assert_eq!(rules.unenforced_required.len(), 503);
    let unenforced = ("b".to_owned(), "phi2".to_owned());
    assert_eq!(rules.unenforced_required.last(), Some(&unenforced));
    // Their pods still get the sidecar, by the path of required bindings (INJ-2).
    let shared = names(&all).into_iter().filter(|it| !it.starts_with("r-"));
    assert_eq!(
        shared.collect::<Vec<_>>(),
        [
            "generic.inject.asya.sh",
            "kaito.unenforced.inject.asya.sh",
            "generic.unenforced.inject.asya.sh",
        ]
    );
    let kaito = entry(&all, "kaito.unenforced.inject.asya.sh");
    assert_eq!(kaito["failurePolicy"], "Ignore");
    assert_eq!(
        kaito["clientConfig"]["service"]["path"],
        "/mutate/pods/required"
    );
    assert_eq!(
        kaito["objectSelector"],
        json!({"matchExpressions": [
            {"key": "kaito.sh/workspace", "operator": "In", "values": ["phi1", "phi2"]},
        ]})
    );
    let generic = entry(&all, "generic.unenforced.inject.asya.sh");
    assert!(condition(&generic, "owned").contains("in ['last']"));
    assert_eq!(generic["objectSelector"], json!({}));
}
