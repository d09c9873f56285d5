//! Reports to a gateway that is available, slow, failing or unavailable.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::testing::Fake;
use super::{Gateway, Report, SendResult};
use crate::config;
use crate::decide::{EndActor, Rules};
use crate::metrics::Metrics;

fn gateway(url: &str, required: bool) -> Gateway {
    let settings = config::GatewayConfig {
        url: url.trim_end_matches('/').to_owned(),
        required,
    };
    Gateway::start(&settings, Metrics::new("asya_actor", "foo", "rabbitmq")).expect("a gateway")
}

fn rules(end: Option<EndActor>) -> Rules {
    Rules {
        end,
        ..crate::decide::testing::rules()
    }
}

const FOO: &[u8] =
    br#"{"id":"a/1","route":{"actors":["foo","bar"],"current":0},"payload":{"x":1.50}}"#;

/// SC-86, SC-87, SC-90
#[tokio::test]
async fn progress_and_children_are_reported_in_the_former_sidecars_format() {
    let fake = Fake::start(&[201]).await;
    let gateway = gateway(&fake.url, false);
    gateway.received(&rules(None), FOO);
    let reply = br#"[{"route":{"actors":["foo","bar"],"current":1},"payload":1}]"#;
    gateway.completed(FOO, reply, Duration::from_millis(42));
    gateway.child(br#"{"id":"a/1-1","parent_id":"a/1","route":{"actors":["foo","bar"],"current":1},"payload":2}"#);
    let seen = fake.saw(4).await;
    let path = "/base/envelopes/a%2F1/progress";
    assert_eq!(seen[0].0, path);
    assert_eq!(seen[0].1["message"], "Received message (0.08 KB)");
    assert_eq!(
        (&seen[0].1["status"], &seen[0].1["actors"]),
        (&json!("received"), &json!(["foo", "bar"]))
    );
    let processing = json!({"actors": ["foo", "bar"], "current_actor_idx": 0, "status": "processing", "message": "Processing in foo"});
    assert_eq!(seen[1], (path.to_owned(), processing));
    let completed = json!({
        "actors": ["foo", "bar"], "current_actor_idx": 1, "status": "completed",
        "message": "Completed processing in 42ms", "duration_ms": 42,
    });
    assert_eq!(seen[2], (path.to_owned(), completed));
    let child = json!({"id": "a/1-1", "parent_id": "a/1", "actors": ["foo", "bar"], "current": 1});
    assert_eq!(seen[3], ("/base/envelopes".to_owned(), child));
}

/// SC-88
#[tokio::test]
async fn end_actors_report_the_final_status() {
    let fake = Fake::start(&[200]).await;
    let gateway = gateway(&fake.url, false);
    let failed = br#"{"id":"2","route":{"actors":["foo"],"current":0},"payload":{"error":"processing_error","details":{"type":"T"}}}"#;
    for (end, message, reply) in [
        (EndActor::Happy, FOO, &br#"[{"payload":{"y":2}}]"#[..]),
        (EndActor::Happy, FOO, b"[{}]"),
        (EndActor::Error, failed, b"[]"),
        (EndActor::Other, FOO, b"[]"),
    ] {
        assert!(gateway.ended(&rules(Some(end)), message, reply).is_none());
    }
    let mut seen = fake.saw(3).await;
    for (_, report) in &mut seen {
        let timestamp = report["timestamp"].take();
        assert!(
            timestamp.as_str().is_some_and(|text| text.ends_with('Z')),
            "{timestamp}"
        );
    }
    let succeeded = |result: Value| json!({"id": "a/1", "status": "succeeded", "timestamp": null, "progress": 1.0, "result": result});
    assert_eq!(
        seen[0],
        (
            "/base/envelopes/a%2F1/final".to_owned(),
            succeeded(json!({"y": 2}))
        )
    );
    assert_eq!(seen[1].1, succeeded(json!({"x": 1.5})));
    let failed = json!({
        "id": "2", "status": "failed", "timestamp": null, "error": "processing_error", "error_details": {"type": "T"},
        "actors": ["foo"], "current_actor_idx": 0, "current_actor_name": "foo",
    });
    assert_eq!(seen[2].1, failed);
}

/// SC-89
#[tokio::test]
async fn report_is_attempted_five_times_without_blocking() {
    let fake = Fake::start(&[500, 503, 500, 200]).await;
    let gateway = gateway(&fake.url, false);
    gateway.received(&rules(None), FOO);
    assert_eq!(
        fake.requests.lock().len(),
        0,
        "it returns before a report is sent"
    );
    let seen = fake.saw(5).await;
    let statuses: Vec<&str> = seen
        .iter()
        .filter_map(|(_, report)| report["status"].as_str())
        .collect();
    assert_eq!(
        statuses,
        ["received", "received", "received", "received", "processing"]
    );
}

/// SC-90
#[tokio::test]
async fn required_final_report_is_refused_only_if_no_later_attempt_may_succeed() {
    let fake = Fake::start(&[500, 503, 429, 408, 404, 400, 302, 200]).await;
    let gateway = gateway(&fake.url, true);
    let end = rules(Some(EndActor::Happy));
    let mut report = gateway.ended(&end, FOO, b"[]").expect("a required report");
    for expected in [
        SendResult::Failed,
        SendResult::Failed,
        SendResult::Failed,
        SendResult::Failed,
        SendResult::Refused,
        SendResult::Refused,
        SendResult::Refused,
        SendResult::Accepted,
    ] {
        let attempted = fake.requests.lock().len();
        assert_eq!(report.attempt().await, expected, "{attempted}");
        assert_eq!(fake.requests.lock().len(), attempted + 1);
    }
    assert!(
        gateway.ended(&end, b"no JSON", b"[]").is_none(),
        "there is nothing to report"
    );
}

/// SC-89: a busy gateway accepts it later.
#[tokio::test]
async fn report_is_sent_again_after_408_and_429() {
    let fake = Fake::start(&[429, 408, 200]).await;
    let gateway = gateway(&fake.url, false);
    let end = rules(Some(EndActor::Happy));
    assert!(gateway.ended(&end, FOO, b"[]").is_none());
    let seen = fake.saw(3).await;
    assert_eq!(seen[2].0, "/base/envelopes/a%2F1/final");
}

/// A message with this id.
fn end_message(id: &str) -> Vec<u8> {
    json!({"id": id, "route": {"actors": ["foo"], "current": 0}, "payload": 1})
        .to_string()
        .into_bytes()
}

/// SC-89, SC-90
#[tokio::test]
async fn final_report_that_always_fails_delays_no_other() {
    let fake = Fake::answering(|path| if path.contains("bad") { 500 } else { 200 }).await;
    let gateway = gateway(&fake.url, false);
    let end = rules(Some(EndActor::Happy));
    for id in ["bad", "good"] {
        assert!(gateway.ended(&end, &end_message(id), b"[]").is_none());
    }
    let seen = fake.saw(6).await;
    assert_eq!(seen[4].0, "/base/envelopes/bad/final");
    assert_eq!(seen[5].0, "/base/envelopes/good/final");
    let seen = fake.saw(7).await;
    assert_eq!(seen[6].0, "/base/envelopes/bad/final", "it is retried");
}

/// SC-89, SC-90
#[tokio::test]
async fn report_that_cannot_be_sent_is_refused_at_once() {
    let fake = Fake::start(&[200]).await;
    let end = rules(Some(EndActor::Happy));
    let too_long = end_message(&"x".repeat(70_000));
    let started = Instant::now();
    let required = gateway(&fake.url, true).ended(&end, &too_long, b"[]");
    let mut required = required.expect("a required report");
    assert_eq!(required.attempt().await, SendResult::Refused);
    let gateway = gateway(&fake.url, false);
    assert!(gateway.ended(&end, &too_long, b"[]").is_none());
    assert!(gateway.ended(&end, &end_message("good"), b"[]").is_none());
    let seen = fake.saw(1).await;
    assert_eq!(seen[0].0, "/base/envelopes/good/final");
    assert!(
        started.elapsed() < Duration::from_millis(700),
        "it is not retried"
    );
}

/// SC-90
#[tokio::test(start_paused = true)]
async fn report_is_not_retried_before_its_time_and_others_are_sent_meanwhile() {
    let queue = super::queue::Queue::default();
    let now = Instant::now();
    let report = |path: &str, after| Report {
        kind: super::ReportKind::Final,
        path: path.to_owned(),
        body: bytes::Bytes::new(),
        retry: Some(super::Retry {
            due: now + Duration::from_secs(after),
            until: now + Duration::from_mins(10),
        }),
    };
    queue.push(report("later", 5));
    queue.push(report("first", 0));
    let next = async || queue.next().await.map(|report| report.path);
    assert_eq!(next().await.as_deref(), Some("first"));
    assert_eq!(next().await.as_deref(), Some("later"));
    assert_eq!(now.elapsed().as_secs(), 5);
    queue.push(report("last", 60));
    queue.close();
    assert_eq!(next().await.as_deref(), Some("last"), "the last attempt");
    assert_eq!(next().await, None);
    assert_eq!(now.elapsed().as_secs(), 5);
}

/// SC-84, SC-89: the reports for a gateway that is down must not fill the memory.
#[tokio::test]
async fn queue_of_large_reports_drops_the_oldest() {
    const MAX: usize = super::queue::MAX_BYTES;
    let queue = super::queue::Queue::default();
    let push = |number: usize, size: usize| {
        let dropped = queue.push(Report {
            kind: super::ReportKind::Final,
            path: number.to_string(),
            body: vec![0; size].into(),
            retry: None,
        });
        let paths = dropped.into_iter().map(|report| report.path);
        paths.collect::<Vec<_>>()
    };
    for number in 0..4 {
        assert!(push(number, MAX / 4).is_empty());
    }
    assert_eq!(push(4, MAX / 4), ["0"]);
    assert_eq!(queue.next().await.expect("a report").path, "1");
    assert!(push(5, MAX / 4).is_empty(), "one was taken");
    assert_eq!(push(6, MAX / 2), ["2", "3"]);
    assert_eq!(push(7, 2 * MAX), ["4", "5", "6"], "it fits alone");
    assert_eq!(push(8, 1), ["7"]);
}

/// SC-89
#[tokio::test]
async fn full_queue_drops_the_oldest_progress_and_the_exit_waits_a_second() {
    let queue = super::queue::Queue::default();
    let report = |kind, number: usize| Report {
        kind,
        path: number.to_string(),
        body: bytes::Bytes::new(),
        retry: None,
    };
    assert!(queue.push(report(super::ReportKind::Child, 0)).is_empty());
    for number in 1..1024 {
        assert!(
            queue
                .push(report(super::ReportKind::Progress, number))
                .is_empty()
        );
    }
    let dropped = queue.push(report(super::ReportKind::Child, 9999));
    assert_eq!(dropped.len(), 1);
    assert_eq!(dropped[0].path, "1");
    assert_eq!(queue.next().await.expect("a report").path, "0");

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let gateway = gateway(
        &format!("http://{}", listener.local_addr().expect("an address")),
        false,
    );
    gateway.received(&rules(None), FOO);
    let started = Instant::now();
    gateway.finish().await;
    let took = started.elapsed();
    assert!((900..1500).contains(&took.as_millis()), "{took:?}");
}
