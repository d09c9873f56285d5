//! The part of the demo that binds models served by other systems.

use asya_tests::Result;
use asya_tests::cluster::RunningCluster;
use asya_tests::owners::kaito::{Kaito, WORKSPACE};
use asya_tests::owners::kserve::{INFERENCE_SERVICE, Kserve};
use asya_tests::owners::{Owner, crds};

use super::progress::Progress;
use super::{CONTAINERS, NAMESPACE, manifest};

const WORKSPACE_AND_ACTOR: &str = include_str!("workspace.yaml");
const SERVICE_AND_ACTOR: &str = include_str!("inference-service.yaml");
/// Enough messages for three pods, at 5 messages per pod.
const MESSAGES: usize = 12;

/// Shows that a KAITO Workspace and a KServe `InferenceService` get the sidecar, and that the latter scales with its
/// queue.
pub(super) async fn show(cluster: &RunningCluster, progress: &Progress) -> Result<()> {
    let kubectl = async |args: &[&str]| {
        let args = [&["--namespace", NAMESPACE], args].concat();
        cluster.kubectl(&args).await
    };
    let is = async |actor: &str, what: &str| {
        let wait = ["wait", actor, what, "--timeout=180s"];
        kubectl(&wait).await
    };
    progress.say("models of KAITO and KServe (their CRDs; simulators of their controllers make what they would make)",
    );
    crds::install(cluster, &[WORKSPACE, INFERENCE_SERVICE]).await?;
    let _kaito = Owner::of(cluster.client(), NAMESPACE, Kaito);
    let _kserve = Owner::of(cluster.client(), NAMESPACE, Kserve);
    let file = manifest(cluster, progress, "workspace.yaml", WORKSPACE_AND_ACTOR)?;
    kubectl(&["apply", "--filename", &file]).await?;
    is("asya/phi-4", "--for=condition=Injected").await?;
    progress.say("the pod of KAITO's StatefulSet has the sidecar:");
    let of_workspace = [
        "get",
        "pods",
        "--selector=kaito.sh/workspace=phi-4",
        "--output",
        CONTAINERS,
    ];
    print!("{}", kubectl(&of_workspace).await?);

    let file = manifest(
        cluster,
        progress,
        "inference-service.yaml",
        SERVICE_AND_ACTOR,
    )?;
    kubectl(&["apply", "--filename", &file]).await?;
    is("asya/iris", "--for=jsonpath={.status.status}=Napping").await?;
    progress.say("its queue is empty: KServe has given up its autoscaler, and KEDA has scaled the model to zero",
    );
    let actor = ["get", "asya", "iris"];
    print!("{}", kubectl(&actor).await?);
    progress.say("12 messages arrive:");
    let rabbitmq = cluster.rabbitmq()?;
    for number in 0..MESSAGES {
        rabbitmq
            .publish("", "asya-iris", &number.to_string())
            .await?;
    }
    is("asya/iris", "--for=jsonpath={.status.pods.injected}=3").await?;
    let selector = "--selector=serving.kserve.io/inferenceservice=iris";
    print!(
        "{}",
        kubectl(&["get", "pods", selector, "--output", CONTAINERS]).await?
    );
    print!("{}", kubectl(&actor).await?);
    progress
        .say("they are taken (no sidecar runs in a fake pod, so by us), and it is Napping again:");
    rabbitmq.messages("asya-iris", MESSAGES, false).await?;
    is("asya/iris", "--for=jsonpath={.status.status}=Napping").await?;
    print!("{}", kubectl(&actor).await?);
    Ok(())
}
