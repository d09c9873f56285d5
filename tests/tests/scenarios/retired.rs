//! Queues on transports that an actor no longer uses.

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::operator::{Operator, default_values};
use asya_tests::rabbitmq::{ADMIN, RabbitMq};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use reqwest::Method;
use serde_json::{Value, json};

use crate::steady::Writes;
use crate::{all_running, minimal_actor, own_cluster};

const MESSAGES: usize = 10;
/// How many checks to wait for while a queue has messages.
const LOOKS: usize = 3;

fn on(transport: &str, name: &str) -> Value {
    let mut actor = minimal_actor(name);
    actor["spec"]["transport"] = json!(transport);
    actor
}

async fn retired(scenario: &Scenario, actor: &str) -> Result<Value, NotYet> {
    let found = scenario.actors().get(actor).await?;
    Ok(found.data["status"]["retiredQueues"].clone())
}

/// Waits until an actor in another namespace has this status.
async fn waits_for(scenario: &Scenario, namespace: &str, actor: &str, status: &str) -> Result<()> {
    let (actor, status) = (
        format!("asya/{actor}"),
        format!("--for=jsonpath={{.status.status}}={status}"),
    );
    let wait = ["wait", "-n", namespace, &actor, &status, "--timeout=30s"];
    scenario.cluster().kubectl(&wait).await.map(drop)
}

async fn holds_messages(rabbitmq: &RabbitMq, queue: &str) -> Result<()> {
    let messages = rabbitmq.messages(queue, 2 * MESSAGES, true).await?;
    assert_eq!(messages.len(), MESSAGES, "{queue}");
    Ok(())
}

/// QUE-13, QUE-3, OPS-7, FIN-2
#[tokio::test]
async fn retired_queue_stays_until_empty_or_its_actor_is_deleted() {
    let _turn = own_cluster().await;
    let options = Options {
        sqs: true,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "retired", async |scenario| {
        let values = json!({"controller": {"queueHealthCheckInterval": "1s"}});
        let operator = Operator::install(&cluster, values).await?;
        let _instance = operator.start("one").await?;
        let (rabbitmq, sqs) = (cluster.rabbitmq()?, cluster.sqs()?);
        let names = ["moved", "leaves"].map(|name| scenario.name(name));
        let queues = names.clone().map(|name| format!("asya-{name}"));
        let all = |transport: &str| names.clone().map(|name| on(transport, &name));
        scenario.apply_all(&all("rabbitmq")).await?;
        all_running(scenario, &names).await?;
        for name in &names {
            for n in 0..MESSAGES {
                let reached = rabbitmq.publish("asya", name, &n.to_string()).await?;
                assert!(reached, "{name}");
            }
        }

        scenario.apply_all(&all("sqs")).await?;
        all_running(scenario, &names).await?;
        for (name, queue) in names.iter().zip(&queues) {
            let listed = eventually("the former queue is listed", SOON, async || {
                let listed = retired(scenario, name).await?;
                check(!listed.is_null(), "no retired queue")?;
                Ok(listed)
            })
            .await?;
            assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
            let former = [&listed[0]["transport"], &listed[0]["name"]];
            assert_eq!(former, ["rabbitmq", &**queue]);
            assert!(sqs.url(queue).await?.is_some(), "no queue at SQS");
        }
        scenario.event("QueueRetired", SOON).await?;
        let user = operator.user();
        let writes = Writes {
            audit: cluster.audit(),
            user: &user,
        };
        // The status is written after the Event.
        writes.end().await?;

        let (audit, log) = (cluster.audit(), rabbitmq.access_log());
        let (writes, calls) = (audit.mark().await?, log.mark()?);
        let path = format!("{}/{}", rabbitmq.path_of("queues"), queues[0]);
        eventually("it is looked at again and again", SOON, async || {
            let calls = log
                .calls_since(calls, rabbitmq.user())
                .map_err(NotYet::new)?;
            let looks = calls.iter().filter(|call| call.path == path).count();
            check(looks >= LOOKS, format_args!("{looks} looks"))
        })
        .await?;
        let mut written = audit.writes_since(writes, &user).await?;
        written.retain(|write| write.resource == "asyncactors");
        assert_eq!(written, [], "nothing changed");
        for queue in &queues {
            holds_messages(&rabbitmq, queue).await?;
        }

        let other = scenario.name("other");
        let namespaces: Api<Namespace> = Api::all(scenario.client());
        let namespace = serde_json::from_value(json!({"metadata": {"name": other}}))?;
        namespaces
            .create(&PostParams::default(), &namespace)
            .await?;
        asya_tests::operator::create_broker_secrets(&scenario.client(), &other).await?;
        let mut other_actor = on("rabbitmq", &names[0]);
        other_actor["metadata"]["namespace"] = json!(other);
        let file = cluster.folder().join(format!("{other}.json"));
        std::fs::write(&file, other_actor.to_string()).expect("the cluster's folder is writable");
        let file = file.display().to_string();
        cluster.kubectl(&["apply", "-f", &file]).await?;
        waits_for(scenario, &other, &names[0], "TransportError").await?;

        scenario
            .kubectl(&["delete", "asya", &names[1], "--timeout=60s"])
            .await?;
        assert!(rabbitmq.queue(&queues[1]).await?.is_none());
        assert_eq!(sqs.url(&queues[1]).await?, None);

        let taken = rabbitmq.messages(&queues[0], 2 * MESSAGES, false).await?;
        assert_eq!(taken.len(), MESSAGES);
        eventually("the empty queue leaves the list", SOON, async || {
            let listed = retired(scenario, &names[0]).await?;
            check(listed.is_null(), &listed)
        })
        .await?;
        waits_for(scenario, &other, &names[0], "Running").await?;
        let found = rabbitmq.queue(&queues[0]).await?;
        assert!(found.is_some(), "the name is free for the next");
        cluster
            .kubectl(&["delete", "asya", "-n", &other, &names[0], "--timeout=60s"])
            .await?;
        scenario
            .kubectl(&["delete", "asya", &names[0], "--timeout=60s"])
            .await?;
        assert_eq!(rabbitmq.queues().await?, []);
        Ok(())
    })
    .await;
}

