//! The operator's own pods: leader election, upgrades, certificate rotation, uninstall.

use std::path::Path;
use std::time::Duration;

use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::helm::Helm;
use asya_tests::operator::Operator;
use asya_tests::real::NEXT_SIDECAR_IMAGE;
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use crate::binding::{bound, injected, model};
use crate::{Broker, SOON, actor, actor_without_pods, message, run};

const NAMESPACE: &str = "asya-system";
const RELEASE: &str = "asya-operator";
const SECRET: &str = "asya-operator-webhook-tls";

/// CFG-11
#[tokio::test]
async fn helm_test_passes() {
    Scenario::run("helm-test", async |scenario| {
        let helm = Helm::four(scenario.cluster());
        helm.run(&["test", RELEASE, "--timeout=90s"])
            .await
            .map(drop)
    })
    .await;
}

/// The pod that holds the leader lease.
async fn leader(scenario: &Scenario) -> Result<String, NotYet> {
    let leases = Api::<Lease>::namespaced(scenario.client(), NAMESPACE);
    let lease = leases.get("asya-operator.asya.sh").await?;
    let holder = lease
        .spec
        .and_then(|it| it.holder_identity)
        .unwrap_or_default();
    check(!holder.is_empty(), "nobody")?;
    // The identity is the pod's name and a suffix that is unique for each start.
    Ok(holder.split('_').next().unwrap_or_default().to_owned())
}

/// OPS-1, OPS-6
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn second_controller_takes_over_when_the_leader_is_deleted() {
    Scenario::run_alone("leaders", async |scenario| {
        let cluster = scenario.cluster();
        let operator = Operator::install(cluster, json!({"replicaCount": 2})).await?;
        operator.rolled_out().await?;
        let first = eventually("somebody leads", SOON, async || leader(scenario).await).await?;
        let delete = [
            "delete",
            "pod",
            &first,
            "--namespace",
            NAMESPACE,
            "--grace-period=0",
            "--force",
        ];
        cluster.kubectl(&delete).await?;
        eventually("another leads", SOON, async || {
            let now = leader(scenario).await?;
            check(now != first, now)
        })
        .await?;
        let name = scenario.name("after");
        run(
            scenario,
            &[actor(&name, Broker::RabbitMq, "handlers.shout")],
        )
        .await?;
        Operator::install(cluster, json!({}))
            .await?
            .rolled_out()
            .await
    })
    .await;
}

/// Sends messages at a steady pace until stopped, and returns how many.
async fn send_until(
    scenario: &Scenario,
    (name, next): (&str, &str),
    payload: impl Fn(u64) -> Value,
    mut stop: watch::Receiver<bool>,
) -> Result<u64> {
    let mut ticks = interval(Duration::from_millis(100));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in 0.. {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return Ok(number),
            _ = ticks.tick() => {}
        }
        let message = message(&number.to_string(), name, next, &payload(number));
        Broker::RabbitMq
            .send(scenario.cluster(), name, &[message])
            .await?;
    }
    Ok(0)
}

/// Writes a copy of the chart with the next version.
fn next_chart(folder: &Path) -> Result<()> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/asya-operator");
    let status = std::process::Command::new("cp")
        .arg("-r")
        .arg(&from)
        .arg(folder)
        .status();
    let copied = status.map_err(Error::other)?.success();
    assert!(copied, "the chart cannot be copied");
    let file = folder.join("Chart.yaml");
    let text = std::fs::read_to_string(&file).map_err(Error::other)?;
    let lines = text.lines().map(|line| {
        let is_version = line.starts_with("version:");
        if is_version { "version: 99.0.0" } else { line }
    });
    std::fs::write(&file, lines.collect::<Vec<_>>().join("\n")).map_err(Error::other)
}

