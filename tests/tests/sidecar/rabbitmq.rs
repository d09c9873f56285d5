//! Messages through RabbitMQ.

use asya_tests::error::Result;
use asya_tests::eventually::{check, eventually};
use reqwest::Method;
use serde_json::json;

use crate::rig::{
    Actor, LATER, QUORUM, SOON, declare, has_none, ids, leaves_none, message, put, shared_rabbitmq,
    take,
};

/// SC-23, SC-24, SC-27, SC-47, SC-60, SC-62 to SC-66, RUN-11, RUN-12, RUN-13
#[tokio::test]
async fn messages_go_from_queue_to_runtime_and_on_to_where_the_reply_leads() -> Result<()> {
    for kind in ["classic", QUORUM] {
        let broker = shared_rabbitmq().await?;
        declare(
            &broker,
            kind,
            &["echo", "several", "fails", "bar", "happy-end", "error-end"],
        )
        .await?;
        let mut running = Vec::new();
        for name in ["echo", "several", "fails"] {
            let actor = Actor::on_rabbitmq(&broker, name)?;
            let (sidecar, runtime) = (actor.sidecar().await?, actor.runtime(name).await?);
            running.push((actor, sidecar, runtime));
        }
        let odd = r#"{"id":"odd","parent_id":"p","route":{"actors":["echo","bar"],"current":0,"metadata":{"m":1}},"headers":{"traceparent":"t"},"payload":{"a":"<&>ü","n":12345678901234567890}}"#;
        put(&broker, "echo", [odd.to_owned()]).await?;
        let expected = json!({
            "id": "odd", "parent_id": "p", "route": {"actors": ["echo", "bar"], "current": 1, "metadata": {"m": 1}},
            "headers": {"traceparent": "t"}, "payload": {"a": "<&>ü", "n": 12_345_678_901_234_567_890_u64},
        });
        assert_eq!(take(&broker, "bar", 1).await?, [expected]);

        put(
            &broker,
            "several",
            [
                message("many", &["several", "bar"], json!(3)),
                message("none", &["several"], json!(0)),
            ],
        )
        .await?;
        let children = take(&broker, "bar", 3).await?;
        assert_eq!(children[0].get("parent_id"), None);
        assert_eq!(
            (&children[2]["id"], &children[2]["parent_id"]),
            (&json!("many-2"), &json!("many"))
        );
        let none = take(&broker, "happy-end", 1).await?;
        assert_eq!(
            (&none[0]["id"], &none[0]["route"]["current"]),
            (&json!("none"), &json!(0))
        );

        put(
            &broker,
            "fails",
            [message("x", &["fails", "bar"], json!("it"))],
        )
        .await?;
        let failed = &take(&broker, "error-end", 1).await?[0]["payload"];
        assert_eq!(
            (&failed["error"], &failed["original_payload"]),
            (&json!("processing_error"), &json!("it"))
        );
        assert_eq!(failed["details"]["message"], "no <it>");
        for (actor, sidecar, _) in &running {
            leaves_none(sidecar, &broker, &actor.name).await?;
            actor.logs_no_secret()?;
        }
    }
    Ok(())
}

/// SC-68, SC-69, SC-70, RUN-12
#[tokio::test]
async fn an_end_actor_takes_anything_and_sends_nothing() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    broker.declare("asya-dlq", json!({})).await?;
    let arguments = json!({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "asya-dlq"});
    broker.declare("asya-error-end", arguments).await?;
    let end = [
        ("ASYA_IS_END_ACTOR", "true"),
        ("ASYA_HANDLER_MODE", "envelope"),
        ("ASYA_ENABLE_VALIDATION", "false"),
    ];
    let actor = Actor::on_rabbitmq(&broker, "error-end")?.with(&end);
    let (sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("end").await?);
    put(
        &broker,
        "error-end",
        [message("1", &["any"], json!(1)), "{}".to_owned()],
    )
    .await?;
    actor.is_called(2).await?;
    put(&broker, "error-end", ["not JSON".to_owned()]).await?;
    let rejected = eventually("it is rejected after three attempts", SOON, async || {
        let found = broker.messages("asya-dlq", 1, false).await?;
        check(!found.is_empty(), "not yet").map(|()| found)
    });
    assert_eq!(rejected.await?, ["not JSON"]);
    leaves_none(&sidecar, &broker, "error-end").await
}

