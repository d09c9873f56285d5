//! The cost of one review without a network: our handler compared with a typical one.

use std::hint::black_box;
use std::time::Instant;

use asya_shared::config::{Settings, TransportsConfig};
use asya_shared::inject::bound::{Action, ActorInputs, BoundActor, PodView, decide};
use asya_shared::validate;
use asya_tests::{Error, Result};
use k8s_openapi::api::core::v1::{Container, Pod};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::load::Times;
use crate::reviews::review;

const ROUNDS: usize = 2_000;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Measures both handlers with reviews of this size.
pub fn measure(size: usize) -> Result<String> {
    let actor = actor()?;
    let body = review("bench", "model-0", size);
    let ours = rounds(|| ours(&actor, &body))?;
    let theirs = rounds(|| typed(&body))?;
    Ok(format!(
        "{:>7} bytes: {ours}; typed decode and diff: {theirs}",
        body.len()
    ))
}

fn rounds(one: impl Fn() -> Result<usize>) -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..ROUNDS {
        let began = Instant::now();
        black_box(one()?);
        times.add(began.elapsed());
    }
    Ok(times)
}

/// Our handler: decodes, decides, and serializes the patch.
fn ours(actor: &BoundActor, body: &str) -> Result<usize> {
    let envelope: Envelope<'_> = serde_json::from_str(body)?;
    let pod = PodView::decode(envelope.request.object.get())?;
    match decide([actor], &pod).action {
        Action::Inject(patch) => Ok(patch.to_json()?.len()),
        other => Err(Error::Other(format!("not injected: {other:?}"))),
    }
}

/// A typical handler: decodes the pod into its full type, adds two containers, and diffs the two JSON texts.
fn typed(body: &str) -> Result<usize> {
    let review: Value = serde_json::from_str(body)?;
    let before = &review["request"]["object"];
    let mut pod: Pod = serde_json::from_value(before.clone())?;
    let spec = pod.spec.get_or_insert_default();
    for name in ["asya-runtime", "asya-sidecar"] {
        spec.containers.push(Container {
            name: name.to_owned(),
            image: Some("sidecar:1".to_owned()),
            ..Container::default()
        });
    }
    let after = serde_json::to_value(&pod)?;
    Ok(json_patch::diff(before, &after).to_string().len())
}

fn actor() -> Result<BoundActor> {
    let spec = json!({
        "transport": "mq",
        "workloadRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "model-0"},
        "runtime": {"targetURL": "http://127.0.0.1:8000"},
    });
    let spec = validate::decode(&spec.to_string()).map_err(Error::other)?;
    let transports = json!({"transports": {"mq": {"type": "rabbitmq", "enabled": true, "config": {"host": "mq"}}}});
    let transports = TransportsConfig::parse(&transports.to_string()).map_err(Error::other)?;
    let settings =
        Settings::parse(None, Some("sidecar:1".to_owned()), None).map_err(Error::other)?;
    let actor = BoundActor::new(&ActorInputs {
        namespace: "bench",
        name: "actor-0",
        uid: "uid",
        created: None,
        deleting: false,
        spec: &spec,
        role_arn: None,
        bound: true,
        injection: None,
        resolved: None,
        transports: &transports,
        settings: &settings,
        scripts_hash: "0123456789abcdef",
        clusters: None,
    });
    actor.ok_or_else(|| Error::other("the actor binds nothing"))
}
