//! `examples/`, applied as users apply them, with the chart's values from `examples/transports`.

use std::path::{Path, PathBuf};

use asya_tests::cluster::Cluster;
use asya_tests::eventually::{LATER, NotYet, check, eventually};
use asya_tests::operator::{RABBITMQ_SECRET, SQS_SECRET, merge};
use asya_tests::owners::{
    crds, inference_set, kaito, knative, kserve, leader_worker_set, llmisvc, ray, seldon, seldon2,
    yatai,
};
use asya_tests::rabbitmq::OPERATOR_PASSWORD;
use asya_tests::{Error, Result};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

use crate::{cluster_with_all, own_cluster};

const NAMESPACE: &str = "models";
/// Replaces a certificate, with the indentation of its lines.
const CA: &str = "-----BEGIN CERTIFICATE-----\n    CA\n    -----END CERTIFICATE-----";

/// Manifests in these folders of `examples/`, or values of the chart.
fn files(folders: &[&str], values: bool) -> Result<Vec<PathBuf>> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut found = Vec::new();
    for folder in folders {
        for entry in std::fs::read_dir(top.join(folder)).map_err(Error::other)? {
            let path = entry.map_err(Error::other)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.ends_with(".yaml") && name.ends_with("-values.yaml") == values {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// All values files, with this cluster's brokers in place of the users'.
fn values(cluster: &Cluster) -> Result<Value> {
    let rabbitmq = cluster.rabbitmq()?;
    let broker = rabbitmq.state();
    let mut all = json!({});
    for file in files(&["transports"], true)? {
        let text = std::fs::read_to_string(&file).map_err(Error::other)?;
        merge(
            &mut all,
            serde_saphyr::from_str(&text).map_err(Error::other)?,
        );
    }
    let transports = all["transports"].as_object_mut();
    for transport in transports.into_iter().flat_map(|all| all.values_mut()) {
        let config = if transport["type"] == "sqs" {
            let key = |key: &str| json!({"name": SQS_SECRET, "key": key});
            json!({
                "region": "us-east-1", "accountId": "000000000000", "endpoint": cluster.state().sqs,
                "credentials": {
                    "accessKeyIdSecretRef": key("access-key-id"),
                    "secretAccessKeySecretRef": key("secret-access-key"),
                },
            })
        } else {
            let tls = transport["config"]["management"]["scheme"] == "https";
            let port = if tls {
                broker.management_tls_port
            } else {
                broker.management_port
            };
            json!({"host": broker.host, "port": broker.port, "vhost": broker.vhost, "management": {"port": port}})
        };
        merge(&mut transport["config"], config);
    }
    Ok(all)
}

/// Applies a file, with this cluster's password and CA in place of its placeholders.
async fn apply(cluster: &Cluster, file: &Path) -> Result<()> {
    let text = std::fs::read_to_string(file).map_err(Error::other)?;
    let ca = std::fs::read_to_string(&cluster.rabbitmq()?.state().ca).map_err(Error::other)?;
    let text = text
        .replace("PASSWORD", OPERATOR_PASSWORD)
        .replace(CA, ca.trim_end().replace('\n', "\n    ").as_str());
    let copy = cluster.folder().join("example.yaml");
    std::fs::write(&copy, text).map_err(Error::other)?;
    let copy = copy.display().to_string();
    let applied = cluster.kubectl(&["apply", "--filename", &copy]).await;
    applied.map(drop)
}

/// Waits until every actor has its queue, which requires a valid spec.
async fn all_have_queues(cluster: &Cluster) -> Result<usize> {
    let kind = GroupVersionKind::gvk("asya.sh", "v1alpha1", "AsyncActor");
    let resource = ApiResource::from_gvk_with_plural(&kind, "asyncactors");
    let actors: Api<DynamicObject> = Api::namespaced_with(cluster.client(), NAMESPACE, &resource);
    eventually("every actor has its queue", LATER, async || {
        let found = actors.list(&ListParams::default()).await?;
        for actor in &found {
            let status = &actor.data["status"];
            let conditions = status["conditions"]
                .as_array()
                .map_or(&[][..], Vec::as_slice);
            let ready = conditions
                .iter()
                .any(|it| it["type"] == "TransportReady" && it["status"] == "True");
            check(ready, format_args!("{:?}: {status}", actor.metadata.name))?;
        }
        Ok(found.items.len())
    })
    .await
}

/// BIND-1, API-2, SQS-2, RMQ-3, RMQ-5
#[tokio::test]
async fn every_example_is_applied_and_gets_its_queue() {
    let _turn = own_cluster().await;
    let mut cluster = cluster_with_all().await;
    let works = async {
        crds::install(
            &cluster,
            &[
                inference_set::INFERENCE_SET,
                kaito::WORKSPACE,
                knative::SERVICE,
                kserve::INFERENCE_SERVICE,
                leader_worker_set::LEADER_WORKER_SET,
                llmisvc::LLM_INFERENCE_SERVICE,
                ray::RAY_CLUSTER,
                ray::RAY_SERVICE,
                seldon::SELDON_DEPLOYMENT,
                seldon2::SERVER,
                yatai::BENTO_DEPLOYMENT,
            ],
        )
        .await?;
        let values = values(&cluster)?;
        cluster.start_operator(values).await?;
        // The operator would prefer these, which contain other keys.
        let unused = [
            "delete",
            "secret",
            RABBITMQ_SECRET,
            SQS_SECRET,
            "--namespace=asya-system",
        ];
        cluster.kubectl(&unused).await?;
        let examples = files(&[".", "standalone", "binding", "transports"], false)?;
        let (namespace, examples): (Vec<_>, Vec<_>) = examples
            .into_iter()
            .partition(|it| it.ends_with("namespace.yaml"));
        apply(&cluster, &namespace[0]).await?;
        for file in &examples {
            eventually("the CRD is served", LATER, async || {
                apply(&cluster, file).await.map_err(NotYet::new)
            })
            .await?;
        }
        let count = all_have_queues(&cluster).await?;
        assert!(count >= examples.len(), "{count} actors");
        Ok::<_, Error>(())
    };
    works.await.unwrap();
}
