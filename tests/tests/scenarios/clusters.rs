//! Two clusters whose operators share a broker, such as staging and production in one AWS account.

use asya_tests::cluster::{Cluster, Options, RunningCluster};
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::operator::{Instance, Operator, create_broker_secrets, default_values};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use serde_json::{Value, json};

use crate::{minimal_actor, own_cluster};

const MESSAGES: usize = 100;
const TRANSPORTS: [&str; 2] = ["rabbitmq", "sqs"];

async fn id_of(cluster: &Cluster) -> Result<String> {
    let namespaces = Api::<Namespace>::all(cluster.client());
    let system = namespaces.get("kube-system").await?;
    Ok(system.metadata.uid.unwrap_or_default())
}

/// Starts the operator of `cluster` on the brokers of `brokers`, with a dead letter queue for each actor.
async fn operator(cluster: &Cluster, brokers: &Cluster) -> Result<Instance> {
    let mut values = default_values(brokers);
    values["leaderElection"] = json!({"enabled": false});
    let dlq = json!({"enabled": true, "name": "{queue}-dlq"});
    for transport in TRANSPORTS {
        values["transports"][transport]["config"]["queues"]["dlq"] = dlq.clone();
    }
    Operator::install(cluster, values)
        .await?
        .start("operator")
        .await
}

fn actor(name: &str, transport: &str, annotations: &Value) -> Value {
    let mut actor = minimal_actor(name);
    actor["spec"]["transport"] = transport.into();
    actor["metadata"]["annotations"] = annotations.clone();
    actor
}

/// The second cluster, from its users' point of view.
struct Second<'a> {
    cluster: &'a Cluster,
    namespace: &'a str,
}

impl Second<'_> {
    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let all = [&["--namespace", self.namespace], args].concat();
        self.cluster.kubectl(&all).await
    }

    async fn apply(&self, actor: &Value) -> Result<()> {
        let name = actor["metadata"]["name"].as_str().unwrap_or_default();
        let file = self.cluster.folder().join(format!("{name}.json"));
        std::fs::write(&file, actor.to_string()).map_err(Error::other)?;
        let file = file.display().to_string();
        self.kubectl(&["apply", "--filename", &file])
            .await
            .map(drop)
    }

    async fn status(&self, name: &str) -> Result<Value> {
        let actor = self
            .kubectl(&["get", "asya", name, "--output", "json"])
            .await?;
        let actor: Value = serde_json::from_str(&actor)?;
        Ok(actor["status"].clone())
    }

    /// Waits for a condition with this reason, and returns its message.
    async fn says(&self, name: &str, reason: &str) -> Result<String> {
        let what = format!("{name} says {reason}");
        let mut message = String::new();
        eventually(what, AFTER_START, async || {
            let status = self.status(name).await.map_err(NotYet::new)?;
            let conditions = status["conditions"].as_array().into_iter().flatten();
            let found = conditions.into_iter().find(|it| it["reason"] == reason);
            if let Some(text) = found.and_then(|it| it["message"].as_str()) {
                text.clone_into(&mut message);
            }
            check(found.is_some(), format_args!("{status}"))
        })
        .await?;
        Ok(message)
    }
}

async fn send(first: &Cluster, transport: &str, queue: &str) -> Result<()> {
    if transport == "sqs" {
        let messages: Vec<String> = (0..MESSAGES).map(|n| n.to_string()).collect();
        return first.sqs()?.send(queue, &messages).await;
    }
    let rabbitmq = first.rabbitmq()?;
    for number in 0..MESSAGES {
        assert!(rabbitmq.publish("", queue, &number.to_string()).await?);
    }
    Ok(())
}

