//! Actors deleted while their queues hold messages.

mod outage;
mod sqs;

use std::time::Duration;

use asya_tests::Result;
use asya_tests::eventually::{AFTER_START, NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::binding::{bound_actor, condition, model, status_is};
use crate::{minimal_actor, own_cluster};

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::operator::Operator;

/// The queue is counted every 15 s, and must be empty twice in a row.
const EMPTIED: Duration = Duration::from_mins(2);
/// Status follows the broker's counts within 90 seconds.
const COUNTED: Duration = Duration::from_mins(3);
const MESSAGES: usize = 7;

/// A running actor with this deletion policy and messages in its queue.
async fn with_messages(scenario: &Scenario, base: &str, policy: &str) -> Result<(String, String)> {
    let name = scenario.name(base);
    let mut actor = minimal_actor(&name);
    actor["spec"]["queue"] = json!({"deletionPolicy": policy});
    scenario.apply(&actor).await?;
    scenario.actor_status(&name, "Running", AFTER_START).await?;
    fill(scenario, &name).await?;
    let queue = format!("asya-{name}");
    Ok((name, queue))
}

/// Sends messages, and waits until the broker counts them, which it does every 5 s.
async fn fill(scenario: &Scenario, name: &str) -> Result<()> {
    let rabbitmq = scenario.cluster().rabbitmq()?;
    for n in 0..MESSAGES {
        assert!(rabbitmq.publish("asya", name, &n.to_string()).await?);
    }
    let queue = format!("asya-{name}");
    eventually("the messages are counted", AFTER_START, async || {
        let found = rabbitmq.queue(&queue).await.map_err(NotYet::new)?;
        let ready = found.and_then(|it| it.messages_ready);
        check(ready == Some(MESSAGES as u64), format_args!("{ready:?}"))
    })
    .await
}

async fn consume_all(scenario: &Scenario, queue: &str) -> Result<()> {
    let rabbitmq = scenario.cluster().rabbitmq()?;
    let taken = rabbitmq.messages(queue, 2 * MESSAGES, false).await?;
    assert_eq!(taken.len(), MESSAGES);
    Ok(())
}

async fn delete(scenario: &Scenario, name: &str) -> Result<()> {
    let actors = scenario.actors();
    actors.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

async fn waits(scenario: &Scenario, name: &str, reason: &str) -> Result<Value> {
    let status = status_is(scenario, name, reason, AFTER_START, |status| {
        condition(status, "Ready") == ("False", reason)
    })
    .await?;
    assert_eq!(status["status"], "Terminating");
    let count = format!("holds {MESSAGES} messages");
    scenario
        .event_with(reason, &[&count, "Retain"], AFTER_START)
        .await?;
    Ok(status)
}

async fn set_policy(scenario: &Scenario, name: &str, policy: &str) -> Result<()> {
    let change = json!({"spec": {"queue": {"deletionPolicy": policy}}});
    let actors = scenario.actors();
    let params = PatchParams::default();
    actors.patch(name, &params, &Patch::Merge(change)).await?;
    Ok(())
}

/// QUE-40, QUE-46
#[tokio::test]
async fn actor_whose_queue_is_not_empty_is_not_deleted_and_keeps_working() {
    Scenario::run("notempty", async |scenario| {
        let (name, queue) = with_messages(scenario, "full", "DeleteIfEmpty").await?;
        status_is(
            scenario,
            &name,
            "its messages are reported",
            COUNTED,
            |status| status["queuedMessages"] == MESSAGES,
        )
        .await?;
        // The webhook does not deny deletions in this cluster, so it is the finalizer that keeps the actor.
        scenario
            .kubectl(&["delete", "asya", &name, "--wait=false"])
            .await?;
        waits(scenario, &name, "QueueNotEmpty").await?;
        let deployments = scenario.api::<Deployment>();
        let kept = deployments.get(&name).await?;
        assert_eq!(kept.metadata.deletion_timestamp, None);
        deployments.delete(&name, &DeleteParams::default()).await?;
        eventually("the workload is made again", AFTER_START, async || {
            let found = deployments.get_opt(&name).await?;
            let recreated = found.is_some_and(|it| it.metadata.uid != kept.metadata.uid);
            check(recreated, "it is not")
        })
        .await?;

        set_policy(scenario, &name, "Retain").await?;
        scenario.actor_gone(&name, AFTER_START).await?;
        assert!(deployments.get_opt(&name).await?.is_none());
        consume_all(scenario, &queue).await?;
        Ok(())
    })
    .await;
}

/// QUE-41, QUE-42
#[tokio::test]
async fn draining_actor_works_until_its_queue_is_empty_and_goes_then() {
    Scenario::run("drain", async |scenario| {
        let (name, queue) = with_messages(scenario, "drain", "Drain").await?;
        delete(scenario, &name).await?;
        waits(scenario, &name, "QueueDraining").await?;
        assert!(scenario.api::<Deployment>().get_opt(&name).await?.is_some());
        consume_all(scenario, &queue).await?;
        scenario.actor_gone(&name, EMPTIED).await?;
        let rabbitmq = scenario.cluster().rabbitmq()?;
        assert!(rabbitmq.queue(&queue).await?.is_none(), "the queue leaked");
        assert!(scenario.api::<Deployment>().get_opt(&name).await?.is_none());
        Ok(())
    })
    .await;
}

fn image(deployment: &Deployment) -> Option<&str> {
    let template = &deployment.spec.as_ref()?.template;
    template.spec.as_ref()?.containers[0].image.as_deref()
}

/// QUE-41, FW-21: a deletion increments the generation, which is no reason to apply the children again.
#[tokio::test]
async fn draining_actor_that_is_reconciled_once_keeps_its_pods_as_they_are_until_its_queue_is_empty()
 {
    Scenario::run("drainonce", async |scenario| {
        let name = scenario.name("once");
        let mut actor = minimal_actor(&name);
        actor["spec"]["queue"] = json!({"deletionPolicy": "Drain"});
        actor["metadata"]["annotations"] = json!({"asya.sh/reconcile": "Once"});
        scenario.apply(&actor).await?;
        status_is(scenario, &name, "it was ready", AFTER_START, |it| {
            it["readyGeneration"].is_i64()
        })
        .await?;
        let deployments = scenario.api::<Deployment>();
        let drift = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "asya-runtime", "image": "drifted"},
        ]}}}});
        let params = PatchParams::default();
        deployments
            .patch(&name, &params, &Patch::Strategic(drift))
            .await?;
        fill(scenario, &name).await?;
        delete(scenario, &name).await?;
        waits(scenario, &name, "QueueDraining").await?;
        let kept = deployments.get(&name).await?;
        assert_eq!(image(&kept), Some("drifted"), "it was rolled");

        deployments.delete(&name, &DeleteParams::default()).await?;
        let recreated = eventually("what receives is made again", AFTER_START, async || {
            let found = deployments.get_opt(&name).await?;
            let recreated = found.filter(|it| it.metadata.uid != kept.metadata.uid);
            recreated.ok_or_else(|| NotYet::new("it is not"))
        })
        .await?;
        assert_ne!(image(&recreated), Some("drifted"));
        consume_all(scenario, &format!("asya-{name}")).await?;
        scenario.actor_gone(&name, EMPTIED).await?;
        assert!(deployments.get_opt(&name).await?.is_none());
        Ok(())
    })
    .await;
}

