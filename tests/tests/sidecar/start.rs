//! Configuration, readiness and logins.

use std::time::Duration;

use asya_shared::api::EnvVar;
use asya_shared::config::TransportsConfig;
use asya_tests::command::expanded;
use asya_tests::error::{Error, Result};
use asya_tests::eventually::{always, check, eventually};
use asya_tests::rabbitmq::OPERATOR_PASSWORD;
use serde_json::{Value, json};

use crate::rig::{Actor, SOON, declare, has_none, message, put, shared_rabbitmq, take};

/// SC-5, SC-7
#[tokio::test]
async fn a_wrong_setting_ends_it_with_two_and_one_line() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?.with(&[
        ("ASYA_RUNTIME_TIMEOUT", "300"),
        ("ASYA_RABBITMQ_PORT", "tcp://10.0.0.1:5672"),
    ]);
    let status = actor.sidecar().await?.ends(SOON).await?;
    let log = actor.logs()?;
    assert_eq!(status.code(), Some(2), "{log}");
    assert!(
        log.starts_with("asya-sidecar: ASYA_R") && log.lines().count() == 1 && log.contains("; "),
        "{log}"
    );
    Ok(())
}

/// SC-11, SC-13, SC-14, SC-15, SC-16, SC-105
#[tokio::test]
async fn no_message_leaves_its_queue_while_the_runtime_is_away() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar", "error-end"]).await?;
    put(
        &broker,
        "foo",
        (0..50).map(|n| message(&n.to_string(), &["foo", "bar"], json!(n))),
    )
    .await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?;
    let _sidecar = actor.sidecar().await?;
    eventually("probes answer", SOON, async || {
        check(actor.page("/healthz").await?.0 == 200, "not alive")
    })
    .await?;
    always("nothing is taken", Duration::from_secs(1), async || {
        let error_end = broker.queue("asya-error-end").await?;
        let taken = broker
            .queue("asya-foo")
            .await?
            .and_then(|queue| queue.messages_unacknowledged);
        check(
            error_end.and_then(|queue| queue.messages).unwrap_or(0) + taken.unwrap_or(0) == 0,
            "some were",
        )
    })
    .await?;
    assert_eq!(actor.page("/readyz").await?.0, 503);
    let runtime = actor.runtime("echo").await?;
    actor.is_ready().await?;
    assert_eq!(take(&broker, "bar", 50).await?.len(), 50);
    runtime.kill().await;
    put(
        &broker,
        "foo",
        (50..80).map(|n| message(&n.to_string(), &["foo", "bar"], json!(n))),
    )
    .await?;
    let _runtime = actor.runtime("echo").await?;
    assert_eq!(take(&broker, "bar", 30).await?.len(), 30);
    has_none(&broker, "error-end").await?;
    actor.logs_no_secret()
}

/// SC-12, SC-17
#[tokio::test]
async fn a_runtime_that_does_not_start_in_time_ends_it_with_one() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    let actor =
        Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_RUNTIME_READY_TIMEOUT", "300ms")]);
    let status = actor.sidecar().await?.ends(SOON).await?;
    assert_eq!(status.code(), Some(1), "{}", actor.logs()?);
    assert_eq!(actor.logs()?.matches("did not become ready").count(), 1);
    Ok(())
}

/// SC-8, SC-9, SC-17, SC-20
#[tokio::test]
async fn a_refused_login_is_tried_again_reported_once_and_keeps_its_password_to_itself()
-> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let late = format!("late-{}", broker.state().vhost);
    let state = broker.state();
    let vhost = state.vhost.replace('/', "%2F");
    let url = format!(
        "amqp://{late}:{OPERATOR_PASSWORD}@127.0.0.1:{}/{vhost}",
        state.port
    );
    let actor = Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_RABBITMQ_URL", &url)]);
    let (_sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    eventually("the refusal is reported", SOON, async || {
        let logs = actor.logs()?;
        check(logs.contains("403 ACCESS_REFUSED"), logs)
    })
    .await?;
    broker.add_user(&late, OPERATOR_PASSWORD, "").await?;
    actor.is_ready().await?;
    put(&broker, "foo", [message("1", &["foo", "bar"], json!(1))]).await?;
    assert_eq!(take(&broker, "bar", 1).await?[0]["id"], "1");
    let logs = actor.logs()?;
    let told = logs
        .lines()
        .filter(|line| line.contains("ACCESS_REFUSED"))
        .count();
    assert!(told <= 2, "once for each connection:\n{logs}");
    actor.logs_no_secret()
}

/// SC-99
#[tokio::test]
async fn the_brokers_certificate_is_checked() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let state = broker.state();
    let port = state.tls_port.to_string();
    let tls = [
        ("ASYA_RABBITMQ_TLS", "true"),
        ("ASYA_RABBITMQ_PORT", port.as_str()),
    ];
    let unknown = Actor::on_rabbitmq(&broker, "foo")?.with(&tls);
    let wrong_name = Actor::on_rabbitmq(&broker, "foo")?.with(&tls);
    let ca = state.ca.display().to_string();
    let wrong_name = wrong_name.with(&[
        ("ASYA_RABBITMQ_CA_FILE", &ca),
        ("ASYA_RABBITMQ_HOST", "localhost"),
    ]);
    for actor in [&unknown, &wrong_name] {
        let _sidecar = actor.sidecar().await?;
        eventually("the certificate is refused", SOON, async || {
            let logs = actor.logs()?;
            check(logs.contains("certificate"), logs)
        })
        .await?;
    }
    let actor = Actor::on_rabbitmq(&broker, "foo")?
        .with(&tls)
        .with(&[("ASYA_RABBITMQ_CA_FILE", &ca)]);
    let (_sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    put(&broker, "foo", [message("1", &["foo", "bar"], json!(1))]).await?;
    assert_eq!(take(&broker, "bar", 1).await?[0]["id"], "1");
    Ok(())
}

