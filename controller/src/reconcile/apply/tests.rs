use std::sync::{Arc, Mutex};

use asya_shared::resolve::{ObjectRef, Roll};
use k8s_openapi::jiff::Timestamp;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use serde_json::json;

use super::{Outcome, apply, parent, roll, template, wake};
use crate::applier::Applier;
use crate::queue::Depth;
use crate::queue::depths::Told;
use crate::reconcile::bound_pods::Lacking;
use crate::reconcile::observe::binding::BindingSeen;
use crate::reconcile::observe::observe;
use crate::reconcile::plan::{Wake, plan};
use crate::reconcile::testing::{actor, context, observed, spec};
use crate::record::Key;

const MESSAGES: Depth = Depth {
    queued: 5,
    processing: 0,
};

/// QUE-20: nobody else forgets them where the health pass is switched off.
#[tokio::test]
async fn messages_of_an_actor_that_goes_are_not_told_of_the_next_one_of_its_name() {
    let context = context();
    let gone = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": []});
    let gone = observed(&actor(&gone, &spec(&json!({})), &json!({})));
    context.depths.take(gone.key(), Some(MESSAGES));
    let plan = plan(&gone, Timestamp::now());
    let outcome = apply(&context, &gone, plan).await.unwrap();
    assert!(matches!(outcome, Outcome::Gone));
    assert_eq!(context.depths.told(gone.key()), Told::AsBefore);
}

/// QUE-20, FW-14
#[tokio::test]
async fn messages_of_an_actor_that_is_gone_are_forgotten() {
    let context = context();
    let gone = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));
    context.depths.take(gone.key(), Some(MESSAGES));
    let seen = observe(&context, gone.key(), Timestamp::now()).await;
    assert!(seen.unwrap().is_none());
    assert_eq!(context.depths.told(gone.key()), Told::AsBefore);
}

/// ROLL-2
#[tokio::test]
async fn who_is_left_alone_or_refused_in_the_midst_of_a_rollout_holds_up_no_other() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let bound = json!({"transport": "mq", "workloadRef": target});
    let paused = json!({"annotations": {"asya.sh/paused": "true"}});
    let unknown = json!({"transport": "unknown", "workloadRef": target});
    for (metadata, spec) in [(&paused, &bound), (&json!({}), &unknown)] {
        let (context, other) = (context(), Key::new("ns", "other"));
        let mut seen = observed(&actor(metadata, spec, &json!({})));
        seen.binding = Some(BindingSeen::default());
        context.slots.hold(seen.key());
        assert!(!context.slots.has_room_for(&other));
        let plan = plan(&seen, Timestamp::now());
        // Whatever else it would do, nobody answers.
        let _ = apply(&context, &seen, plan).await;
        assert!(context.slots.has_room_for(&other), "{metadata} {spec}");
    }
}

/// The path of a write, and in whose name it came.
type Asked = (String, Option<String>);

/// An API server that grants everything, and remembers in whose name it was written to.
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
async fn targets_are_written_in_the_name_of_their_namespaces_account() {
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
    let seen = observed(&actor(&json!({}), &spec(&json!({})), &json!({})));

    let ours = parent::Ours {
        roll: Some("v"),
        claim: None,
    };
    let all = Roll::AnnotateTemplate(vec![target.clone()]);
    let refused = roll::put(&context, &seen, &all, ours).await.unwrap();
    assert_eq!(refused, None);
    parent::mark(&context, &seen, &target).await.unwrap();
    template::release(&context, &seen, &target).await.unwrap();
    let woken = Wake {
        object: target,
        replicas: 1,
    };
    wake::wake(&context, &seen, &woken).await.unwrap().unwrap();
    let pod = Lacking {
        name: "web-1".into(),
        uid: "uid-of-pod".into(),
        ..Lacking::default()
    };
    roll::evict(&context, &seen, &pod).await.unwrap();

    let asked = asked.lock().unwrap();
    let paths: Vec<_> = asked.iter().map(|(path, _)| &**path).collect();
    let deployment = "/apis/apps/v1/namespaces/ns/deployments/web";
    let scale = format!("{deployment}/scale");
    let eviction = "/api/v1/namespaces/ns/pods/web-1/eviction";
    assert_eq!(
        paths,
        [deployment, deployment, deployment, &scale, eviction]
    );
    let account = Some("system:serviceaccount:ns:asya-applier".to_owned());
    assert!(asked.iter().all(|(_, user)| *user == account), "{asked:?}");
}