/// QUE-43
#[tokio::test]
async fn actor_that_is_deleted_in_the_foreground_has_pods_until_its_queue_is_empty() {
    Scenario::run("drainfore", async |scenario| {
        let (name, queue) = with_messages(scenario, "fore", "Drain").await?;
        let deployments = scenario.api::<Deployment>();
        let delete = [
            "delete",
            "asya",
            &name,
            "--cascade=foreground",
            "--wait=false",
        ];
        // The garbage collector may delete the workload before the operator removes the finalizer that allows this.
        scenario.kubectl(&delete).await?;
        waits(scenario, &name, "QueueDraining").await?;
        eventually(
            "its pods receive, and nobody deletes them",
            EMPTIED,
            async || {
                let actor = scenario.actors().get(&name).await?;
                let finalizers = actor.metadata.finalizers.unwrap_or_default();
                check(
                    finalizers == ["asya.sh/finalizer"],
                    format_args!("{finalizers:?}"),
                )?;
                let found = deployments.get_opt(&name).await?;
                let found = found.ok_or_else(|| NotYet::new("there is no Deployment"))?;
                let ready = found.status.and_then(|it| it.ready_replicas);
                let stays = found.metadata.deletion_timestamp.is_none();
                check(
                    stays && ready == Some(1),
                    format_args!("{ready:?}, {stays}"),
                )
            },
        )
        .await?;

        consume_all(scenario, &queue).await?;
        scenario.actor_gone(&name, EMPTIED).await?;
        assert!(deployments.get_opt(&name).await?.is_none());
        Ok(())
    })
    .await;
}

