//! Actors whose queues are at SQS.

use std::time::Duration;

use asya_tests::eventually::{NotYet, check, eventually};
use asya_tests::scenario::Scenario;
use asya_tests::{Error, Result};
use serde_json::{Value, json};

use crate::minimal_actor;

const SOON: Duration = Duration::from_secs(30);

/// One call of the query protocol; the test's server checks no signature.
async fn call(scenario: &Scenario, action: &str, parameters: &[(&str, &str)]) -> Result<Value> {
    let endpoint = scenario
        .cluster()
        .state()
        .sqs
        .clone()
        .expect("the cluster has an SQS server");
    asya_tests::install_crypto_provider();
    let credential = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0";
    let mut body = serde_json::Map::new();
    for (name, value) in parameters {
        body.insert((*name).to_owned(), json!(value));
    }
    if action == "GetQueueAttributes" {
        body.insert("AttributeNames".to_owned(), json!(["All"]));
    }
    let request = reqwest::Client::new()
        .post(&endpoint)
        .header("x-amz-target", format!("AmazonSQS.{action}"))
        .header("content-type", "application/x-amz-json-1.0")
        .header("authorization", credential)
        .body(Value::Object(body).to_string());
    let answer = request.send().await?;
    let text = answer.text().await?;
    serde_json::from_str(&text).map_err(|_| Error::other(text))
}

/// SQS-2, SQS-3, SQS-4, QUE-6, FIN-2
#[tokio::test]
async fn queue_at_sqs_is_made_changed_in_place_and_taken_down() {
    Scenario::run("sqs", async |scenario| {
        let name = scenario.name("text");
        let queue = format!("asya-{name}");
        let mut actor = minimal_actor(&name);
        actor["spec"]["transport"] = json!("sqs");
        actor["spec"]["timeout"] = json!({"processing": 100});
        scenario.apply(&actor).await?;
        scenario.actor_status(&name, "Running", SOON).await?;
        let url = call(scenario, "GetQueueUrl", &[("QueueName", &queue)]).await?;
        let url = url["QueueUrl"]
            .as_str()
            .unwrap_or_else(|| panic!("{url}"))
            .to_owned();
        let at = [("QueueUrl", url.as_str())];
        let attributes = call(scenario, "GetQueueAttributes", &at).await?;
        assert_eq!(attributes["Attributes"]["VisibilityTimeout"], "200");
        call(
            scenario,
            "SendMessage",
            &[("QueueUrl", &url), ("MessageBody", "kept")],
        )
        .await?;

        actor["spec"]["timeout"] = json!({"processing": 150});
        scenario.apply(&actor).await?;
        eventually("the visibility timeout follows", SOON, async || {
            let attributes = call(scenario, "GetQueueAttributes", &at)
                .await
                .map_err(NotYet::new)?;
            let attributes = &attributes["Attributes"];
            check(
                attributes["VisibilityTimeout"] == "300"
                    && attributes["ApproximateNumberOfMessages"] == "1",
                attributes,
            )
        })
        .await?;

        scenario
            .kubectl(&["delete", "asya", &name, "--timeout=60s"])
            .await?;
        let gone = call(scenario, "GetQueueUrl", &[("QueueName", &queue)]).await?;
        assert!(
            gone["__type"]
                .as_str()
                .is_some_and(|kind| kind.contains("NonExistent") || kind.contains("DoesNotExist")),
            "{gone}"
        );
        Ok(())
    })
    .await;
}