/// SC-94
#[tokio::test]
async fn log_lines_are_json_and_a_message_that_succeeds_makes_none() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar", "error-end"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_LOG_LEVEL", "info")]);
    let (_sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    put(
        &broker,
        "foo",
        (0..20).map(|n| message(&n.to_string(), &["foo", "bar"], json!(n))),
    )
    .await?;
    put(
        &broker,
        "foo",
        [message("wrong", &["other"], json!("a secret payload"))],
    )
    .await?;
    take(&broker, "bar", 20).await?;
    take(&broker, "error-end", 1).await?;
    eventually("the failure is reported", SOON, async || {
        check(actor.logs()?.contains("route_mismatch"), "not yet")
    })
    .await?;
    let logs = actor.logs()?;
    let of_sidecar: Vec<&str> = logs.lines().filter(|line| line.starts_with('{')).collect();
    assert!(of_sidecar.len() <= 6, "{logs}");
    for line in &of_sidecar {
        let line: serde_json::Value = serde_json::from_str(line)?;
        for key in ["level", "timestamp", "message", "actor"] {
            assert!(line[key].is_string(), "{line}");
        }
    }
    let failed: Vec<&&str> = of_sidecar
        .iter()
        .filter(|line| line.contains("\"id\":\"wrong\""))
        .collect();
    assert_eq!(failed.len(), 1, "{logs}");
    assert!(
        failed[0].contains("route_mismatch") && !logs.contains("a secret payload"),
        "{logs}"
    );
    Ok(())
}

/// SC-10, POD-3, POD-4
#[tokio::test]
async fn it_starts_with_whatever_environment_the_operator_gives_it() -> Result<()> {
    let rabbitmq = |more: Value| {
        let mut config = json!({"host": "broker", "passwordSecretRef": {"name": "s", "key": "k"}});
        config
            .as_object_mut()
            .into_iter()
            .zip(more.as_object())
            .for_each(|(all, more)| all.extend(more.clone()));
        json!({"type": "rabbitmq", "enabled": true, "config": config})
    };
    let corpus = [
        rabbitmq(json!({})),
        rabbitmq(json!({"tls": true, "vhost": "a/b c", "username": "ü@:"})),
        rabbitmq(json!({"host": "[::1]", "port": 1, "exchange": "other"})),
        rabbitmq(
            json!({"queues": {"nameTemplate": "asya-{namespace}-{actor}", "autoCreate": false}}),
        ),
        rabbitmq(json!({"vhost": "x", "passwordSecretRef": null})),
        json!({"type": "sqs", "enabled": true, "config": {"region": "eu-west-1"}}),
        json!({"type": "sqs", "enabled": true, "config": {"endpoint": "http://sqs:4566", "visibilityTimeout": 43200, "waitTimeSeconds": 20,
            "credentials": {"accessKeyIdSecretRef": {"name": "s", "key": "k"}, "secretAccessKeySecretRef": {"name": "s", "key": "k"}}}}),
    ];
    for transport in corpus {
        for password in ["p@ss/w:rd", "100%", "a$b"] {
            let (name, env) = rendered(&transport)?;
            let values: Vec<(String, String)> =
                env.iter().fold(Vec::new(), |mut known, variable| {
                    let value = given(variable, &known, password);
                    known.push((variable.name.clone(), value));
                    known
                });
            let mut actor = Actor::new(&name)?.with(&[("ASYA_RUNTIME_READY_TIMEOUT", "1ms")]);
            for (name, value) in &values {
                actor = actor.with(&[(name, value)]);
            }
            // 1: the runtime is missing, as intended; 2 would be an invalid configuration.
            let status = actor.sidecar().await?.ends(SOON).await?;
            assert_eq!(status.code(), Some(1), "{values:?}: {}", actor.logs()?);
            assert!(
                !actor.logs()?.contains("unknown variable, ignored"),
                "{}",
                actor.logs()?
            );
        }
    }
    Ok(())
}

/// The actor's name in messages and its transport's variables.
fn rendered(transport: &Value) -> Result<(String, Vec<EnvVar>)> {
    let all = json!({"transports": {"t": transport}}).to_string();
    let parsed = TransportsConfig::parse(&all).map_err(Error::other)?;
    let transport = parsed.usable("t").map_err(Error::other)?;
    Ok((
        transport.names_of("shop", "foo").actor,
        transport.broker().sidecar_env(),
    ))
}

/// A variable's value, as the kubelet expands it.
fn given(variable: &EnvVar, known: &[(String, String)], secret: &str) -> String {
    let Some(value) = variable.source.get("value").and_then(Value::as_str) else {
        return secret.to_owned();
    };
    expanded(value, known)
}
