//! What the operator caches, according to the lists and watches that it requests.

mod event_lists;

use std::collections::{BTreeMap, BTreeSet};

use asya_tests::Error;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::counting_proxy::CountingProxy;
use asya_tests::eventually::{AFTER_START, NotYet, eventually};
use asya_tests::operator::{Launch, Operator};
use asya_tests::scenario::Scenario;
use serde_json::json;

use crate::{minimal_actor, own_cluster};

/// The selectors with which each resource is listed or watched; an empty one selects all objects.
fn selectors(reads: &BTreeSet<String>) -> BTreeMap<String, BTreeSet<String>> {
    let mut selectors: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for read in reads {
        let (path, query) = read.split_once('?').unwrap_or((read, ""));
        let is_of_many = query.contains("limit=") || query.contains("watch=true");
        if is_of_many {
            let resource = path.rsplit('/').next().unwrap_or_default();
            let parts = query.split('&');
            let selector = parts.filter(|part| part.contains("Selector="));
            let of = selectors.entry(resource.to_owned()).or_default();
            of.insert(selector.collect());
        }
    }
    selectors
}

/// OPS-8 (a, c), SEC-2
#[tokio::test]
async fn caches_hold_only_owned_objects_and_the_webhooks_secret() {
    let _turn = own_cluster().await;
    let options = Options {
        keda: true,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await.unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "caches", async |scenario| {
        let proxy = CountingProxy::to_api_server(&cluster).await?;
        let operator = Operator::install(&cluster, json!({})).await?;
        let launch = Launch {
            server: Some(proxy.url()),
            ..Launch::default()
        };
        let instance = operator.launch("operator", launch).await?;
        instance.wait_ready().await?;
        eventually("the CRD is served", AFTER_START, async || {
            let actor = minimal_actor("held");
            scenario.apply(&actor).await.map_err(NotYet::new)
        })
        .await?;
        scenario
            .actor_status("held", "Running", AFTER_START)
            .await?;
        let found = selectors(&proxy.reads());
        // Anyone may own an autoscaler for our workloads, so these cannot be selected by label.
        let whole = [
            "asyncactors",
            "horizontalpodautoscalers",
            "scaledobjects",
            // Watched to detect newly installed kinds that can be bound.
            "customresourcedefinitions",
        ];
        for (resource, selectors) in &found {
            let is_whole = selectors.contains("");
            assert_eq!(
                is_whole,
                whole.contains(&resource.as_str()),
                "{resource}: {selectors:?}"
            );
        }
        for resource in whole
            .iter()
            .chain(&["pods", "deployments", "statefulsets", "configmaps"])
        {
            assert!(
                found.contains_key(*resource),
                "{resource} is not watched: {found:#?}"
            );
        }
        let ours = [
            "asya-operator-webhook-tls",
            "asya-operator-webhook-tls-authority",
        ];
        let ours = ours.map(|name| format!("fieldSelector=metadata.name%3D{name}"));
        let secrets = found.get("secrets").into_iter().flatten();
        assert_eq!(secrets.collect::<Vec<_>>(), ours.each_ref(), "{found:#?}");
        Ok::<_, Error>(())
    })
    .await;
}
