//! Requests to SQS, and how its responses are handled.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::future::ProvideCredentials as Provided;
use aws_credential_types::provider::{ProvideCredentials, Result};
use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, Seen, error, stored};
use super::publication;
use crate::broker::sqs::credentials::CachedCredentials;
use crate::broker::sqs::leases::{Unset, set_visibility};
use crate::broker::sqs::{Api, BrokerMetrics, Leases, Queues, Shared, Sqs};
use crate::broker::{Broker as _, Demand, Event, Publication, Refusal};
use crate::config;

/// Far more than a fake server needs: a broker that retries forever must fail the test, not hang it.
pub(super) const STUCK: Duration = Duration::from_secs(20);
const SENDING: [&str; 2] = ["SendMessage", "SendMessageBatch"];

/// A source that yields credentials with these key ids in turn, repeating the last one.
#[derive(Clone, Debug)]
pub(super) struct Source {
    keys: &'static [&'static str],
    lifetime: Option<Duration>,
    asked: Arc<AtomicUsize>,
}

impl Source {
    pub(super) fn new(keys: &'static [&'static str]) -> Self {
        Self {
            keys,
            lifetime: None,
            asked: Arc::default(),
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    fn next(&self) -> Result {
        let count = self.asked.fetch_add(1, Ordering::Relaxed);
        match self.keys.get(count).or(self.keys.last()) {
            Some(&"") | None => Err(CredentialsError::not_loaded("as the test wants it")),
            Some(key) => {
                let expiry = self.lifetime.map(|lifetime| SystemTime::now() + lifetime);
                Ok(Credentials::new(*key, "secret", None, expiry, "test"))
            }
        }
    }
}

impl ProvideCredentials for Source {
    fn provide_credentials<'a>(&'a self) -> Provided<'a>
    where
        Self: 'a,
    {
        match self.next() {
            Ok(credentials) if credentials.access_key_id() == "HANGS" => {
                Provided::new(std::future::pending())
            }
            result => Provided::ready(result),
        }
    }
}

pub(super) fn settings(url: &str) -> config::SqsConfig {
    config::SqsConfig {
        region: "us-east-1".to_owned(),
        endpoint: Some(url.to_owned()),
        visibility: Duration::from_secs(90),
        wait: Duration::from_secs(20),
    }
}

fn start(fake: &Fake, source: Source, queue: &str) -> (Sqs, UnboundedReceiver<Event>) {
    let (events, told) = unbounded_channel();
    let credentials = CachedCredentials::new(source);
    let settings = settings(&fake.url);
    let broker = Sqs::start_with(
        credentials,
        &settings,
        queue.to_owned(),
        events,
        BrokerMetrics::default(),
        CancellationToken::new(),
    );
    (broker, told)
}

fn sender(fake: &Fake) -> Sqs {
    start(fake, Source::new(&["KEY"]), "asya-foo").0
}

/// A fan-out, numbered in its bodies.
fn fan_out(queue: &str, count: usize) -> Vec<Publication> {
    let message = |index: usize| Publication {
        body: index.to_string().into(),
        ..publication(queue, index, Some("m"), Some("g"))
    };
    (0..count).map(message).collect()
}

/// Publishes concurrently; the results are in order.
async fn publish(
    broker: &Sqs,
    publications: Vec<Publication>,
) -> Vec<std::result::Result<(), Refusal>> {
    let all: Vec<_> = publications
        .into_iter()
        .map(|publication| broker.publish(publication))
        .collect();
    let mut results = Vec::new();
    for one in all {
        let result = timeout(STUCK, one).await;
        results.push(result.expect("the publication is neither stored nor refused"));
    }
    results
}

fn bodies(requests: &[Seen]) -> Vec<Vec<String>> {
    requests.iter().map(Seen::messages).collect()
}

