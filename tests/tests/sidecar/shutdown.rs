//! SIGTERM, SIGKILL, and a broker that becomes unavailable.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use asya_tests::error::Result;
use asya_tests::eventually::{check, eventually};
use asya_tests::install_crypto_provider;
use asya_tests::process::{Folder, Process};
use asya_tests::rabbitmq::{self, RabbitMq};
use serde_json::{Value, json};

use crate::rig::{Actor, QUORUM, SOON, declare, is_empty, message, put, shared_rabbitmq, take};

/// SC-33, SC-78, SC-81
#[tokio::test]
async fn results_that_come_after_sigterm_are_sent_and_acknowledged() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_LOOKAHEAD", "4")]);
    let (sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("slow").await?);
    put(
        &broker,
        "foo",
        (0..4).map(|n| message(&n.to_string(), &["foo", "bar"], json!(1.5))),
    )
    .await?;
    actor.is_called(1).await?;
    let status = sidecar.stop(Duration::from_secs(10)).await?;
    assert_eq!(status.code(), Some(0), "{}", actor.logs()?);
    assert_eq!(take(&broker, "bar", 1).await?[0]["id"], "0");
    let left = broker.messages("asya-foo", 10, true).await?;
    assert_eq!((left.len(), actor.calls()?.len()), (3, 1));
    actor.tells_no_secret()
}

/// SC-79
#[tokio::test]
async fn an_idle_sidecar_ends_at_once_in_every_state() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo"]).await?;
    let waiting = Actor::on_rabbitmq(&broker, "foo")?;
    let ready = Actor::on_rabbitmq(&broker, "foo")?;
    let away = Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_RABBITMQ_PORT", "1")]);
    let _runtime = ready.runtime("echo").await?;
    for (actor, takes_messages) in [(&waiting, false), (&ready, true), (&away, false)] {
        let sidecar = actor.sidecar().await?;
        eventually("probes answer", SOON, async || {
            check(actor.page("/healthz").await?.0 == 200, "")
        })
        .await?;
        if takes_messages {
            actor.is_ready().await?;
        }
        let started = Instant::now();
        let status = sidecar.stop(Duration::from_secs(10)).await?;
        assert_eq!(status.code(), Some(0));
        assert!(
            started.elapsed() < Duration::from_millis(600),
            "{:?}: {}",
            started.elapsed(),
            actor.logs()?
        );
    }
    Ok(())
}

