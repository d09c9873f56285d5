//! Watches of Events, for which the API server sends no bookmarks.

use std::collections::BTreeMap;
use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::counting_proxy::CountingProxy;
use asya_tests::eventually::{AFTER_START, check, eventually};
use asya_tests::operator::{Launch, Operator};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::core::v1::Event;
use kube::api::PostParams;
use serde_json::json;

use crate::binding::{bound_actor, condition, status_is};
use crate::own_cluster;

const CUTS: usize = 4;
/// Warnings about pods, Events of `StatefulSet`s that may not create pods, and, while a binding exists, of rejected
/// pods.
const SELECTORS: usize = 3;
const RECEIVED: &str = "asya_operator_events_received_total";

/// How many versions of Events to wait for before the watches are cut, at 3 to 4 minutes each (default: none, because
/// of this duration). etcd is compacted every 5 minutes.
const REFRESHES: &str = "ASYA_REFRESHES";
const REFRESHED: Duration = Duration::from_mins(5);

fn refreshes() -> u32 {
    std::env::var(REFRESHES).map_or(0, |number| {
        number.parse().expect("ASYA_REFRESHES is a number")
    })
}

/// How often Events were listed, or watched, by selector; without a selector, only their version was read.
fn all_reads(proxy: &CountingProxy, watches: bool) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for (read, count) in proxy.read_counts() {
        let (path, query) = read.split_once('?').unwrap_or((&read, ""));
        if path.ends_with("/events") && query.contains("watch=true") == watches {
            let mut parts = query.split('&');
            let selector = parts.find(|part| part.starts_with("fieldSelector="));
            *counts
                .entry(selector.unwrap_or_default().to_owned())
                .or_default() += count;
        }
    }
    counts
}

fn reads(proxy: &CountingProxy, watches: bool) -> BTreeMap<String, usize> {
    let mut counts = all_reads(proxy, watches);
    counts.remove("");
    counts
}

async fn versions_are_read(proxy: &CountingProxy, each: u32) -> Result<()> {
    let times = usize::try_from(each).unwrap_or(usize::MAX) * SELECTORS;
    let within = AFTER_START + REFRESHED * each;
    eventually("versions of Events are read", within, async || {
        let read = all_reads(proxy, false).get("").copied().unwrap_or(0);
        check(read >= times, read)
    })
    .await
}

/// Waits until every watch has been reopened once.
async fn watches_are_open(proxy: &CountingProxy, before: &BTreeMap<String, usize>) -> Result<()> {
    eventually("Events are watched again", AFTER_START, async || {
        let watched = reads(proxy, true);
        let again = watched
            .iter()
            .filter(|(selector, count)| **count > before.get(*selector).copied().unwrap_or(0));
        check(again.count() == SELECTORS, format_args!("{watched:?}"))
    })
    .await
}

/// OPS-27
#[tokio::test]
async fn events_are_listed_once_however_often_their_watches_are_cut() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "event-lists", async |scenario| {
        let proxy = CountingProxy::to_api_server(&cluster).await?;
        let operator = Operator::install(&cluster, json!({})).await?;
        let launch = Launch {
            server: Some(proxy.url()),
            ..Launch::default()
        };
        let instance = operator.launch("operator", launch).await?;
        instance.wait_ready().await?;
        let name = scenario.name("alone");
        scenario.apply(&bound_actor(&name, "nothing")).await?;
        status_is(scenario, &name, "its target is missing", AFTER_START, |status| {
            condition(status, "TargetResolved").1 == "TargetNotFound"
        })
        .await?;
        watches_are_open(&proxy, &BTreeMap::new()).await?;
        versions_are_read(&proxy, refreshes()).await?;
        for _ in 0..CUTS {
            let before = reads(&proxy, true);
            proxy.cut_watches();
            watches_are_open(&proxy, &before).await?;
        }
        let listed = reads(&proxy, false);
        assert_eq!(listed.len(), SELECTORS, "{listed:?}");
        assert!(listed.values().all(|times| *times == 1), "{listed:?}");

        // The last watch has not missed anything.
        let received = async || {
            let metrics = instance.read_metrics().await?;
            Ok::<_, asya_tests::Error>(metrics.sum(RECEIVED, &[("kind", "Event")]))
        };
        let before = received().await?;
        let event: Event = serde_json::from_value(json!({
            "metadata": {"generateName": "late-"},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "name": "late", "namespace": scenario.namespace(),
            },
            "type": "Warning", "reason": "FailedMount", "message": "a volume is missing",
        }))?;
        let events = scenario.api::<Event>();
        events.create(&PostParams::default(), &event).await?;
        eventually("the Event arrives", AFTER_START, async || {
            let now = received().await?;
            check(now > before, format_args!("{now:?}"))
        })
        .await?;
        let listed = reads(&proxy, false);
        assert!(listed.values().all(|times| *times == 1), "{listed:?}");
        let watched: Vec<_> = reads(&proxy, true).into_values().collect();
        eprintln!("{SELECTORS} lists of Events, watches of each: {watched:?}");
        Ok(())
    })
    .await;
}
