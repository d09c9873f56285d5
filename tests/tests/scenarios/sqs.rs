//! Actors with queues on SQS.

use std::time::Instant;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::operator::{Operator, default_values};
use asya_tests::scenario::Scenario;
use asya_tests::sqs::Sqs;
use asya_tests::tls_proxy::TlsProxy;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::binding::{condition, status_is};
use crate::{minimal_actor, own_cluster};

const MESSAGES: usize = 1000;

fn actor(name: &str, processing: u32) -> Value {
    let mut actor = minimal_actor(name);
    actor["spec"]["transport"] = json!("sqs");
    actor["spec"]["timeout"] = json!({"processing": processing});
    actor
}

/// Waits until a queue has this timeout and holds this many messages.
async fn has(sqs: &Sqs, queue: &str, timeout: u32, messages: usize) -> Result<()> {
    let what = format!("the visibility timeout is {timeout}");
    eventually(what, SOON, async || {
        let found = sqs.attributes(queue).await.map_err(NotYet::new)?;
        let has = |key: &str, value: String| found.get(key) == Some(&value);
        check(
            has("VisibilityTimeout", timeout.to_string())
                && has("ApproximateNumberOfMessages", messages.to_string()),
            format_args!("{found:?}"),
        )
    })
    .await
}

/// SQS-2, SQS-3, SQS-4, QUE-6, FIN-2
#[tokio::test]
async fn sqs_queue_is_created_updated_in_place_and_deleted() {
    Scenario::run("sqs", async |scenario| {
        let name = scenario.name("text");
        let queue = format!("asya-{name}");
        let sqs = scenario.cluster().sqs()?;
        scenario.apply(&actor(&name, 100)).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        has(&sqs, &queue, 200, 0).await?;
        sqs.send(&queue, &["kept".to_owned()]).await?;
        scenario.apply(&actor(&name, 150)).await?;
        has(&sqs, &queue, 300, 1).await?;
        scenario
            .kubectl(&["delete", "asya", &name, "--timeout=60s"])
            .await?;
        assert_eq!(sqs.url(&queue).await?, None);
        Ok(())
    })
    .await;
}

/// SQS-4, OPS-3, QUE-6, QUE-8
#[tokio::test]
async fn restart_updates_queues_and_keeps_messages() {
    let _turn = own_cluster().await;
    let options = Options {
        rabbitmq: false,
        sqs: true,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "config", async |scenario| {
        // Without health checks, which would also detect the difference, only later.
        let install = async |config: Value| {
            let values = json!({
                "leaderElection": {"enabled": false},
                "controller": {"queueHealthCheckInterval": "0", "queueMetricsInterval": "0"},
                "transports": {"sqs": {"config": config}},
            });
            Operator::install(&cluster, values).await
        };
        let first = install(json!({})).await?.start("first").await?;
        let name = scenario.name("full");
        let queue = format!("asya-{name}");
        let sqs = cluster.sqs()?;
        scenario.apply(&actor(&name, 100)).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        let messages: Vec<String> = (0..MESSAGES).map(|n| n.to_string()).collect();
        sqs.send(&queue, &messages).await?;
        has(&sqs, &queue, 200, MESSAGES).await?;
        scenario.apply(&actor(&name, 150)).await?;
        has(&sqs, &queue, 300, MESSAGES).await?;

        first.stop().await?;
        let changed = json!({"visibilityTimeout": 77, "tags": {"team": "blue"}});
        let second = install(changed.clone()).await?.start("second").await?;
        let ready = Instant::now();
        has(&sqs, &queue, 77, MESSAGES).await?;
        eprintln!(
            "the queue is as configured {:?} after the start",
            ready.elapsed()
        );
        eventually("the tag is there", SOON, async || {
            let tags = sqs.tags(&queue).await.map_err(NotYet::new)?;
            check(
                tags.get("team").is_some_and(|team| team == "blue"),
                format_args!("{tags:?}"),
            )
        })
        .await?;
        let status = async || {
            let actor = scenario.actors().get(&name).await?;
            Ok::<_, NotYet>(actor.data["status"].clone())
        };
        // The change also rolls the sidecars: wait, so that the restart does not coincide with the rollout.
        eventually("the new pods alone are left", SOON, async || {
            let status = status().await?;
            let settled = json!([
                status["status"],
                status["totalReplicas"],
                status["replicas"]
            ]);
            check(settled == json!(["Running", 1, 1]), status)
        })
        .await?;
        let verified = status().await.map(|status| status["queue"].clone());
        let verified = verified.expect("the actor is there");
        assert!(verified["verifiedHash"].is_string(), "{verified}");

        second.stop().await?;
        let audit = cluster.audit();
        let operator = install(changed).await?;
        let mark = audit.mark().await?;
        let third = operator.start("third").await?;
        eventually("the actor is seen again", SOON, async || {
            let reconciles = third
                .metric("controller_runtime_reconcile_total", &[])
                .await;
            let reconciles = reconciles.map_err(NotYet::new)?;
            check(reconciles >= 1.0, format_args!("{reconciles} reconciles"))
        })
        .await?;
        let metrics = third.read_metrics().await?;
        let calls = metrics.sum("asya_operator_broker_requests_total", &[]);
        assert_eq!(calls, None, "the same needs no call");
        let mut writes = audit.writes_since(mark, &operator.user()).await?;
        writes.retain(|write| write.name == name);
        assert_eq!(writes, [], "the same needs no write");
        assert_eq!(
            status().await.expect("the actor is there")["queue"],
            verified
        );
        has(&sqs, &queue, 77, MESSAGES).await?;
        scenario
            .kubectl(&["delete", "asya", &name, "--timeout=60s"])
            .await?;
        Ok(())
    })
    .await;
}