/// SC-26, SC-76
#[tokio::test]
async fn a_result_without_a_queue_waits_in_the_queue_of_its_source() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, QUORUM, &["foo", "error-end"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?;
    let (sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    put(&broker, "foo", [message("1", &["foo", "late"], json!(1))]).await?;
    actor.is_called(1).await?;
    declare(&broker, QUORUM, &["late"]).await?;
    assert_eq!(take(&broker, "late", 1).await?[0]["id"], "1");
    assert_eq!(actor.calls()?.len(), 1, "the same result is sent again");
    leaves_none(&sidecar, &broker, "foo").await?;
    has_none(&broker, "error-end").await
}

/// SC-26, SC-31, SC-34: nor when it is redelivered, which a classic queue would do before all others.
#[tokio::test]
async fn a_message_without_a_destination_holds_up_no_other() -> Result<()> {
    for kind in ["classic", QUORUM] {
        let broker = shared_rabbitmq().await?;
        declare(&broker, kind, &["foo", "bar"]).await?;
        put(&broker, "foo", [message("m", &["foo", "late"], json!(0))]).await?;
        let actor = Actor::on_rabbitmq(&broker, "foo")?;
        let (sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
        let is_called = async |times| {
            eventually("it is tried again", LATER, async || {
                let calls = actor.calls()?;
                let found = calls.iter().filter(|call| *call == "0").count();
                check(found >= times, format!("{calls:?}"))
            })
            .await
        };
        for round in 1..=4 {
            is_called(round).await?;
            let others = ["1", "2", "3"].map(|id| message(id, &["foo", "bar"], json!(1)));
            put(&broker, "foo", others).await?;
            assert_eq!(ids(&take(&broker, "bar", 3).await?), ["1", "2", "3"]);
        }
        declare(&broker, kind, &["late"]).await?;
        assert_eq!(ids(&take(&broker, "late", 1).await?), ["m"], "{kind}");
        leaves_none(&sidecar, &broker, "foo").await?;
        has_none(&broker, "late").await?;
    }
    Ok(())
}

/// SC-31, SC-43, SC-44: otherwise they would be redelivered to the consumer that is about to be cancelled.
#[tokio::test]
async fn messages_behind_a_long_call_return_to_a_classic_queue_and_stay_there() -> Result<()> {
    const FAST: usize = 40;
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?;
    let (sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("slow").await?);
    let some = |count| vec![message("fast", &["foo", "bar"], json!(0)); count];
    put(&broker, "foo", some(FAST)).await?;
    take(&broker, "bar", FAST).await?;
    put(
        &broker,
        "foo",
        [message("slow", &["foo", "bar"], json!(10))],
    )
    .await?;
    actor.is_called(FAST + 1).await?;
    put(&broker, "foo", some(10)).await?;
    eventually("they are in the queue again", SOON, async || {
        let found = broker.messages("asya-foo", 20, true).await?.len();
        check(found == 10, format!("{found}"))
    })
    .await?;
    assert_eq!(actor.calls()?.len(), FAST + 1, "the long call is not over");
    take(&broker, "bar", 11).await?;
    leaves_none(&sidecar, &broker, "foo").await
}

/// SC-25, SC-27
#[tokio::test]
async fn who_may_not_use_the_default_exchange_uses_the_topic_exchange() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let vhost = broker.state().vhost.clone();
    let exchange = json!({"type": "topic", "durable": true});
    broker
        .request(Method::PUT, &["exchanges", &vhost, "asya"])?
        .json(&exchange)
        .send()
        .await?
        .error_for_status()?;
    let binding = json!({"routing_key": "bar"});
    let path = ["bindings", &vhost, "e", "asya", "q", "asya-bar"];
    broker
        .request(Method::POST, &path)?
        .json(&binding)
        .send()
        .await?
        .error_for_status()?;
    let few = json!({"configure": "^$", "write": "^asya$", "read": "^asya-foo$"});
    let user = broker.state().user.clone();
    broker
        .request(Method::PUT, &["permissions", &vhost, &user])?
        .json(&few)
        .send()
        .await?
        .error_for_status()?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?;
    let (_sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    put(
        &broker,
        "foo",
        (0..5).map(|n| message(&n.to_string(), &["foo", "bar"], json!(n))),
    )
    .await?;
    assert_eq!(take(&broker, "bar", 5).await?.len(), 5);
    assert_eq!(
        actor
            .logs()?
            .matches("using exchange asya on this connection")
            .count(),
        1
    );
    Ok(())
}

/// SC-4
#[tokio::test]
async fn two_namespaces_with_an_actor_of_one_name_get_only_their_own_messages() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(
        &broker,
        "classic",
        &["one-foo", "two-foo", "one-bar", "two-bar"],
    )
    .await?;
    let mut running = Vec::new();
    for namespace in ["one", "two"] {
        let actor = Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_NAMESPACE", namespace)]);
        let (sidecar, runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
        running.push((actor, sidecar, runtime));
        let messages =
            (0..5).map(|n| message(&format!("{namespace}-{n}"), &["foo", "bar"], json!(n)));
        put(&broker, &format!("{namespace}-foo"), messages).await?;
    }
    for namespace in ["one", "two"] {
        let messages = take(&broker, &format!("{namespace}-bar"), 5).await?;
        assert_eq!(messages.len(), 5);
        assert!(messages.iter().all(|message| {
            message["id"]
                .as_str()
                .is_some_and(|id| id.starts_with(namespace))
        }));
    }
    Ok(())
}

/// SC-30, SC-83
#[tokio::test]
async fn a_result_that_the_broker_finds_too_large_is_reported_to_error_end() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["large", "bar", "error-end"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "large")?.with(&[("ASYA_MAX_MESSAGE_SIZE", "512Mi")]);
    let (sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("large").await?);
    // The broker accepts 128 MiB.
    put(
        &broker,
        "large",
        [message("large", &["large", "bar"], json!(135_000_000))],
    )
    .await?;
    put(
        &broker,
        "large",
        [message("small", &["large", "bar"], json!(10))],
    )
    .await?;
    let told = broker.take("asya-error-end", 1, LATER).await?;
    assert_eq!(
        (&told[0]["id"], &told[0]["payload"]["error"]),
        (&json!("large"), &json!("message_too_large"))
    );
    assert_eq!(take(&broker, "bar", 1).await?[0]["id"], "small");
    leaves_none(&sidecar, &broker, "large").await
}

/// SC-42, SC-91
#[tokio::test]
async fn metrics_report_what_was_moved() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?.with(&[("ASYA_CONCURRENCY", "4")]);
    let (_sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    put(
        &broker,
        "foo",
        (0..3).map(|n| message(&n.to_string(), &["foo", "bar"], json!(n))),
    )
    .await?;
    take(&broker, "bar", 3).await?;
    eventually("the metrics are there", SOON, async || {
        let metrics = actor.metrics().await?;
        for (name, labels, expected) in [
            (
                "asya_actor_messages_processed_total",
                &[("queue", "foo"), ("status", "success")][..],
                3.0,
            ),
            (
                "asya_actor_messages_sent_total",
                &[
                    ("destination_queue", "asya-bar"),
                    ("message_type", "routing"),
                ],
                3.0,
            ),
            ("asya_actor_slots", &[], 4.0),
            (
                "asya_actor_broker_connected",
                &[("connection", "consume")],
                1.0,
            ),
        ] {
            let found = metrics.sum(name, labels);
            check(
                found == Some(expected),
                format_args!("{name} {labels:?}: {found:?}"),
            )?;
        }
        Ok(())
    })
    .await?;
    Ok(())
}

/// SC-21, SC-46
#[tokio::test]
async fn a_queue_that_was_deleted_and_made_again_is_consumed_again() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?;
    let (sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    put(&broker, "foo", [message("1", &["foo", "bar"], json!(1))]).await?;
    take(&broker, "bar", 1).await?;
    broker.delete_queue("asya-foo").await?;
    eventually("the loss is reported", SOON, async || {
        check(actor.logs()?.contains("404"), actor.logs()?)
    })
    .await?;
    declare(&broker, "classic", &["foo"]).await?;
    put(
        &broker,
        "foo",
        (0..100).map(|n| message(&n.to_string(), &["foo", "bar"], json!(n))),
    )
    .await?;
    let found = take(&broker, "bar", 100).await?;
    let ids: Vec<String> = found
        .iter()
        .filter_map(|message| message["id"].as_str().map(str::to_owned))
        .collect();
    let expected: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    assert_eq!(ids, expected, "with one slot, order is kept");
    assert!(sidecar.exited().is_none());
    Ok(())
}

/// SC-21, SC-72
#[tokio::test]
async fn a_message_whose_queue_is_deleted_meanwhile_is_still_finished() -> Result<()> {
    let broker = shared_rabbitmq().await?;
    declare(&broker, "classic", &["foo", "bar"]).await?;
    let actor = Actor::on_rabbitmq(&broker, "foo")?;
    let (_sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("slow").await?);
    put(&broker, "foo", [message("1", &["foo", "bar"], json!(2))]).await?;
    actor.is_called(1).await?;
    broker.delete_queue("asya-foo").await?;
    eventually("it is not ready", SOON, async || {
        check(actor.page("/readyz").await?.0 == 503, "ready")
    })
    .await?;
    // The message is not redelivered, so its result would be lost as well.
    assert_eq!(take(&broker, "bar", 1).await?[0]["id"], "1");
    declare(&broker, "classic", &["foo"]).await?;
    put(&broker, "foo", [message("2", &["foo", "bar"], json!(0))]).await?;
    assert_eq!(take(&broker, "bar", 1).await?[0]["id"], "2");
    Ok(())
}

/// SC-34
#[tokio::test]
async fn a_message_that_the_broker_would_drop_goes_to_the_end_of_its_queue() -> Result<()> {
    // The default of RabbitMQ 4.0 and later.
    const LIMIT: usize = 20;
    let broker = shared_rabbitmq().await?;
    let limited = json!({"x-queue-type": QUORUM, "x-delivery-limit": LIMIT});
    broker.declare("asya-foo", limited).await?;
    put(&broker, "foo", [message("1", &["foo", "bar"], json!(1))]).await?;
    for _ in 0..LIMIT {
        broker.reject("asya-foo").await?;
    }
    let actor = Actor::on_rabbitmq(&broker, "foo")?;
    let (_sidecar, _runtime) = (actor.sidecar().await?, actor.runtime("echo").await?);
    // Its result cannot be stored, so it is returned once more.
    actor.is_called(2).await?;
    let logs = actor.logs()?;
    assert!(logs.contains("it went to the end of its queue"), "{logs}");
    declare(&broker, "classic", &["bar"]).await?;
    assert_eq!(take(&broker, "bar", 1).await?[0]["id"], "1");
    Ok(())
}