/// QUE-44
#[tokio::test]
async fn messages_that_are_deleted_with_their_queue_are_counted_in_an_event() {
    Scenario::run("lost", async |scenario| {
        let (name, queue) = with_messages(scenario, "lost", "Delete").await?;
        delete(scenario, &name).await?;
        scenario.actor_gone(&name, AFTER_START).await?;
        let wanted =
            format!("deleted queue {queue} on transport rabbitmq with {MESSAGES} messages");
        scenario
            .event_with("MessagesDeleted", &[&wanted], AFTER_START)
            .await
    })
    .await;
}

async fn containers(scenario: &Scenario, app: &str) -> Result<Vec<(String, Vec<String>)>> {
    let selector = ListParams::default().labels(&format!("app={app}"));
    let pods = scenario.api::<Pod>().list(&selector).await?;
    let lives = pods
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(lives
        .map(|pod| {
            let names = pod.spec.into_iter().flat_map(|spec| spec.containers);
            let names = names.map(|it| it.name).collect();
            (pod.metadata.name.unwrap_or_default(), names)
        })
        .collect())
}

/// QUE-41, QUE-42: pods that start while draining get the sidecar, and in the end no pod has it.
#[tokio::test]
async fn draining_binding_is_injected_until_its_queue_is_empty() {
    Scenario::run("drainbound", async |scenario| {
        let (name, deployments) = (scenario.name("bound"), scenario.api::<Deployment>());
        deployments
            .create(&PostParams::default(), &model("web", 1)?)
            .await?;
        let mut actor = bound_actor(&name, "web");
        actor["spec"]["queue"] = json!({"deletionPolicy": "Drain"});
        scenario.apply(&actor).await?;
        status_is(scenario, &name, "its pod has the sidecar", EMPTIED, |it| {
            condition(it, "Injected") == ("True", "AllPodsInjected")
        })
        .await?;
        fill(scenario, &name).await?;
        delete(scenario, &name).await?;
        waits(scenario, &name, "QueueDraining").await?;

        let (before, _) = containers(scenario, "web").await?.remove(0);
        scenario
            .api::<Pod>()
            .delete(&before, &DeleteParams::default())
            .await?;
        let all = ["model", "asya-runtime", "asya-sidecar"];
        eventually("its replacement has the sidecar", AFTER_START, async || {
            let found = containers(scenario, "web").await.map_err(NotYet::new)?;
            let is_so = |(name, has): &(String, Vec<String>)| *name != before && *has == all;
            check(
                found.len() == 1 && found.iter().all(is_so),
                format_args!("{found:?}"),
            )
        })
        .await?;
        consume_all(scenario, &format!("asya-{name}")).await?;
        scenario.actor_gone(&name, EMPTIED).await?;
        let left = containers(scenario, "web").await?;
        assert!(left.iter().all(|(_, has)| *has == ["model"]), "{left:?}");
        Ok(())
    })
    .await;
}

/// QUE-45
#[tokio::test]
async fn namespace_that_goes_is_not_held_up_and_its_messages_stay() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "goes", async |scenario| {
        let operator = Operator::install(&cluster, json!({})).await?;
        let _instance = operator.start("operator").await?;
        let (_, first) = with_messages(scenario, "refuses", "DeleteIfEmpty").await?;
        let (name, second) = with_messages(scenario, "drains", "Drain").await?;
        delete(scenario, &name).await?;
        waits(scenario, &name, "QueueDraining").await?;
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
        for queue in [&first, &second] {
            consume_all(scenario, queue).await?;
            eventually("an Event says so", AFTER_START, async || {
                let all = events.list(&ListParams::default()).await?;
                let text = format!("queue {queue} on transport rabbitmq holds {MESSAGES} messages");
                let told = all.iter().any(|event| {
                    event.reason.as_deref() == Some("QueueKept")
                        && event.involved_object.name.as_deref() == Some(namespace)
                        && event.message.as_ref().is_some_and(|it| it.contains(&text))
                });
                check(told, "none")
            })
            .await?;
        }
        Ok(())
    })
    .await;
}
