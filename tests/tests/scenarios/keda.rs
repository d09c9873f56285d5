//! KEDA is installed while actors wait for it, serves them, and is removed.

use std::time::Duration;

use asya_shared::api::{AsyncActorSpec, WorkloadKind};
use asya_shared::applied::HashedManifest;
use asya_shared::config::TransportsConfig;
use asya_shared::scaling::{ScaleTarget, ScalingInputs, ScalingObjects, scaling_objects};
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{AFTER_START, check, eventually};
use asya_tests::operator::OPERATOR_AGENT;
use asya_tests::rabbitmq::{Call, RabbitMq};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::scaling::condition;
use crate::steady::{Writes, besides_lists};
use crate::{api, minimal_actor, own_cluster};

/// KEDA processes a few `ScaledObject`s at a time, each with some ten writes.
const ALL_SOON: Duration = Duration::from_mins(5);
const ACTORS: usize = 100;
/// How long nothing may happen; `ASYA_REST_SECONDS` overrides it.
const REST: Duration = Duration::from_secs(30);

async fn apply(scenario: &Scenario, object: &Value, params: PatchParams) -> Result<DynamicObject> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let applied = api(scenario, object)
        .patch(name, &params, &Patch::Apply(object))
        .await;
    applied.map_err(|error| Error::Other(format!("{} {name}: {error}", object["kind"])))
}

fn sealed(objects: &ScalingObjects) -> impl Iterator<Item = &HashedManifest> {
    let others = [&objects.config_map, &objects.trigger_authentication];
    others.into_iter().flatten().chain([&objects.scaled_object])
}

fn objects(
    scenario: &Scenario,
    actor: &str,
    kind: WorkloadKind,
    transport: &Value,
    queue_url: Option<&str>,
) -> ScalingObjects {
    let config = json!({"transports": {"mq": transport}}).to_string();
    let transports = TransportsConfig::parse(&config).unwrap();
    let transport = transports.usable("mq").unwrap();
    let spec: AsyncActorSpec = serde_json::from_value(json!({
        "transport": "mq",
        "scaling": {"enabled": true, "pollingInterval": 1, "cooldownPeriod": 0},
    }))
    .unwrap();
    scaling_objects(&ScalingInputs {
        namespace: scenario.namespace(),
        actor,
        uid: "1b6c0a35-6a9a-4f0e-8d59-2d3a1a4f5b60",
        scaling: spec.effective_scaling().unwrap(),
        target: ScaleTarget::workload(kind, actor),
        transport,
        names: &transport.names_of(scenario.namespace(), actor),
        queue_url,
    })
    .unwrap()
}

/// The API server accepts every variant of the objects, and knows all of their fields.
async fn every_form_is_accepted(scenario: &Scenario) -> Result<()> {
    let texts = [
        include_str!("../../../shared/src/scaling/golden_rabbitmq.json"),
        include_str!("../../../shared/src/scaling/golden_sqs.json"),
    ];
    for text in texts {
        let list: Vec<Value> = serde_json::from_str(text)?;
        for mut object in list {
            object["metadata"]["namespace"] = json!(scenario.namespace());
            let params = PatchParams::apply("test").dry_run();
            apply(scenario, &object, params).await?;
        }
    }
    let transports = [
        json!({"type": "rabbitmq", "config": {"host": "h"}}),
        json!({"type": "rabbitmq", "config": {"host": "h", "management": {"scheme": "https", "caSecretRef": {"name": "s", "key": "k"}}}}),
        json!({"type": "rabbitmq", "config": {"host": "h", "keda": {"protocol": "amqp"}}}),
        json!({"type": "sqs", "config": {"region": "eu-west-1", "accountId": "1", "keda": {"identityOwner": "workload"}}}),
        json!({"type": "sqs", "config": {"region": "eu-west-1", "accountId": "1", "keda": {"roleArn": "arn:aws:iam::1:role/r"}}}),
    ];
    for mut transport in transports {
        transport["enabled"] = json!(true);
        let built = objects(scenario, "dry", WorkloadKind::Deployment, &transport, None);
        for HashedManifest { object, .. } in sealed(&built) {
            let params = PatchParams::apply("test").dry_run();
            apply(scenario, object, params).await?;
        }
    }
    Ok(())
}

/// Waits until every actor has this STATUS and this reason of `ScalingReady`.
async fn all_are(scenario: &Scenario, status: &str, reason: &str) -> Result<()> {
    let what = format!("{ACTORS} actors are {status}, {reason}");
    eventually(what, ALL_SOON, async || {
        let actors = scenario.actors().list(&ListParams::default()).await?;
        let is_there = |actor: &&DynamicObject| {
            actor.data["status"]["status"] == status && condition(actor, "ScalingReady").1 == reason
        };
        let there = actors.iter().filter(is_there).count();
        let first = actors.iter().find(|actor| !is_there(actor));
        let first = first.map(|actor| &actor.data["status"]);
        check(there == ACTORS, format_args!("{there} are; {first:?}"))
    })
    .await
}