/// SC-72, SC-73, SC-76, SC-84
#[tokio::test]
async fn a_killed_sidecar_loses_nothing_and_doubles_no_more_than_was_in_flight() -> Result<()> {
    const MESSAGES: usize = 600;
    let broker = shared_rabbitmq().await?;
    declare(&broker, QUORUM, &["foo", "bar", "error-end"]).await?;
    put(
        &broker,
        "foo",
        (0..MESSAGES).map(|n| message(&n.to_string(), &["foo", "bar"], json!(n))),
    )
    .await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?;
    let mut kills = 0;
    for calls in [50, 200, 400] {
        let (sidecar, runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
        actor.is_called(calls).await?;
        sidecar.kill().await;
        // A runtime whose connection closes during a call exits, and the kubelet restarts it.
        runtime.kill().await;
        kills += 1;
    }
    let _last = (actor.sidecar().await?, actor.runtime("echo").await?);
    let found = take(&broker, "bar", MESSAGES).await?;
    is_empty(&broker, "foo").await?;
    let found = found.len() + broker.messages("asya-bar", 1000, false).await?.len();
    let ids: BTreeSet<String> = actor.calls()?.into_iter().collect();
    assert_eq!(ids.len(), MESSAGES);
    assert!(found <= MESSAGES + kills * 17, "{found}");
    is_empty(&broker, "error-end").await
}

/// SC-20, SC-21, SC-29, SC-72
#[tokio::test]
async fn a_broker_that_comes_back_is_consumed_from_again() -> Result<()> {
    install_crypto_provider();
    let folder = Folder::create("sidecar-own-rabbitmq")?;
    let (broker, mut parts) = rabbitmq::serve(folder.path()).await?;
    // Not a quorum queue: a new one may be unavailable for a minute after its server is killed (RabbitMQ 3.10).
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?;
    let (sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    put(&broker, "foo", [message("1", &["foo", "bar"], json!(1))]).await?;
    assert_eq!(take(&broker, "bar", 1).await?[0]["id"], "1");
    let server = parts.pop().expect("a server");
    let spec = server.spec().clone();
    server.kill().await;
    eventually("the loss is noticed", SOON, async || {
        check(actor.page("/readyz").await?.0 == 503, "ready")
    })
    .await?;
    assert_eq!(
        actor.page("/healthz").await?.0,
        200,
        "a restart would not help"
    );
    let server = Process::start(spec).await?;
    eventually("RabbitMQ answers", Duration::from_mins(1), async || {
        Ok(broker.queues().await.map(drop)?)
    })
    .await?;
    let back = Instant::now();
    actor.is_ready().await?;
    assert!(
        back.elapsed() < Duration::from_secs(7),
        "{:?}",
        back.elapsed()
    );
    put(&broker, "foo", [message("2", &["foo", "bar"], json!(2))]).await?;
    // The first one may be redelivered: a broker that is killed forgets acknowledgements that it has not written yet.
    let mut found = take(&broker, "bar", 1).await?;
    if ids(&found) == ["1"] {
        found = take(&broker, "bar", 1).await?;
    }
    assert!(ids(&found).contains(&"2"), "{found:?}");
    assert!(sidecar.exited().is_none());
    blocked(&broker, &server, &actor).await
}

/// SC-29: a resource alarm delays publications, and loses none.
async fn blocked(broker: &RabbitMq, server: &Process, actor: &Actor) -> Result<()> {
    rabbitmq::control(server, &["set_vm_memory_high_watermark", "0.0000001"]).await?;
    // RabbitMQ blocks a connection only once it publishes.
    put(
        broker,
        "foo",
        (3..13).map(|n| message(&n.to_string(), &["foo", "bar"], json!(n))),
    )
    .await
    .ok();
    eventually("the alarm is told", SOON, async || {
        check(
            actor
                .page("/metrics")
                .await?
                .1
                .contains("asya_actor_broker_blocked 1"),
            "not blocked",
        )
    })
    .await?;
    let calls = actor.calls()?.len();
    rabbitmq::control(server, &["set_vm_memory_high_watermark", "0.4"]).await?;
    eventually("the alarm is over", SOON, async || {
        check(
            actor
                .page("/metrics")
                .await?
                .1
                .contains("asya_actor_broker_blocked 0"),
            "blocked",
        )
    })
    .await?;
    assert!(calls < 2 + 10, "not all are handed over: {calls}");
    let found = take(broker, "bar", 10).await?;
    assert_eq!(found.len(), 10, "none came twice: {found:?}");
    Ok(())
}

/// SC-49, SC-51, SC-82
#[tokio::test]
async fn a_runtime_that_dies_or_hangs_costs_the_message_that_it_had_and_no_other() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, QUORUM, &["foo", "bar", "error-end"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_RUNTIME_TIMEOUT", "1s")]);
    let _sidecar = actor.sidecar().await?;
    put(
        &broker,
        "foo",
        [message("dies", &["foo", "bar"], json!("dies"))],
    )
    .await?;
    for _ in 0..2 {
        let runtime = actor.runtime("dies").await?;
        assert_eq!(runtime.wait().await.code(), Some(137));
    }
    let crashed = take(&broker, "error-end", 1).await?;
    assert_eq!(
        (&crashed[0]["id"], &crashed[0]["payload"]["error"]),
        (&json!("dies"), &json!("runtime_crashed"))
    );
    assert_eq!(actor.calls()?, ["dies", "dies"]);

    put(
        &broker,
        "foo",
        [
            message("hangs", &["foo", "bar"], json!(60)),
            message("next", &["foo", "bar"], json!(0)),
        ],
    )
    .await?;
    let runtime = actor.runtime("slow").await?;
    assert_eq!(
        runtime.wait().await.code(),
        Some(1),
        "it ends itself when it is hung up"
    );
    let hung = take(&broker, "error-end", 1).await?;
    assert_eq!(
        hung[0]["payload"]["error"],
        "Runtime timeout exceeded after 1s"
    );
    let _runtime = actor.runtime("slow").await?;
    assert_eq!(ids(&take(&broker, "bar", 1).await?), ["next"]);
    is_empty(&broker, "foo").await?;
    is_empty(&broker, "error-end").await
}

fn ids(messages: &[Value]) -> Vec<&str> {
    messages
        .iter()
        .filter_map(|message| message["id"].as_str())
        .collect()
}

/// SC-48, SC-76, SC-82
#[tokio::test]
async fn restarts_of_both_containers_under_load_fail_no_message() -> Result<()> {
    const MESSAGES: usize = 1800;
    let broker = shared_rabbitmq().await?;
    for queue in ["asya-dlq", "asya-bar", "asya-error-end"] {
        broker.declare(queue, json!({})).await?;
    }
    let limited = json!({
        "x-queue-type": QUORUM, "x-delivery-limit": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "asya-dlq",
    });
    broker.declare("asya-foo", limited).await?;
    put(
        &broker,
        "foo",
        (0..MESSAGES).map(|n| message(&n.to_string(), &["foo", "bar"], json!(n))),
    )
    .await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?;
    for _restart in 0..5 {
        let (sidecar, runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
        actor.is_called(actor.calls()?.len() + 10).await?;
        // The kubelet signals both containers at once.
        let patience = Duration::from_secs(10);
        let (sidecar, runtime) = tokio::join!(sidecar.stop(patience), runtime.stop(patience));
        assert_eq!(
            (sidecar?.code(), runtime?.code()),
            (Some(0), Some(0)),
            "{}",
            actor.logs()?
        );
    }
    let _last = (actor.sidecar().await?, actor.runtime("echo").await?);
    let found = take(&broker, "bar", MESSAGES).await?;
    let different: BTreeSet<&str> = ids(&found).into_iter().collect();
    assert_eq!(
        (found.len(), different.len()),
        (MESSAGES, MESSAGES),
        "nothing is lost, nothing came twice"
    );
    is_empty(&broker, "foo").await?;
    for queue in ["asya-error-end", "asya-dlq"] {
        assert_eq!(broker.messages(queue, 10, true).await?, [""; 0], "{queue}");
    }
    Ok(())
}
