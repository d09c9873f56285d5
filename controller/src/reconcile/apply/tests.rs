use std::sync::{Arc, Mutex};
use std::time::Duration;

use asya_shared::api::QueueStatus;
use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use super::{apply, ensure, parent, retired, roll, template, wake};
use crate::broker::depths::ReportedDepth;
use crate::broker::health::Finding;
use crate::broker::{BrokerError, Depth};
use crate::cluster::impersonation::Applier;
use crate::fault::{Error, Fault, Reason, Requeue};
use crate::reconcile::contention::Specs;
use crate::reconcile::model::binding::BindingSeen;
use crate::reconcile::model::bound_pods::OutdatedPod;
use crate::reconcile::model::handover::{Ceded, Successor};
use crate::reconcile::model::observed::QueueSeen;
use crate::reconcile::model::outcome::{Outcome, Rolled, Templated};
use crate::reconcile::plan::pace::Pacing;
use crate::reconcile::plan::plan;
use crate::reconcile::plan::roll::facts::Rolling;
use crate::reconcile::plan::roll::inputs::RollInputs;
use crate::reconcile::plan::steps::Wake;
use crate::reconcile::plan::template::{Proof, Templating};
use crate::reconcile::tests::fixtures::{actor, context, context_with, observed, spec};
use crate::reconcile::{reconcile, remember};
use crate::record::Key;
use crate::work_queue::Attempt;

const MESSAGES: Depth = Depth {
    queued: 5,
    processing: 0,
};

/// QUE-20: nothing else forgets the counts if the health pass is switched off.
#[tokio::test]
async fn recreated_actor_does_not_inherit_message_counts() {
    let context = context();
    let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []});
    let gone = observed(&actor(&gone, &spec(&json!({})), &json!({})));
    context.depths.take(gone.key(), Some(MESSAGES));
    let plan = plan(&gone, Timestamp::now());
    let outcome = apply(&context, &gone.actor, plan).await.unwrap();
    assert!(matches!(outcome, Outcome::Gone));
    remember(&context, &gone, &outcome);
    assert_eq!(context.depths.told(gone.key()), ReportedDepth::AsBefore);
}

/// QUE-20, FW-14, SAFE-15
#[tokio::test]
async fn everything_remembered_of_a_missing_actor_is_forgotten() {
    let (context, other, now) = (context(), Key::new("ns", "other"), Timestamp::now());
    let gone = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let key = gone.key();
    context.depths.take(key, Some(MESSAGES));
    context.queue_rechecks.raise(key, Finding::Vanished);
    context.retired_queue_schedule.looked(key, None);
    context.rollout_slots.hold(key, Timestamp::MAX);
    assert!(context.rollouts.begin(key) && !context.rollouts.begin(&other));
    context.stores.foreign_names.saw(key, true);
    let attempt = Attempt {
        failures: 0,
        last: false,
    };
    let again = reconcile(&context, key, attempt).await;
    assert_eq!(again.unwrap(), None);
    assert_eq!(context.depths.told(key), ReportedDepth::AsBefore);
    assert_eq!(context.queue_rechecks.about(key), None);
    assert_eq!(context.retired_queue_schedule.wait(key), Duration::ZERO);
    assert!(context.rollout_slots.has_room_for(&other, now));
    assert!(context.rollouts.begin(&other));
    assert_eq!(context.stores.foreign_names.met_by(key), None);
}

/// ROLL-2
#[tokio::test]
async fn paused_or_invalid_actor_frees_its_rollout_slot() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let bound = json!({"transport": "mq", "workloadRef": target});
    let paused = json!({"annotations": {"asya.sh/paused": "true"}});
    let unknown = json!({"transport": "unknown", "workloadRef": target});
    for (metadata, spec) in [(&paused, &bound), (&json!({}), &unknown)] {
        let (context, other) = (context(), Key::new("ns", "other"));
        let mut seen = observed(&actor(metadata, spec, &json!({})));
        seen.binding = Some(BindingSeen::default());
        let now = Timestamp::now();
        context.rollout_slots.hold(seen.key(), Timestamp::MAX);
        assert!(!context.rollout_slots.has_room_for(&other, now));
        let plan = plan(&seen, now);
        // Other requests fail, because no API server responds; only the slot matters here.
        let _ = apply(&context, &seen.actor, plan).await;
        assert!(
            context.rollout_slots.has_room_for(&other, now),
            "{metadata} {spec}"
        );
    }
}

/// Path of a write, and the user that it impersonates.
type Asked = (String, Option<String>);

