mod fake;
mod leases;
mod poll;
mod requests;

use std::time::Duration;

use tokio::time::Instant;

use super::client::at_endpoint;
use super::error::refusal;
use super::leases::Leases;
use super::redelivery_delay;
use super::send::{deduplication, group, without_noncharacters};
use crate::broker::{Origin, Publication, Refusal};

fn publication(
    queue: &str,
    index: usize,
    message: Option<&str>,
    source_group: Option<&str>,
) -> Publication {
    let origin = Origin {
        message: message.map(str::to_owned),
        group: source_group.map(str::to_owned),
    };
    Publication {
        queue: queue.to_owned(),
        id: "id 1".to_owned(),
        body: "{}".into(),
        origin,
        index,
    }
}

/// SC-40
#[test]
fn redelivery_delay_doubles_up_to_half_a_minute() {
    let pauses: Vec<i32> = [0, 1, 2, 3, 4, 5, 100]
        .into_iter()
        .map(redelivery_delay)
        .collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
}

/// SC-37
#[tokio::test(start_paused = true)]
async fn lease_is_extended_at_a_third_of_its_timeout_for_up_to_twelve_hours() {
    let (leases, visibility, start) = (Leases::default(), Duration::from_secs(90), Instant::now());
    let count = |after: u64| {
        let due = leases.due(visibility, start + Duration::from_secs(after));
        (due.extend.len(), due.lost)
    };
    leases.begin(1, "a".to_owned(), 1, visibility, start);
    assert_eq!(count(29), (0, 0));
    assert_eq!(count(30), (1, 0));
    leases.extended(1, start + Duration::from_secs(30) + visibility);
    assert_eq!(count(59), (0, 0));
    assert_eq!(count(119), (1, 0), "a failed extension is tried again");
    assert_eq!(
        count(120),
        (0, 1),
        "until the lease expires, which is counted"
    );
    assert_eq!(count(121), (0, 0), "once");
    leases.begin(2, "b".to_owned(), 1, Duration::from_hours(12), start);
    assert_eq!(count(43_199), (0, 0), "SQS hides no message for longer");
}

/// SC-37: in a suspended process, nothing has checked the leases.
#[tokio::test(start_paused = true)]
async fn lease_has_expired_at_its_time_even_if_nobody_has_noticed() {
    let (leases, visibility, start) = (Leases::default(), Duration::from_secs(90), Instant::now());
    let after = |seconds| start + Duration::from_secs(seconds);
    for number in 1..3 {
        leases.begin(number, "a".to_owned(), 1, visibility, start);
    }
    assert_eq!(leases.end_expired(1, after(89)), None);
    assert_eq!(leases.end_expired(1, after(90)), Some(true));
    assert_eq!(leases.end_expired(1, after(90)), None, "it is gone");
    assert_eq!(leases.due(visibility, after(90)).lost, 1);
    assert_eq!(leases.end_expired(2, after(91)), Some(false), "counted");
    assert_eq!(leases.count(), 0);
}

/// SC-41
#[test]
fn fifo_messages_inherit_the_group_and_derive_their_deduplication_id() {
    let plain = publication("asya-a.fifo", 0, Some("m1"), Some("g"));
    assert_eq!(group(&plain), "g");
    assert_eq!(
        group(&publication("q", 0, None, None)).len(),
        64,
        "an id that is not a valid group is hashed"
    );
    let child = Publication {
        id: "x-1".to_owned(),
        ..publication("q", 1, None, None)
    };
    assert_eq!(group(&child), "x", "a fan-out is one group");
    let same = publication("asya-a.fifo", 0, Some("m1"), None);
    assert_eq!(
        deduplication(&plain),
        deduplication(&same),
        "a redelivered source yields the same deduplication id"
    );
    for other in [
        publication("asya-a.fifo", 1, Some("m1"), Some("g")),
        publication("asya-b.fifo", 0, Some("m1"), Some("g")),
        publication("asya-a.fifo", 0, Some("m2"), Some("g")),
    ] {
        assert_ne!(deduplication(&plain), deduplication(&other));
    }
}

/// SC-60
#[test]
fn only_characters_that_sqs_rejects_are_escaped() {
    let body = "{\"a\":\"x\u{fffe}\u{ffff}\u{fffd}é\\u0000\"}";
    let sent = without_noncharacters(body);
    assert_eq!(sent, "{\"a\":\"x\\ufffe\\uffff\u{fffd}é\\u0000\"}");
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(value(&sent), value(body));
}

/// SC-39, SC-83
#[test]
fn permanent_errors_are_distinguished_from_transient_ones() {
    let too_long =
        "One or more parameters are invalid. Reason: Message must be shorter than 1048576 bytes.";
    for (code, message, expected) in [
        (
            "AWS.SimpleQueueService.NonExistentQueue",
            "",
            Some(Refusal::NoQueue),
        ),
        ("QueueDoesNotExist", "", Some(Refusal::NoQueue)),
        ("InvalidParameterValue", too_long, Some(Refusal::TooLarge)),
        (
            "InvalidParameterValue",
            "The receipt handle has expired",
            None,
        ),
        (
            "KMS.AccessDeniedException",
            "",
            Some(Refusal::Forbidden("KMS.AccessDeniedException".to_owned())),
        ),
        (
            "KmsDisabled",
            "",
            Some(Refusal::Forbidden("KmsDisabled".to_owned())),
        ),
        ("KMS.ThrottlingException", "", None),
        ("Throttling", "", None),
        ("InternalError", "", None),
    ] {
        assert_eq!(refusal(code, message), expected, "{code}");
    }
}

/// SC-35
#[test]
fn queue_urls_use_scheme_and_host_of_the_endpoint() {
    let url = "http://sqs.us-east-1.localhost:4566/000000000000/asya-a";
    assert_eq!(at_endpoint(None, url), url);
    assert_eq!(
        at_endpoint(Some("https://sqs.corp:8443"), url),
        "https://sqs.corp:8443/000000000000/asya-a"
    );
}
