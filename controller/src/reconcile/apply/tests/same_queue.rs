//! Transports that lead to one queue.

use asya_shared::config::TransportsConfig;
use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{ACTOR, check};
use crate::reconcile::apply::retired;
use crate::reconcile::plan::retired::RetiredCheck;
use crate::reconcile::plan::retired::tests::queue;
use crate::reconcile::tests::fixtures::{actor, context_with, observed, spec};

/// An SQS whose accounts, by access key, have the actor's empty queue.
async fn answer(
    State(accounts): State<[(&'static str, &'static str); 2]>,
    headers: HeaderMap,
) -> String {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    let key = header("authorization");
    let (_, account) = accounts
        .into_iter()
        .find(|(id, _)| key.contains(&format!("Credential={id}/")))
        .unwrap();
    let answer: Value = match &*header("x-amz-target") {
        "AmazonSQS.GetQueueUrl" => {
            json!({"QueueUrl": format!("http://sqs/{account}/asya-a")})
        }
        "AmazonSQS.GetQueueAttributes" => json!({"Attributes": {
            "QueueArn": format!("arn:aws:sqs:eu-west-1:{account}:asya-a"),
            "ApproximateNumberOfMessages": "0", "ApproximateNumberOfMessagesNotVisible": "0",
        }}),
        "AmazonSQS.ListQueueTags" => json!({"Tags": {
            "asya.sh/cluster": "cluster-uid", "asya.sh/namespace": "ns", "asya.sh/actor": "a",
        }}),
        other => panic!("{other}"),
    };
    answer.to_string()
}

/// QUE-36: the ARN identifies the queue, whether or not the retired queue was ever verified.
#[tokio::test]
async fn queue_to_which_two_secrets_of_one_account_lead_is_not_retired() {
    for (accounts, is_same) in [
        (
            [("key-one", "111111111111"), ("key-two", "111111111111")],
            true,
        ),
        (
            [("key-one", "111111111111"), ("key-two", "222222222222")],
            false,
        ),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().route("/", post(answer)).with_state(accounts);
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let mut context = context_with(|request| {
            // In base64: key-one, key-two and secret.
            let secret = |id: &str| json!({"data": {"id": id, "secret": "c2VjcmV0"}});
            let object = match request {
                "GET /api/v1/namespaces/kube-system" => {
                    json!({"metadata": {"name": "kube-system", "uid": "cluster-uid"}})
                }
                "GET /api/v1/namespaces/asya-system/secrets/one" => secret("a2V5LW9uZQ=="),
                "GET /api/v1/namespaces/asya-system/secrets/two" => secret("a2V5LXR3bw=="),
                _ if request == format!("GET {ACTOR}") => {
                    actor(&json!({}), &spec(&json!({})), &json!({}))
                }
                _ => return None,
            };
            Some((200, object))
        });
        let transport = |secret: &str| {
            let key = |key: &str| json!({"name": secret, "key": key});
            let keys = json!({"accessKeyIdSecretRef": key("id"), "secretAccessKeySecretRef": key("secret")});
            let config = json!({"region": "eu-west-1", "endpoint": endpoint, "credentials": keys});
            json!({"type": "sqs", "enabled": true, "config": config})
        };
        let config = json!({"transports": {"one": transport("one"), "two": transport("two")}});
        context.installation.transports = TransportsConfig::parse(&config.to_string()).unwrap();
        let actor = observed(&actor(&json!({}), &spec(&json!({})), &json!({}))).actor;
        let confirmed = check(queue("two"));
        let possible = RetiredCheck {
            maybe_created: vec![queue("two")],
            ..RetiredCheck::default()
        };
        for planned in [confirmed, possible] {
            let planned = RetiredCheck {
                current: Some(queue("one")),
                ..planned
            };
            context.retired_queue_schedule.forget(&actor.metadata.key);
            let checked = retired::check(&context, &actor, planned).await.unwrap();
            assert_eq!(
                checked.forgettable.len(),
                usize::from(is_same),
                "{checked:?}"
            );
        }
    }
}
