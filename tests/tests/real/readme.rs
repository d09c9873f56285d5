//! README's first five minutes, as they are written.

use asya_tests::rabbitmq::OPERATOR_PASSWORD;
use asya_tests::real::Readme;
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use crate::{Broker, SOON, run, shelf};

const HEADING: &str = "## A first actor";
const NAMESPACE: &str = "demo";

/// Its commands, but for those that only look.
fn commands(block: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = block.lines().filter(|line| !line.contains("--watch"));
    lines
        .filter_map(|line| line.strip_prefix("kubectl "))
        .map(|line| line.split(' ').collect())
}

/// RUN-16
#[tokio::test]
async fn the_first_actor_of_the_readme_answers_its_message() {
    Scenario::run("readme", async |scenario| {
        let cluster = scenario.cluster();
        let readme = Readme::read()?;
        let manifest = cluster.folder().join("hello.yaml");
        std::fs::write(&manifest, readme.block("", "yaml")?).unwrap();
        let manifest = manifest.display().to_string();
        // What ends well goes there.
        run(scenario, &[shelf("happy-end", Broker::RabbitMq)]).await?;
        let mut applied = 0;
        for command in commands(readme.block(HEADING, "")?) {
            let args: Vec<String> = command
                .iter()
                .map(|arg| {
                    arg.replace("PASSWORD", OPERATOR_PASSWORD)
                        .replace("hello.yaml", &manifest)
                })
                .collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            cluster.kubectl(&args).await?;
            applied += usize::from(args.contains(&"apply"));
        }
        assert_eq!(applied, 1, "README applies the actor");
        let running = "--for=jsonpath={.status.status}=Running";
        let wait = [
            "wait",
            "asya/hello",
            "--namespace",
            NAMESPACE,
            running,
            "--timeout=90s",
        ];
        cluster.kubectl(&wait).await?;
        let message = readme.quoted("a message is")?.to_owned();
        let sent: Value = serde_json::from_str(&message)?;
        Broker::RabbitMq.send(cluster, "hello", &[message]).await?;
        let results = Broker::RabbitMq.take(cluster, "happy-end", 1, SOON).await?;
        assert_eq!(
            results[0]["payload"],
            json!({"hello": sent["payload"]["name"]})
        );
        cluster
            .kubectl(&[
                "delete",
                "asya",
                "hello",
                "--namespace",
                NAMESPACE,
                "--timeout=90s",
            ])
            .await?;
        cluster
            .kubectl(&["delete", "namespace", NAMESPACE, "--wait=false"])
            .await
            .map(drop)
    })
    .await;
}
