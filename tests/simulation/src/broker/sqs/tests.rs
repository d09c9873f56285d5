use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::advance;

use super::{LAG, Sqs, TRANSPORTS};

const NOW: Duration = Duration::ZERO;

fn call(sqs: &mut Sqs, operation: &str, input: &Value) -> Result<Value, &'static str> {
    let answer = sqs.answer(operation, input, NOW);
    answer.map_err(|failure| failure.code)
}

fn create(sqs: &mut Sqs, name: &str, attributes: &Value) -> Result<Value, &'static str> {
    let tags = json!({"asya.sh/namespace": "ns", "asya.sh/actor": name});
    let input = json!({"QueueName": name, "Attributes": attributes, "tags": tags});
    call(sqs, "CreateQueue", &input)
}

fn url(name: &str) -> Value {
    json!({"QueueUrl": format!("https://sqs.{}.amazonaws.com/123456789012/{name}", TRANSPORTS[0])})
}

fn count(sqs: &mut Sqs, name: &str, age: Duration) -> Value {
    let input = url(name);
    let answer = sqs.answer("GetQueueAttributes", &input, age).unwrap();
    answer["Attributes"]["ApproximateNumberOfMessages"].clone()
}

/// SQS-8
#[tokio::test(start_paused = true)]
async fn queue_of_that_name_is_compared() {
    let mut sqs = Sqs::new(TRANSPORTS[0]);
    let lookup = call(&mut sqs, "GetQueueUrl", &json!({"QueueName": "q"}));
    assert_eq!(lookup, Err("QueueDoesNotExist"));
    let created = create(&mut sqs, "q", &json!({"VisibilityTimeout": "600"}));
    assert_eq!(created, Ok(url("q")));
    let again = create(&mut sqs, "q", &json!({"VisibilityTimeout": "600"}));
    assert_eq!(again, Ok(url("q")));
    let other = create(&mut sqs, "q", &json!({"VisibilityTimeout": "60"}));
    assert_eq!(other, Err("QueueNameExists"));
    assert_eq!(sqs.owner_of("q"), Some(("ns".to_owned(), "q".to_owned())));
}

/// SQS-8
#[tokio::test(start_paused = true)]
async fn deleted_name_is_refused_for_a_minute() {
    let mut sqs = Sqs::new(TRANSPORTS[0]);
    create(&mut sqs, "q", &json!({})).unwrap();
    assert_eq!(call(&mut sqs, "DeleteQueue", &url("q")), Ok(json!({})));
    assert_eq!(
        call(&mut sqs, "DeleteQueue", &url("q")),
        Err("QueueDoesNotExist")
    );
    advance(Duration::from_secs(59)).await;
    assert_eq!(
        create(&mut sqs, "q", &json!({})),
        Err("QueueDeletedRecently")
    );
    assert!(create(&mut sqs, "other", &json!({})).is_ok());
    advance(Duration::from_secs(1)).await;
    assert!(create(&mut sqs, "q", &json!({})).is_ok());
}

/// SQS-4, SQS-6: a dead letter queue must exist before a policy names it, takes messages, and is detached by an empty
/// policy.
#[tokio::test(start_paused = true)]
async fn redrive_policy_names_an_existing_queue() {
    let mut sqs = Sqs::new(TRANSPORTS[1]);
    let policy = json!({"deadLetterTargetArn": sqs.arn("q-dlq"), "maxReceiveCount": 3});
    let attributes = json!({"RedrivePolicy": policy.to_string(), "VisibilityTimeout": "600"});
    assert_eq!(
        create(&mut sqs, "q", &attributes),
        Err("InvalidAttributeValue")
    );
    create(&mut sqs, "q-dlq", &json!({})).unwrap();
    create(&mut sqs, "q", &attributes).unwrap();
    assert_eq!(sqs.problem("q"), None);
    sqs.set_messages("q", 3);
    sqs.consume("q");
    assert_eq!(
        (sqs.messages("q"), sqs.messages("q-dlq")),
        (Some(0), Some(1))
    );
    let mut input = url("q");
    input["Attributes"] = json!({"RedrivePolicy": ""});
    call(&mut sqs, "SetQueueAttributes", &input).unwrap();
    assert!(sqs.problem("q").is_some());
}

/// AWS: requests may still find a deleted queue for a minute, and may not find a new one for a second.
#[tokio::test(start_paused = true)]
async fn reads_may_show_what_was_a_moment_ago() {
    let mut sqs = Sqs::new(TRANSPORTS[0]);
    let finds = |sqs: &mut Sqs, age: Duration| {
        let lookup = sqs.answer("ListQueueTags", &url("q"), age);
        lookup.is_ok()
    };
    create(&mut sqs, "q", &json!({})).unwrap();
    assert!(finds(&mut sqs, NOW));
    assert!(!finds(&mut sqs, LAG));
    advance(Duration::from_secs(1)).await;
    assert!(finds(&mut sqs, LAG));
    call(&mut sqs, "DeleteQueue", &url("q")).unwrap();
    advance(Duration::from_secs(59)).await;
    assert!(!finds(&mut sqs, NOW));
    assert!(finds(&mut sqs, LAG));
    assert_eq!(
        call(&mut sqs, "TagQueue", &url("q")),
        Err("QueueDoesNotExist")
    );
    advance(Duration::from_secs(1)).await;
    assert!(!finds(&mut sqs, LAG));
}

/// QUE-42: counts lag.
#[tokio::test(start_paused = true)]
async fn counts_may_be_a_minute_old() {
    let mut sqs = Sqs::new(TRANSPORTS[0]);
    create(&mut sqs, "q", &json!({})).unwrap();
    advance(Duration::from_secs(10)).await;
    sqs.set_messages("q", 2);
    advance(Duration::from_secs(30)).await;
    sqs.set_messages("q", 5);
    assert_eq!(count(&mut sqs, "q", NOW), "5");
    assert_eq!(count(&mut sqs, "q", Duration::from_secs(20)), "2");
    assert_eq!(count(&mut sqs, "q", LAG), "0");
    assert_eq!(sqs.messages_for("q", Duration::from_secs(20)), Some(2));
    assert_eq!(sqs.messages_for("q", LAG), Some(0));
}
