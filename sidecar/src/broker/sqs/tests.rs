use std::time::Duration;

use tokio::time::Instant;

use super::client::at_endpoint;
use super::error::refusal;
use super::leases::Leases;
use super::pause_after;
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
fn the_pause_of_a_message_that_is_given_back_doubles_up_to_half_a_minute() {
    let pauses: Vec<i32> = [0, 1, 2, 3, 4, 5, 100]
        .into_iter()
        .map(pause_after)
        .collect();
    assert_eq!(pauses, [1, 2, 4, 8, 16, 30, 30]);
}

/// SC-37
#[tokio::test(start_paused = true)]
async fn a_lease_is_extended_every_third_of_it_for_up_to_twelve_hours() {
    let (leases, visibility, start) = (Leases::default(), Duration::from_secs(90), Instant::now());
    let count = |after: u64| {
        let (due, lost) = leases.due(visibility, start + Duration::from_secs(after));
        (due.len(), lost)
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
        "until the lease is lost, which is counted"
    );
    assert_eq!(count(121), (0, 0), "once");
    leases.begin(2, "b".to_owned(), 1, Duration::from_hours(12), start);
    assert_eq!(count(43_199), (0, 0), "SQS hides no message for longer");
}

/// SC-41
#[test]
fn fifo_queues_get_the_sources_group_and_an_id_of_the_delivery() {
    let plain = publication("asya-a.fifo", 0, Some("m1"), Some("g"));
    assert_eq!(group(&plain), "g");
    assert_eq!(
        group(&publication("q", 0, None, None)).len(),
        64,
        "an id that is no legal group is hashed"
    );
    let same = publication("asya-a.fifo", 0, Some("m1"), None);
    assert_eq!(
        deduplication(&plain),
        deduplication(&same),
        "a source that comes again makes no second child"
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
fn characters_that_sqs_refuses_are_escaped_and_others_stay() {
    let body = "{\"a\":\"x\u{fffe}\u{ffff}\u{fffd}é\\u0000\"}";
    let sent = without_noncharacters(body);
    assert_eq!(sent, "{\"a\":\"x\\ufffe\\uffff\u{fffd}é\\u0000\"}");
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
    assert_eq!(value(&sent), value(body));
}

/// SC-39, SC-83
#[test]
fn errors_that_last_are_told_from_those_that_pass() {
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
        ("Throttling", "", None),
        ("InternalError", "", None),
    ] {
        assert_eq!(refusal(code, message), expected, "{code}");
    }
}

/// SC-35
#[test]
fn queue_urls_have_scheme_and_host_of_the_endpoint() {
    let url = "http://sqs.us-east-1.localhost:4566/000000000000/asya-a";
    assert_eq!(at_endpoint(None, url), url);
    assert_eq!(
        at_endpoint(Some("https://sqs.corp:8443"), url),
        "https://sqs.corp:8443/000000000000/asya-a"
    );
}