/// ROLL-8
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn upgrade_under_load_loses_no_message() {
    Scenario::run_alone("upgrade", async |scenario| {
        let cluster = scenario.cluster();
        let own = [scenario.name("own"), scenario.name("own-next")];
        let talk = [scenario.name("chat"), scenario.name("chat-next")];
        let mut worker = actor(&own[0], Broker::RabbitMq, "handlers.shout");
        worker["spec"]["workload"]["replicas"] = json!(2);
        scenario.apply(&model("model", 8000)).await?;
        let binding = bound(&talk[0], Broker::RabbitMq, ("apps/v1", "Deployment", "model"), Some("openai_chat"));
        let next_actors = [&own[1], &talk[1]].map(|name| actor_without_pods(name, Broker::RabbitMq));
        run(scenario, &[&[worker, binding], next_actors.as_slice()].concat()).await?;
        let before = pods_of(scenario, &own[0]).await?;

        let (stop, stopped) = watch::channel(false);
        let upgrade = async {
            let chart = cluster.folder().join("next-chart");
            next_chart(&chart)?;
            // A new sidecar image, so that actors' pods are replaced during the upgrade, too.
            let values = json!({"sidecar": {"image": NEXT_SIDECAR_IMAGE}, "podAnnotations": {"example.com/version": "next"}});
            let helm = Helm::four(cluster);
            helm.with_chart_at(&chart, &["upgrade"], values).await?;
            Operator::installed(cluster).await?.rolled_out().await?;
            eventually("the actor's pods are new", SOON, async || {
                let now = pods_of(scenario, &own[0]).await.map_err(NotYet::new)?;
                check(now.len() == 2 && now.iter().all(|pod| !before.contains(pod)), format_args!("{now:?}"))
            })
            .await?;
            stop.send_replace(true);
            Ok(())
        };
        let says = |number: u64| json!({"text": number.to_string()});
        let (own_sent, chat_sent, ()) = tokio::try_join!(
            send_until(scenario, (&own[0], &own[1]), says, stopped.clone()),
            send_until(scenario, (&talk[0], &talk[1]), says, stopped),
            upgrade,
        )?;
        for ([_, next], sent) in [(&own, own_sent), (&talk, chat_sent)] {
            let mut seen = std::collections::BTreeSet::new();
            eventually(format_args!("{sent} messages came through"), SOON, async || {
                let some = Broker::RabbitMq.take(cluster, next, 0, SOON).await.map_err(NotYet::new)?;
                seen.extend(some.iter().filter_map(|it| it["id"].as_str().map(str::to_owned)));
                check(u64::try_from(seen.len()) == Ok(sent), format_args!("{} of {sent}", seen.len()))
            })
            .await?;
        }
        eprintln!("upgrade: {own_sent} and {chat_sent} messages, none lost");
        Operator::install(cluster, json!({})).await?.rolled_out().await
    })
    .await;
}

/// Names of an actor's pods that are not being deleted.
async fn pods_of(scenario: &Scenario, actor: &str) -> Result<Vec<String>> {
    let labels = ListParams::default().labels(&format!("asya.sh/asya={actor}"));
    let pods = scenario.api::<Pod>().list(&labels).await?;
    let stay = pods
        .into_iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(stay.filter_map(|pod| pod.metadata.name).collect())
}

/// Dry-runs a pod like the model's until stopped; returns how often.
async fn review_until(
    scenario: &Scenario,
    pod: &Pod,
    mut stop: watch::Receiver<bool>,
) -> Result<u64> {
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let pods = scenario.api::<Pod>();
    let mut ticks = interval(Duration::from_millis(20));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0.. {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return Ok(number),
            _ = ticks.tick() => {}
        }
        let made = pods.create(&dry_run, pod).await?;
        if !injected(&made) {
            return Err(Error::Other(format!("review {number}: no sidecar")));
        }
    }
    Ok(0)
}

/// CERT-4, CERT-5
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn certificate_rotation_fails_no_review() {
    Scenario::run_alone("rotation", async |scenario| {
        let cluster = scenario.cluster();
        scenario.apply(&model("model", 8000)).await?;
        let name = scenario.name("rotation");
        let binding = bound(&name, Broker::RabbitMq, ("apps/v1", "Deployment", "model"), Some("openai_chat"));
        run(scenario, &[binding]).await?;
        let labels = ListParams::default().labels("app=model");
        let running = scenario.api::<Pod>().list(&labels).await?.items.remove(0);
        let template = scenario.kubectl(&["get", "deployment", "model", "--output=jsonpath={.spec.template}"]).await?;
        let template: Value = serde_json::from_str(&template)?;
        let copied: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "like", "labels": running.metadata.labels.as_ref().map(|labels| {
                    let own = |key: &&String| !key.starts_with("asya.sh/");
                    labels.keys().filter(own).map(|key| (key.clone(), labels[key].clone())).collect::<std::collections::BTreeMap<_, _>>()
                }),
                "ownerReferences": running.metadata.owner_references,
            },
            "spec": template["spec"],
        }))?;
        let (stop, stopped) = watch::channel(false);
        let rotate = async {
            // A deleted leaf is reissued by the same CA. A deleted CA key requires a new CA, which clients must trust
            // before it signs.
            let leaf_gone = r#"{"data": {"tls.crt": "", "tls.key": ""}}"#;
            let authority_gone = r#"{"data": {"ca.key": ""}}"#;
            for patch in [leaf_gone, authority_gone, leaf_gone] {
                let before = leaf(scenario)
                    .await
                    .map_err(|seen| Error::Other(format!("{seen:?}")))?;
                let remove = [
                    "patch",
                    "secret",
                    SECRET,
                    "--namespace",
                    NAMESPACE,
                    "--type=merge",
                    "--patch",
                    patch,
                ];
                cluster.kubectl(&remove).await?;
                eventually("there is another certificate", SOON, async || {
                    let now = leaf(scenario).await?;
                    check(!now.is_empty() && now != before, "the same or none")
                })
                .await?;
            }
            stop.send_replace(true);
            Ok(())
        };
        let (reviews, ()) = tokio::try_join!(review_until(scenario, &copied, stopped), rotate)?;
        eprintln!("rotation: {reviews} reviews through 3 certificates, none failed");
        Ok(())
    })
    .await;
}

