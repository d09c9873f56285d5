//! `asya-cluster demo`: a user's first five minutes.

mod messages;
mod models;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use asya_tests::build::{self, Part};
use asya_tests::cluster::RunningCluster;
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::process::{Process, Spec};
use asya_tests::{Error, Result};
use serde_json::json;
use tokio::try_join;

use crate::{With, print_addresses};

const NAMESPACE: &str = "demo";
const ACTOR: &str = include_str!("demo/actor.yaml");
const BINDING: &str = include_str!("demo/binding.yaml");
const CONTAINERS: &str = "custom-columns=POD:.metadata.name,CONTAINERS:.spec.containers[*].name";

pub(crate) async fn demo(stay: bool) -> Result<ExitCode> {
    let started = Instant::now();
    // KEDA takes longest to build, and only the last part needs it.
    let with = With {
        sqs: false,
        keda: false,
        no_rabbitmq: false,
        no_operator: false,
        real: false,
    };
    with.build().await?;
    say(
        started,
        "starting etcd, Kubernetes and RabbitMQ on loopback ports",
    );
    let mut cluster = RunningCluster::start(with.options()).await?;
    say(
        started,
        "installing the chart: helm upgrade --install asya-operator charts/asya-operator",
    );
    cluster.start_operator(json!({})).await?;
    let meanwhile = async {
        try_join!(
            show_without_keda(&cluster, started),
            build::ensure(Part::Keda)
        )
    };
    tokio::select! {
        shown = meanwhile => drop(shown?),
        error = cluster.death() => return Err(error),
    }
    say(started, "starting KEDA");
    cluster.start_keda().await?;
    tokio::select! {
        shown = models::show(&cluster, started) => shown?,
        error = cluster.death() => return Err(error),
    }
    print_next_steps();
    if stay {
        println!("\nIn another terminal:");
        print_addresses(&cluster);
        println!("\nCtrl-C ends the cluster.");
        return Err(cluster.death().await);
    }
    say(started, "ending the cluster; `--stay` keeps it");
    Ok(ExitCode::SUCCESS)
}

fn say(started: Instant, what: &str) {
    println!("[{:>4.1} s] {what}", started.elapsed().as_secs_f32());
}

async fn show_without_keda(cluster: &RunningCluster, started: Instant) -> Result<()> {
    show_actor(cluster, started).await?;
    messages::show_routes(cluster, started).await?;
    show_binding(cluster, started).await?;
    messages::show_model(cluster, started).await
}

async fn show_actor(cluster: &RunningCluster, started: Instant) -> Result<()> {
    eventually("the CRD is served", Duration::from_mins(1), async || {
        cluster
            .kubectl(&["get", "asya", "--all-namespaces"])
            .await
            .map_err(NotYet::new)
    })
    .await?;
    cluster.kubectl(&["create", "namespace", NAMESPACE]).await?;
    asya_tests::operator::create_broker_secrets(&cluster.client(), NAMESPACE).await?;
    let file = manifest(cluster, started, "actor.yaml", ACTOR)?;
    say(started, "kubectl get asya --watch");
    let state = cluster.state();
    let watch = Spec::new("kubectl", state.control_plane.join("kubectl"))
        .args(["get", "asya", "--watch", "--namespace", NAMESPACE])
        .env("KUBECONFIG", state.kubeconfig.display())
        .env("HOME", state.folder.display());
    let watch = Process::start(watch).await?;
    cluster
        .kubectl(&["apply", "--namespace", NAMESPACE, "--filename", &file])
        .await?;
    let wait = [
        "wait",
        "--namespace",
        NAMESPACE,
        "asya/hello",
        "--for=jsonpath={.status.status}=Running",
        "--timeout=120s",
    ];
    cluster.kubectl(&wait).await?;
    // Let the watch print what the wait has already seen.
    tokio::time::sleep(Duration::from_millis(300)).await;
    watch.kill().await;
    say(started, "Running. Its pods and its queue:");
    print!(
        "{}",
        cluster
            .kubectl(&["get", "deployments,pods", "--namespace", NAMESPACE])
            .await?
    );
    let rabbitmq = cluster.rabbitmq()?;
    for queue in rabbitmq.queues().await? {
        println!(
            "queue {} ({}, durable: {})",
            queue.name, queue.kind, queue.durable
        );
        for binding in rabbitmq.bindings(&queue.name).await? {
            let source = if binding.source.is_empty() {
                "the default exchange"
            } else {
                &binding.source
            };
            println!("  bound to {source} with key {}", binding.routing_key);
        }
    }
    Ok(())
}

/// Shows that the pods of a user's own Deployment are replaced with pods that have the sidecar.
async fn show_binding(cluster: &RunningCluster, started: Instant) -> Result<()> {
    let kubectl = async |args: &[&str]| {
        let args = [&["--namespace", NAMESPACE], args].concat();
        cluster.kubectl(&args).await
    };
    say(
        started,
        "another team's Deployment of a model with the OpenAI protocol, and an actor that binds to it:",
    );
    let file = manifest(cluster, started, "binding.yaml", BINDING)?;
    kubectl(&["apply", "--filename", &file]).await?;
    kubectl(&["rollout", "status", "deployment/model", "--timeout=60s"]).await?;
    let pods = [
        "get",
        "pods",
        "--selector=app=model",
        "--output",
        CONTAINERS,
    ];
    say(started, "its pods as they started:");
    print!("{}", kubectl(&pods).await?);
    kubectl(&[
        "wait",
        "asya/chat",
        "--for=jsonpath={.status.boundSince}",
        "--timeout=60s",
    ])
    .await?;
    let entry = "--for=jsonpath={.webhooks[0].name}=generic.inject.asya.sh";
    let configuration = "mutatingwebhookconfiguration/asya-operator-injector";
    kubectl(&["wait", configuration, entry, "--timeout=60s"]).await?;
    say(
        started,
        "kubectl rollout restart deployment/model: from now on they come with the sidecar",
    );
    kubectl(&["rollout", "restart", "deployment/model"]).await?;
    kubectl(&[
        "wait",
        "asya/chat",
        "--for=condition=Injected",
        "--timeout=60s",
    ])
    .await?;
    kubectl(&["rollout", "status", "deployment/model", "--timeout=60s"]).await?;
    print!("{}", kubectl(&pods).await?);
    print!("{}", kubectl(&["get", "asya"]).await?);
    Ok(())
}

/// Prints a manifest, writes it to a file and returns the path.
fn manifest(cluster: &RunningCluster, started: Instant, name: &str, text: &str) -> Result<String> {
    let file = cluster.folder().join(name);
    std::fs::write(&file, text).map_err(Error::other)?;
    say(started, &format!("kubectl apply -f {name}"));
    print_lines(text);
    Ok(file.display().to_string())
}

fn print_lines(text: &str) {
    for line in text.lines() {
        println!("         | {line}");
    }
}

fn print_next_steps() {
    println!(
        "
What to try on a cluster that stays (`make demo ARGS=--stay` keeps this one, `make up` starts another):
  kubectl get asya -n {NAMESPACE} hello -o yaml      status, conditions and inventory
  kubectl explain asya.spec                   every field
  kubectl get pods -n {NAMESPACE} -l app=model -o yaml   what the sidecar is given
  kubectl scale asya -n {NAMESPACE} hello --replicas 3
  kubectl delete asya -n {NAMESPACE} hello           queue and pods go with it"
    );
}