/// Waits until the queue holds all messages and its dead letter queue exists.
async fn holds_all(first: &Cluster, transport: &str, queue: &str) -> Result<()> {
    let what = format!("{queue} on {transport} holds its messages");
    let dlq = format!("{queue}-dlq");
    eventually(what, AFTER_START, async || {
        let (count, dlq) = if transport == "sqs" {
            let sqs = first.sqs().map_err(NotYet::new)?;
            let found = sqs.attributes(queue).await.map_err(NotYet::new)?;
            let count = found.get("ApproximateNumberOfMessages").cloned();
            (count, sqs.url(&dlq).await.map_err(NotYet::new)?.is_some())
        } else {
            let rabbitmq = first.rabbitmq().map_err(NotYet::new)?;
            let messages = rabbitmq.messages(queue, MESSAGES + 1, true).await;
            let count = messages.map_err(NotYet::new)?.len().to_string();
            let dlq = rabbitmq.queue(&dlq).await.map_err(NotYet::new)?;
            (Some(count), dlq.is_some())
        };
        let whole = count.as_deref() == Some(&MESSAGES.to_string());
        check(
            whole && dlq,
            format_args!("{count:?}, dead letter queue: {dlq}"),
        )
    })
    .await
}

/// QUE-32, QUE-33, QUE-34
#[tokio::test]
async fn queue_of_another_cluster_is_a_conflict_and_outlives_the_actor_of_that_name() {
    let _turn = own_cluster().await;
    let options = Options {
        sqs: true,
        ..Options::default()
    };
    let first = RunningCluster::start(options).await.unwrap();
    let without = Options {
        rabbitmq: false,
        sqs: false,
        ..Options::default()
    };
    let cluster = RunningCluster::start(without).await.unwrap();
    Scenario::run_on(Ok(first.clone()), "clusters", async |scenario| {
        let _one = operator(&first, &first).await?;
        let _two = operator(&cluster, &first).await?;
        let namespace = scenario.namespace();
        cluster.kubectl(&["create", "namespace", namespace]).await?;
        create_broker_secrets(&cluster.client(), namespace).await?;
        let second = Second {
            cluster: &cluster,
            namespace,
        };
        let (one, two) = (id_of(&first).await?, id_of(&cluster).await?);
        assert_ne!(one, two);
        for transport in TRANSPORTS {
            let name = scenario.name(transport);
            let queue = format!("asya-{name}");
            scenario.apply(&actor(&name, transport, &json!({}))).await?;
            scenario.actor_status(&name, "Running", AFTER_START).await?;
            send(&first, transport, &queue).await?;

            second.apply(&actor(&name, transport, &json!({}))).await?;
            let message = second.says(&name, "QueueConflict").await?;
            assert!(message.contains(&one), "{message}");
            assert!(message.contains("asya.sh/adopt-queue-from"), "{message}");
            second
                .kubectl(&["delete", "asya", &name, "--timeout=60s"])
                .await?;
            holds_all(&first, transport, &queue).await?;
            scenario.actor_status(&name, "Running", AFTER_START).await?;

            // The first cluster releases the queue, then the second adopts it.
            let keeps = json!({"asya.sh/skip-queue-deletion": "true"});
            scenario.apply(&actor(&name, transport, &keeps)).await?;
            scenario
                .kubectl(&["delete", "asya", &name, "--timeout=60s"])
                .await?;
            let adopts = json!({"asya.sh/adopt-queue-from": one});
            second.apply(&actor(&name, transport, &adopts)).await?;
            second.says(&name, "QueueReady").await?;
            holds_all(&first, transport, &queue).await?;
            scenario.apply(&actor(&name, transport, &json!({}))).await?;
            eventually("the first cluster has lost it", AFTER_START, async || {
                let status = scenario.actors().get(&name).await?.data["status"].clone();
                let text = status.to_string();
                check(text.contains("QueueConflict") && text.contains(&two), text)
            })
            .await?;
            scenario
                .kubectl(&["delete", "asya", &name, "--timeout=60s"])
                .await?;
            holds_all(&first, transport, &queue).await?;
        }
        Ok(())
    })
    .await;
}
