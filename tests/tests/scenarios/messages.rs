//! No message is lost, whatever happens to the actor, the operator or the broker.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{NotYet, eventually};
use asya_tests::operator::Operator;
use asya_tests::process::Signal;
use asya_tests::rabbitmq::RabbitMq;
use asya_tests::scenario::Scenario;
use asya_tests::sqs::Sqs;
use asya_tests::{Error, Result};
use serde_json::json;

use crate::{all_running, all_running_within, minimal_actor, own_cluster};

/// Batches of messages, published before, during and after each disruption.
const STEPS: usize = 5;
const PER_STEP: usize = 200;
/// RabbitMQ takes more than a minute to start on a busy machine.
const BROKERS_BACK: Duration = Duration::from_mins(5);

/// Publishes to both brokers, and retries until acknowledged.
struct Senders {
    rabbitmq: RabbitMq,
    sqs: Sqs,
    /// The actor on RabbitMQ, then the one on SQS.
    names: [String; 2],
}

impl Senders {
    async fn publish(&self, step: usize) -> Result<()> {
        tokio::try_join!(self.to_rabbitmq(step), self.to_sqs(step)).map(drop)
    }

    async fn to_rabbitmq(&self, step: usize) -> Result<()> {
        for payload in payloads(step) {
            let reached = eventually("RabbitMQ takes a message", BROKERS_BACK, async || {
                let sent = self.rabbitmq.publish("asya", &self.names[0], &payload);
                sent.await.map_err(NotYet::new)
            })
            .await?;
            if !reached {
                return Err(Error::Other(format!("message {payload} reached no queue")));
            }
        }
        Ok(())
    }

    async fn to_sqs(&self, step: usize) -> Result<()> {
        let queue = format!("asya-{}", self.names[1]);
        for some in payloads(step).chunks(10) {
            eventually("SQS takes messages", BROKERS_BACK, async || {
                self.sqs.send(&queue, some).await.map_err(NotYet::new)
            })
            .await?;
        }
        Ok(())
    }
}

fn payloads(step: usize) -> Vec<String> {
    (0..PER_STEP).map(|n| format!("{step}-{n}")).collect()
}

/// QUE-6, SQS-4, RMQ-3; architecture, section 8
#[tokio::test]
async fn thousand_messages_survive_an_update_a_restart_and_an_outage() {
    let _turn = own_cluster().await;
    let options = Options {
        own_rabbitmq: true,
        sqs: true,
        ..Options::default()
    };
    let mut cluster = RunningCluster::start(options).await.unwrap();
    Scenario::run_on(Ok(cluster.clone()), "messages", async |scenario| {
        let values = json!({
            "leaderElection": {"enabled": false},
            "controller": {"queueHealthCheckInterval": "1s"},
        });
        let operator = Operator::install(&cluster, values).await?;
        let mut instance = operator.start("one").await?;
        let names = ["rabbitmq", "sqs"].map(|name| scenario.name(name));
        let mut actors = names.clone().map(|name| minimal_actor(&name));
        actors[1]["spec"]["transport"] = json!("sqs");
        scenario.apply_all(&actors).await?;
        all_running(scenario, &names).await?;
        let senders = Senders {
            rabbitmq: cluster.rabbitmq()?,
            sqs: cluster.sqs()?,
            names: names.clone(),
        };
        let started = Instant::now();
        senders.publish(0).await?;

        let update = async {
            for actor in &mut actors {
                actor["spec"]["timeout"] = json!({"processing": 10});
                actor["spec"]["workload"]["template"]["spec"]["containers"][0]["image"] =
                    json!("handler:2");
            }
            scenario.apply_all(&actors).await?;
            all_running(scenario, &names).await
        };
        tokio::try_join!(update, senders.publish(1))?;

        let restart = async {
            instance.kill().await;
            instance.restart().await?;
            instance.wait_ready().await
        };
        tokio::try_join!(restart, senders.publish(2))?;

        let outage = async {
            cluster.process("rabbitmq")?.kill().await;
            cluster.process("sqs")?.signal(Signal::STOP);
            for name in &names {
                scenario
                    .actor_status(name, "TransportError", BROKERS_BACK)
                    .await?;
            }
            cluster.restart("rabbitmq").await?;
            cluster.process("sqs")?.signal(Signal::CONT);
            all_running_within(scenario, &names, BROKERS_BACK).await
        };
        tokio::try_join!(outage, senders.publish(3))?;

        for actor in &mut actors {
            actor["spec"]["timeout"] = json!({"processing": 20});
        }
        scenario.apply_all(&actors).await?;
        all_running(scenario, &names).await?;
        senders.publish(4).await?;
        let sent = STEPS * PER_STEP;
        eprintln!("{sent} messages to each broker in {:?}", started.elapsed());

        let wanted: BTreeSet<String> = (0..STEPS).flat_map(payloads).collect();
        let [rabbitmq, sqs] = names.clone().map(|name| format!("asya-{name}"));
        let found = [
            senders.rabbitmq.messages(&rabbitmq, 2 * sent, true).await?,
            senders.sqs.receive_all(&sqs).await?,
        ];
        for (found, queue) in found.into_iter().zip(["RabbitMQ", "SQS"]) {
            // A message that was resent because its acknowledgement was lost may exist twice.
            let found: BTreeSet<String> = found.into_iter().collect();
            let lost: Vec<_> = wanted.difference(&found).collect();
            assert!(
                lost.is_empty(),
                "{} are lost from {queue}, first {:?}",
                lost.len(),
                lost.first()
            );
        }
        for name in &names {
            scenario
                .kubectl(&["delete", "asya", name, "--timeout=60s"])
                .await?;
        }
        Ok(())
    })
    .await;
}