/// SQS-1, SQS-7: the system's trust store lacks this CA; the transport configures it.
#[tokio::test]
async fn transport_trusts_the_private_ca_that_it_names() {
    let _turn = own_cluster().await;
    let options = Options {
        rabbitmq: false,
        sqs: true,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "privateca", async |scenario| {
        let endpoint = cluster.state().sqs.clone().expect("it was asked for");
        let proxy = TlsProxy::start(cluster.folder(), &endpoint).await?;
        let mut trusts = default_values(&cluster)["transports"]["sqs"].clone();
        trusts["config"]["endpoint"] = json!(proxy.url);
        let doubts = trusts.clone();
        trusts["config"]["caSecretRef"] = json!({"name": "sqs-ca", "key": "ca.crt"});
        let mut strange = trusts.clone();
        strange["config"]["accountId"] = json!("123456789012");
        let values = json!({"transports": {"sqs": trusts, "doubts": doubts, "strange": strange}});
        let operator = Operator::install(&cluster, values).await?;
        let _instance = operator.start("operator").await?;
        let names = ["trusts", "doubts", "strange"].map(|name| scenario.name(name));
        for (name, transport) in names.iter().zip(["sqs", "doubts", "strange"]) {
            let mut actor = actor(name, 100);
            actor["spec"]["transport"] = json!(transport);
            scenario.apply(&actor).await?;
        }
        let [trusts, doubts, strange] = &names;
        let told = async |name: &str, reason: &str, text: &str| {
            status_is(scenario, name, reason, SOON, |status| {
                condition(status, "TransportReady") == ("False", reason)
                    && status["conditions"].to_string().contains(text)
            })
            .await
        };
        told(doubts, "BrokerUnreachable", "").await?;
        told(trusts, "CredentialsMissing", "sqs-ca").await?;
        let secrets: Api<Secret> = Api::namespaced(cluster.client(), operator.namespace());
        let secret = json!({"metadata": {"name": "sqs-ca"}, "stringData": {"ca.crt": proxy.ca}});
        let secret = serde_json::from_value(secret)?;
        secrets.create(&PostParams::default(), &secret).await?;
        let running = scenario.actor_status(trusts, "Running", 8 * SOON).await?;
        let url = format!("{}/000000000000/asya-{trusts}", proxy.url);
        assert_eq!(running.data["status"]["queue"]["url"], url);
        let queue = format!("asya-{trusts}");
        assert!(cluster.sqs()?.url(&queue).await?.is_some());
        told(
            strange,
            "QueueConfigInvalid",
            "belongs to account 000000000000",
        )
        .await?;
        scenario
            .kubectl(&["delete", "asya", trusts, strange, "--timeout=60s"])
            .await?;
        for name in [trusts, strange] {
            let queue = format!("asya-{name}");
            assert_eq!(cluster.sqs()?.url(&queue).await?, None);
        }
        Ok(())
    })
    .await;
}
