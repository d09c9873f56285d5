//! Pods terminate with messages in flight.

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
use crate::{Broker, SOON, actor, actor_without_pods, message, run};

const MESSAGES: usize = 200;
const REPLICAS: i64 = 4;
/// How long a handler or a model takes for one message.
const SECONDS: f64 = 0.3;

/// The actor under test, and the queue that collects its results.
struct Worker {
    broker: Broker,
    name: String,
    next: String,
    payload: fn(usize) -> Value,
    /// The Deployment that owns its pods.
    deployment: String,
}

impl Worker {
    /// A standalone actor and a bound model for each broker.
    async fn of_every_sort(scenario: &Scenario) -> Result<[Self; 4]> {
        let workers = tokio::try_join!(
            Self::own(scenario, Broker::RabbitMq),
            Self::own(scenario, Broker::Sqs),
            Self::bound(scenario, Broker::RabbitMq),
            Self::bound(scenario, Broker::Sqs),
        )?;
        Ok(workers.into())
    }

    /// Creates a standalone actor, and waits until it is Running.
    async fn own(scenario: &Scenario, broker: Broker) -> Result<Self> {
        let base = format!("own-{}", broker.transport());
        let (name, next) = (scenario.name(&base), scenario.name(&format!("{base}-next")));
        let mut worker = actor(&name, broker, "handlers.slow");
        worker["spec"]["workload"]["replicas"] = json!(REPLICAS);
        // Bounds redelivery: a killed pod's message becomes visible again after twice this timeout.
        worker["spec"]["timeout"] = json!({"processing": 5});
        run(scenario, &[worker, actor_without_pods(&next, broker)]).await?;
        Ok(Self {
            broker,
            deployment: name.clone(),
            name,
            next,
            payload: |n| json!({"seconds": SECONDS, "number": n}),
        })
    }

    /// Creates an actor that binds a model which exits at once on SIGTERM, even with a request in flight.
    async fn bound(scenario: &Scenario, broker: Broker) -> Result<Self> {
        let base = format!("bound-{}", broker.transport());
        let (name, next) = (scenario.name(&base), scenario.name(&format!("{base}-next")));
        let mut deployment = model(&base, 8000);
        deployment["spec"]["replicas"] = json!(REPLICAS);
        abrupt(&mut deployment, SECONDS);
        scenario.apply(&deployment).await?;
        let target = ("apps/v1", "Deployment", base.as_str());
        let mut binding = bound(&name, broker, target, Some("openai_chat"));
        binding["spec"]["sidecar"] = failures_to(&next);
        run(scenario, &[binding, actor_without_pods(&next, broker)]).await?;
        Ok(Self {
            broker,
            deployment: base,
            name,
            next,
            payload: |n| json!({"text": n.to_string()}),
        })
    }

    async fn is_sent(&self, scenario: &Scenario) -> Result<()> {
        let all: Vec<String> = (0..MESSAGES)
            .map(|n| message(&n.to_string(), &self.name, &self.next, &(self.payload)(n)))
            .collect();
        self.broker.send(scenario.cluster(), &self.name, &all).await
    }

    /// Waits for the result of each message, and reports how many arrived twice.
    async fn answers_all(&self, scenario: &Scenario) -> Result<()> {
        let mut seen = BTreeSet::new();
        let mut failures = Vec::new();
        let mut found = 0;
        let name = &self.name;
        eventually(
            format_args!("all messages came through {name}"),
            SOON,
            async || {
                let some = self.broker.take(scenario.cluster(), &self.next, 0, SOON);
                for result in some.await.map_err(NotYet::new)? {
                    found += 1;
                    seen.extend(result["id"].as_str().map(str::to_owned));
                    if result["payload"]["error"].is_string() {
                        failures.push(result["payload"].to_string());
                    }
                }
                check(
                    seen.len() == MESSAGES,
                    format_args!("{} of {MESSAGES}", seen.len()),
                )
            },
        )
        .await?;
        eprintln!(
            "{name}: {MESSAGES} messages, {} of them twice",
            found - MESSAGES
        );
        assert!(failures.is_empty(), "{name}: failed: {failures:#?}");
        Ok(())
    }
}

/// Makes a model take this long per request, and abort it on SIGTERM.
fn abrupt(deployment: &mut Value, seconds: f64) {
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    container["env"] = json!([
        {"name": "SECONDS", "value": seconds.to_string()},
        {"name": "ENDS_AT_ONCE", "value": "true"},
    ]);
}

/// Routes failed messages to the results queue, so that no failure goes unnoticed.
fn failures_to(next: &str) -> Value {
    json!({"env": [{"name": "ASYA_ACTOR_ERROR_END", "value": next}]})
}

/// Sends messages to workers and disrupts them meanwhile: every message is processed, and none fails.
async fn none_is_lost<F>(scenario: &Scenario, workers: &[Worker], happens: F) -> Result<()>
where
    F: AsyncFnOnce() -> Result<()>,
{
    try_join_all(workers.iter().map(|it| it.is_sent(scenario))).await?;
    happens().await?;
    try_join_all(workers.iter().map(|it| it.answers_all(scenario)))
        .await
        .map(drop)
}