/// SC-35
#[tokio::test]
async fn expired_credentials_are_renewed_once_and_the_request_is_repeated_at_once() {
    let fake = Fake::start(|seen| {
        Some(if seen.key == "EXPIRED" {
            error("ExpiredToken")
        } else {
            stored(seen, &[])
        })
    })
    .await;
    let source = Source::new(&["EXPIRED", "NEW"]);
    let (broker, _events) = start(&fake, source.clone(), "asya-foo");
    assert_eq!(publish(&broker, fan_out("asya-bar", 1)).await, [Ok(())]);
    assert_eq!(
        publish(&broker, fan_out("asya-bar", 2)).await,
        [Ok(()), Ok(())]
    );
    assert_eq!(source.asked(), 2, "new credentials are kept");
    let keys: Vec<String> = fake
        .seen(&["GetQueueUrl"])
        .into_iter()
        .map(|seen| seen.key)
        .collect();
    assert_eq!(keys, ["EXPIRED", "NEW"]);
}

/// SC-35
#[tokio::test]
async fn credentials_are_renewed_before_they_expire_and_used_until_then() {
    for (keys, lifetime, expected) in [
        (&["A", "B"][..], None, ["A", "A", "A"]),
        (&["A", "B"], Some(Duration::from_mins(6)), ["A", "A", "A"]),
        // The request that finds them about to expire still uses the old ones.
        (&["A", "B"], Some(Duration::from_mins(4)), ["A", "A", "B"]),
        (&["A", "", "B"], Some(Duration::ZERO), ["A", "", "B"]),
    ] {
        let credentials = CachedCredentials::new(Source {
            lifetime,
            ..Source::new(keys)
        });
        for key in expected {
            let found = credentials.provide_credentials().await;
            let found = found.as_ref().map_or("", Credentials::access_key_id);
            assert_eq!(found, key, "{keys:?} {lifetime:?}");
            yield_now().await;
        }
    }
}

/// SC-35
#[tokio::test(start_paused = true)]
async fn hanging_or_failing_source_delays_no_request_while_the_credentials_are_valid() {
    let source = Source {
        lifetime: Some(Duration::from_mins(4)),
        ..Source::new(&["A", "HANGS", "", "B"])
    };
    let credentials = CachedCredentials::new(source.clone());
    for (after, key, asked) in [
        (0, "A", 1),
        (0, "A", 2),
        (4, "A", 2),
        // The renewal times out 5 s after it began, and is tried again 10 s later.
        (10, "A", 2),
        (2, "A", 3),
        (9, "A", 3),
        (2, "A", 4),
        (0, "B", 5),
    ] {
        sleep(Duration::from_secs(after)).await;
        let found = timeout(Duration::ZERO, credentials.provide_credentials()).await;
        let found = found.expect("immediately").expect("credentials");
        yield_now().await;
        assert_eq!((found.access_key_id(), source.asked()), (key, asked));
    }
}