/// An API server that accepts everything, and records which user each write impersonates.
fn server(asked: &Arc<Mutex<Vec<Asked>>>) -> kube::Client {
    let asked = Arc::clone(asked);
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let user = request.headers().get("impersonate-user");
        let user = user.map(|user| user.to_str().unwrap().to_owned());
        let path = request.uri().path().to_owned();
        let answer = match path.rsplit('/').next() {
            Some("scale") => json!({
                "metadata": {"name": "web", "resourceVersion": "1"}, "spec": {"replicas": 0},
            }),
            Some("eviction") => json!({"kind": "Status", "status": "Success", "code": 201}),
            _ => {
                json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}})
            }
        };
        if request.method() != http::Method::GET {
            asked.lock().unwrap().push((path, user));
        }
        let body = kube::client::Body::from(answer.to_string().into_bytes());
        std::future::ready(Ok::<_, tower::BoxError>(http::Response::new(body)))
    });
    kube::Client::new(service, "default")
}

/// SAFE-34
#[tokio::test]
async fn targets_are_written_as_the_applier_of_their_namespace() {
    let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let mut context = context();
    context.client = server(&asked);
    context.applier = Applier::new(context.client.clone(), Some("asya-system"));
    let kind = GroupVersionKind::gvk("apps", "v1", "Deployment");
    let resource = ApiResource::from_gvk(&kind);
    context.bindings.kinds.serve("apps", "Deployment", resource);
    let target = ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: Some("uid-of-web".to_owned()),
    };
    let key = Key::new("ns", "a");
    let ours = parent::Ours {
        roll: Some("v"),
        claim: None,
        claim_owner: None,
    };
    let all = Roll::AnnotateTemplate(vec![target.clone()]);
    let put = roll::put(&context, "ns", (&all, ours), Specs::default());
    assert_eq!(put.await.unwrap(), None);
    parent::mark(&context, &key, &target).await.unwrap();
    template::release(&context, &key, &target).await.unwrap();
    let woken = Wake {
        object: target,
        replicas: 1,
    };
    wake::wake(&context, "ns", &woken).await.unwrap();
    roll::evict(&context, &key, &pod("web-1")).await.unwrap();

    let asked = asked.lock().unwrap();
    let paths: Vec<_> = asked.iter().map(|(path, _)| &**path).collect();
    let deployment = "/apis/apps/v1/namespaces/ns/deployments/web";
    let scale = format!("{deployment}/scale");
    let eviction = "/api/v1/namespaces/ns/pods/web-1/eviction";
    assert_eq!(
        paths,
        [
            deployment, deployment, deployment, deployment, deployment, deployment, &scale,
            eviction
        ],
        "each apply is dry-run first"
    );
    let account = Some("system:serviceaccount:ns:asya-applier".to_owned());
    assert!(asked.iter().all(|(_, user)| *user == account), "{asked:?}");
}

const ACTOR: &str = "/apis/asya.sh/v1alpha1/namespaces/ns/asyncactors/a";

/// QUE-31: nothing would delete what was created for such an actor.
#[tokio::test]
async fn nothing_is_created_for_an_actor_deleted_before_it_has_our_finalizer() {
    let context = context_with(|asked| {
        let gone =
            json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404});
        (asked == format!("PATCH {ACTOR}")).then_some((404, gone))
    });
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let bound = json!({"transport": "mq", "workloadRef": target});
    for spec in [spec(&json!({})), bound] {
        let mut seen = observed(&actor(&json!({"finalizers": []}), &spec, &json!({})));
        seen.binding = seen.actor.binds_to.as_ref().map(|_| BindingSeen::default());
        let plan = plan(&seen, Timestamp::now());
        let outcome = apply(&context, &seen.actor, plan).await.unwrap();
        assert!(matches!(outcome, Outcome::Gone), "{outcome:?}");
    }
}

/// QUE-30
#[tokio::test]
async fn queue_is_deleted_only_by_what_the_actor_says_at_that_moment() {
    const DELETED: &str = "2026-01-01T00:00:00Z";
    fn live(metadata: &serde_json::Value, spec: &serde_json::Value) -> (u16, serde_json::Value) {
        let mut live = actor(metadata, spec, &json!({}));
        live["metadata"]["deletionTimestamp"] = DELETED.into();
        live["metadata"]["resourceVersion"] = "9".into();
        (200, live)
    }
    type Answers = fn(&str) -> Option<(u16, serde_json::Value)>;
    let get = format!("GET {ACTOR}");
    let changed: [(&str, Answers); 3] = [
        ("retained", |_| {
            let retained = spec(&json!({"queue": {"deletionPolicy": "Retain"}}));
            Some(live(&json!({"generation": 7}), &retained))
        }),
        ("annotated", |_| {
            let skips = json!({"annotations": {"asya.sh/skip-queue-deletion": "true"}});
            Some(live(&skips, &spec(&json!({}))))
        }),
        ("another", |_| {
            let another = json!({"uid": "another"});
            Some(live(&another, &spec(&json!({}))))
        }),
    ];
    for (case, answers) in changed {
        assert!(answers(&get).is_some());
        let context = context_with(answers);
        let status = json!({"queue": {"transport": "mq", "name": "asya-a"}});
        let going = json!({"deletionTimestamp": DELETED});
        let seen = observed(&actor(&going, &spec(&json!({})), &status));
        let plan = plan(&seen, Timestamp::now());
        assert!(plan.is_the_end(), "{plan:?}");
        let stopped = apply(&context, &seen.actor, plan).await;
        assert!(
            matches!(stopped, Err(Error::Stale(_))),
            "{case}: {stopped:?}"
        );
        let known = context.stores.actors.get(seen.key()).unwrap();
        assert_eq!(
            &*known.metadata.resource_version.to_string(),
            "9",
            "{case}: the next pass knows"
        );
    }
}

