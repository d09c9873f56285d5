//! Injection under fresh seeds. A second implementation of JSON Patch (RFC 6902), written for this test, applies the
//! patch as well: the API server's is neither ours nor the crate's.

use asya_fuzz::input::{json, text};
use asya_fuzz::proptest::collection::btree_map;
use asya_fuzz::proptest::prelude::{Strategy, any, prop_assert_eq};
use asya_fuzz::proptest::sample::select;
use asya_fuzz::{check, fail};
use fastrand::Rng;
use serde_json::{Value, json};

use super::property::{actors, once_and_again, pod, rest};
use crate::inject::bound::testing::{review, review_by};
use crate::inject::bound::{Action, Patch, PodView};

/// Applies a patch. Whatever RFC 6902 forbids is an error.
fn applied(patch: &Patch, pod: &Value) -> Result<Value, String> {
    let text = patch.to_json().map_err(|error| error.to_string())?;
    let operations: Vec<Value> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let mut pod = pod.clone();
    for operation in operations {
        let pointer = operation["path"].as_str().ok_or("no path")?;
        let (parent, last) = pointer.rsplit_once('/').ok_or("the whole pod")?;
        let parent = target(&mut pod, parent).ok_or_else(|| format!("no parent of {pointer}"))?;
        let last = last.replace("~1", "/").replace("~0", "~");
        apply(parent, &last, &operation).ok_or_else(|| format!("impossible: {operation}"))?;
    }
    Ok(pod)
}

fn target<'a>(pod: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    pointer.split('/').skip(1).try_fold(pod, |value, token| {
        let token = token.replace("~1", "/").replace("~0", "~");
        match value {
            Value::Object(members) => members.get_mut(&token),
            Value::Array(items) => items.get_mut(index(&token)?),
            _ => None,
        }
    })
}

/// An index has no sign and no leading zeros.
fn index(token: &str) -> Option<usize> {
    let index: usize = token.parse().ok()?;
    (index.to_string() == token).then_some(index)
}

fn apply(parent: &mut Value, last: &str, operation: &Value) -> Option<()> {
    let value = operation.get("value").cloned();
    match (operation["op"].as_str()?, parent) {
        ("add", Value::Object(members)) => drop(members.insert(last.to_owned(), value?)),
        ("add", Value::Array(items)) if last == "-" => items.push(value?),
        ("add", Value::Array(items)) => {
            let at = index(last).filter(|at| *at <= items.len())?;
            items.insert(at, value?);
        }
        ("replace", Value::Object(members)) => *members.get_mut(last)? = value?,
        ("replace", Value::Array(items)) => *items.get_mut(index(last)?)? = value?,
        ("remove", Value::Object(members)) => drop(members.remove(last)?),
        ("remove", Value::Array(items)) => {
            let at = index(last).filter(|at| *at < items.len())?;
            items.remove(at);
        }
        _ => return None,
    }
    Some(())
}

/// INJ-4, INJ-6, INJ-7
#[test]
fn two_implementations_of_json_patch_make_the_same_pod_and_nothing_of_the_users_is_lost() {
    let actors = actors();
    check(&any::<u64>(), |seed| {
        once_and_again(seed, &actors);
        let rng = &mut Rng::with_seed(seed);
        let before = pod(rng);
        for actor in &actors {
            let (Action::Inject(patch) | Action::Annotate(patch)) = review(actor, &before).action
            else {
                continue;
            };
            let after = applied(&patch, &before).map_err(fail)?;
            prop_assert_eq!(&after, &super::super::testing::patched(&before, &patch));
            prop_assert_eq!(rest(&after), rest(&before));
        }
        Ok(())
    });
}

/// Pods with members of any type where a pod has others, as no API server sends them.
fn odd_pods() -> impl Strategy<Value = Value> {
    let at = select(vec![
        "/metadata",
        "/metadata/annotations",
        "/metadata/labels",
        "/metadata/ownerReferences",
        "/spec",
        "/spec/containers",
        "/spec/containers/0",
        "/spec/containers/0/env",
        "/spec/containers/0/ports",
        "/spec/initContainers",
        "/spec/volumes",
        "/spec/volumes/0",
        "/spec/securityContext",
        "/spec/hostNetwork",
        "/spec/containers/0/name",
        "/metadata/annotations/asya.sh~1injected-by",
    ]);
    let labels = btree_map(text(), text(), 0..3);
    (any::<u64>(), at, json(), labels).prop_map(|(seed, at, odd, labels)| {
        let mut pod = pod(&mut Rng::with_seed(seed));
        if let Some(found) = pod["metadata"]["labels"].as_object_mut() {
            found.extend(labels.into_iter().map(|(key, value)| (key, json!(value))));
        }
        // serde reads an array as a struct, too; no API server sends one there.
        if let Some(found) = pod.pointer_mut(at)
            && !odd.is_array()
        {
            *found = odd;
        }
        pod
    })
}

/// INJ-4, ADM-3
#[test]
fn a_pod_of_odd_types_is_refused_or_patched_without_loss() {
    let actors = actors();
    check(&odd_pods(), |before| {
        let raw = before.to_string();
        let Ok(view) = PodView::decode(&raw) else {
            return Ok(());
        };
        for actor in &actors {
            let decision = crate::inject::bound::decide([actor], &view);
            if let Action::Inject(patch) | Action::Annotate(patch) = decision.action {
                let after = applied(&patch, &before).map_err(fail)?;
                prop_assert_eq!(rest(&after), rest(&before));
            }
        }
        let nobody = review_by([], &before);
        prop_assert_eq!(nobody.action, Action::Allow);
        Ok(())
    });
}