/// SC-39, SC-75
#[tokio::test]
async fn fan_out_is_sent_in_batches_and_only_failed_entries_are_retried() {
    let mut is_first = true;
    let fake = Fake::start(move |seen| {
        let failed: &[_] =
            if seen.messages().contains(&"3".to_owned()) && std::mem::take(&mut is_first) {
                &[
                    ("3", "ThrottlingException"),
                    ("7", "InternalError"),
                    ("8", "InvalidMessageContents"),
                ]
            } else {
                &[]
            };
        Some(stored(seen, failed))
    })
    .await;
    let results = publish(&sender(&fake), fan_out("asya-bar", 12)).await;
    let refused = Err(Refusal::Forbidden("InvalidMessageContents".to_owned()));
    for (index, result) in results.into_iter().enumerate() {
        assert_eq!(
            result,
            if index == 8 { refused.clone() } else { Ok(()) },
            "{index}"
        );
    }
    let mut sent = bodies(&fake.seen(&SENDING));
    assert_eq!(sent.pop().expect("a last request"), ["3", "7"]);
    sent.sort_by_key(Vec::len);
    assert_eq!(
        sent,
        [
            vec!["10", "11"],
            (0..10)
                .map(|n| ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"][n])
                .collect()
        ]
    );
}

/// SC-39
#[tokio::test]
async fn refused_batch_is_sent_one_by_one() {
    let fake = Fake::start(|seen| {
        Some(match seen.messages().as_slice() {
            [one] if one == "1" => (400, json!({"__type": "InvalidParameterValue", "message": "Message must be shorter than 9 bytes."})),
            [_] => stored(seen, &[]),
            _ => error("BatchRequestTooLong"),
        })
    })
    .await;
    let results = publish(&sender(&fake), fan_out("asya-bar", 3)).await;
    assert_eq!(results, [Ok(()), Err(Refusal::TooLarge), Ok(())]);
    assert_eq!(
        bodies(&fake.seen(&SENDING)),
        [vec!["0", "1", "2"], vec!["0"], vec!["1"], vec!["2"]]
    );
}

/// SC-39: otherwise the message would return to its queue after 10 s, and its handler would run again.
#[tokio::test]
async fn throttled_request_is_repeated_although_sqs_answers_it_with_403() {
    let mut is_first = true;
    let fake = Fake::start(move |seen| {
        Some(if std::mem::take(&mut is_first) {
            (403, error("RequestThrottled").1)
        } else {
            stored(seen, &[])
        })
    })
    .await;
    assert_eq!(
        publish(&sender(&fake), fan_out("asya-bar", 1)).await,
        [Ok(())]
    );
    assert_eq!(fake.seen(&SENDING).len(), 2);
}

/// SC-83
#[tokio::test]
async fn request_refused_with_413_is_too_large_even_without_an_error_code() {
    let fake = Fake::start(|seen| {
        let is_large = seen.messages().contains(&"1".to_owned());
        Some(if is_large {
            (413, json!("Request Entity Too Large"))
        } else {
            stored(seen, &[])
        })
    })
    .await;
    let results = publish(&sender(&fake), fan_out("asya-bar", 3)).await;
    assert_eq!(results, [Ok(()), Err(Refusal::TooLarge), Ok(())]);
}

/// SC-83: SQS may close the connection while it receives the body, which looks like a lost connection.
#[tokio::test]
async fn body_above_a_mebibyte_is_refused_without_a_request() {
    let fake = Fake::start(|seen| Some(stored(seen, &[]))).await;
    let body = |body: String| Publication {
        body: body.into(),
        ..publication("asya-bar", 0, Some("m"), None)
    };
    for (publication, expected) in [
        (body("x".repeat(1 << 20)), Ok(())),
        (body("x".repeat((1 << 20) + 1)), Err(Refusal::TooLarge)),
        // Each character takes twice the bytes once it is escaped.
        (body("\u{fffe}".repeat(200 << 10)), Err(Refusal::TooLarge)),
    ] {
        assert_eq!(publish(&sender(&fake), vec![publication]).await, [expected]);
    }
    assert_eq!(fake.seen(&SENDING).len(), 1);
}

/// SC-39
#[tokio::test]
async fn batches_stay_below_a_mebibyte() {
    let fake = Fake::start(|seen| Some(stored(seen, &[]))).await;
    let large = fan_out("asya-bar", 5)
        .into_iter()
        .map(|publication| Publication {
            body: "x".repeat(300 << 10).into(),
            ..publication
        });
    publish(&sender(&fake), large.collect()).await;
    let mut counts: Vec<usize> = bodies(&fake.seen(&SENDING)).iter().map(Vec::len).collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 3]);
}

/// SC-41
#[tokio::test]
async fn fan_out_to_a_fifo_queue_keeps_its_order_despite_failures() {
    let mut is_first = true;
    let fake = Fake::start(move |seen| {
        Some(if std::mem::take(&mut is_first) {
            error("ThrottlingException")
        } else {
            stored(seen, &[])
        })
    })
    .await;
    publish(&sender(&fake), fan_out("asya-bar.fifo", 4)).await;
    let requests = fake.seen(&SENDING);
    assert_eq!(bodies(&requests), [["0"], ["0"], ["1"], ["2"], ["3"]]);
    assert!(
        requests
            .iter()
            .all(|seen| seen.body["MessageGroupId"] == "g"),
        "{requests:?}"
    );
}

