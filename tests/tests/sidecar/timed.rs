//! Timed tests, which run one at a time after the others.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use asya_tests::error::Result;
use asya_tests::eventually::{check, eventually};
use asya_tests::install_crypto_provider;
use asya_tests::process::{Folder, Process};
use asya_tests::rabbitmq::{self, RabbitMq};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::rig::{
    Actor, LATER, SOON, declare, has_none, ids, log_in, message, put, shared_rabbitmq, shared_sqs,
    take,
};
use crate::sqs::queues;

const BLOCKED: &str = "asya_actor_broker_blocked";

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

/// SC-79
#[tokio::test]
async fn an_idle_sidecar_ends_soon_on_sqs() -> Result<()> {
    let url = shared_sqs().await?;
    queues(&url, &["s-idle"]).await?;
    let actor = Actor::on_sqs(&url, "s-idle")?;
    let (sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    actor.is_ready().await?;
    let stopping = Instant::now();
    let status = sidecar.stop(Duration::from_secs(10)).await?;
    assert_eq!(status.code(), Some(0), "{}", actor.logs()?);
    assert!(
        stopping.elapsed() < Duration::from_secs(3),
        "{:?}",
        stopping.elapsed()
    );
    Ok(())
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
    eventually("a client logs in", Duration::from_mins(1), async || {
        Ok(log_in(&broker).await?)
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
    // The first message may be redelivered: a killed broker forgets acknowledgements that it has not written yet.
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
    // RabbitMQ blocks a connection only when it publishes.
    put(
        broker,
        "foo",
        (3..13).map(|n| message(&n.to_string(), &["foo", "bar"], json!(n))),
    )
    .await
    .ok();
    eventually("the alarm is reported", SOON, async || {
        let blocked = actor.metrics().await?.sum(BLOCKED, &[]);
        check(blocked == Some(1.0), format_args!("{blocked:?}"))
    })
    .await?;
    let calls = actor.calls()?.len();
    rabbitmq::control(server, &["set_vm_memory_high_watermark", "0.4"]).await?;
    eventually("the alarm is over", SOON, async || {
        let blocked = actor.metrics().await?.sum(BLOCKED, &[]);
        check(blocked == Some(0.0), format_args!("{blocked:?}"))
    })
    .await?;
    assert!(calls < 2 + 10, "not all are handed over: {calls}");
    let found = take(broker, "bar", 10).await?;
    assert_eq!(found.len(), 10, "none came twice: {found:?}");
    Ok(())
}

/// As `hexdigest` of Python.
fn sha256(text: impl AsRef<[u8]>) -> String {
    let mut digits = String::new();
    for byte in Sha256::digest(text) {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// SC-85
#[tokio::test]
async fn sixty_megabytes_pass_while_probes_answer() -> Result<()> {
    const SIZE: usize = 60 << 20;
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["large", "digest", "bar", "error-end"]).await?;
    let (large, digest) = (
        Actor::on_rabbitmq(&broker, "large")?,
        Actor::on_rabbitmq(&broker, "digest")?,
    );
    let _first = (large.sidecar().await?, large.runtime("large").await?);
    let _second = (digest.sidecar().await?, digest.runtime("digest").await?);
    digest.is_ready().await?;
    put(
        &broker,
        "large",
        [message("1", &["large", "digest", "bar"], json!(SIZE))],
    )
    .await?;
    let probing = async {
        loop {
            let answered =
                tokio::time::timeout(Duration::from_secs(1), digest.page("/healthz")).await;
            assert!(answered.is_ok_and(|page| page.is_ok_and(|(status, _)| status == 200)));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let found = tokio::select! {
        found = broker.take("asya-bar", 1, LATER) => found?,
        () = probing => unreachable!("it never ends"),
    };
    assert_eq!(found[0]["payload"], json!(sha256("x".repeat(SIZE))));
    has_none(&broker, "error-end").await
}

/// SC-90, SC-86, SC-89, SC-11
#[tokio::test]
async fn a_gateway_that_is_away_holds_nothing_up() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let actor =
        Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_GATEWAY_URL", "http://127.0.0.1:1")]);
    let (sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    put(
        &broker,
        "foo",
        (0..20).map(|n| message(&n.to_string(), &["foo", "bar"], json!(n))),
    )
    .await?;
    assert_eq!(take(&broker, "bar", 20).await?.len(), 20);
    let stopping = Instant::now();
    assert_eq!(sidecar.stop(Duration::from_secs(10)).await?.code(), Some(0));
    assert!(
        stopping.elapsed() < Duration::from_secs(2),
        "{:?}",
        stopping.elapsed()
    );
    Ok(())
}
