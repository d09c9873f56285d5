//! Nothing of the user's is deleted with an actor.

use std::collections::BTreeMap;

use asya_tests::Result;
use asya_tests::eventually::{LATER, NotYet, check, eventually};
use asya_tests::owners::inference_set::{INFERENCE_SET, InferenceSets, inference_set};
use asya_tests::owners::kaito::{Kaito, WORKSPACE, workspace};
use asya_tests::owners::knative::{CONFIGURATION, Knative, REVISION, Release, SERVICE, service};
use asya_tests::owners::kserve::{INFERENCE_SERVICE, Kserve, inference_service};
use asya_tests::owners::llmisvc::{LLM_INFERENCE_SERVICE, LlmIsvc, llm_inference_service};
use asya_tests::owners::ray::{
    RAY_CLUSTER, RAY_SERVICE, RayClusters, RayServices, ray_cluster, ray_service,
};
use asya_tests::owners::seldon::{SELDON_DEPLOYMENT, Seldon, seldon_deployment};
use asya_tests::owners::seldon2::{SERVER, Seldon2, server};
use asya_tests::owners::yatai::{BENTO_DEPLOYMENT, Yatai, bento_deployment};
use asya_tests::owners::{Kind, Owner, RecordingClient, crds};
use asya_tests::scenario::Scenario;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::binding::{bound_actor, condition, model};

/// Kinds of the systems that actors bind to.
const SYSTEMS: [Kind; 12] = [
    WORKSPACE,
    INFERENCE_SET,
    INFERENCE_SERVICE,
    LLM_INFERENCE_SERVICE,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    CONFIGURATION,
    REVISION,
    SELDON_DEPLOYMENT,
    SERVER,
    BENTO_DEPLOYMENT,
];

/// One target of each kind, and its number of pods.
fn targets() -> Result<Vec<(Kind, Value, i64)>> {
    let mut set = serde_json::to_value(model("set", 2)?)?;
    set["spec"]["serviceName"] = json!("set");
    Ok(vec![
        (Kind::DEPLOYMENT, serde_json::to_value(model("web", 2)?)?, 2),
        (Kind::STATEFUL_SET, set, 2),
        (WORKSPACE, workspace("phi", "phi-4"), 1),
        (INFERENCE_SET, inference_set("phis", "phi-4", 2), 2),
        (INFERENCE_SERVICE, inference_service("iris", &json!({})), 2),
        (LLM_INFERENCE_SERVICE, llm_inference_service("qwen"), 1),
        (RAY_CLUSTER, ray_cluster("batch", 2), 2),
        (RAY_SERVICE, ray_service("summarizer", "ray:1", 1), 1),
        (SERVICE, service("echo", "echo:1"), 1),
        (
            SELDON_DEPLOYMENT,
            seldon_deployment("income", &json!({})),
            1,
        ),
        (SERVER, server("mlserver", "mlserver:1"), 1),
        (BENTO_DEPLOYMENT, bento_deployment("bento", "iris-1"), 1),
    ])
}

fn owners(scenario: &Scenario) -> Vec<Owner> {
    let knative = Knative {
        release: Release::Hashed,
        queue_proxy: "queue:1",
    };
    vec![
        Owner::start(scenario, Kaito),
        Owner::start(scenario, InferenceSets),
        Owner::start(scenario, Kserve),
        Owner::start(scenario, LlmIsvc),
        Owner::start(scenario, RayClusters),
        Owner::start(scenario, RayServices),
        Owner::start(scenario, knative),
        Owner::start(scenario, Seldon),
        Owner::start(scenario, Seldon2),
        Owner::start(scenario, Yatai),
    ]
}

/// Uid and spec of every object, but only the uid of pods.
async fn shown(client: &RecordingClient) -> Result<BTreeMap<String, Value>> {
    let mut shown = BTreeMap::new();
    let more = [Kind::DEPLOYMENT, Kind::STATEFUL_SET, Kind::HPA, Kind::POD];
    for kind in SYSTEMS.into_iter().chain(more) {
        for object in client.list(kind).await? {
            let metadata = &object["metadata"];
            let key = format!("{}/{}", kind.kind, metadata["name"]);
            let spec = if kind == Kind::POD {
                &Value::Null
            } else {
                &object["spec"]
            };
            let owners = &metadata["ownerReferences"];
            shown.insert(key, json!([metadata["uid"], spec, owners]));
        }
    }
    Ok(shown)
}

async fn nothing_is_deleted(scenario: &Scenario, cascade: &str) -> Result<()> {
    crds::install(scenario.cluster(), &SYSTEMS).await?;
    let client = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
    let targets = targets()?;
    for (kind, target, _) in &targets {
        client.create(*kind, target).await?;
    }
    let _owners = owners(scenario);
    // Plus the heads of both Ray clusters.
    let pods = targets.iter().map(|(.., pods)| pods).sum::<i64>() + 2;
    eventually("all pods run", LATER, async || {
        let found = client.list(Kind::POD).await.map_err(NotYet::new)?;
        let run = found.iter().filter(|it| it["status"]["phase"] == "Running");
        let run = i64::try_from(run.count()).ok();
        check(run == Some(pods), format_args!("{run:?} of {pods}"))
    })
    .await?;
    let mut actors = Vec::new();
    let mut pods = BTreeMap::new();
    for (kind, target, count) in &targets {
        let target = target["metadata"]["name"].as_str().unwrap_or_default();
        let mut actor = bound_actor(&scenario.name(target), target);
        actor["spec"]["workloadRef"] = json!({
            "apiVersion": kind.api_version(), "kind": kind.kind, "name": target,
        });
        // With `OnRestart`, we do not replace pods, so any change to them shows.
        actor["spec"]["binding"] = json!({"rollout": "OnRestart"});
        actor["spec"]["runtime"] = json!({"targetURL": "http://127.0.0.1:8000"});
        pods.insert(scenario.name(target), *count);
        actors.push(actor);
    }
    scenario.apply_all(&actors).await?;
    eventually("all are bound and know their pods", LATER, async || {
        let found = scenario.actors().list(&<_>::default()).await?;
        let waiting = found.iter().filter(|actor| {
            let status = &actor.data["status"];
            condition(status, "TargetResolved").1 != "Resolved"
                || status["pods"]["matched"].as_i64() != pods.get(&actor.name_any()).copied()
        });
        let waiting: Vec<_> = waiting
            .map(|it| (&it.metadata.name, &it.data["status"]))
            .collect();
        check(waiting.is_empty(), format_args!("{waiting:?}"))
    })
    .await?;
    let before = shown(&client).await?;
    scenario
        .kubectl(&["delete", "asya", "--all", cascade, "--wait=false"])
        .await?;
    eventually("all actors are gone", LATER, async || {
        let found = scenario.actors().list(&<_>::default()).await?.items;
        check(found.is_empty(), found.len())
    })
    .await?;
    let after = shown(&client).await?;
    for (name, seen) in &before {
        assert_eq!(after.get(name), Some(seen), "{name}");
    }
    assert_eq!(after.len(), before.len());
    Ok(())
}

/// BIND-43, BIND-47
#[tokio::test]
async fn foreground_deletion_keeps_every_kind_of_target() {
    Scenario::run("kept-foreground", async |scenario| {
        nothing_is_deleted(scenario, "--cascade=foreground").await
    })
    .await;
}

/// BIND-43, BIND-47
#[tokio::test]
async fn background_deletion_keeps_every_kind_of_target() {
    Scenario::run("kept-background", async |scenario| {
        nothing_is_deleted(scenario, "--cascade=background").await
    })
    .await;
}
