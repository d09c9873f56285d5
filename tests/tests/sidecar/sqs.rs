//! Messages through SQS.

use std::time::Duration;

use asya_tests::error::Result;
use asya_tests::eventually::{check, eventually};
use asya_tests::sqs::{self, Sqs};
use serde_json::{Value, json};

use crate::rig::{Actor, SOON, message, shared_sqs};

/// Creates queues for actors whose names no other test uses.
pub async fn queues(url: &str, actors: &[&str]) -> Result<Sqs> {
    let client = sqs::client(url)?;
    for actor in actors {
        client.create(&format!("asya-{actor}")).await?;
    }
    Ok(client)
}

pub async fn take(client: &Sqs, actor: &str, count: usize) -> Result<Vec<Value>> {
    take_within(SOON, client, actor, count).await
}

async fn take_within(
    timeout: Duration,
    client: &Sqs,
    actor: &str,
    count: usize,
) -> Result<Vec<Value>> {
    let mut found: Vec<Value> = Vec::new();
    let what = format!("{count} messages for {actor}");
    eventually(what, timeout, async || {
        for body in client.receive_all(&format!("asya-{actor}")).await? {
            found.push(serde_json::from_str(&body)?);
        }
        check(found.len() >= count, format!("{} messages", found.len()))
    })
    .await?;
    Ok(found)
}

/// Waits until the queue is empty, with no invisible messages either.
async fn is_empty(client: &Sqs, actor: &str) -> Result<()> {
    eventually(format!("the queue of {actor} is empty"), SOON, async || {
        let all = client.attributes(&format!("asya-{actor}")).await?;
        let count = |name: &str| all.get(name).cloned().unwrap_or_default();
        let left = [
            count("ApproximateNumberOfMessages"),
            count("ApproximateNumberOfMessagesNotVisible"),
        ];
        check(left == ["0", "0"], format!("{left:?}"))
    })
    .await
}