/// SAFE-15, ROLL-4
#[tokio::test]
async fn rollout_slot_is_held_for_a_bounded_time_while_our_rollout_progresses() {
    const EVICTION: &str = "POST /api/v1/namespaces/ns/pods/web-1/eviction";
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let (hour, minute) = (Duration::from_hours(1), Duration::from_mins(1));
    let asked = Timestamp::now();
    let seen = |progress: Option<u32>, rollout: bool| {
        let bound =
            json!({"transport": "mq", "workloadRef": target, "timeout": {"progress": progress}});
        let since = asked.to_string();
        let status = if rollout {
            json!({"rollout": {"value": "v", "tries": 1, "generation": 2, "target": "spec", "since": since}})
        } else {
            json!({})
        };
        observed(&actor(&json!({}), &bound, &status))
    };
    let other = Key::new("elsewhere", "other");
    let at = |after: Duration| asked.checked_add(after).unwrap();
    let waits = |reason| Rolling::Wait(reason, "text".to_owned(), minute);
    let (runs, waiting) = (Reason::RolloutInProgress, Reason::RolloutWaiting);
    for (progress, rollout, plan, held) in [
        (Some(300), true, waits(runs), Some(minute * 5)),
        (None, true, waits(runs), Some(minute * 10)),
        (Some(0), true, waits(runs), Some(hour)),
        (Some(36_000), true, waits(runs), Some(hour)),
        // A rollout that another controller started.
        (Some(300), false, waits(runs), None),
        (Some(300), true, waits(waiting), None),
        (Some(300), true, Rolling::Stall("text".to_owned()), None),
        (Some(300), true, Rolling::Halt("text".to_owned()), None),
        (Some(300), true, Rolling::Rest, None),
    ] {
        let (context, seen) = (context(), seen(progress, rollout));
        context.rollout_slots.hold(seen.key(), Timestamp::MAX);
        let told = format!("{progress:?} {rollout} {plan:?}");
        let inputs = RollInputs::new(&seen, &plan, Timestamp::now());
        let rolled = roll::roll(&context, &seen.actor, (plan, inputs), None);
        rolled.await.unwrap();
        let has_room = |now| context.rollout_slots.has_room_for(&other, now);
        match held {
            None => assert!(has_room(asked), "{told}"),
            Some(held) => {
                let end = at(held);
                assert!(!has_room(end - SignedDuration::from_secs(5)), "{told}");
                assert!(has_room(end + SignedDuration::from_secs(5)), "{told}");
            }
        }
    }
    let context = context_with(|asked| {
        let refused = json!({"kind": "Status", "status": "Failure", "reason": "TooManyRequests", "code": 429});
        (asked == EVICTION).then_some((429, refused))
    });
    let (seen, pod) = (seen(None, true), pod("web-1"));
    let mut pauses = Vec::new();
    for _ in 0..3 {
        context.rollout_slots.hold(seen.key(), Timestamp::MAX);
        let Rolled::Waits(_, _, Requeue::After(pause)) =
            roll::evict(&context, seen.key(), &pod).await.unwrap()
        else {
            panic!()
        };
        assert!(
            context.rollout_slots.has_room_for(&other, asked),
            "it is given back"
        );
        pauses.push(pause.as_secs());
    }
    assert_eq!(pauses, [10, 20, 40]);
}

fn pod(name: &str) -> OutdatedPod {
    OutdatedPod {
        name: name.into(),
        uid: "uid-of-pod".into(),
        ..OutdatedPod::default()
    }
}

/// QUE-30
#[tokio::test]
async fn retired_queue_is_deleted_only_by_what_the_actor_says_at_that_moment() {
    let context = context_with(|asked| {
        let retained = spec(&json!({"queue": {"deletionPolicy": "Retain"}}));
        let live = actor(&json!({"generation": 7}), &retained, &json!({}));
        (asked == format!("GET {ACTOR}")).then_some((200, live))
    });
    let seen = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let queue = QueueStatus {
        transport: "other".to_owned(),
        name: "asya-a".to_owned(),
        ..QueueStatus::default()
    };
    let looked = retired::check(&context, &seen.actor, vec![queue]).await;
    assert!(matches!(looked, Err(Error::Stale(_))), "{looked:?}");
}