async fn leaf(scenario: &Scenario) -> Result<String, NotYet> {
    let get = [
        "get",
        "secret",
        SECRET,
        "--namespace",
        NAMESPACE,
        "--output=jsonpath={.data.tls\\.crt}",
    ];
    scenario.cluster().kubectl(&get).await.map_err(NotYet::new)
}

/// CFG-1, CERT-2, QUE-49
#[tokio::test]
#[ignore = "takes its time: make test-real ALL=1"]
async fn uninstalled_release_refuses_no_pod() {
    Scenario::run_alone("uninstall", async |scenario| {
        let cluster = scenario.cluster();
        scenario.apply(&model("model", 8000)).await?;
        let name = scenario.name("required");
        let mut binding = bound(
            &name,
            Broker::RabbitMq,
            ("apps/v1", "Deployment", "model"),
            Some("openai_chat"),
        );
        binding["spec"]["binding"] = json!({"required": true});
        run(scenario, &[binding]).await?;
        // The denial names only the first few actors, and namespaces of earlier scenarios may still be terminating.
        eventually("only this actor is left", SOON, async || {
            let list = ["get", "asyncactors", "--all-namespaces", "--output=name"];
            let left = cluster.kubectl(&list).await.map_err(NotYet::new)?;
            check(left.lines().count() == 1, left)
        })
        .await?;
        let helm = Helm::four(cluster);
        let refused = helm.run(&["uninstall", RELEASE, "--timeout=90s"]).await;
        assert!(refused.is_err(), "an actor is left");
        let log = [
            "logs",
            "--namespace",
            NAMESPACE,
            "job/asya-operator-uninstall",
        ];
        let log = cluster.kubectl(&log).await?;
        // Actors of other scenarios may still exist.
        assert!(log.contains(" left, "), "{log}");
        assert!(
            log.contains(&format!("{}/{name}", scenario.namespace())),
            "{log}"
        );
        // Helm still considers the release to be uninstalling; the log says how to roll back.
        let upgrade = ["upgrade", "--reuse-values"];
        assert!(helm.with_chart(&upgrade, json!({})).await.is_err());
        let rollback = log
            .split("helm rollback ")
            .nth(1)
            .and_then(|it| it.split(';').next());
        let rollback = rollback.unwrap_or_default().split(' ');
        let rollback: Vec<_> = std::iter::once("rollback").chain(rollback).collect();
        helm.run(&rollback).await?;
        helm.with_chart(&upgrade, json!({})).await?;
        helm.run(&[
            "uninstall",
            RELEASE,
            "--no-hooks",
            "--wait",
            "--timeout=90s",
        ])
        .await?;
        eventually("webhook configurations are gone", SOON, async || {
            let kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
            let left = cluster
                .kubectl(&["get", kinds, "--output=name"])
                .await
                .map_err(NotYet::new)?;
            check(!left.contains("asya"), left)
        })
        .await?;
        scenario
            .kubectl(&["rollout", "restart", "deployment/model"])
            .await?;
        scenario
            .kubectl(&["rollout", "status", "deployment/model", "--timeout=60s"])
            .await?;
        let labels = ListParams::default().labels("app=model");
        let pods = scenario.api::<Pod>().list(&labels).await?;
        assert!(
            pods.iter().any(|pod| !injected(pod)),
            "a new pod is as its owner wrote it"
        );
        Operator::install(cluster, json!({}))
            .await?
            .rolled_out()
            .await?;
        scenario
            .kubectl(&["delete", "asya", &name, "--timeout=90s"])
            .await
            .map(drop)
    })
    .await;
}