/// SC-36, SC-39, SC-60
#[tokio::test]
async fn messages_go_from_queue_to_runtime_and_on() -> Result<()> {
    let url = shared_sqs().await?;
    let client = queues(&url, &["s-echo", "s-bar", "error-end", "happy-end"]).await?;
    let actor = Actor::on_sqs(&url, "s-echo")?;
    let (_sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    let messages: Vec<String> = (0..30)
        .map(|n| {
            message(
                &n.to_string(),
                &["s-echo", "s-bar"],
                json!(format!("ü\u{fffe}{n}")),
            )
        })
        .collect();
    client
        .send(
            "asya-s-echo",
            &messages
                .iter()
                .map(|text| text.replace('\u{fffe}', "\\ufffe"))
                .collect::<Vec<_>>(),
        )
        .await?;
    client
        .send("asya-s-echo", &[message("wrong", &["other"], json!(1))])
        .await?;
    let found = take(&client, "s-bar", 30).await?;
    assert_eq!(found.len(), 30);
    assert!(
        found[0]["payload"]
            .as_str()
            .is_some_and(|payload| payload.starts_with("ü\u{fffe}")),
        "{:?}",
        found[0]
    );
    assert_eq!(take(&client, "error-end", 1).await?[0]["id"], "wrong");
    is_empty(&client, "s-echo").await?;
    actor.logs_no_secret()
}

/// SC-37, SC-38
#[tokio::test]
async fn a_handler_that_takes_longer_than_the_visibility_runs_once() -> Result<()> {
    let url = shared_sqs().await?;
    let client = queues(&url, &["s-slow", "s-slow-next"]).await?;
    let short = [("ASYA_SQS_VISIBILITY_TIMEOUT", "6")];
    let actor = Actor::on_sqs(&url, "s-slow")?.with(&short);
    let other = Actor::on_sqs(&url, "s-slow")?.with(&short);
    let _first = (actor.sidecar().await?, actor.runtime("slow").await?);
    let _second = (other.sidecar().await?, other.runtime("slow").await?);
    client
        .send(
            "asya-s-slow",
            &[message("1", &["s-slow", "s-slow-next"], json!(15))],
        )
        .await?;
    let patience = Duration::from_secs(40);
    let found = take_within(patience, &client, "s-slow-next", 1).await?;
    assert_eq!(found.len(), 1);
    is_empty(&client, "s-slow").await?;
    assert_eq!(actor.calls()?.len() + other.calls()?.len(), 1);
    Ok(())
}

/// SC-38, SC-40, SC-72
#[tokio::test]
async fn a_killed_sidecar_gives_its_message_back_when_the_visibility_ends() -> Result<()> {
    let url = shared_sqs().await?;
    let client = queues(&url, &["s-kill", "s-kill-next"]).await?;
    let actor = Actor::on_sqs(&url, "s-kill")?.with(&[("ASYA_SQS_VISIBILITY_TIMEOUT", "6")]);
    let (sidecar, runtime) = (actor.sidecar().await?, actor.runtime("slow").await?);
    client
        .send(
            "asya-s-kill",
            &[message("1", &["s-kill", "s-kill-next"], json!(10))],
        )
        .await?;
    actor.is_called(1).await?;
    sidecar.kill().await;
    runtime.ends(SOON).await?;
    let _again = (actor.sidecar().await?, actor.runtime("echo").await?);
    assert_eq!(take(&client, "s-kill-next", 1).await?[0]["id"], "1");
    assert_eq!(actor.calls()?.len(), 2);
    is_empty(&client, "s-kill").await
}

/// SC-78, SC-81
#[tokio::test]
async fn sigterm_finishes_what_is_at_the_runtime() -> Result<()> {
    let url = shared_sqs().await?;
    let client = queues(&url, &["s-term", "s-term-next"]).await?;
    let actor = Actor::on_sqs(&url, "s-term")?;
    let (sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("slow").await?);
    client
        .send(
            "asya-s-term",
            &[message("1", &["s-term", "s-term-next"], json!(6))],
        )
        .await?;
    actor.is_called(1).await?;
    let status = sidecar.stop(SOON).await?;
    assert_eq!(status.code(), Some(0), "{}", actor.logs()?);
    assert_eq!(take(&client, "s-term-next", 1).await?[0]["id"], "1");
    is_empty(&client, "s-term").await
}

/// SC-36, SC-41
#[tokio::test]
async fn fifo_queues_keep_the_order_of_a_group_whatever_the_concurrency() -> Result<()> {
    let url = shared_sqs().await?;
    let client = sqs::client(&url)?;
    for queue in ["asya-s-fifo.fifo", "asya-s-next.fifo"] {
        let fifo = json!({"QueueName": queue, "Attributes": {"FifoQueue": "true"}});
        request(&url, "CreateQueue", &fifo).await?;
    }
    let actor = Actor::on_sqs(&url, "s-fifo.fifo")?
        .with(&[("ASYA_CONCURRENCY", "4"), ("ASYA_LOOKAHEAD", "4")]);
    let queue = request(
        &url,
        "GetQueueUrl",
        &json!({"QueueName": "asya-s-fifo.fifo"}),
    )
    .await?;
    let seconds = [
        ("a", "1", 2.0),
        ("a", "2", 0.5),
        ("a", "3", 0.0),
        ("b", "4", 0.0),
    ];
    for (group, id, payload) in seconds {
        let body = message(id, &["s-fifo.fifo", "s-next.fifo"], json!(payload));
        let sent = json!({
            "QueueUrl": queue["QueueUrl"], "MessageBody": body, "MessageGroupId": group, "MessageDeduplicationId": id,
        });
        request(&url, "SendMessage", &sent).await?;
    }
    let (_sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("slow").await?);
    // All at once, because messages of a group block later ones.
    eventually("all are sent", SOON, async || {
        let all = client.attributes("asya-s-next.fifo").await?;
        check(
            all["ApproximateNumberOfMessages"] == "4",
            format!("{all:?}"),
        )
    })
    .await?;
    let found = take(&client, "s-next.fifo", 4).await?;
    let of = |group: &[&str]| -> Vec<String> {
        let ids = found.iter().filter_map(|message| message["id"].as_str());
        ids.filter(|id| group.contains(id))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(of(&["1", "2", "3"]), ["1", "2", "3"]);
    assert_eq!(of(&["4"]), ["4"]);
    assert_eq!(
        actor.calls()?[..2]
            .iter()
            .filter(|call| *call == "0.0")
            .count(),
        1,
        "groups do not wait for each other"
    );
    is_empty(&client, "s-fifo.fifo").await
}

/// SC-39, SC-75
#[tokio::test]
async fn a_fan_out_is_stored_completely() -> Result<()> {
    let url = shared_sqs().await?;
    let client = queues(&url, &["s-many", "s-many-next"]).await?;
    let actor = Actor::on_sqs(&url, "s-many")?;
    let (_sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("several").await?);
    let source = message("x", &["s-many", "s-many-next"], json!(25));
    client.send("asya-s-many", &[source]).await?;
    let found = take(&client, "s-many-next", 25).await?;
    let mut payloads: Vec<_> = found
        .iter()
        .map(|message| message["payload"].as_i64())
        .collect();
    payloads.sort_unstable();
    assert_eq!(payloads, (0..25).map(Some).collect::<Vec<_>>());
    is_empty(&client, "s-many").await
}

/// Sends a request that the tests' client does not support.
async fn request(url: &str, action: &str, body: &Value) -> Result<Value> {
    const SIGNATURE: &str = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0";
    let answer = reqwest::Client::new()
        .post(url)
        .header("x-amz-target", format!("AmazonSQS.{action}"))
        .header("content-type", "application/x-amz-json-1.0")
        .header("authorization", SIGNATURE)
        .body(body.to_string())
        .send()
        .await?
        .error_for_status()?;
    Ok(serde_json::from_str(&answer.text().await?)?)
}
