//! Migration from a Go operator whose queue names include the namespace, rollback, and migration again
//! (docs/migration.md).

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::crds;
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::former::{actor, as_the_former, deployment};
use crate::own_cluster;

const NAME: &str = "worker";
const MESSAGES: usize = 12;

/// The sidecar's image and environment in a Deployment.
async fn sidecar(scenario: &Scenario) -> Result<Value, NotYet> {
    let found = json!(scenario.api::<Deployment>().get(NAME).await?);
    let containers = found["spec"]["template"]["spec"]["containers"].as_array();
    let mut containers = containers.into_iter().flatten();
    let sidecar = containers.find(|it| it["name"] == "asya-sidecar");
    Ok(sidecar.cloned().unwrap_or_default())
}

fn variable(container: &Value, name: &str) -> Value {
    let mut all = container["env"].as_array().into_iter().flatten();
    let found = all.find(|it| it["name"] == name);
    found.map(|it| it["value"].clone()).unwrap_or_default()
}

/// Waits until all pods use the latest template.
async fn rolled(scenario: &Scenario, image: &str) -> Result<()> {
    let deployments = scenario.api::<Deployment>();
    eventually(
        format_args!("pods with {image} run"),
        AFTER_START,
        async || {
            let sidecar = sidecar(scenario).await?;
            check(sidecar["image"] == image, &sidecar["image"])?;
            let found = deployments.get(NAME).await?;
            let status = found.status.unwrap_or_default();
            let seen = status.observed_generation == found.metadata.generation;
            check(seen, "counts of another generation")?;
            let counts = [
                status.replicas,
                status.updated_replicas,
                status.ready_replicas,
            ];
            check(counts == [Some(2); 3], format_args!("{counts:?}"))
        },
    )
    .await
}

/// Recreates what such an operator left behind. Returns its Deployment as applied and as stored.
async fn leave(scenario: &Scenario, queue: &str) -> Result<(Value, Deployment)> {
    let crd = concat!(env!("CARGO_MANIFEST_DIR"), "/../crds/asyncactors.yaml");
    let apply = ["apply", "--server-side", "--filename", crd];
    scenario.kubectl(&apply).await?;
    crds::established(&scenario.client(), crds::ACTORS, AFTER_START).await?;
    let rabbitmq = scenario.cluster().rabbitmq()?;
    rabbitmq.declare(queue, json!({})).await?;
    for number in 0..MESSAGES {
        assert!(rabbitmq.publish("", queue, &number.to_string()).await?);
    }
    let stored = serde_json::from_value(actor(NAME))?;
    let stored = scenario.actors().create(&as_the_former(), &stored).await?;
    let theirs = deployment(NAME, &stored.uid().unwrap_or_default());
    let made: Deployment = serde_json::from_value(theirs.clone())?;
    let deployments = scenario.api::<Deployment>();
    Ok((theirs, deployments.create(&as_the_former(), &made).await?))
}

/// Rolls back: the Go operator writes whole objects with PUT.
async fn take_back(scenario: &Scenario, mut theirs: Value) -> Result<()> {
    let deployments = scenario.api::<Deployment>();
    // The Deployment's controller may write at the same time.
    eventually(
        "the former operator's write is accepted",
        AFTER_START,
        async || {
            let live = deployments.get(NAME).await?;
            theirs["metadata"]["resourceVersion"] = json!(live.resource_version());
            let theirs = serde_json::from_value(theirs.clone()).map_err(NotYet::new)?;
            deployments.replace(NAME, &as_the_former(), &theirs).await?;
            Ok(())
        },
    )
    .await?;
    rolled(scenario, "asya-sidecar:old").await?;
    let stands = scenario.actors().get(NAME).await?;
    assert_eq!(stands.finalizers(), ["asya.sh/finalizer"]);
    assert_eq!(stands.data["spec"], actor(NAME)["spec"]);
    Ok(())
}

/// QUE-1, QUE-6, WRK-7
#[tokio::test]
async fn namespaced_queue_survives_migration_and_rollback() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "moves", async |scenario| {
        let (rabbitmq, deployments) = (cluster.rabbitmq()?, scenario.api::<Deployment>());
        let queue = format!("asya-{}-{NAME}", scenario.namespace());
        let (theirs, made) = leave(scenario, &queue).await?;
        let messages = async || rabbitmq.messages(&queue, 99, true).await;
        let wanted = messages().await?;
        assert_eq!(wanted.len(), MESSAGES);

        let ours = "example.com/asya-sidecar:1";
        let values = json!({
            "sidecar": {"image": ours},
            "transports": {"rabbitmq": {"config": {"queues": {"nameTemplate": "asya-{namespace}-{actor}"}}}},
        });
        let operator = Operator::install(&cluster, values).await?;
        let mut instance = operator.start("operator").await?;
        rolled(scenario, ours).await?;
        let running = scenario.actor_status(NAME, "Running", AFTER_START).await?;
        assert_eq!(running.data["status"]["queue"]["name"], queue);
        assert_eq!(deployments.get(NAME).await?.uid(), made.uid());
        assert_eq!(messages().await?, wanted);
        let default = rabbitmq.queue(&format!("asya-{NAME}")).await?;
        assert_eq!(default, None, "a second queue was made");
        let sidecar = sidecar(scenario).await.map_err(|it| Error::other(format!("{it:?}")))?;
        let name = variable(&sidecar, "ASYA_ACTOR_NAME");
        assert_eq!(name, format!("{}-{NAME}", scenario.namespace()));

        instance.stop().await?;
        take_back(scenario, theirs).await?;
        assert_eq!(messages().await?, wanted);

        instance.restart().await?;
        instance.wait_ready().await?;
        rolled(scenario, ours).await?;
        scenario.actor_status(NAME, "Running", AFTER_START).await?;
        assert_eq!(deployments.get(NAME).await?.uid(), made.uid());
        assert_eq!(messages().await?, wanted);
        Ok(())
    })
    .await;
}
