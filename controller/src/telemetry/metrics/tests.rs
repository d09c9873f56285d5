#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use asya_shared::api::PodCounts;

use super::reconcile::ReconcileTimer;
use super::*;
use crate::work_queue::{Observer, WorkQueue, WorkQueueSettings};

/// Value of a series, given its name and labels as exposed.
fn value(metrics: &Metrics, series: &str) -> Option<String> {
    let text = metrics.text().unwrap();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    value.map(str::to_owned)
}

/// Name and label keys of an exposed line.
fn shape(line: &str) -> String {
    let Some((name, rest)) = line.split_once('{') else {
        return line.split(' ').next().unwrap().to_owned();
    };
    let (labels, _) = rest.rsplit_once('}').unwrap();
    let keys = labels
        .split(',')
        .map(|label| label.split_once('=').unwrap().0);
    format!("{name}{{{}}}", keys.collect::<Vec<_>>().join(","))
}

fn shapes(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter(|line| !line.contains("_bucket{"))
        .map(shape)
        .collect()
}

const FROM_THE_START: [&str; 15] = [
    "asya_operator_api_writes_total",
    "asya_operator_leading",
    "asya_operator_undecodable_objects",
    "asya_operator_unproved_bindings",
    "controller_runtime_active_workers{controller}",
    "controller_runtime_reconcile_errors_total{controller}",
    "controller_runtime_reconcile_panics_total{controller}",
    "controller_runtime_reconcile_time_seconds_count{controller}",
    "controller_runtime_reconcile_time_seconds_sum{controller}",
    "controller_runtime_reconcile_total{controller,result}",
    "controller_runtime_terminal_reconcile_errors_total{controller}",
    "workqueue_depth{name,controller}",
    "workqueue_queue_duration_seconds_count{name,controller}",
    "workqueue_queue_duration_seconds_sum{name,controller}",
    "workqueue_retries_total{name,controller}",
];

const ONCE_KNOWN: [&str; 13] = [
    "asya_operator_actors{transport,status}",
    "asya_operator_bound_pods{namespace,actor,state}",
    "asya_operator_broker_requests_total{transport,operation,result}",
    "asya_operator_conflicts_total{namespace,actor,field}",
    "asya_operator_events_dropped_total{kind}",
    "asya_operator_events_received_total{kind}",
    "asya_operator_namespace_unsynced{namespace}",
    "asya_operator_pass_failures_total{kind}",
    "asya_operator_records{kind}",
    "asya_operator_rollout_halted{namespace,actor}",
    "asya_operator_transport_up{transport}",
    "asya_operator_watch_healthy{kind}",
    "asya_webhook_config_heals_total{object}",
];

fn set(shapes: impl IntoIterator<Item = &'static str>) -> BTreeSet<String> {
    shapes.into_iter().map(str::to_owned).collect()
}

/// OPS-4, FW-12, FW-14, FW-15
#[test]
fn every_metric_has_its_name_and_labels() {
    let metrics = Arc::new(Metrics::new());
    assert_eq!(shapes(&metrics.text().unwrap()), set(FROM_THE_START));
    metrics.actors([("rabbitmq", "Running", 3)]);
    metrics.broker_request("rabbitmq", "declare", "201");
    metrics.transport_up("rabbitmq", true);
    metrics.watch_healthy("AsyncActor", true);
    metrics.unsynced_namespaces(["ns"]);
    metrics.records("Pod", 7);
    metrics.bound_pods([(&Key::new("ns", "a"), &PodCounts::default())]);
    metrics.conflicts([(&Key::new("ns", "a"), "Roll", 1)]);
    metrics.rollouts_halted([&Key::new("ns", "a")]);
    metrics.config_restored("asya-injector");
    metrics.watch_event("Pod");
    metrics.watch_event_dropped("Pod");
    metrics.start_reconcile().failed("Api");
    let expected = set(FROM_THE_START.into_iter().chain(ONCE_KNOWN));
    assert_eq!(shapes(&metrics.text().unwrap()), expected);
}

