//! The identity that writes targets under `--impersonate`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use asya_shared::probe::Replaced;
use asya_shared::resolve::{Related, Resolution, RolloutMethod, resolver};
use serde_json::{Value, json};

use super::{pod, serve_deployment};
use crate::cluster::impersonation::Impersonation;
use crate::context::Context;
use crate::reconcile::apply::{evict, foreign_fields, scale_from_zero, template};
use crate::reconcile::contention::SpecRevision;
use crate::reconcile::model::outcome::TemplateOutcome;
use crate::reconcile::plan::steps::ScaleFromZero;
use crate::reconcile::plan::template::TemplateStep;
use crate::reconcile::plan::template::write::TemplateParams;
use crate::reconcile::tests::bindings::{binding_to, resolved};
use crate::reconcile::tests::fixtures::{actor, context, just_read, observed};
use crate::record::Key;

/// The path of a write, and the user that it impersonates.
type Write = (String, Option<String>);

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/ns/deployments/web";
const PODS: &str = "/api/v1/namespaces/ns/pods";
const APPLIER: &str = "system:serviceaccount:ns:asya-applier";

/// Deployment `web`, without the sidecar.
fn web() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ns", "uid": "uid-of-web"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
        "status": {"replicas": 1, "updatedReplicas": 1, "readyReplicas": 1},
    })
}

/// An API server that accepts and records every write, and injects the sidecar with this hash into pods.
fn server(writes: &Arc<Mutex<Vec<Write>>>, hash: &str) -> kube::Client {
    let writes = Arc::clone(writes);
    let hash = hash.to_owned();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let user = request.headers().get("impersonate-user");
        let user = user.map(|user| user.to_str().unwrap().to_owned());
        let path = request.uri().path().to_owned();
        let object = match path.rsplit('/').next() {
            Some("scale") => json!({
                "metadata": {"name": "web", "resourceVersion": "1"}, "spec": {"replicas": 0},
            }),
            Some("eviction") => json!({"kind": "Status", "status": "Success", "code": 201}),
            Some("pods") => json!({
                "metadata": {"annotations": {
                    "asya.sh/injected-by": "actor-uid", "asya.sh/injected-hash": hash,
                }},
                "spec": {"containers": [{"name": "asya-runtime"}, {"name": "asya-sidecar"}]},
            }),
            _ => web(),
        };
        if request.method() != http::Method::GET {
            writes.lock().unwrap().push((path, user));
        }
        let body = kube::client::Body::from(object.to_string().into_bytes());
        std::future::ready(Ok::<_, tower::BoxError>(http::Response::new(body)))
    });
    kube::Client::new(service, "default")
}

/// A context that impersonates, and the writes that its API server receives.
fn impersonating(hash: &str) -> (Context, Arc<Mutex<Vec<Write>>>) {
    let writes: Arc<Mutex<Vec<Write>>> = Arc::default();
    let mut context = context();
    context.client = server(&writes, hash);
    context.impersonation = Impersonation::new(context.client.clone(), Some("asya-system"));
    (context, writes)
}

/// SAFE-34
#[tokio::test]
async fn targets_are_written_as_the_applier_of_their_namespace() {
    let (context, writes) = impersonating("");
    let target = serve_deployment(&context);
    let key = Key::new("ns", "a");
    let desired = foreign_fields::TargetAnnotations {
        roll_value: Some("v"),
        handoff: None,
        handoff_object: None,
    };
    let roll = RolloutMethod::AnnotateTemplate(vec![target.clone()]);
    let refused =
        foreign_fields::write_annotations(&context, "ns", &roll, desired, SpecRevision::default());
    assert_eq!(refused.await.unwrap(), None);
    foreign_fields::annotate_with_actor(&context, &key, &target)
        .await
        .unwrap();
    foreign_fields::give_up_template(&context, &key, &target)
        .await
        .unwrap();
    let scale_up = ScaleFromZero {
        object: target,
        replicas: 1,
    };
    scale_from_zero::scale_up(&context, "ns", &scale_up)
        .await
        .unwrap();
    evict::evict(&context, &key, &pod("web-1"), &just_read(1))
        .await
        .unwrap();

    let writes = writes.lock().unwrap();
    let paths: Vec<_> = writes.iter().map(|(path, _)| &**path).collect();
    let scale = format!("{DEPLOYMENT}/scale");
    let eviction = format!("{PODS}/web-1/eviction");
    assert_eq!(
        paths,
        [
            DEPLOYMENT, DEPLOYMENT, DEPLOYMENT, DEPLOYMENT, DEPLOYMENT, DEPLOYMENT, &scale,
            &eviction
        ],
        "each apply is dry-run first"
    );
    assert!(
        writes
            .iter()
            .all(|(_, user)| user.as_deref() == Some(APPLIER)),
        "{writes:?}"
    );
}

/// SAFE-34, SAFE-39
#[tokio::test]
async fn pod_templates_are_written_as_the_applier_and_probed_as_the_operator() {
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"});
    let spec = json!({
        "transport": "mq", "workloadRef": target, "binding": {"strategy": "Template"},
        "runtime": {"targetURL": "http://127.0.0.1:8000"},
    });
    let mut observed = observed(&actor(&json!({}), &spec, &json!({})));
    let resolution = resolver("apps", "Deployment").resolve(&web(), &Related::default());
    let Resolution::Found(target) = resolution else {
        panic!()
    };
    let mut binding = binding_to(resolved(*target));
    binding.injection.limits = Some(BTreeSet::default());
    observed.binding = Some(binding.into());
    let hash = observed
        .desired_binding()
        .and_then(|it| it.injected_hash.clone());
    let inputs = TemplateParams::new(&observed, Replaced::Pod);
    let (context, writes) = impersonating(&hash.unwrap());
    serve_deployment(&context);
    let written = template::template(&context, observed.key(), TemplateStep::Apply, inputs);
    let written = written.await.unwrap();
    assert!(
        matches!(written, TemplateOutcome::Applied(_)),
        "{written:?}"
    );
    let dry_run = (DEPLOYMENT.to_owned(), Some(APPLIER.to_owned()));
    let probe = (PODS.to_owned(), None);
    let write = dry_run.clone();
    assert_eq!(*writes.lock().unwrap(), [dry_run, probe, write]);
}
