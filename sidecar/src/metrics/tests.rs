use std::time::Duration;

use super::Metrics;
use crate::decide::{Fault, Kind, Reason, Verdict};

/// SC-91, SC-92, SC-93
#[test]
fn names_labels_and_values_are_those_of_the_former_sidecar() {
    let metrics = Metrics::new("asya_actor", "foo", "rabbitmq");
    metrics.received(2048, true);
    metrics.called(Duration::from_millis(7));
    metrics.waited(Duration::from_millis(1));
    metrics.sent(
        Kind::Routing,
        "bar",
        "asya-bar",
        10,
        Duration::from_millis(2),
    );
    metrics.sent(
        Kind::HappyEnd,
        "happy-end",
        "asya-happy-end",
        10,
        Duration::from_millis(2),
    );
    let fault = Fault {
        reason: "runtime_error",
        runtime: Some("timeout"),
        text: String::new(),
    };
    metrics.ended(&Verdict::Failed(fault), Duration::from_secs(1));
    metrics.ended(&Verdict::EmptyResponse, Duration::from_secs(1));
    metrics.requeued(Reason::NotRead);
    metrics.broker.set_connected("publish", true);
    metrics.broker.extended(2, true);
    metrics.reported("final", "success");
    let text = metrics.text().expect("text");
    for line in [
        "asya_actor_messages_received_total{queue=\"foo\",transport=\"rabbitmq\"} 1",
        "asya_actor_messages_processed_total{queue=\"foo\",status=\"error\"} 1",
        "asya_actor_messages_processed_total{queue=\"foo\",status=\"empty_response\"} 1",
        "asya_actor_messages_sent_total{destination_queue=\"asya-bar\",message_type=\"routing\"} 1",
        "asya_actor_messages_sent_total{destination_queue=\"happy-end\",message_type=\"happy_end\"} 1",
        "asya_actor_messages_failed_total{queue=\"foo\",reason=\"runtime_error\"} 1",
        "asya_actor_runtime_errors_total{queue=\"foo\",error_type=\"timeout\"} 1",
        "asya_actor_active_messages 0",
        "asya_actor_processing_duration_seconds_bucket{le=\"1.0\",queue=\"foo\"} 2",
        "asya_actor_runtime_execution_duration_seconds_bucket{le=\"0.01\",queue=\"foo\"} 1",
        "asya_actor_queue_receive_duration_seconds_bucket{le=\"0.001\",queue=\"foo\",transport=\"rabbitmq\"} 1",
        "asya_actor_envelope_size_bytes_bucket{le=\"10000.0\",direction=\"received\"} 1",
        "asya_actor_redelivered_total 1",
        "asya_actor_given_back_total{reason=\"not_read\"} 1",
        "asya_actor_build_info{version=",
        "asya_actor_broker_connected{connection=\"publish\"} 1",
        "asya_actor_broker_blocked 0",
        "asya_actor_broker_reconnects_total 0",
        "asya_actor_runtime_ready 0",
        "asya_actor_slots 0",
        "asya_actor_waiting_messages 0",
        "asya_actor_oldest_in_flight_seconds 0.0",
        "asya_actor_leases_extended_total{result=\"success\"} 2",
        "asya_actor_leases_lost_total 0",
        "asya_actor_reports_total{kind=\"final\",result=\"success\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
}

/// SC-92
#[test]
fn destinations_beyond_the_first_hundred_share_a_label() {
    let metrics = Metrics::new("asya_actor", "foo", "sqs");
    for number in 0..150 {
        let queue = format!("asya-{number}");
        metrics.sent(Kind::Routing, "", &queue, 1, Duration::ZERO);
    }
    let text = metrics.text().expect("text");
    assert!(
        text.contains(
            "messages_sent_total{destination_queue=\"other\",message_type=\"routing\"} 50"
        )
    );
    assert!(!text.contains("\"asya-100\""));
}
