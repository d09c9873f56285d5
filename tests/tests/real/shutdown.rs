//! Pods end while messages are in flight.

use std::collections::BTreeSet;

use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::real::{NODE, PYTHON_IMAGE};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use futures::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::binding::{bound, model};
use crate::{Broker, SOON, actor, message, run, shelf};

const MESSAGES: usize = 200;
const REPLICAS: i64 = 4;
/// In a rollout each pod ends once.
const POSSIBLY_IN_HAND: usize = 4;
/// What a handler needs for one message.
const SECONDS: f64 = 0.3;

/// Runs this many messages through an actor while something happens to its pods, and says how many came twice.
async fn none_is_lost<F>(scenario: &Scenario, broker: Broker, what: &str, happens: F) -> Result<()>
where
    F: AsyncFnOnce(&str) -> Result<()>,
{
    let base = format!("{what}-{}", broker.transport());
    let (name, next) = (scenario.name(&base), scenario.name(&format!("{base}-next")));
    let mut worker = actor(&name, broker, "handlers.slow");
    worker["spec"]["workload"]["replicas"] = json!(REPLICAS);
    // A message of a pod that was killed is in sight again after twice this time.
    worker["spec"]["timeout"] = json!({"processing": 5});
    run(scenario, &[worker, shelf(&next, broker)]).await?;
    let payload = |n: usize| json!({"seconds": SECONDS, "number": n});
    all_come_through(scenario, broker, what, (&name, &next), payload, happens).await
}

async fn all_come_through<F>(
    scenario: &Scenario,
    broker: Broker,
    what: &str,
    (name, next): (&str, &str),
    payload: impl Fn(usize) -> Value,
    happens: F,
) -> Result<()>
where
    F: AsyncFnOnce(&str) -> Result<()>,
{
    let all: Vec<String> = (0..MESSAGES)
        .map(|n| message(&n.to_string(), name, next, &payload(n)))
        .collect();
    let cluster = scenario.cluster();
    broker.send(cluster, name, &all).await?;
    happens(name).await?;
    let mut seen = BTreeSet::new();
    let (mut found, mut failed) = (0, 0);
    eventually("all messages came through", SOON, async || {
        let some = broker.take(cluster, next, 0, SOON).await;
        let some = some.map_err(NotYet::new)?;
        found += some.len();
        failed += some
            .iter()
            .filter(|it| it["payload"]["error"].is_string())
            .count();
        let ids = some.iter().filter_map(|it| it["id"].as_str());
        seen.extend(ids.map(str::to_owned));
        check(
            seen.len() == MESSAGES,
            format_args!("{} of {MESSAGES}", seen.len()),
        )
    })
    .await?;
    eprintln!(
        "{what}, {}: {MESSAGES} messages, {} of them twice, {failed} failed",
        broker.transport(),
        found - MESSAGES
    );
    // Each pod has one in hand.
    assert!(failed <= POSSIBLY_IN_HAND, "{failed} messages failed");
    Ok(())
}

async fn rollout(scenario: &Scenario, name: &str) -> Result<()> {
    let deployment = format!("deployment/{name}");
    scenario
        .kubectl(&["rollout", "restart", &deployment])
        .await?;
    scenario
        .kubectl(&["rollout", "status", &deployment, "--timeout=120s"])
        .await?;
    Ok(())
}

async fn scale_down(scenario: &Scenario, name: &str) -> Result<()> {
    scenario
        .kubectl(&["scale", "asya", name, "--replicas=2"])
        .await?;
    scenario.actor_status(name, "Running", SOON).await.map(drop)
}

/// RUN-20, POD-10
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn no_message_is_lost_in_a_rollout() {
    Scenario::run("rollout", async |scenario| {
        tokio::try_join!(
            none_is_lost(scenario, Broker::RabbitMq, "rollout", async |name| rollout(
                scenario, name
            )
            .await),
            none_is_lost(scenario, Broker::Sqs, "rollout", async |name| rollout(
                scenario, name
            )
            .await),
        )
        .map(drop)
    })
    .await;
}

