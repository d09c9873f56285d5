//! `kubectl asya queue`, `dlq` and `send` on real brokers: no message is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::error::Error;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::operator::{Operator, default_values};
use asya_tests::rabbitmq::RabbitMq;
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::terminal::{Terminal, fits, fits_at};
use super::{Ended, asya, restricted};
use crate::{all_running, minimal_actor, own_cluster};

/// Runs the program, which must exit with this code.
async fn ends(scenario: &Scenario, code: i32, args: &[&str]) -> Result<Ended> {
    let ended = asya(scenario, args).await?;
    let Ended { out, err, .. } = &ended;
    assert_eq!(ended.code, Some(code), "{args:?}: {out}{err}");
    Ok(ended)
}

fn ids(page: &Value) -> Vec<&str> {
    let messages = page["messages"].as_array().map_or(&[][..], Vec::as_slice);
    messages.iter().filter_map(|it| it["id"].as_str()).collect()
}

fn message(id: &str, actor: &str) -> String {
    let route = json!({"actors": [actor], "current": 0});
    json!({"id": id, "route": route, "payload": {"n": id}}).to_string()
}

/// SC-59, QUE-14: messages are peeked at more often than the queue allows deliveries, dead letters are returned, a
/// queue is purged, and Ctrl-C ends a wait.
#[tokio::test]
async fn messages_are_sent_looked_at_and_moved_without_loss() {
    let _turn = own_cluster().await;
    let options = Options {
        sqs: true,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "cli-queue", async |scenario| {
        let mut shared = default_values(&cluster)["transports"]["sqs"].clone();
        shared["config"]["queues"] = json!({"dlq": {"enabled": true}});
        let mut own = shared.clone();
        own["config"]["queues"]["dlq"]["name"] = json!("{queue}-dead");
        let queues = json!({"dlq": {"enabled": true, "maxRetryCount": 3}});
        let values = json!({
            "leaderElection": {"enabled": false},
            "transports": {"rabbitmq": {"config": {"queues": queues}}, "shared": shared, "own": own},
        });
        let operator = Operator::install(&cluster, values).await?;
        let _running = operator.start("one").await?;
        let transports = ["rabbitmq", "shared", "own"];
        let names = transports.map(|name| scenario.name(name));
        let mut actors = names.clone().map(|name| minimal_actor(&name));
        for (actor, transport) in actors.iter_mut().zip(transports) {
            actor["spec"]["transport"] = json!(transport);
        }
        scenario.apply_all(&actors).await?;
        all_running(scenario, &names).await?;
        let rabbitmq = cluster.rabbitmq()?;
        let [on_rabbitmq, on_shared, on_own] = &names;
        looks_are_harmless(scenario, &rabbitmq, on_rabbitmq).await?;
        flags_replace_the_secret(scenario, &rabbitmq, on_rabbitmq).await?;
        other_commands_show_what_the_broker_says(scenario, &rabbitmq, on_rabbitmq).await?;
        dead_letters_of_rabbitmq(scenario, &rabbitmq, on_rabbitmq).await?;
        message_is_followed(scenario, &rabbitmq, on_rabbitmq).await?;
        shared_dead_letters_of_sqs(scenario, on_shared).await?;
        own_dead_letters_of_sqs(scenario, on_own).await
    })
    .await;
}

