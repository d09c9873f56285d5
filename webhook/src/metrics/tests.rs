use std::sync::Arc;
use std::time::Duration;

use asya_certs::serve::CertificateMetrics;
use asya_process::metrics::ExposedMetrics;
use asya_process::serve::Count;
use k8s_openapi::jiff::Timestamp;

use super::{Metrics, ReviewLabels, ReviewResult};
use crate::outcome::{EndpointPath, ReviewPath, ReviewReason};

const DOCS: &str = include_str!("../../../docs/spec/admission.md");

/// The text after every metric has been set once.
fn text() -> String {
    let metrics = Arc::new(Metrics::new());
    drop(metrics.begin(EndpointPath::Pods(ReviewPath::Optional)));
    metrics.reviewed(&ReviewLabels {
        path: EndpointPath::Pods(ReviewPath::Optional),
        operation: "CREATE",
        result: ReviewResult::Patched,
        reason: ReviewReason::Valid,
        dry_run: false,
    });
    metrics.review_bytes(100_000);
    metrics.patch_bytes(4_000);
    metrics.reflector_age(Some(Duration::from_secs(7)));
    let now: Timestamp = "2026-11-21T12:00:00Z".parse().unwrap();
    let certificate = CertificateMetrics {
        leaf_expires: Some(now + Duration::from_hours(1)),
        ca_expires: Some(now - Duration::from_secs(5)),
        swapped: 2,
        refused: 1,
    };
    // Two scrapes must not count twice.
    metrics.certificates(&certificate, now);
    metrics.certificates(&certificate, now);
    let count = Count {
        open: 12,
        evicted: 3,
        refused: 0,
        overdue: 1,
    };
    metrics.connections(count);
    metrics.connections(count);
    metrics.text().unwrap()
}

/// OBS-1
#[test]
fn every_metric_is_documented() {
    let text = text();
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut count = 0;
    for line in names {
        let (name, kind) = line.split_once(' ').unwrap();
        let suffix = if kind == "counter" { "_total" } else { "" };
        let documented = format!("`{name}{suffix}`");
        assert!(
            DOCS.contains(&documented),
            "{documented} is not in docs/spec/admission.md"
        );
        count += 1;
    }
    assert_eq!(count, 10);
}

/// OBS-1
#[test]
fn labels_are_from_a_fixed_set() {
    let allowed = [
        "path",
        "operation",
        "result",
        "reason",
        "dry_run",
        "kind",
        "le",
    ];
    for line in text().lines().filter(|line| !line.starts_with('#')) {
        let Some((_, rest)) = line.split_once('{') else {
            continue;
        };
        let labels = rest.split_once('}').unwrap().0;
        for label in labels.split(',') {
            let name = label.split('=').next().unwrap();
            assert!(allowed.contains(&name), "{line}");
        }
    }
}

/// CERT-6
#[test]
fn reviews_are_counted_timed_and_measured() {
    let text = text();
    for line in [
        r#"asya_webhook_reviews_total{path="/mutate/pods",operation="CREATE",result="patched",reason="Valid",dry_run="false"} 1"#,
        r#"asya_webhook_review_duration_seconds_count{path="/mutate/pods"} 1"#,
        r#"asya_webhook_review_duration_seconds_bucket{le="0.00025",path="/mutate/pods"}"#,
        r#"asya_webhook_review_bytes_bucket{le="262144.0"} 1"#,
        r#"asya_webhook_patch_bytes_bucket{le="1024.0"} 0"#,
        "asya_webhook_in_flight 0",
        "asya_webhook_reflector_age_seconds 7",
        r#"asya_webhook_cert_expiry_seconds{kind="leaf"} 3600"#,
        r#"asya_webhook_cert_expiry_seconds{kind="ca"} -5"#,
        r#"asya_webhook_cert_reloads_total{result="served"} 2"#,
        r#"asya_webhook_cert_reloads_total{result="refused"} 1"#,
        "asya_webhook_connections 12",
        r#"asya_webhook_connections_closed_total{reason="Evicted"} 3"#,
        r#"asya_webhook_connections_closed_total{reason="Overdue"} 1"#,
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}
