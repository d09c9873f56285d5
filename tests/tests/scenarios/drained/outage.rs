//! Actors wait for an empty queue while their broker is down.

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Namespace};
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;

use super::{EMPTIED, MESSAGES, consume_all, delete, own_cluster, waits, with_messages};
use crate::binding::{condition, status_is};

/// QUE-42, QUE-45, FIN-3
#[tokio::test]
async fn actors_wait_for_a_broker_that_is_down_unless_their_namespace_goes() {
    let _turn = own_cluster().await;
    let options = Options {
        own_rabbitmq: true,
        ..Options::default()
    };
    let mut cluster = RunningCluster::start(options).await.unwrap();
    let shared = cluster.clone();
    Scenario::run_on(Ok(shared.clone()), "drainout", async |scenario| {
        let operator = Operator::install(&cluster, json!({})).await?;
        let _instance = operator.start("operator").await?;
        let all = [
            ("Drain", "QueueDraining"),
            ("DeleteIfEmpty", "QueueNotEmpty"),
        ];
        let mut held = Vec::new();
        for (policy, reason) in all {
            let base = policy.to_lowercase();
            let (name, queue) = with_messages(scenario, &base, policy).await?;
            held.push((name, queue, reason));
        }
        cluster.process("rabbitmq")?.kill().await;
        for (name, _, reason) in &held {
            delete(scenario, name).await?;
            let what = "the broker is reported, and the actor waits";
            status_is(scenario, name, what, EMPTIED, |status| {
                condition(status, "Ready") == ("False", reason)
                    && condition(status, "TransportReady") == ("False", "QueueDeletionFailed")
                    && status["status"] == "Terminating"
            })
            .await?;
            let uncounted = "they could not be counted";
            scenario.event_with(reason, &[uncounted], EMPTIED).await?;
            assert!(scenario.api::<Deployment>().get_opt(name).await?.is_some());
        }
        cluster.restart("rabbitmq").await?;
        for (name, queue, reason) in &held {
            status_is(scenario, name, "the messages are counted", EMPTIED, |it| {
                let conditions = it["conditions"].to_string();
                condition(it, "Ready") == ("False", reason)
                    && condition(it, "TransportReady").0 == "True"
                    && conditions.contains("holds 7 messages")
            })
            .await?;
            consume_all(scenario, queue).await?;
        }
        for (name, ..) in &held {
            scenario.actor_gone(name, EMPTIED).await?;
        }

        let (name, queue) = with_messages(scenario, "goes", "Drain").await?;
        delete(scenario, &name).await?;
        waits(scenario, &name, "QueueDraining").await?;
        cluster.process("rabbitmq")?.kill().await;
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        let namespace = scenario.namespace();
        namespaces
            .delete(namespace, &DeleteParams::default())
            .await?;
        eventually("the namespace is gone", EMPTIED, async || {
            let left = namespaces.get_opt(namespace).await?;
            check(left.is_none(), format_args!("{left:?}"))
        })
        .await?;
        let events: Api<Event> = Api::namespaced(cluster.client(), "default");
        eventually("an Event says what stays", EMPTIED, async || {
            let all = events.list(&ListParams::default()).await?;
            let text = format!("queue {queue} on transport rabbitmq may hold messages");
            let told = all.iter().any(|event| {
                event.reason.as_deref() == Some("QueueKept")
                    && event.message.as_ref().is_some_and(|it| it.contains(&text))
            });
            check(told, "none")
        })
        .await?;
        cluster.restart("rabbitmq").await?;
        let rabbitmq = cluster.rabbitmq()?;
        eventually("the messages are there", EMPTIED, async || {
            let left = rabbitmq.messages(&queue, 2 * MESSAGES, true).await;
            let left = left.map_err(NotYet::new)?.len();
            check(left == MESSAGES, left)
        })
        .await
    })
    .await;
}
