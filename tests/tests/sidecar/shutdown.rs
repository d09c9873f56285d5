//! SIGTERM, SIGKILL, and runtimes that die.

use std::collections::BTreeSet;
use std::time::Duration;

use asya_tests::error::{Error, Result};
use asya_tests::eventually::{always, check, eventually};
use serde_json::json;

use crate::rig::{
    Actor, LATER, QUORUM, SOON, declare, has_none, ids, leaves_none, message, put, shared_rabbitmq,
    take,
};

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
        (0..4).map(|n| message(&n.to_string(), &["foo", "bar"], json!(6))),
    )
    .await?;
    actor.is_called(1).await?;
    let status = sidecar.stop(Duration::from_secs(20)).await?;
    assert_eq!(status.code(), Some(0), "{}", actor.logs()?);
    assert_eq!(take(&broker, "bar", 1).await?[0]["id"], "0");
    let left = broker.messages("asya-foo", 10, true).await?;
    assert_eq!((left.len(), actor.calls()?.len()), (3, 1));
    actor.logs_no_secret()
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
    let (last, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    let found = broker.take("asya-bar", MESSAGES, LATER).await?;
    leaves_none(&last, &broker, "foo").await?;
    let found = found.len() + broker.messages("asya-bar", 1000, false).await?.len();
    let ids: BTreeSet<String> = actor.calls()?.into_iter().collect();
    assert_eq!(ids.len(), MESSAGES);
    assert!(found <= MESSAGES + kills * 17, "{found}");
    has_none(&broker, "error-end").await
}

/// SC-12, SC-14, SC-48, SC-52
#[tokio::test]
async fn a_handler_that_holds_the_interpreter_costs_no_other_message() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar", "error-end"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_RUNTIME_TIMEOUT", "1s")]);
    let (sidecar, runtime) = (actor.sidecar().await?, actor.runtime("holds_gil").await?);
    let ready = actor.folder().join("runtime-ready");
    put(
        &broker,
        "foo",
        [message("1", &["foo", "bar"], json!("hold"))],
    )
    .await?;
    assert_eq!(take(&broker, "error-end", 1).await?[0]["id"], "1");
    let status = sidecar.ends(SOON).await?;
    assert_eq!(status.code(), Some(1), "{}", actor.logs()?);
    assert!(
        !ready.exists(),
        "the kubelet would not restart the runtime: {}",
        actor.logs()?
    );

    // Even if the file could not be removed, the next sidecar takes no message.
    std::fs::write(&ready, "ready").map_err(Error::other)?;
    let _sidecar = actor.sidecar().await?;
    put(
        &broker,
        "foo",
        [message("2", &["foo", "bar"], json!("pass"))],
    )
    .await?;
    eventually("probes answer", SOON, async || {
        check(actor.page("/healthz").await?.0 == 200, "not alive")
    })
    .await?;
    always("nothing is taken", Duration::from_secs(2), async || {
        check(actor.page("/readyz").await?.0 == 503, "ready")
    })
    .await?;
    runtime.kill().await;
    let _runtime = actor.runtime("holds_gil").await?;
    assert_eq!(take(&broker, "bar", 1).await?[0]["id"], "2");
    has_none(&broker, "error-end").await
}

/// SC-49, SC-51, SC-82
#[tokio::test]
async fn a_runtime_that_dies_or_hangs_costs_the_message_that_it_had_and_no_other() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, QUORUM, &["foo", "bar", "error-end"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_RUNTIME_TIMEOUT", "1s")]);
    let sidecar = actor.sidecar().await?;
    put(
        &broker,
        "foo",
        [message("dies", &["foo", "bar"], json!("dies"))],
    )
    .await?;
    for _ in 0..2 {
        let runtime = actor.runtime("dies").await?;
        assert_eq!(runtime.ends(SOON).await?.code(), Some(137));
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
        runtime.ends(SOON).await?.code(),
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
    leaves_none(&sidecar, &broker, "foo").await?;
    has_none(&broker, "error-end").await
}

/// SC-49: it crashes the runtime together with the others, alone, and alone again after it was requeued.
#[tokio::test]
async fn a_message_that_kills_the_runtime_costs_no_other_that_is_handled_with_it() -> Result<()> {
    for kind in ["classic", QUORUM] {
        let broker = shared_rabbitmq().await?;
        declare(&broker, kind, &["foo", "bar", "error-end"]).await?;
        let route = ["foo", "bar"];
        put(
            &broker,
            "foo",
            ["1", "dies", "2", "3"].map(|id| message(id, &route, json!(id))),
        )
        .await?;
        let actor = Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_CONCURRENCY", "4")]);
        let sidecar = actor.sidecar().await?;
        for _ in 0..3 {
            let runtime = actor.runtime("some_die").await?;
            assert_eq!(runtime.ends(SOON).await?.code(), Some(137), "{kind}");
        }
        let crashed = take(&broker, "error-end", 1).await?;
        assert_eq!(ids(&crashed), ["dies"], "{kind}");
        let found = take(&broker, "bar", 3).await?;
        let found: BTreeSet<&str> = ids(&found).into_iter().collect();
        assert_eq!(found, BTreeSet::from(["1", "2", "3"]), "{kind}");
        leaves_none(&sidecar, &broker, "foo").await?;
        has_none(&broker, "error-end").await?;
    }
    Ok(())
}

/// SC-48, SC-76, SC-82
#[tokio::test]
async fn restarts_of_both_containers_under_load_fail_no_message() -> Result<()> {
    const RESTARTS: usize = 5;
    const EACH: usize = 300;
    const MESSAGES: usize = (RESTARTS + 1) * EACH;
    let broker = shared_rabbitmq().await?;
    for queue in ["asya-dlq", "asya-bar", "asya-error-end"] {
        broker.declare(queue, json!({})).await?;
    }
    let limited = json!({
        "x-queue-type": QUORUM, "x-delivery-limit": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "asya-dlq",
    });
    broker.declare("asya-foo", limited).await?;
    let some = |round: usize| {
        (round * EACH..(round + 1) * EACH)
            .map(|n| message(&n.to_string(), &["foo", "bar"], json!(n)))
    };
    let actor = Actor::on_rabbitmq(&broker, "foo")?;
    for restart in 0..RESTARTS {
        put(&broker, "foo", some(restart)).await?;
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
    put(&broker, "foo", some(RESTARTS)).await?;
    let (last, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    let found = broker.take("asya-bar", MESSAGES, LATER).await?;
    let different: BTreeSet<&str> = ids(&found).into_iter().collect();
    assert_eq!(
        (found.len(), different.len()),
        (MESSAGES, MESSAGES),
        "nothing is lost, nothing came twice"
    );
    leaves_none(&last, &broker, "foo").await?;
    for queue in ["error-end", "dlq"] {
        has_none(&broker, queue).await?;
    }
    Ok(())
}
