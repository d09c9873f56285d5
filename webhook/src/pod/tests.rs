use std::sync::Arc;

use asya_shared::inject::bound::Reason as Row;
use serde_json::{Value, json};

use super::Pods;
use crate::events::Note;
use crate::index::Index;
use crate::outcome::Ended;
use crate::outcome::{Path, Reason, Verdict};
use crate::review::Request;
use crate::testing::{bound, platform, pod, pod_review, show};

/// A webhook that knows the bindings of two Deployments; `strict` requires the sidecar.
struct World {
    judge: Pods,
}

impl World {
    fn new() -> Self {
        let index = Arc::new(Index::new(platform()));
        index.relisting();
        show(&index, &bound("models", "mild", "mild"));
        let mut strict = bound("models", "strict", "strict");
        strict["spec"]["binding"] = json!({"required": true});
        show(&index, &strict);
        index.relisted();
        Self {
            judge: Pods {
                namespace: "asya-system".to_owned(),
                index,
            },
        }
    }

    fn ask(&self, path: Path, review: &str) -> Verdict {
        self.judge
            .judge(path, &Request::read(review.as_bytes()).unwrap())
    }

    fn create(&self, path: Path, pod: &Value) -> Verdict {
        self.ask(path, &pod_review("models", pod, false))
    }
}

fn patch(verdict: &Verdict) -> Value {
    let patch = verdict.answer.patch.as_ref().expect("a patch");
    serde_json::from_slice(patch).unwrap()
}

fn is_silent(verdict: &Verdict) -> bool {
    let answer = &verdict.answer;
    (&answer.denied, &answer.patch, &verdict.told) == (&None, &None, &None)
        && answer.warnings.is_empty()
}

/// INJ-1, INJ-3, OBS-2: the pod carries no namespace, its review does.
#[test]
fn bound_pod_gets_the_sidecar_and_an_event() {
    let world = World::new();
    for (path, name) in [(Path::Pods, "mild"), (Path::RequiredPods, "strict")] {
        let verdict = world.create(path, &pod(name));
        assert_eq!(verdict.reason, Reason::Pod(Row::Injected));
        assert_eq!(verdict.ended(), Ended::Patched);
        let text = patch(&verdict).to_string();
        assert!(
            text.contains("asya-sidecar") && text.contains("asya-runtime"),
            "{text}"
        );
        let told = verdict.told.expect("an Event");
        assert_eq!(told.note, Note::Injected);
        assert_eq!((&*told.namespace, &*told.actor.name), ("models", name));
        let owner = told.owner.expect("the ReplicaSet");
        assert_eq!(
            (&*owner.kind, &*owner.uid),
            ("ReplicaSet", "uid-of-replica-set")
        );
    }
    let elsewhere = world.ask(Path::Pods, &pod_review("other", &pod("mild"), false));
    assert_eq!(elsewhere.reason, Reason::Pod(Row::NoActor));
}

/// INJ-11
#[test]
fn injection_ignores_user_and_service_account() {
    let world = World::new();
    let by = |user: &Value, account: &str| {
        let mut pod = pod("mild");
        pod["spec"]["serviceAccountName"] = json!(account);
        let mut review: Value = serde_json::from_str(&pod_review("models", &pod, false)).unwrap();
        review["request"]["userInfo"] = user.clone();
        world.ask(Path::Pods, &review.to_string()).answer.patch
    };
    let controller = json!({"username": "system:serviceaccount:kube-system:replicaset-controller"});
    let patched = by(&controller, "default");
    assert!(patched.is_some());
    for user in [
        json!(null),
        json!({"username": "jane", "groups": ["system:masters"]}),
        json!({"username": "system:serviceaccount:kserve:kserve-controller-manager", "uid": "7"}),
    ] {
        assert_eq!(by(&user, "model"), patched, "{user}");
    }
}

/// INJ-2
#[test]
fn each_path_serves_the_actors_of_its_policy_only() {
    let world = World::new();
    for (path, name) in [(Path::RequiredPods, "mild"), (Path::Pods, "strict")] {
        let verdict = world.create(path, &pod(name));
        assert_eq!(verdict.reason, Reason::Pod(Row::OtherPath));
        assert!(is_silent(&verdict), "{verdict:?}");
    }
}

/// ADM-4
#[test]
fn dry_run_gets_the_same_response_without_an_event() {
    let world = World::new();
    let real = world.create(Path::Pods, &pod("mild"));
    let dry = world.ask(Path::Pods, &pod_review("models", &pod("mild"), true));
    assert_eq!(dry.answer.patch, real.answer.patch);
    assert_eq!((dry.reason, &dry.told), (real.reason, &None));
    assert!(real.told.is_some());
}

/// INJ-1, OBS-2
#[test]
fn a_pod_that_cannot_get_the_sidecar_is_marked_or_refused() {
    let world = World::new();
    let odd = |name: &str| {
        let mut pod = pod(name);
        pod["spec"]["hostNetwork"] = json!(true);
        pod
    };
    let marked = world.create(Path::Pods, &odd("mild"));
    assert_eq!(marked.reason, Reason::Pod(Row::HostNetwork));
    assert!(patch(&marked).to_string().contains("asya.sh/not-injected"));
    assert_eq!(marked.answer.warnings.len(), 1);
    let told = marked.told.expect("an Event");
    assert_eq!(
        (told.note, told.reason),
        (Note::InjectionSkipped, "HostNetwork")
    );
    assert!(told.text.contains("hostNetwork"), "{}", told.text);

    let refused = world.create(Path::RequiredPods, &odd("strict"));
    assert_eq!(refused.reason, Reason::Pod(Row::HostNetwork));
    let denied = refused.answer.denied.as_ref().expect("refused");
    assert_eq!(denied.code, 403);
    assert_eq!(refused.ended(), Ended::Denied);
    let told = refused.told.expect("an Event");
    assert_eq!(
        (told.note, told.text),
        (Note::InjectionDenied, denied.message.clone())
    );
}

