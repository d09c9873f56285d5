//! One pod processes many messages at a time (SC-42, SC-53, SC-55).

use std::collections::BTreeSet;

use asya_tests::Result;
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use crate::binding::{bound, model};
use crate::{Broker, SOON, actor, actor_without_pods, message, run};

/// How many requests the model and the handler process at a time; each takes one second.
const CONCURRENCY: usize = 32;
/// Five rounds.
const MESSAGES: usize = 5 * CONCURRENCY;

/// Sends the messages at once. Returns the highest number in progress at a time and the number completed per second, by
/// the clock of the process that handled them.
async fn throughput(scenario: &Scenario, name: &str, next: &str) -> Result<(u64, f64)> {
    let sent: Vec<_> = (0..MESSAGES)
        .map(|number| {
            message(
                &number.to_string(),
                name,
                next,
                &json!({"text": number.to_string()}),
            )
        })
        .collect();
    let cluster = scenario.cluster();
    Broker::RabbitMq.send(cluster, name, &sent).await?;
    let results = Broker::RabbitMq.take(cluster, next, MESSAGES, SOON).await?;
    let ids: BTreeSet<_> = results.iter().map(|it| it["id"].to_string()).collect();
    assert_eq!(
        (results.len(), ids.len()),
        (MESSAGES, MESSAGES),
        "each message once"
    );
    let field = |name: &'static str| results.iter().map(move |it| &it["payload"][name]);
    let highest = field("in_flight").filter_map(Value::as_u64).max();
    let (begun, ended) = (field("begun"), field("ended"));
    let first = begun.filter_map(Value::as_f64).fold(f64::MAX, f64::min);
    let last = ended.filter_map(Value::as_f64).fold(0.0, f64::max);
    let count = u32::try_from(MESSAGES).unwrap_or(u32::MAX);
    Ok((
        highest.unwrap_or_default(),
        f64::from(count) / (last - first),
    ))
}

/// SC-42, SC-53, SC-55, API-3
#[tokio::test]
async fn pod_processes_as_many_messages_at_a_time_as_its_actor_allows() {
    Scenario::run("concurrency", async |scenario| {
        let (name, next) = (scenario.name("own"), scenario.name("own-next"));
        let mut own = actor(&name, Broker::RabbitMq, "handlers.counted");
        own["spec"]["concurrency"] = json!(CONCURRENCY);
        run(
            scenario,
            &[own, actor_without_pods(&next, Broker::RabbitMq)],
        )
        .await?;
        let (highest, rate) = throughput(scenario, &name, &next).await?;
        eprintln!("standalone: {rate:.1} messages/s, {highest} at a time");
        assert_eq!(highest, CONCURRENCY as u64);
        Ok(())
    })
    .await;
}

/// SC-42, SC-53, BIND-31
#[tokio::test]
async fn bound_model_serves_as_many_requests_at_a_time_as_its_actor_allows() {
    Scenario::run("batching", async |scenario| {
        let (name, next) = (scenario.name("chat"), scenario.name("chat-next"));
        let mut server = model("model", 8000);
        let env = json!([{"name": "SECONDS", "value": "1"}, {"name": "MEASURES", "value": CONCURRENCY.to_string()}]);
        server["spec"]["template"]["spec"]["containers"][0]["env"] = env;
        scenario.apply(&server).await?;
        let target = ("apps/v1", "Deployment", "model");
        let mut chat = bound(&name, Broker::RabbitMq, target, Some("openai_chat"));
        chat["spec"]["concurrency"] = json!(CONCURRENCY);
        run(scenario, &[chat, actor_without_pods(&next, Broker::RabbitMq)]).await?;
        let (highest, rate) = throughput(scenario, &name, &next).await?;
        eprintln!("bound: {rate:.1} messages/s, {highest} at a time");
        assert_eq!(highest, CONCURRENCY as u64);
        Ok(())
    })
    .await;
}
