//! Property tests over generated pods (INJ-7): injection is idempotent and neither loses nor moves anything of others.

use asya_fuzz::pods;
use fastrand::Rng;
use serde_json::{Value, json};

use crate::inject::bound::testing::{Binding, patched, pod as base, review, reviewed};
use crate::inject::bound::{Action, BoundActor, InjectionReason};
use crate::names::annotation;

const PODS: u64 = 10_000;
const THREADS: u64 = 2;

pub(super) fn pod(rng: &mut Rng) -> Value {
    pods::pod(rng, base(&json!({})))
}

pub(super) fn actors() -> Vec<BoundActor> {
    let role = Binding {
        role_arn: Some("arn:aws:iam::1:role/r"),
        ..Binding::new(&json!({"transport": "cloud"}))
    };
    let mut all: Vec<_> = [
        json!({}),
        json!({"sidecar": {"native": true, "env": [{"name": "B", "value": "$(A)"}, {"name": "A", "value": ""}]}}),
        json!({"runtime": {"targetURL": "http://127.0.0.1:5000", "env": [{"name": "X", "value": "$$"}]}}),
        json!({"runtime": {"resources": {"limits": {"cpu": 0.1}}}, "sidecar": {"resources": {"requests": {"memory": "1e6"}}}}),
    ]
    .iter()
    .map(|spec| Binding::new(spec).actor())
    .collect();
    all.push(role.actor());
    all
}

/// The pod without our fields.
pub(super) fn rest(pod: &Value) -> Value {
    let mut pod = pod.clone();
    for list in ["containers", "initContainers", "volumes"] {
        if let Some(items) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) {
            items.retain(|it| {
                let name = it["name"].as_str();
                !name.is_some_and(|name| name.starts_with("asya-"))
            });
            if items.is_empty() {
                pod["spec"].as_object_mut().unwrap().remove(list);
            }
        }
    }
    let annotations = pod["metadata"]
        .get_mut("annotations")
        .and_then(Value::as_object_mut);
    if let Some(annotations) = annotations
        && let Some(Value::String(names)) = annotations.remove(annotation::LOCAL_VOLUMES)
    {
        let names = names.split(',').filter(|it| !it.starts_with("asya-"));
        let theirs = names.collect::<Vec<_>>().join(",");
        if !theirs.is_empty() {
            annotations.insert(annotation::LOCAL_VOLUMES.to_owned(), json!(theirs));
        }
    }
    for member in ["labels", "annotations"] {
        if let Some(entries) = pod["metadata"]
            .get_mut(member)
            .and_then(Value::as_object_mut)
        {
            entries.retain(|key, _| !key.starts_with("asya.sh/"));
            if entries.is_empty() {
                pod["metadata"].as_object_mut().unwrap().remove(member);
            }
        }
    }
    // an absent member and null are the same
    for parent in ["metadata", "spec"] {
        if let Some(members) = pod[parent].as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
    }
    pod
}

/// INJ-6, INJ-7
#[test]
fn injection_is_idempotent_and_keeps_what_others_added() {
    let actors = actors();
    let some_of_them = |remainder| {
        let seeds = (0..PODS).filter(move |seed| seed % THREADS == remainder);
        seeds
            .map(|seed| once_and_again(seed, &actors))
            .collect::<Vec<_>>()
    };
    let reasons: Vec<InjectionReason> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|it| scope.spawn(move || some_of_them(it)))
            .collect();
        threads
            .into_iter()
            .flat_map(|it| it.join().unwrap())
            .collect()
    });
    let injected = reasons
        .iter()
        .filter(|it| **it == InjectionReason::Injected)
        .count();
    assert!((5_000..10_000).contains(&injected), "{injected}");
}

pub(super) fn once_and_again(seed: u64, actors: &[BoundActor]) -> InjectionReason {
    let rng = &mut Rng::with_seed(seed);
    let before = pod(rng);
    let actor = rng.choice(actors).unwrap();
    let decision = review(actor, &before);
    let after = match &decision.action {
        Action::Inject(patch) | Action::Annotate(patch) => patched(&before, patch),
        other => panic!("{seed}: {other:?}"),
    };
    assert_eq!(rest(&after), rest(&before), "{seed}");
    let again = review(actor, &after);
    assert_eq!(again.action, Action::Allow, "{seed}: {after}");
    if decision.reason != InjectionReason::Injected {
        assert_eq!(again.reason, decision.reason, "{seed}");
        return decision.reason;
    }
    assert_eq!(again.reason, InjectionReason::AlreadyInjected, "{seed}");
    let first = &before["spec"]["containers"][0];
    assert_eq!(&after["spec"]["containers"][0], first, "{seed}");
    if seed.is_multiple_of(5) {
        assert_eq!(review(actor, &before), decision, "{seed}");
        let other = rng.choice(actors).unwrap();
        damaged_and_again(rng, other, &before, after);
    }
    decision.reason
}

/// Damages one of our fields, or lets another actor bind the pod, and injects again.
fn damaged_and_again(rng: &mut Rng, actor: &BoundActor, before: &Value, mut pod: Value) {
    damage(rng, &mut pod);
    let restored = reviewed(actor, &pod);
    assert_eq!(rest(&restored), rest(before));
    assert_eq!(review(actor, &restored).action, Action::Allow, "{pod}");
    let first = &before["spec"]["containers"][0];
    assert_eq!(&restored["spec"]["containers"][0], first);
}

fn damage(rng: &mut Rng, pod: &mut Value) {
    let list = *rng
        .choice(&["containers", "initContainers", "volumes"])
        .unwrap();
    let Some(items) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) else {
        return;
    };
    let ours: Vec<usize> = (0..items.len())
        .filter(|at| items[*at]["name"].as_str().unwrap().starts_with("asya-"))
        .collect();
    let Some(at) = rng.choice(&ours).copied() else {
        return;
    };
    let name = items[at]["name"].clone();
    match rng.u8(..4) {
        0 => drop(items.remove(at)),
        1 => items[at] = json!({"name": name}),
        2 => {
            let item = items.remove(at);
            items.push(item);
        }
        _ => {
            if let Some(env) = items[at].get_mut("env").and_then(Value::as_array_mut) {
                env.truncate(1);
                env.push(json!({"name": "ASYA_TARGET_URL", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}));
            }
        }
    }
}
