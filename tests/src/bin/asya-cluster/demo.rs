//! `asya-cluster demo`: a user's first five minutes.

mod messages;
mod models;
mod progress;

use std::process::ExitCode;
use std::time::Duration;

use asya_tests::build::{self, Component};
use asya_tests::cluster::RunningCluster;
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::process::{Process, Spec};
use asya_tests::{Error, Result};
use serde_json::json;
use tokio::try_join;

use self::progress::Progress;
use crate::{With, print_addresses};

const NAMESPACE: &str = "demo";
const ACTOR: &str = include_str!("demo/actor.yaml");
const BINDING: &str = include_str!("demo/binding.yaml");
/// What the steps of the demo do not show.
const LIMITS: &str = "  \
  # Nothing runs in fake pods: a message that you send stays in its queue, and `kubectl logs` and `exec` fail.";
const CONTAINERS: &str = "custom-columns=POD:.metadata.name,CONTAINERS:.spec.containers[*].name";

/// `before`: number of steps that the caller has already announced.
pub(crate) async fn demo(stay: bool, before: usize) -> Result<ExitCode> {
    let progress = &Progress::after(before);
    // KEDA takes longest to build, and only the last part needs it.
    let with = With {
        sqs: false,
        keda: false,
        no_rabbitmq: false,
        no_operator: false,
        real: false,
    };
    with.build(|_| progress.step()).await?;
    progress.step();
    progress.say("starting etcd, Kubernetes and RabbitMQ on loopback ports");
    tokio::spawn(async {
        if tokio::signal::ctrl_c().await.is_ok() {
            println!("\nending the cluster");
        }
    });
    let mut cluster = RunningCluster::start(with.options()).await?;
    let values = cluster.folder().join("values.json");
    progress.say(&format!(
        "helm upgrade --install asya-operator charts/asya-operator --namespace asya-system --values {}",
        values.display()
    ));
    cluster.start_operator(json!({})).await?;
    let meanwhile = async {
        try_join!(
            show_without_keda(&cluster, progress),
            build::ensure(Component::Keda)
        )
    };
    tokio::select! {
        shown = meanwhile => drop(shown?),
        error = cluster.death() => return Err(error),
    }
    progress.say("starting KEDA");
    cluster.start_keda().await?;
    tokio::select! {
        shown = models::show(&cluster, progress) => shown?,
        error = cluster.death() => return Err(error),
    }
    if stay {
        println!("\nThe cluster stays until Ctrl-C. In another terminal:");
        print_addresses(&cluster, &["default", NAMESPACE]);
        println!("{}", next_steps());
        let error = cluster.death().await;
        let operator = ["get", "deployment/asya-operator", "--namespace=asya-system"];
        if cluster.kubectl(&operator).await.is_err() {
            progress.say("the operator is no longer installed: ending the cluster");
            return Ok(ExitCode::SUCCESS);
        }
        cluster.keep_logs();
        return Err(error);
    }
    println!(
        "\n`make demo ARGS=--stay` keeps the cluster. There you can try:\n{}",
        next_steps()
    );
    progress.say("ending the cluster");
    Ok(ExitCode::SUCCESS)
}

/// A command as a user would type it in any directory and namespace.
fn command(args: &str) -> String {
    format!("kubectl -n {NAMESPACE} {args}")
}

async fn show_without_keda(cluster: &RunningCluster, progress: &Progress) -> Result<()> {
    progress.step();
    show_actor(cluster, progress).await?;
    progress.step();
    messages::show_routes(cluster, progress).await?;
    progress.step();
    show_binding(cluster, progress).await?;
    messages::show_model(cluster, progress).await?;
    // The rest of KEDA's build belongs to the last step.
    progress.step();
    Ok(())
}

async fn show_actor(cluster: &RunningCluster, progress: &Progress) -> Result<()> {
    eventually("the CRD is served", Duration::from_mins(1), async || {
        cluster
            .kubectl(&["get", "asya", "--all-namespaces"])
            .await
            .map_err(NotYet::new)
    })
    .await?;
    cluster.kubectl(&["create", "namespace", NAMESPACE]).await?;
    asya_tests::operator::create_broker_secrets(&cluster.client(), NAMESPACE).await?;
    let file = manifest(cluster, progress, "actor.yaml", ACTOR)?;
    progress.say(&command("get asya --watch"));
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
    progress.say("Running. Its pods and its queue:");
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
        for binding in rabbitmq.queue_bindings(&queue.name).await? {
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
async fn show_binding(cluster: &RunningCluster, progress: &Progress) -> Result<()> {
    let kubectl = async |args: &[&str]| {
        let args = [&["--namespace", NAMESPACE], args].concat();
        cluster.kubectl(&args).await
    };
    progress.say("another team's Deployment of a model with the OpenAI protocol, and an actor that binds to it:",
    );
    let file = manifest(cluster, progress, "binding.yaml", BINDING)?;
    kubectl(&["apply", "--filename", &file]).await?;
    kubectl(&["rollout", "status", "deployment/model", "--timeout=60s"]).await?;
    let pods = [
        "get",
        "pods",
        "--selector=app=model",
        "--output",
        CONTAINERS,
    ];
    progress.say("its pods as they started:");
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
    progress.say("new pods get the sidecar, so the operator now replaces these, by one rollout of the Deployment:");
    kubectl(&[
        "wait",
        "asya/chat",
        "--for=condition=Injected",
        "--timeout=120s",
    ])
    .await?;
    kubectl(&["rollout", "status", "deployment/model", "--timeout=60s"]).await?;
    print!("{}", kubectl(&pods).await?);
    print!("{}", kubectl(&["get", "asya"]).await?);
    Ok(())
}

/// Prints a manifest, writes it to a file and returns the path.
fn manifest(
    cluster: &RunningCluster,
    progress: &Progress,
    name: &str,
    text: &str,
) -> Result<String> {
    let file = cluster.folder().join(name);
    std::fs::write(&file, text).map_err(Error::other)?;
    let file = file.display().to_string();
    progress.say(&command(&format!("apply -f {file}")));
    print_lines(text);
    Ok(file)
}

fn print_lines(text: &str) {
    for line in text.lines() {
        println!("         | {line}");
    }
}

fn next_steps() -> String {
    let steps = [
        ("get asya hello -o yaml", "status, conditions and inventory"),
        ("explain asya.spec", "every field"),
        ("get pods -l app=model -o yaml", "what sidecars are given"),
        ("scale asya hello --replicas 3", "three pods"),
        ("delete asya hello", "queue and pods go with it"),
    ];
    let lines = steps.map(|(args, what)| format!("  {:<48}# {what}", command(args)));
    format!("{}\n{LIMITS}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users paste the printed commands into a shell whose default namespace is another one.
    #[test]
    fn commands_that_are_printed_name_the_namespace() {
        for line in next_steps().lines() {
            let is_step = line.starts_with("  kubectl -n demo ");
            assert!(is_step || line == LIMITS, "{line}");
        }
        let sources = [
            include_str!("demo.rs"),
            include_str!("demo/messages.rs"),
            include_str!("demo/models.rs"),
        ];
        let printed = sources.iter().flat_map(|it| it.lines());
        let printed: Vec<&str> = printed.filter(|it| it.contains("\"kubectl ")).collect();
        assert_eq!(printed.len(), 2, "use `command`: {printed:?}");
    }
}