/// INJ-7
#[test]
fn injected_pod_is_not_patched_again() {
    let world = World::new();
    let mut pod = pod("mild");
    let steps = patch(&world.create(Path::Pods, &pod));
    let steps: json_patch::Patch = serde_json::from_value(steps).unwrap();
    json_patch::patch(&mut pod, &steps).unwrap();
    let again = world.create(Path::Pods, &pod);
    assert_eq!(again.reason, Reason::Pod(Row::AlreadyInjected));
    assert_eq!(again.ended(), Ended::Empty);
    assert!(is_silent(&again), "{again:?}");
}

/// INJ-1, CFG-5
#[test]
fn excluded_namespaces_and_unbound_pods_are_allowed_silently() {
    let world = World::new();
    for namespace in [
        "asya-system",
        "kube-system",
        "kube-public",
        "kube-node-lease",
    ] {
        show(&world.judge.index, &bound(namespace, "in", "mild"));
        let verdict = world.ask(Path::Pods, &pod_review(namespace, &pod("mild"), false));
        assert_eq!(verdict.reason, Reason::Pod(Row::NotServed), "{namespace}");
        assert!(is_silent(&verdict));
    }
    let verdict = world.create(Path::Pods, &pod("unbound"));
    assert_eq!(verdict.reason, Reason::Pod(Row::NoActor));
    assert!(is_silent(&verdict));
}

/// ADM-3
#[test]
fn an_unreadable_pod_is_answered_as_the_path_says() {
    let world = World::new();
    for odd in [
        json!({"spec": 7}),
        json!({"spec": {"containers": "x"}}),
        Value::Null,
    ] {
        let verdict = world.create(Path::Pods, &odd);
        assert_eq!(verdict.reason, Reason::Pod(Row::Unreadable), "{odd}");
        assert_eq!(
            (&verdict.answer.denied, verdict.answer.warnings.len()),
            (&None, 1)
        );
        let verdict = world.create(Path::RequiredPods, &odd);
        assert_eq!(verdict.answer.denied.expect("refused").code, 422, "{odd}");
    }
}

/// ADM-3
#[test]
fn unserved_requests_are_allowed_with_a_warning() {
    let world = World::new();
    for change in ["/operation", "/subResource", "/resource/resource"] {
        let mut review: Value =
            serde_json::from_str(&pod_review("models", &pod("mild"), false)).unwrap();
        let request = review["request"].as_object_mut().unwrap();
        request.insert("subResource".to_owned(), json!(""));
        *review["request"].pointer_mut(change).unwrap() = json!("odd");
        let verdict = world.ask(Path::RequiredPods, &review.to_string());
        assert_eq!(verdict.reason, Reason::NotServed, "{change}");
        assert_eq!(
            (&verdict.answer.denied, verdict.answer.warnings.len()),
            (&None, 1)
        );
    }
}

/// ADM-3: before the cache is synced there is no verdict.
#[test]
fn before_the_cache_is_synced_the_path_decides() {
    let world = World {
        judge: Pods {
            namespace: "asya-system".to_owned(),
            index: Arc::new(Index::new(platform())),
        },
    };
    let mild = world.create(Path::Pods, &pod("mild"));
    assert_eq!(
        (mild.reason, mild.ended()),
        (Reason::NotSynced, Ended::Error)
    );
    assert_eq!((mild.answer.denied, mild.answer.warnings.len()), (None, 1));
    let strict = world.create(Path::RequiredPods, &pod("strict"));
    assert_eq!(strict.answer.denied.expect("refused").code, 500);
}

/// BIND-3, BIND-43: nothing is injected before the actor is bound and once it is being deleted.
#[test]
fn unbound_or_deleting_actor_injects_nothing() {
    let world = World::new();
    let mut early = bound("models", "mild", "mild");
    early["status"] = json!({});
    show(&world.judge.index, &early);
    let verdict = world.create(Path::Pods, &pod("mild"));
    assert_eq!(verdict.reason, Reason::Pod(Row::NotBoundYet));
    assert!(is_silent(&verdict));

    let mut ending = bound("models", "mild", "mild");
    ending["metadata"]["deletionTimestamp"] = json!("2026-05-04T11:00:00Z");
    show(&world.judge.index, &ending);
    let verdict = world.create(Path::Pods, &pod("mild"));
    assert_eq!(verdict.reason, Reason::Pod(Row::ActorDeleting));
    assert!(is_silent(&verdict));
}

/// ROLL-8
#[test]
fn changed_scripts_change_the_patch() {
    let world = World::new();
    let hash = |scripts: &str| {
        world.judge.index.scripts(scripts);
        patch(&world.create(Path::Pods, &pod("mild"))).to_string()
    };
    let (one, two) = (hash("1111"), hash("2222"));
    assert_ne!(one, two);
    assert_eq!(hash("1111"), one);
}

/// SAFE-2
#[test]
fn only_a_dry_run_counts_as_a_probe() {
    let world = World::new();
    let mut unproved = bound("models", "new", "new");
    unproved["status"]["injection"] = json!({});
    show(&world.judge.index, &unproved);
    let mut probe = pod("new");
    probe["metadata"]["annotations"] = json!({"asya.sh/probe": "uid-of-new"});
    let reason = |dry_run| {
        let review = pod_review("models", &probe, dry_run);
        world.ask(Path::Pods, &review).reason
    };
    assert_eq!(reason(true), Reason::Pod(Row::Injected));
    assert_eq!(reason(false), Reason::Pod(Row::NotProved), "it is stored");
}