/// The operator's own broker calls, except lists. KEDA polls each queue as the same user.
fn own_calls(rabbitmq: &RabbitMq, mut calls: Vec<Call>) -> Vec<Call> {
    calls.retain(|call| call.agent.starts_with(OPERATOR_AGENT));
    besides_lists(rabbitmq, calls)
}

/// How long idle actors are observed.
fn rest() -> Duration {
    let longer = std::env::var("ASYA_REST_SECONDS").ok();
    let longer = longer.and_then(|seconds| seconds.parse().ok());
    longer.map_or(REST, Duration::from_secs)
}

/// KEDA-7, KEDA-9, KEDA-11, WRK-5, FIN-5
#[tokio::test]
async fn hundred_actors_wait_for_keda_rest_without_writes_and_outlive_it() {
    let _turn = own_cluster().await;
    let mut cluster = RunningCluster::start(Options::default()).await.unwrap();
    cluster.start_operator(json!({})).await.unwrap();
    let shared = (*cluster).clone();
    Scenario::run_on(Ok(shared), "keda", async |scenario| {
        let (audit, user) = (cluster.audit(), cluster.operator_user()?);
        let names: Vec<String> = (0..ACTORS)
            .map(|n| scenario.name(&format!("nap-{n}")))
            .collect();
        let scaled = |name: &String| {
            let mut actor = minimal_actor(name);
            actor["spec"]["scaling"] = json!({"enabled": true});
            actor
        };
        let actors: Vec<Value> = names.iter().map(scaled).collect();
        scenario.apply_all(&actors).await?;
        all_are(scenario, "ScalingError", "KedaNotInstalled").await?;

        let mark = audit.mark().await?;
        cluster.start_keda().await?;
        all_are(scenario, "Napping", "ScaledObjectReady").await?;
        let writes = audit.writes_since(mark, &user).await?.len();
        eprintln!("{writes} writes to scale {ACTORS} actors once KEDA is there");
        assert!(writes <= 5 * ACTORS, "{writes} writes");
        every_form_is_accepted(scenario).await?;
        let writes = Writes {
            audit: audit.clone(),
            user: &user,
        };
        // Statuses that were delayed.
        writes.end().await?;

        let rabbitmq = cluster.rabbitmq()?;
        let broker = rabbitmq.access_log();
        let (mark, calls) = (audit.mark().await?, broker.mark()?);
        tokio::time::sleep(rest()).await;
        assert_eq!(audit.writes_since(mark, &user).await?, []);
        let calls = broker.calls_since(calls, rabbitmq.user())?;
        let of_all = calls.len();
        assert_eq!(own_calls(&rabbitmq, calls), []);
        let rest = rest();
        eprintln!("{rest:?}: 0 writes, 0 calls but lists, {of_all} calls with those of KEDA");

        cluster.remove_keda().await?;
        all_are(scenario, "ScalingError", "KedaNotInstalled").await?;
        scenario
            .kubectl(&["delete", "asya", "--all", "--timeout=60s"])
            .await?;
        let queues = cluster.rabbitmq()?.queues().await?;
        assert!(queues.is_empty(), "{queues:?}");
        Ok(())
    })
    .await;
}

/// Tests the harness: KEDA can be installed and removed while the cluster runs, and namespaces can be deleted
/// afterwards.
#[tokio::test]
async fn keda_can_be_installed_and_removed_while_the_cluster_runs() {
    let _turn = own_cluster().await;
    let mut cluster = RunningCluster::start(Options {
        rabbitmq: false,
        ..Options::default()
    })
    .await
    .unwrap();
    let served = async |cluster: &RunningCluster| {
        let resources = ["api-resources", "--api-group=keda.sh", "--output=name"];
        cluster.kubectl(&resources).await.unwrap()
    };
    assert_eq!(served(&cluster).await, "");
    cluster.start_keda().await.unwrap();
    let names = served(&cluster).await;
    assert!(names.contains("scaledobjects.keda.sh"), "{names}");
    cluster.remove_keda().await.unwrap();
    let gone = eventually("KEDA's API group is gone", AFTER_START, async || {
        let left = served(&cluster).await;
        check(left.is_empty(), left)
    });
    gone.await.unwrap();
    let kubectl = ["create", "namespace", "after"];
    cluster.kubectl(&kubectl).await.unwrap();
    let kubectl = ["delete", "namespace", "after", "--timeout=30s"];
    cluster.kubectl(&kubectl).await.unwrap();
}