/// SC-36, SC-41
#[tokio::test]
async fn poll_requests_the_demand_but_only_one_message_of_a_fifo_queue() {
    for (queue, expected) in [("asya-foo", 6), ("asya-foo.fifo", 1)] {
        let fake = Fake::start(|_| None).await;
        let (broker, _events) = start(&fake, Source::new(&["KEY"]), queue);
        sleep(Duration::from_millis(20)).await;
        assert_eq!(fake.seen(&["ReceiveMessage"]).len(), 0, "no demand yet");
        broker.demand(Demand {
            slots: 4,
            lookahead: 2,
        });
        let deadline = Instant::now() + Duration::from_secs(10);
        let request = loop {
            assert!(Instant::now() < deadline, "no request");
            match fake.seen(&["ReceiveMessage"]).pop() {
                Some(request) => break request,
                None => sleep(Duration::from_millis(5)).await,
            }
        };
        assert_eq!(request.body["MaxNumberOfMessages"], expected, "{queue}");
        assert_eq!(request.body["VisibilityTimeout"], 90);
    }
}

/// SC-104
#[tokio::test(start_paused = true)]
async fn long_poll_without_a_message_does_not_wake_the_process() {
    let fake = Fake::start(|_| None).await;
    let (broker, _events) = start(&fake, Source::new(&["KEY"]), "asya-foo");
    broker.demand(Demand {
        slots: 1,
        lookahead: 0,
    });
    let metrics = Handle::current().metrics();
    // With the clock paused, the runtime parks once for each timer that is due, and a few times for each long one.
    let deadline = Instant::now() + Duration::from_secs(10);
    while fake.seen(&["ReceiveMessage"]).is_empty() {
        assert!(Instant::now() < deadline, "no request");
        sleep(Duration::from_millis(5)).await;
    }
    let before = metrics.worker_park_count(0);
    sleep(Duration::from_secs(15)).await;
    let parks = metrics.worker_park_count(0) - before;
    assert_eq!(
        fake.seen(&["ReceiveMessage"]).len(),
        1,
        "still the same poll"
    );
    assert!(parks < 100, "{parks} wake-ups in 15 s");
}

/// SC-78, SC-79: while running calls finish, nothing is received that would have to be returned.
#[tokio::test(start_paused = true)]
async fn running_poll_ends_two_seconds_after_sigterm() {
    let fake = Fake::start(|_| None).await;
    let (broker, _events) = start(&fake, Source::new(&["KEY"]), "asya-foo");
    broker.demand(Demand {
        slots: 1,
        lookahead: 0,
    });
    let deadline = Instant::now() + Duration::from_secs(10);
    while fake.seen(&["ReceiveMessage"]).is_empty() {
        assert!(Instant::now() < deadline, "no request");
        sleep(Duration::from_millis(5)).await;
    }
    broker.stopping.cancel();
    let ended = timeout(Duration::from_millis(2500), broker.tasks.wait()).await;
    assert!(ended.is_ok());
    assert_eq!(fake.seen(&["ReceiveMessage"]).len(), 1);
}

/// What requests need.
pub(super) fn shared(fake: &Fake) -> Shared {
    let settings = settings(&fake.url);
    let api = Api::new(&settings, CachedCredentials::new(Source::new(&["KEY"])));
    Shared {
        queues: Queues::new(api.clone(), settings.endpoint.clone()),
        api,
        own: "asya-foo".to_owned(),
        leases: Leases::default(),
        metrics: BrokerMetrics::default(),
        settings,
    }
}

/// SC-37: time remains for retries before the lease expires.
#[tokio::test(start_paused = true)]
async fn extension_times_out_long_before_the_lease_expires() {
    let fake = Fake::start(|_| None).await;
    let shared = shared(&fake);
    let started = Instant::now();
    let extended = set_visibility(
        &shared,
        &[(1, "handle".to_owned())],
        Duration::from_secs(30),
    )
    .await;
    assert_eq!(extended, Err(Unset { may_be_done: true }));
    assert!(
        started.elapsed() <= Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
}