/// QUE-13, FIN-3, OPS-7
#[tokio::test]
async fn retired_queue_of_an_unconfigured_transport_is_remembered() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "orphaned", async |scenario| {
        // Another virtual host on the same broker.
        let (rabbitmq, host) = (cluster.rabbitmq()?, scenario.name("former"));
        let (user, host) = (rabbitmq.user(), host.as_str());
        let ask = async |method: Method, path: &[&str], body: Value| {
            let request = rabbitmq.request(method, path)?.json(&body);
            Ok::<_, asya_tests::Error>(request.send().await?)
        };
        let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
        ask(Method::PUT, &["vhosts", host], json!({})).await?;
        for user in [user, ADMIN] {
            ask(Method::PUT, &["permissions", host, user], all.clone()).await?;
        }
        let twin = default_values(&cluster)["transports"]["rabbitmq"].clone();
        let mut former = twin.clone();
        former["config"]["vhost"] = json!(host);
        let mut install = async |enabled: bool| {
            former["enabled"] = json!(enabled);
            let values = json!({
                "leaderElection": {"enabled": false},
                "controller": {"queueHealthCheckInterval": "1s"},
                "transports": {"former": former, "twin": twin},
            });
            Operator::install(&cluster, values).await
        };
        let first = install(true).await?.start("first").await?;
        let names = ["moved", "renamed"].map(|name| scenario.name(name));
        let name = &names[0];
        let path = ["queues", host, &format!("asya-{name}")];
        let both = |moved: &str, renamed: &str| [on(moved, name), on(renamed, &names[1])];
        scenario.apply_all(&both("former", "rabbitmq")).await?;
        all_running(scenario, &names).await?;
        let message = json!({
            "properties": {}, "routing_key": name, "payload": "kept", "payload_encoding": "string",
        });
        ask(
            Method::POST,
            &["exchanges", host, "asya", "publish"],
            message,
        )
        .await?;
        scenario.apply_all(&both("rabbitmq", "twin")).await?;
        all_running(scenario, &names).await?;

        first.stop().await?;
        let second = install(false).await?.start("second").await?;
        eventually("the actor is seen again", SOON, async || {
            let reconciles = second
                .metric("controller_runtime_reconcile_total", &[])
                .await;
            check(
                reconciles.is_ok_and(|reconciles| reconciles >= 1.0),
                "no reconcile",
            )
        })
        .await?;
        scenario.actor_status(name, "Running", SOON).await?;
        let listed = retired(scenario, name).await.expect("the actor is there");
        assert_eq!(listed[0]["transport"], "former", "{listed}");
        let same = retired(scenario, &names[1]).await;
        assert_eq!(
            same,
            Ok(Value::Null),
            "the queue is the same, by another name"
        );
        let same = rabbitmq.queue(&format!("asya-{}", names[1])).await?;
        assert!(same.is_some(), "and still there");

        scenario
            .actors()
            .delete(name, &DeleteParams::default())
            .await?;
        scenario.event("QueueDeletionFailed", SOON).await?;
        let found = scenario.actors().get(name).await?;
        assert!(found.metadata.finalizers.is_some(), "it waits");
        let own = rabbitmq.queue(&format!("asya-{name}")).await?;
        assert!(own.is_none(), "what can go is gone");
        let kept = ask(Method::GET, &path, json!({})).await?;
        assert!(kept.status().is_success(), "{kept:?}");

        second.stop().await?;
        let _third = install(true).await?.start("third").await?;
        scenario.actor_gone(name, SOON).await?;
        let gone = ask(Method::GET, &path, json!({})).await?;
        assert_eq!(gone.status(), 404);
        scenario
            .kubectl(&["delete", "asya", &names[1], "--timeout=60s"])
            .await?;
        Ok(())
    })
    .await;
}