/// RUN-20, BIND-31, BIND-32
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn no_message_of_a_model_is_lost_in_its_rollout() {
    Scenario::run("model-rollout", async |scenario| {
        let (name, next) = (scenario.name("chat"), scenario.name("chat-next"));
        let mut deployment = model("model", 8000);
        deployment["spec"]["replicas"] = json!(REPLICAS);
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        container["env"] = json!([{"name": "SECONDS", "value": SECONDS.to_string()}]);
        scenario.apply(&deployment).await?;
        let target = ("apps/v1", "Deployment", "model");
        let mut binding = bound(&name, Broker::RabbitMq, target, Some("openai_chat"));
        // A model that ends before it answers fails the message in hand, which goes there.
        let errors = json!([{"name": "ASYA_ACTOR_ERROR_END", "value": next}]);
        binding["spec"]["sidecar"] = json!({"env": errors});
        run(scenario, &[binding, shelf(&next, Broker::RabbitMq)]).await?;
        let says = |n: usize| json!({"text": n.to_string()});
        let names = (name.as_str(), next.as_str());
        let restart = async |_: &str| rollout(scenario, "model").await;
        all_come_through(scenario, Broker::RabbitMq, "model", names, says, restart).await
    })
    .await;
}

/// RUN-20, POD-10
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn no_message_is_lost_when_pods_become_fewer() {
    Scenario::run("fewer", async |scenario| {
        let fewer = |broker| {
            none_is_lost(scenario, broker, "fewer", async |name| {
                scale_down(scenario, name).await
            })
        };
        try_join_all([Broker::RabbitMq, Broker::Sqs].map(fewer))
            .await
            .map(drop)
    })
    .await;
}

/// RUN-20, POD-10
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn no_message_is_lost_when_a_node_is_drained() {
    // Nobody else gets a pod meanwhile.
    Scenario::run_alone("drain", async |scenario| {
        let cluster = scenario.cluster();
        none_is_lost(scenario, Broker::RabbitMq, "drain", async |name| {
            let pods = format!("--pod-selector=asya.sh/asya={name}");
            let drain = [
                "drain",
                NODE,
                "--delete-emptydir-data",
                "--timeout=60s",
                &pods,
            ];
            let drained = cluster.kubectl(&drain).await;
            cluster.kubectl(&["uncordon", NODE]).await?;
            drained.map(drop)
        })
        .await
    })
    .await;
}

/// When a container of a pod ended.
fn ended(pod: &Pod, container: &str) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let all = status
        .container_statuses
        .iter()
        .chain(&status.init_container_statuses)
        .flatten();
    let mut named = all.filter(|it| it.name == container);
    let time = named
        .next()?
        .state
        .as_ref()?
        .terminated
        .as_ref()?
        .finished_at
        .as_ref()?;
    Some(time.0)
}

/// POD-11
#[tokio::test]
async fn a_native_sidecar_ends_after_the_runtime() {
    Scenario::run("native", async |scenario| {
        let name = scenario.name("native");
        let mut native = actor(&name, Broker::RabbitMq, "handlers.shout");
        native["spec"]["sidecar"]["native"] = json!(true);
        let template = &mut native["spec"]["workload"]["template"];
        // The pod's object stays until the test has seen how it ended.
        template["metadata"] = json!({"finalizers": ["example.com/hold"]});
        // One that takes its time: only then may the sidecar go, while the runtime goes at once.
        let lingers = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (time.sleep(3), sys.exit(0)))\nsignal.pause()";
        let helper = json!({"name": "lingers", "image": PYTHON_IMAGE, "args": ["-c", lingers]});
        template["spec"]["containers"].as_array_mut().unwrap().push(helper);
        run(scenario, &[native]).await?;
        let pods = scenario.api::<Pod>();
        let labels = ListParams::default().labels(&format!("asya.sh/asya={name}"));
        let pod = pods.list(&labels).await?.items.remove(0);
        let pod = pod.metadata.name.unwrap_or_default();
        pods.delete(&pod, &DeleteParams::default()).await?;
        let ends = eventually("the pod's containers ended", SOON, async || {
            let pod = pods.get(&pod).await?;
            let both = ended(&pod, "asya-runtime").zip(ended(&pod, "asya-sidecar"));
            both.ok_or_else(|| NotYet::new("they run"))
        })
        .await;
        let release = json!({"metadata": {"finalizers": null}}).to_string();
        for pod in pods.list(&labels).await? {
            let pod = pod.metadata.name.unwrap_or_default();
            scenario.kubectl(&["patch", "pod", &pod, "--type=merge", "--patch", &release]).await?;
        }
        let (runtime, sidecar) = ends?;
        let later = sidecar.duration_since(runtime);
        // The kubelet tells whole seconds.
        if later < SignedDuration::from_secs(2) {
            return Err(Error::Other(format!("the sidecar ended {later} after the runtime")));
        }
        Ok(())
    })
    .await;
}
