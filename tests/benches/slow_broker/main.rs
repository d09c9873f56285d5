//! How much longer actors on a healthy broker take while another broker is slow (OPS-22), on a separate cluster. The
//! same number of actors is created without and with 500 actors on a broker that takes 1 to 4 s for every response. Run
//! by `make bench`.

use std::process::ExitCode;
use std::time::Duration;

use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::counting_proxy::CountingProxy;
use asya_tests::eventually::{check, eventually};
use asya_tests::operator::{Operator, create_broker_secrets, default_values};
use asya_tests::{Error, Result};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

const SLOW: usize = 500;
const HEALTHY: usize = 20;
/// The best of this many runs counts, since anything else that runs on the machine disturbs each run.
const RUNS: usize = 5;
const LIMIT: Duration = Duration::from_mins(5);
const NAMESPACE: &str = "slow-broker";
/// Concurrent creates.
const AT_ONCE: usize = 32;

#[tokio::main]
async fn main() -> ExitCode {
    asya_tests::run_to_end(Box::pin(measure())).await
}

async fn measure() -> Result<()> {
    let cluster = RunningCluster::start(Options::default()).await?;
    let proxy = CountingProxy::to_rabbitmq(&cluster).await?;
    let mut slow = default_values(&cluster)["transports"]["rabbitmq"].clone();
    slow["config"]["management"]["port"] = json!(proxy.port());
    let operator = Operator::install(&cluster, json!({"transports": {"slow": slow}})).await?;
    let _instance = operator.start("bench").await?;
    let crowd = Crowd::new(&cluster).await?;
    // Warms up the operator and the namespace.
    crowd.average("warm-up").await?;
    let without = crowd.best("without").await?;

    proxy.delay((1..=4).map(Duration::from_secs));
    crowd.create("slow", SLOW, "slow").await?;
    eventually("the operator has taken up all", LIMIT, async || {
        let slow = crowd.list("slow").await?;
        let taken_up = slow
            .iter()
            .filter(|actor| actor.metadata.finalizers.is_some());
        let taken_up = taken_up.count();
        check(taken_up == SLOW, format_args!("{taken_up} of {SLOW}"))
    })
    .await?;
    let with = crowd.best("with").await?;
    println!(
        "{HEALTHY} actors on a healthy broker are Running after {:.2} s each on average; while {SLOW} actors wait for a \
         slow broker, after {:.2} s: {:.2} times as long (goal: 1.25)",
        without.as_secs_f64(),
        with.as_secs_f64(),
        with.as_secs_f64() / without.as_secs_f64(),
    );
    Ok(())
}

struct Crowd<'a> {
    cluster: &'a Cluster,
    actors: Api<DynamicObject>,
}

impl<'a> Crowd<'a> {
    async fn new(cluster: &'a Cluster) -> Result<Self> {
        let client = cluster.client();
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": NAMESPACE}}))?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces
            .create(&PostParams::default(), &namespace)
            .await?;
        create_broker_secrets(&client, NAMESPACE).await?;
        let kind = GroupVersionKind::gvk("asya.sh", "v1alpha1", "AsyncActor");
        let resource = ApiResource::from_gvk(&kind);
        Ok(Self {
            cluster,
            actors: Api::namespaced_with(client, NAMESPACE, &resource),
        })
    }

    async fn create(&self, batch: &str, count: usize, transport: &str) -> Result<Vec<String>> {
        let names: Vec<String> = (0..count)
            .map(|number| format!("{batch}-{number}"))
            .collect();
        let creates = names.iter().map(async |name| {
            let actor = serde_json::from_value(actor(name, batch, transport))?;
            self.actors.create(&PostParams::default(), &actor).await?;
            Ok::<_, Error>(())
        });
        let creates = stream::iter(creates.collect::<Vec<_>>());
        creates
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        Ok(names)
    }

    /// Lists a single batch, so that the others do not distort the measurement.
    async fn list(&self, batch: &str) -> kube::Result<Vec<DynamicObject>> {
        let batch = ListParams::default().labels(&format!("batch={batch}"));
        Ok(self.actors.list(&batch).await?.items)
    }

    async fn best(&self, stem: &str) -> Result<Duration> {
        let mut best = Duration::MAX;
        for run in 0..RUNS {
            let time = self.average(&format!("{stem}-{run}")).await?;
            println!(
                "{stem}: Running after {:.2} s on average",
                time.as_secs_f64()
            );
            best = best.min(time);
        }
        Ok(best)
    }

    /// The average time from an actor's creation until it is Running, from the audit log. The time from the first
    /// creation to the last status would mostly measure the machine.
    async fn average(&self, batch: &str) -> Result<Duration> {
        let audit = self.cluster.audit();
        let mark = audit.mark().await?;
        let names = self.create(batch, HEALTHY, "rabbitmq").await?;
        eventually("all are Running", LIMIT, async || {
            let actors = self.list(batch).await?;
            let running = actors
                .iter()
                .filter(|actor| actor.data["status"]["status"] == "Running");
            let running = running.count();
            check(running == HEALTHY, format_args!("{running} of {HEALTHY}"))
        })
        .await?;
        let writes = audit.writes_in(mark, NAMESPACE).await?;
        let mut sum = Duration::ZERO;
        for name in &names {
            let mut of_actor = writes
                .iter()
                .filter(|write| write.resource == "asyncactors" && write.name == *name);
            let (Some(created), Some(running)) = (of_actor.next(), of_actor.next_back()) else {
                return Err(Error::other(format!("{name}: fewer than two writes")));
            };
            let time = running.time.duration_since(created.time);
            sum += Duration::try_from(time).unwrap_or_default();
        }
        Ok(sum / u32::try_from(names.len()).map_err(Error::other)?)
    }
}

fn actor(name: &str, batch: &str, transport: &str) -> Value {
    json!({
        "apiVersion": "asya.sh/v1alpha1",
        "kind": "AsyncActor",
        "metadata": {"name": name, "labels": {"batch": batch}},
        "spec": {
            "transport": transport,
            "workload": {"template": {"spec": {"containers": [{
                "name": "asya-runtime",
                "image": "python:3.13-slim",
                "env": [{"name": "ASYA_HANDLER", "value": "echo.handle"}],
            }]}}},
        },
    })
}
