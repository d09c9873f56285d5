//! Webhook configurations for many bindings, and the start of a webhook replica.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::operator::Operator;
use asya_tests::webhook::Webhook;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use kube::Api;
use kube::api::ListParams;
use serde_json::json;

use crate::crowd::{self, Crowd};

const PATIENCE: Duration = Duration::from_mins(5);

/// CFG-7 (e): a controller starts in a cluster with 1,000 bindings in 200 namespaces, 100 of them required.
pub async fn applied() -> Result<String> {
    let (count, required) = (1_000, 100);
    let cluster = RunningCluster::start(Options::default()).await?;
    let operator = Operator::install(&cluster, json!({})).await?;
    // The first start installs the CRD.
    operator.start("first").await?.stop().await?;
    Crowd::create(&cluster, count, count, required).await?;
    let configurations: Api<MutatingWebhookConfiguration> = Api::all(cluster.client());
    let controller = operator.start("crowd").await?;
    let ready = Instant::now();
    let sizes = eventually(
        "the configurations hold all bindings",
        PATIENCE,
        async || {
            let found = configurations.list(&ListParams::default()).await;
            let found = found.map_err(NotYet::new)?.items;
            let entries: Vec<_> = found
                .iter()
                .flat_map(|it| it.webhooks.iter().flatten())
                .collect();
            let held = held(&entries);
            check(
                held == (required, crowd::NAMESPACES),
                format_args!("{held:?}"),
            )?;
            let sizes = found
                .iter()
                .map(|it| serde_json::to_vec(it).map(|bytes| bytes.len() / 1024));
            sizes.collect::<Result<Vec<_>, _>>().map_err(NotYet::new)
        },
    )
    .await?;
    let took = ready.elapsed();
    controller.stop().await?;
    Ok(format!(
        "{count} bindings in {} namespaces, {required} of them required: configurations of {sizes:?} KiB applied {:.2} s after the controller was ready",
        crowd::NAMESPACES,
        took.as_secs_f64(),
    ))
}

/// The number of required entries, and of namespaces that the entries select.
fn held(entries: &[&MutatingWebhook]) -> (usize, usize) {
    let required = entries
        .iter()
        .filter(|it| it.name.ends_with(".required.inject.asya.sh"));
    let selectors = entries
        .iter()
        .filter_map(|it| it.namespace_selector.as_ref()?.match_expressions.as_ref());
    let namespaces: BTreeSet<_> = selectors
        .flatten()
        .filter(|it| it.operator == "In")
        .flat_map(|it| it.values.iter().flatten())
        .collect();
    (required.count(), namespaces.len())
}

/// AVL-2 (e): how long after its start a replica is ready.
pub async fn start_to_ready(webhook: &mut Webhook) -> Result<String> {
    webhook.kill().await?;
    let began = Instant::now();
    webhook.fill().await?;
    Ok(format!(
        "a replica that watches all of them: ready {:.2} s after its start",
        began.elapsed().as_secs_f64()
    ))
}