/// SAFE-36
#[tokio::test]
async fn only_updates_caused_by_the_installation_wait_for_their_turn() {
    let context = context();
    let seen = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let may_roll = |paced: bool| {
        let pacing = if paced {
            Pacing::NeedsSlot
        } else {
            Pacing::Unlimited
        };
        ensure::may_roll(&context.rollouts, seen.key(), pacing)
    };
    let other = Key::new("ns", "other");
    assert!(context.rollouts.begin(&other), "one at a time");
    assert!(!may_roll(true));
    assert!(may_roll(false), "its spec was changed");
    context.rollouts.forget(&other);
    assert!(may_roll(true));
    assert!(!context.rollouts.begin(&other));
}

/// BIND-45: the API server admits pods of `web` with the sidecar of actor `older`, or (`pods_of_nobody`) with none
/// while the webhook has not read that actor's status.
fn pods_of_the_older(asked: &str) -> Option<(u16, Value)> {
    let annotations = json!({"asya.sh/injected-by": "older", "asya.sh/injected-hash": "part.0"});
    let containers = json!([{"name": "asya-runtime"}, {"name": "asya-sidecar"}]);
    match asked {
        "POST /api/v1/namespaces/ns/pods" => Some((
            201,
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}}),
        )),
        "PATCH /apis/apps/v1/namespaces/ns/deployments/web" => Some((
            200,
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}),
        )),
        _ => None,
    }
}

fn pods_of_nobody(asked: &str) -> Option<(u16, Value)> {
    let annotations = json!({"asya.sh/not-injected": "NotProved"});
    (asked == "POST /api/v1/namespaces/ns/pods").then(|| {
        (
            201,
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": []}}),
        )
    })
}

/// BIND-45
#[tokio::test]
async fn template_is_handed_over_only_if_its_pods_would_get_the_older_actors_sidecar() {
    let seen = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    let web = ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: Some("uid-of-web".to_owned()),
    };
    let plan = Templating::HandOver(
        web,
        Proof {
            pod: json!({"metadata": {}, "spec": {"containers": []}}),
            uid: "older".into(),
            part: "part".to_owned(),
        },
    );
    let context = context_with(pods_of_nobody);
    let kept = template::template(&context, seen.key(), (plan.clone(), None)).await;
    let Ok(Templated::Waits(Reason::AlreadyBound, ..)) = kept else {
        panic!("{kept:?}")
    };
    let context = context_with(pods_of_the_older);
    let given_up = template::template(&context, seen.key(), (plan, None))
        .await
        .unwrap();
    assert_eq!(given_up, Templated::Released(None));
}

/// BIND-45: the API server as [`pods_of_the_older`] has it, with the `ConfigMap` of the runtime script.
fn with_config_map(asked: &str) -> Option<(u16, Value)> {
    let config_map = "PATCH /api/v1/namespaces/ns/configmaps/asya-runtime";
    let metadata =
        json!({"name": "asya-runtime", "namespace": "ns", "uid": "script", "resourceVersion": "1"});
    match asked {
        _ if asked == config_map => Some((200, json!({"metadata": metadata}))),
        _ => pods_of_the_older(asked),
    }
}

/// BIND-45
#[tokio::test]
async fn actor_without_a_usable_queue_hands_its_template_over() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({"transport": "mq", "workloadRef": target});
    let mut seen = observed(&actor(&json!({}), &spec, &json!({})));
    let fault = Fault::until_change(Reason::AlreadyBound, "by another");
    let workload = ObjectRef {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        name: "web".to_owned(),
        uid: Some("uid-of-web".to_owned()),
    };
    seen.binding = Some(BindingSeen {
        target: Some(Err(fault)),
        ceded: Some(Ceded::Stands {
            workload,
            owned: false,
            successor: Successor {
                uid: "older".into(),
                in_force: true,
                templates: false,
                proved: Some("part".to_owned()),
            },
            pod: Some(json!({"metadata": {}, "spec": {"containers": []}})),
        }),
        ..BindingSeen::default()
    });
    seen.queue = QueueSeen::Unknown(BrokerError::ConfigInvalid("no such broker".to_owned()));
    let context = context_with(with_config_map);
    let plan = plan(&seen, Timestamp::now());
    let Ok(Outcome::Ensured(ensured)) = apply(&context, &seen.actor, plan).await else {
        panic!()
    };
    assert!(!ensured.bindable);
    assert_eq!(*ensured.templated, Templated::Released(None));
}