async fn looks_are_harmless(scenario: &Scenario, rabbitmq: &RabbitMq, name: &str) -> Result<()> {
    for id in ["a", "b", "c"] {
        let payload = json!({"n": id}).to_string();
        let sent = ends(scenario, 0, &["send", name, &payload, "--id", id]).await?;
        assert!(
            sent.out
                .contains(&format!("message {id} sent to asya-{name}")),
            "{}",
            sent.out
        );
    }
    let refused = ends(scenario, 2, &["send", name, "hello"]).await?;
    assert!(refused.err.contains("needs quotes"), "{}", refused.err);
    ends(scenario, 0, &["queue", name, "--peek", "5"]).await?;
    let page = ends(scenario, 0, &["queue", name, "--peek", "2", "-o", "json"]).await?;
    let page = page.json()?;
    assert_eq!(
        (ids(&page), &page["waiting"]),
        (vec!["a", "b"], &json!(3)),
        "{page}"
    );
    assert_eq!(
        page["messages"][0]["payload"],
        Value::Null,
        "only on request: {page}"
    );
    for _ in 0..6 {
        let args = ["queue", name, "--peek", "3", "--payload", "-o", "json"];
        let page = ends(scenario, 0, &args).await?.json()?;
        let found: BTreeSet<&str> = ids(&page).into_iter().collect();
        assert_eq!(found, BTreeSet::from(["a", "b", "c"]), "{page}");
        let payload = &page["messages"][0]["payload"]["n"];
        assert_eq!(*payload, page["messages"][0]["id"], "{page}");
    }
    let left = rabbitmq.take(&format!("asya-{name}"), 3, SOON).await?;
    assert_eq!(left.len(), 3, "{left:?}");
    let dead = rabbitmq
        .messages(&format!("asya-{name}-dlq"), 9, true)
        .await?;
    assert_eq!(dead, [""; 0], "looks exhaust no deliveries");
    Ok(())
}

/// A user who may not read the Secret, or who has another broker address.
async fn flags_replace_the_secret(
    scenario: &Scenario,
    rabbitmq: &RabbitMq,
    name: &str,
) -> Result<()> {
    rabbitmq.add_user("reader", "secret word", "").await?;
    let state = rabbitmq.state();
    let address = format!("{}:{}", state.host, state.port);
    let missing = ends(scenario, 2, &["queue", name, "--user", "reader"]).await?;
    assert!(missing.err.contains("--password-file"), "{}", missing.err);
    let folder = scenario.folder()?;
    for (password, code) in [("secret word\n", 0), ("wrong", 2)] {
        let file = folder.join("password");
        std::fs::write(&file, password).map_err(Error::other)?;
        let file = file.display().to_string();
        let args = [
            "queue",
            name,
            "--address",
            &address,
            "--user",
            "reader",
            "--password-file",
            &file,
        ];
        let ended = ends(scenario, code, &args).await?;
        assert!(!ended.err.contains("secret word"), "{}", ended.err);
    }
    let nowhere = ends(scenario, 2, &["queue", name, "--address", "127.0.0.1:1"]).await?;
    assert!(
        nowhere.err.contains("cannot reach RabbitMQ"),
        "{}",
        nowhere.err
    );
    Ok(())
}

/// Dead letters, and messages that no one receives although a pod is ready: these scenarios' pods run no sidecar.
async fn other_commands_show_what_the_broker_says(
    scenario: &Scenario,
    rabbitmq: &RabbitMq,
    name: &str,
) -> Result<()> {
    let (queue, dlq) = (format!("asya-{name}"), format!("asya-{name}-dlq"));
    for target in [&queue, &dlq, &dlq] {
        let sent = rabbitmq.publish("", target, &message("1", name)).await?;
        assert!(sent);
    }
    let page = fits(scenario, &[1], &["status", name]).await?;
    assert!(page.contains("1 waiting, 0 consumers"), "{page}");
    let page = ends(scenario, 1, &["status", name, "-o", "json"]).await?;
    let page = page.json()?;
    assert_eq!(page["broker"]["deadLetters"], 2, "{page:#}");
    assert_eq!(page["findings"][0]["id"], "ASYA-NoConsumers", "{page:#}");
    let tree = fits(scenario, &[1], &["trace", name]).await?;
    assert!(tree.contains("2 messages; `kubectl asya dlq"), "{tree}");
    let checks = ends(scenario, 1, &["check", "-o", "json"]).await?.json()?;
    let subject = format!("actor {}/{name}", scenario.namespace());
    for (id, result) in [("NoConsumers", "failed"), ("DeadLetters", "warning")] {
        let id = format!("ASYA-{id}");
        let mut all = checks.as_array().into_iter().flatten();
        let found =
            all.any(|it| it["id"] == id && it["subject"] == subject && it["result"] == result);
        assert!(found, "{id}: {checks:#}");
    }

    // A user who may read only the actor gets the rest of the output.
    let verbs = [
        "create",
        "role",
        "reader",
        "--verb=get,list",
        "--resource=asyncactors.asya.sh",
    ];
    scenario.kubectl(&verbs).await?;
    let binding = [
        "create",
        "rolebinding",
        "reader",
        "--role=reader",
        "--user=nobody",
    ];
    scenario.kubectl(&binding).await?;
    let config = restricted(scenario)?;
    let args = ["status", name, "--kubeconfig", &config];
    let partial = ends(scenario, 0, &args).await?;
    let missing = "note: consumers and dead letters are missing: ";
    assert!(partial.err.contains(missing), "{}", partial.err);
    let taken = rabbitmq.take(&queue, 1, SOON).await?;
    assert_eq!(taken.len(), 1);
    ends(scenario, 0, &["dlq", name, "purge", "--yes"]).await?;
    for (action, output) in [("purge", "table"), ("redrive", "table"), ("purge", "json")] {
        let nothing = ends(scenario, 0, &["dlq", name, action, "-o", output]).await?;
        if output == "json" {
            assert_eq!(nothing.json()?["done"], 0, "{}", nothing.out);
        } else {
            let text = format!("nothing to do: {dlq} has no messages\n");
            assert_eq!((&*nothing.out, &*nothing.err), (&*text, ""));
        }
    }
    Ok(())
}