/// OPS-4
#[test]
fn series_expose_the_recorded_values() {
    let metrics = Metrics::new();
    metrics.actors([("rabbitmq", "Running", 3), ("sqs", "Napping", 1)]);
    metrics.broker_request("rabbitmq", "declare", "201");
    metrics.broker_request("rabbitmq", "declare", "201");
    metrics.transport_up("rabbitmq", true);
    metrics.transport_up("sqs", true);
    metrics.transport_up("sqs", false);
    metrics.api_writes().inc();
    metrics.undecodable(2);
    metrics.set_unverified_bindings(4);
    let actor = Key::new("ns", "a");
    metrics.rollouts_halted([&Key::new("ns", "over"), &actor]);
    metrics.rollouts_halted([&actor]);
    metrics.conflicts([(&actor, "Roll", 1)]);
    metrics.conflicts([(&actor, "Roll", 3)]);
    metrics.watch_healthy("Pod", false);
    metrics.records("Pod", 50_000);
    metrics.watch_event("Pod");
    metrics.watch_event_dropped("Pod");
    let requests = r#"{transport="rabbitmq",operation="declare",result="201"}"#;
    for (series, expected) in [
        (
            r#"asya_operator_actors{transport="rabbitmq",status="Running"}"#,
            "3",
        ),
        (
            r#"asya_operator_actors{transport="sqs",status="Napping"}"#,
            "1",
        ),
        (
            &format!("asya_operator_broker_requests_total{requests}"),
            "2",
        ),
        (r#"asya_operator_transport_up{transport="rabbitmq"}"#, "1"),
        (r#"asya_operator_transport_up{transport="sqs"}"#, "0"),
        ("asya_operator_api_writes_total", "1"),
        ("asya_operator_undecodable_objects", "2"),
        ("asya_operator_unproved_bindings", "4"),
        (
            r#"asya_operator_rollout_halted{namespace="ns",actor="a"}"#,
            "1",
        ),
        (
            r#"asya_operator_conflicts_total{namespace="ns",actor="a",field="Roll"}"#,
            "3",
        ),
        (r#"asya_operator_watch_healthy{kind="Pod"}"#, "0"),
        (r#"asya_operator_records{kind="Pod"}"#, "50000"),
        (r#"asya_operator_events_received_total{kind="Pod"}"#, "1"),
        (r#"asya_operator_events_dropped_total{kind="Pod"}"#, "1"),
    ] {
        assert_eq!(
            value(&metrics, series).as_deref(),
            Some(expected),
            "{series}"
        );
    }
}

/// OPS-4
#[test]
fn status_without_actors_has_no_series() {
    let metrics = Metrics::new();
    metrics.actors([("sqs", "Creating", 1)]);
    metrics.actors([("sqs", "Running", 1)]);
    assert_eq!(
        value(
            &metrics,
            r#"asya_operator_actors{transport="sqs",status="Creating"}"#
        ),
        None
    );
}

/// FW-15
#[tokio::test]
async fn gauges_are_read_at_each_scrape() {
    let metrics = Arc::new(Metrics::new());
    let queue = WorkQueue::with_observer(WorkQueueSettings::default(), metrics.clone());
    metrics.watch_queue(&queue);
    let depth = r#"workqueue_depth{name="asyncactor",controller="asyncactor"}"#;
    let active = r#"controller_runtime_active_workers{controller="asyncactor"}"#;
    for key in ["a", "b"] {
        queue.enqueue(key);
    }
    assert_eq!(value(&metrics, depth).as_deref(), Some("2"));
    let handle = queue.clone();
    tokio::spawn(async move { handle.run(|_, _| std::future::pending()).await });
    tokio::task::yield_now().await;
    assert_eq!(value(&metrics, depth).as_deref(), Some("0"));
    assert_eq!(value(&metrics, active).as_deref(), Some("2"));
}

/// OPS-4
#[tokio::test(start_paused = true)]
async fn reconcile_is_timed_and_counted_by_result() {
    let metrics = Arc::new(Metrics::new());
    for end in [
        ReconcileTimer::succeeded,
        ReconcileTimer::succeeded,
        ReconcileTimer::requeued,
    ] {
        let timer = metrics.start_reconcile();
        tokio::time::sleep(Duration::from_secs(2)).await;
        end(timer);
    }
    metrics.start_reconcile().failed("Api");
    let total = |result| {
        let series = "controller_runtime_reconcile_total{controller=\"asyncactor\",result=";
        value(&metrics, &format!("{series}\"{result}\"}}")).unwrap()
    };
    assert_eq!(
        [total("success"), total("requeue_after"), total("error")],
        ["2", "1", "1"]
    );
    let one = |name| value(&metrics, &format!("{name}{{controller=\"asyncactor\"}}")).unwrap();
    assert_eq!(one("controller_runtime_reconcile_errors_total"), "1");
    assert_eq!(one("controller_runtime_reconcile_time_seconds_sum"), "6.0");
    assert_eq!(one("controller_runtime_reconcile_time_seconds_count"), "4");
    assert_eq!(failures(&metrics, "Api").as_deref(), Some("1"));
}

fn failures(metrics: &Metrics, kind: &str) -> Option<String> {
    value(
        metrics,
        &format!("asya_operator_pass_failures_total{{kind=\"{kind}\"}}"),
    )
}

/// OPS-4
#[tokio::test]
async fn panicking_reconcile_counts_as_failed() {
    let metrics = Arc::new(Metrics::new());
    let timer = metrics.start_reconcile();
    let task = tokio::spawn(async move {
        let _timer = timer;
        panic!("on purpose");
    });
    assert!(task.await.is_err());
    let failed = r#"controller_runtime_reconcile_errors_total{controller="asyncactor"}"#;
    assert_eq!(value(&metrics, failed).as_deref(), Some("1"));
    assert_eq!(failures(&metrics, "Unfinished").as_deref(), Some("1"));
}

/// FW-15
#[test]
fn work_queue_events_are_counted() {
    let metrics = Metrics::new();
    metrics.started(Duration::from_millis(1500));
    metrics.retried();
    metrics.panicked();
    let queue = |name| {
        value(
            &metrics,
            &format!("{name}{{name=\"asyncactor\",controller=\"asyncactor\"}}"),
        )
    };
    assert_eq!(
        queue("workqueue_queue_duration_seconds_sum").as_deref(),
        Some("1.5")
    );
    assert_eq!(queue("workqueue_retries_total").as_deref(), Some("1"));
    let panics = r#"controller_runtime_reconcile_panics_total{controller="asyncactor"}"#;
    assert_eq!(value(&metrics, panics).as_deref(), Some("1"));
}

/// FW-15: a namespace that is not watched any more leaves no alert, and none hides that of another.
#[test]
fn watches_of_a_kind_are_healthy_unless_one_of_them_fails() {
    let metrics = Arc::new(Metrics::new());
    let healthy = || value(&metrics, r#"asya_operator_watch_healthy{kind="Pod"}"#);
    let [mut one, mut other] = [(), ()].map(|()| WatchHealth::new(&metrics, "Pod"));
    assert_eq!(healthy(), None, "nothing listed yet");
    one.set(true);
    assert_eq!(healthy().as_deref(), Some("1"));
    for _ in 0..2 {
        other.set(false);
        assert_eq!(healthy().as_deref(), Some("0"));
    }
    one.set(true);
    assert_eq!(healthy().as_deref(), Some("0"), "the other still fails");
    one.set(false);
    other.set(true);
    assert_eq!(healthy().as_deref(), Some("0"));
    drop(other);
    assert_eq!(healthy().as_deref(), Some("0"));
    drop(one);
    assert_eq!(healthy().as_deref(), Some("1"));
}
