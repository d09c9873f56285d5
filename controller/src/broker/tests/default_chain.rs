//! AWS' default credential chain. It reads environment variables, so each case runs in its own process.

use std::env;
use std::process::{Command, Output};
use std::sync::Mutex;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tokio::net::TcpListener;

use super::*;

const ENDPOINT: &str = "ASYA_TEST_DEFAULT_CHAIN";
/// SQS' response for a queue that does not exist.
const ABSENT: &str = r#"{"__type":"com.amazonaws.sqs#QueueDoesNotExist","message":"x"}"#;

type Logins = Arc<Mutex<Vec<String>>>;

async fn respond_absent(
    State(logins): State<Logins>,
    headers: HeaderMap,
) -> (StatusCode, &'static str) {
    let login = headers["authorization"].to_str().unwrap().to_owned();
    logins.lock().unwrap().push(login);
    (StatusCode::BAD_REQUEST, ABSENT)
}

/// Does nothing except in a process started for it, whose output reports the result.
#[tokio::test]
async fn call_without_credentials_of_the_transport() {
    let Ok(endpoint) = env::var(ENDPOINT) else {
        return;
    };
    let config = json!({"endpoint": endpoint, "region": "eu-west-1"});
    let transport = transport("sqs", &config);
    let TransportKind::Sqs(config) = &transport.kind else {
        panic!()
    };
    let limiter = Arc::new(BrokerLimiter::new(
        "t",
        &WorkerShare::of(32),
        Fence::unrestricted(),
        Arc::default(),
    ));
    let client = Sqs::connect(
        "t",
        config.clone(),
        SqsLogin::default(),
        HERE.into(),
        limiter,
        &over_network().sqs,
    )
    .await
    .unwrap();
    let result = QueueClient::observe(&client, &queue_of(&transport, "q")).await;
    println!("observed: {result:?}");
}

async fn observe_in_child(endpoint: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(env::current_exe().unwrap());
    let name = "broker::tests::default_chain::call_without_credentials_of_the_transport";
    let aws = env::vars().filter(|(name, _)| name.starts_with("AWS_"));
    for (name, _) in aws {
        command.env_remove(name);
    }
    command
        .args(["--exact", name, "--nocapture"])
        .env(ENDPOINT, endpoint)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("HOME", "/nowhere")
        .envs(variables.iter().copied());
    let Output { stdout, stderr, .. } = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    let text = String::from_utf8_lossy(&stdout).into_owned();
    let observed = text.lines().find(|line| line.contains("observed: "));
    let observed = observed.map(str::to_owned);
    observed.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&stderr)))
}

/// SEC-1, SQS-8
#[tokio::test]
async fn default_credential_chain_applies_without_transport_credentials() {
    let logins = Logins::default();
    let routes = Router::new()
        .fallback(respond_absent)
        .with_state(Arc::clone(&logins));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });

    let keys = [
        ("AWS_ACCESS_KEY_ID", "AKIAOFTHECHAIN"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    let observed = observe_in_child(&endpoint, &keys).await;
    assert!(observed.contains("NotFound"), "{observed}");
    let used = logins.lock().unwrap().clone();
    assert!(
        used.len() == 1 && used[0].contains("Credential=AKIAOFTHECHAIN/"),
        "{used:?}"
    );

    let observed = observe_in_child(&endpoint, &[]).await;
    assert!(
        observed.contains("CredentialsMissing") && observed.contains("config.credentials"),
        "{observed}"
    );
    assert_eq!(logins.lock().unwrap().len(), 1, "no request was sent");
}