async fn dead_letters_of_rabbitmq(
    scenario: &Scenario,
    rabbitmq: &RabbitMq,
    name: &str,
) -> Result<()> {
    let (queue, dlq) = (format!("asya-{name}"), format!("asya-{name}-dlq"));
    for body in [message("1", name), message("2", name), "poison".to_owned()] {
        assert!(rabbitmq.publish("", &dlq, &body).await?);
    }
    let list = ends(scenario, 0, &["dlq", name, "list", "-o", "json"]).await?;
    let list = list.json()?;
    assert_eq!(
        (&list["waiting"], ids(&list)),
        (&json!(3), vec!["1", "2"]),
        "{list}"
    );
    fits(scenario, &[0], &["dlq", name, "list", "--payload"]).await?;
    let refused = ends(scenario, 2, &["dlq", name, "purge"]).await?;
    assert!(
        refused.err.contains(&format!("messages in {dlq}: 3")),
        "{}",
        refused.err
    );
    let moved = ["dlq", name, "redrive", "--max", "1"];
    let moved = fits_at(scenario, 80, &[0], &moved).await?;
    assert!(moved.ends_with(": 1\r\n"), "{moved}");
    let moved = ends(scenario, 0, &["dlq", name, "redrive", "-o", "json"]).await?;
    assert_eq!(moved.json()?["done"], 2, "{}", moved.out);
    let all = rabbitmq.messages(&queue, 9, false).await?;
    assert_eq!(
        all,
        [message("1", name), message("2", name), "poison".to_owned()]
    );
    assert!(rabbitmq.publish("", &dlq, "poison").await?);
    let purged = fits_at(scenario, 80, &[0], &["dlq", name, "purge", "--yes"]).await?;
    assert!(purged.ends_with(": 1\r\n"), "{purged}");
    assert_eq!(rabbitmq.messages(&dlq, 9, true).await?, [""; 0]);
    Ok(())
}

