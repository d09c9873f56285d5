//! Deletions that would lose messages or workloads.

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::WAIT;
use crate::binding::status_is;
use crate::{minimal_actor, own_cluster};

const MESSAGES: usize = 3;

/// The garbage collector would delete the Deployment that the actor is to leave behind.
async fn foreground_deletion_loses_no_orphan(scenario: &Scenario) -> Result<()> {
    let (actors, name) = (scenario.actors(), scenario.name("orphan"));
    let mut actor = minimal_actor(&name);
    actor["spec"]["deletionPolicy"] = json!("Orphan");
    scenario.apply(&actor).await?;
    scenario.actor_status(&name, "Running", WAIT).await?;
    let refused = actors.delete(&name, &DeleteParams::foreground()).await;
    let Err(kube::Error::Api(status)) = refused else {
        panic!("not refused")
    };
    assert!(
        status.message.contains("--cascade=background"),
        "{}",
        status.message
    );
    actors.delete(&name, &DeleteParams::default()).await?;
    scenario.actor_gone(&name, 4 * WAIT).await?;
    let left = scenario.api::<Deployment>().get(&name).await?.metadata;
    assert_eq!(
        (left.owner_references, left.deletion_timestamp),
        (None, None)
    );
    Ok(())
}

/// QUE-40, QUE-45, ADM-5, FW-23 (f)
#[tokio::test]
async fn deletion_is_refused_with_the_number_of_messages_and_the_ways_out() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "deletions", async |scenario| {
        let values = json!({"controller": {"queueMetricsInterval": "1s"}});
        let operator = Operator::install(&cluster, values).await?;
        let _controller = operator.start("controller").await?;
        let _webhook = Webhook::start(&operator).await?;
        let (actors, rabbitmq) = (scenario.actors(), cluster.rabbitmq()?);
        let names = ["full", "kept", "drains", "empty"].map(|base| scenario.name(base));
        let [full, kept, drains, empty] = &names;
        for name in &names {
            let policy = if name == drains { "Drain" } else { "DeleteIfEmpty" };
            let mut actor = minimal_actor(name);
            actor["spec"]["queue"] = json!({"deletionPolicy": policy});
            scenario.apply(&actor).await?;
            scenario.actor_status(name, "Running", WAIT).await?;
        }
        for name in [full, kept, drains] {
            for n in 0..MESSAGES {
                assert!(rabbitmq.publish("asya", name, &n.to_string()).await?);
            }
        }
        for name in [full, kept, drains] {
            status_is(scenario, name, "its messages are reported", 6 * WAIT, |status| {
                status["queuedMessages"] == MESSAGES
            })
            .await?;
        }

        // The message as kubectl shows it.
        let said = eventually("the deletion is refused", WAIT, async || {
            let dry_run = ["delete", "asya", full, "--dry-run=server"];
            match scenario.kubectl(&dry_run).await {
                Err(error) => Ok(error.to_string()),
                Ok(said) => Err(NotYet::new(said)),
            }
        })
        .await?;
        let text = format!(
            "denied the request: queue asya-{full} holds {MESSAGES} messages ({MESSAGES} waiting, 0 unacknowledged), \
             so the actor is not deleted (spec.queue.deletionPolicy: DeleteIfEmpty). Let its pods process them \
             (policy Drain waits for that), or set spec.queue.deletionPolicy to Retain, which keeps queue and \
             messages"
        );
        assert!(said.contains(&text), "{said}");
        let refused = actors.delete(full, &DeleteParams::default()).await;
        let Err(kube::Error::Api(status)) = refused else {
            panic!("not refused")
        };
        assert_eq!(status.code, 403);
        let found = actors.get(full).await?;
        assert_eq!(found.metadata.deletion_timestamp, None);

        // An empty queue, policy Drain, or a change to Retain: each allows the deletion.
        for name in [empty, drains] {
            actors.delete(name, &DeleteParams::default()).await?;
        }
        let retain = json!({"spec": {"queue": {"deletionPolicy": "Retain"}}});
        let params = PatchParams::default();
        actors.patch(full, &params, &Patch::Merge(retain)).await?;
        actors.delete(full, &DeleteParams::default()).await?;
        for name in [full, empty] {
            scenario.actor_gone(name, 4 * WAIT).await?;
        }
        let queue = format!("asya-{full}");
        let left = rabbitmq.messages(&queue, 2 * MESSAGES, true).await?;
        assert_eq!(left.len(), MESSAGES);

        foreground_deletion_loses_no_orphan(scenario).await?;

        // Deletions by the API server's own controllers are not reviewed, so namespace deletion is not blocked.
        let namespaces: Api<Namespace> = Api::all(cluster.client());
        let namespace = scenario.namespace();
        namespaces
            .delete(namespace, &DeleteParams::default())
            .await?;
        eventually("the namespace is gone", 4 * WAIT, async || {
            let left = namespaces.get_opt(namespace).await?;
            check(left.is_none(), format_args!("{left:?}"))
        })
        .await?;
        let queue = format!("asya-{kept}");
        let left = rabbitmq.messages(&queue, 2 * MESSAGES, true).await?;
        assert_eq!(left.len(), MESSAGES);
        Ok(())
    })
    .await;
}
