use asya_process::metrics::ExposedMetrics;
use tokio::time::sleep;

use super::*;

fn depth(queued: u64, processing: u64) -> Depth {
    Depth { queued, processing }
}

/// QUE-20
#[test]
fn status_follows_zero_and_changes_of_a_tenth() {
    for (reported, reading, is_reported) in [
        (Some(depth(0, 0)), Some(depth(0, 0)), false),
        (Some(depth(0, 0)), Some(depth(1, 0)), true),
        (Some(depth(1, 0)), Some(depth(0, 0)), true),
        (Some(depth(0, 0)), Some(depth(0, 1)), true),
        (Some(depth(100, 5)), Some(depth(109, 5)), false),
        (Some(depth(100, 5)), Some(depth(110, 5)), true),
        (Some(depth(100, 5)), Some(depth(91, 5)), false),
        (Some(depth(100, 5)), Some(depth(90, 5)), true),
        (Some(depth(100, 50)), Some(depth(100, 56)), true),
        (Some(depth(0, 0)), None, true),
        (None, None, false),
        (None, Some(depth(0, 0)), true),
        (Some(depth(u64::MAX, 0)), Some(depth(1, 0)), true),
    ] {
        assert_eq!(
            is_worth_reporting(reported, reading),
            is_reported,
            "{reported:?} then {reading:?}"
        );
    }
}

/// QUE-20
#[tokio::test(start_paused = true)]
async fn status_follows_once_a_minute_and_metrics_at_once() {
    let (depths, key) = (Depths::default(), Key::new("ns", "a"));
    assert_eq!(depths.reported(&key), ReportedDepth::Unchanged);
    assert!(depths.record(&key, Some(depth(5, 0))), "the first reading");
    assert_eq!(depths.reported(&key), ReportedDepth::Depth(depth(5, 0)));

    sleep(Duration::from_secs(30)).await;
    assert!(!depths.record(&key, Some(depth(50, 0))), "too soon");
    assert_eq!(depths.reported(&key), ReportedDepth::Depth(depth(5, 0)));
    assert_eq!(depths.all(), [(key.clone(), depth(50, 0))]);

    sleep(Duration::from_secs(30)).await;
    assert!(depths.record(&key, Some(depth(50, 0))));
    assert_eq!(depths.reported(&key), ReportedDepth::Depth(depth(50, 0)));

    sleep(Duration::from_mins(1)).await;
    assert!(
        depths.record(&key, None),
        "an unreadable count is no longer reported"
    );
    assert_eq!(depths.reported(&key), ReportedDepth::Unknown);
    assert_eq!(depths.all(), []);

    depths.retain(&HashSet::new());
    assert_eq!(depths.reported(&key), ReportedDepth::Unchanged);
}

/// OPS-4
#[test]
fn metrics_report_messages_per_actor_and_state_and_drop_deleted_actors() {
    let (depths, metrics) = (Depths::default(), Metrics::new());
    depths.record(&Key::new("ns", "a"), Some(depth(5, 2)));
    depths.record(&Key::new("ns", "b"), Some(depth(1, 0)));
    depths.record(&Key::new("ns", "b"), None);
    depths.publish(&metrics);
    let text = metrics.text().unwrap();
    for line in [
        r#"queue_messages{namespace="ns",actor="a",state="queued"} 5"#,
        r#"queue_messages{namespace="ns",actor="a",state="processing"} 2"#,
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(
        !text.contains(r#"actor="b""#),
        "an unreadable count is not reported"
    );
    depths.retain(&HashSet::new());
    depths.publish(&metrics);
    assert!(
        !metrics.text().unwrap().contains("actor="),
        "the actor was deleted"
    );
}