/// The scenario acts as the actor: it takes the message, and sends it to an end actor.
async fn message_is_followed(scenario: &Scenario, rabbitmq: &RabbitMq, name: &str) -> Result<()> {
    let queue = format!("asya-{name}");
    for (end, code) in [("asya-happy-end", 0), ("asya-error-end", 1)] {
        rabbitmq.declare(end, json!({})).await?;
        assert!(rabbitmq.publish("", end, &message("old", "other")).await?);
        let args = ["send", name, "{}", "--id", end, "--wait=60s", "--payload"];
        let processing = async {
            let taken = rabbitmq.take(&queue, 1, Duration::from_secs(50)).await?;
            let mut result = taken[0].clone();
            result["payload"] = json!({"error": "boom"});
            let routed = rabbitmq.publish("", end, &result.to_string()).await?;
            assert!(routed);
            Ok::<_, Error>(())
        };
        let (followed, processed) = tokio::join!(asya(scenario, &args), processing);
        processed?;
        let followed = followed?;
        assert_eq!(
            followed.code,
            Some(code),
            "{}{}",
            followed.out,
            followed.err
        );
        assert!(
            followed.out.contains(&format!("it is in {end}")),
            "{}",
            followed.out
        );
        let left = rabbitmq.messages(end, 9, false).await?;
        assert_eq!(left.len(), 2, "nothing is taken from {end}: {left:?}");
    }
    let args = ["send", name, "{}", "--id", "given-up", "--wait=5m"];
    let mut waiting = Terminal::start(scenario, 140, &args)?;
    eventually("the message is sent", SOON, async || {
        let all = rabbitmq.messages(&queue, 9, false).await?;
        check(
            all.iter().any(|it| it.contains("given-up")),
            format_args!("{all:?}"),
        )
    })
    .await?;
    waiting.interrupt()?;
    assert_eq!(waiting.ended().await?, Some(130));
    let told = waiting.all().await?;
    let expected = format!("message given-up was sent to {queue}, and may still be processed");
    assert!(told.contains(&expected), "{told}");
    fits(scenario, &[2], &["send", name, "{}", "--wait=1s"]).await?;
    let unseen = ends(
        scenario,
        2,
        &["send", name, "{}", "--wait=1s", "-o", "json"],
    )
    .await?;
    assert_eq!(unseen.json()?["outcome"], "notSeen");
    Ok(())
}

/// SQS: all actors share one dead letter queue; other actors' messages stay.
async fn shared_dead_letters_of_sqs(scenario: &Scenario, name: &str) -> Result<()> {
    let sqs = scenario.cluster().sqs()?;
    let bodies = [
        message("1", name),
        message("2", "other"),
        message("3", name),
    ];
    sqs.send("asya-dlq", &bodies).await?;
    let list = ends(scenario, 0, &["dlq", name, "list", "-o", "json"]).await?;
    assert_eq!(ids(&list.json()?).len(), 3, "{}", list.out);
    let page = ends(scenario, 0, &["status", name, "-o", "json"]).await?;
    let page = page.json()?;
    assert_eq!(
        (&page["broker"]["deadLetters"], &page["findings"][0]["text"]),
        (&json!(3), &json!("3 in asya-dlq, which actors share.")),
        "{page:#}"
    );
    let moved = ends(scenario, 0, &["dlq", name, "redrive"]).await?;
    assert!(
        moved
            .out
            .starts_with(&format!("messages moved from asya-dlq to asya-{name}: 2")),
        "{}",
        moved.out
    );
    assert!(moved.out.contains("of other actors: 1"), "{}", moved.out);
    let page = ends(scenario, 0, &["queue", name, "--peek", "5", "-o", "json"]).await?;
    let page = page.json()?;
    let found: BTreeSet<&str> = ids(&page).into_iter().collect();
    assert_eq!(found, BTreeSet::from(["1", "3"]), "{page}");
    ends(scenario, 0, &["queue", name, "--peek", "1", "--payload"]).await?;
    ends(scenario, 0, &["dlq", name, "purge", "--yes"]).await?;
    let left = eventually(
        "the other actor's dead letter is visible",
        SOON,
        async || {
            let all = sqs.receive_all("asya-dlq").await?;
            check(!all.is_empty(), "none is")?;
            Ok(all)
        },
    );
    assert_eq!(left.await?, [message("2", "other")]);
    ends(scenario, 0, &["send", name, "{}", "--id", "4"]).await?;
    Ok(())
}

/// SQS: for a queue with its own dead letter queue, the server itself moves the messages.
async fn own_dead_letters_of_sqs(scenario: &Scenario, name: &str) -> Result<()> {
    let sqs = scenario.cluster().sqs()?;
    let queue = format!("asya-{name}");
    let bodies: Vec<String> = (0..12).map(|n| message(&n.to_string(), name)).collect();
    sqs.send(&format!("{queue}-dead"), &bodies).await?;
    ends(scenario, 0, &["dlq", name, "redrive"]).await?;
    let mut found = BTreeSet::new();
    eventually("all are back", SOON, async || {
        found.extend(sqs.receive_all(&queue).await?);
        check(found.len() >= bodies.len(), format_args!("{}", found.len()))
    })
    .await?;
    assert_eq!(found, bodies.into_iter().collect());
    Ok(())
}