async fn rollout(scenario: &Scenario, worker: &Worker) -> Result<()> {
    let deployment = format!("deployment/{}", worker.deployment);
    scenario
        .kubectl(&["rollout", "restart", &deployment])
        .await?;
    scenario
        .kubectl(&["rollout", "status", &deployment, "--timeout=120s"])
        .await?;
    Ok(())
}

/// RUN-20, POD-10
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn rollout_loses_no_message() {
    Scenario::run("rollout", async |scenario| {
        let workers = [Broker::RabbitMq, Broker::Sqs].map(|it| Worker::own(scenario, it));
        let workers = try_join_all(workers).await?;
        let restart = async || {
            let all = workers.iter().map(|it| rollout(scenario, it));
            try_join_all(all).await.map(drop)
        };
        none_is_lost(scenario, &workers, restart).await
    })
    .await;
}

/// RUN-20, BIND-31, BIND-32
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn model_rollout_loses_no_message() {
    Scenario::run("model-rollout", async |scenario| {
        let worker = Worker::bound(scenario, Broker::RabbitMq).await?;
        let workers = [worker];
        let restart = async || rollout(scenario, &workers[0]).await;
        none_is_lost(scenario, &workers, restart).await
    })
    .await;
}

/// RUN-20, POD-10, BIND-32
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn scale_down_loses_no_message() {
    Scenario::run("fewer", async |scenario| {
        let workers = Worker::of_every_sort(scenario).await?;
        let fewer = async || {
            for worker in &workers {
                // A bound target is scaled directly, a standalone actor through its own scale subresource.
                let kind = if worker.deployment == worker.name {
                    "asya"
                } else {
                    "deployment"
                };
                scenario
                    .kubectl(&["scale", kind, &worker.deployment, "--replicas=2"])
                    .await?;
            }
            let run = workers
                .iter()
                .map(|it| scenario.actor_status(&it.name, "Running", SOON));
            try_join_all(run).await.map(drop)
        };
        none_is_lost(scenario, &workers, fewer).await
    })
    .await;
}

/// RUN-20, POD-10, BIND-32
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn node_drain_loses_no_message() {
    // While the node drains, other scenarios could not start pods.
    Scenario::run_alone("drain", async |scenario| {
        let cluster = scenario.cluster();
        let workers = Worker::of_every_sort(scenario).await?;
        let names: Vec<&str> = workers.iter().map(|it| it.name.as_str()).collect();
        let pods = format!("--pod-selector=asya.sh/asya in ({})", names.join(","));
        let drain = async || {
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
        };
        none_is_lost(scenario, &workers, drain).await
    })
    .await;
}

/// BIND-32, RUN-20
#[tokio::test]
async fn message_of_a_terminating_model_is_redelivered_to_another_pod() {
    Scenario::run("in-hand", async |scenario| {
        let broker = Broker::RabbitMq;
        let (name, next) = (scenario.name("in-hand"), scenario.name("in-hand-next"));
        let mut deployment = model("model", 8000);
        abrupt(&mut deployment, 5.0);
        scenario.apply(&deployment).await?;
        let target = ("apps/v1", "Deployment", "model");
        let mut binding = bound(&name, broker, target, Some("openai_chat"));
        binding["spec"]["sidecar"] = failures_to(&next);
        run(scenario, &[binding, actor_without_pods(&next, broker)]).await?;
        let sent = message("1", &name, &next, &json!({"text": "hello"}));
        let cluster = scenario.cluster();
        broker.send(cluster, &name, &[sent]).await?;
        let labels = format!("--selector=asya.sh/asya={name}");
        eventually("the model has the message", SOON, async || {
            let logs = ["logs", &labels, "--container=model"];
            let said = scenario.kubectl(&logs).await.map_err(NotYet::new)?;
            check(said.contains("asked"), said)
        })
        .await?;
        scenario
            .kubectl(&["delete", "pod", &labels, "--wait=false"])
            .await?;
        let results = broker.take(cluster, &next, 1, SOON).await?;
        let said = &results[0]["payload"]["choices"][0]["message"]["content"];
        assert_eq!(said, "you said hello", "{results:?}");
        Ok(())
    })
    .await;
}

/// When this container in a pod terminated.
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
async fn native_sidecar_terminates_after_the_runtime() {
    Scenario::run("native", async |scenario| {
        let name = scenario.name("native");
        let mut native = actor(&name, Broker::RabbitMq, "handlers.shout");
        native["spec"]["sidecar"]["native"] = json!(true);
        let template = &mut native["spec"]["workload"]["template"];
        // Keep the Pod object until the test has read its container statuses.
        template["metadata"] = json!({"finalizers": ["example.com/hold"]});
        // A container that terminates slowly: the sidecar must wait for it, while the runtime exits at once.
        let lingers = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (time.sleep(7), sys.exit(0)))\nsignal.pause()";
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
        // The kubelet reports times in whole seconds.
        if later < SignedDuration::from_secs(2) {
            return Err(Error::Other(format!("the sidecar ended {later} after the runtime")));
        }
        Ok(())
    })
    .await;
}
