//! SIM-9

use std::time::Duration;

use asya_tests::eventually::{check, eventually};
use asya_tests::owners::Kind;
use asya_tests::owners::stripper::{Reinvoked, Stripper};
use asya_tests::scenario::Scenario;
use serde_json::json;

use super::{SOON, somebody};

/// SIM-9
#[tokio::test]
async fn stripper_removes_the_sidecar_from_new_pods_and_nothing_else() {
    Scenario::run("sim-stripper", async |scenario| {
        let stripper = Stripper::start(scenario, Reinvoked::IfNeeded).await?;
        let hand = somebody(scenario);
        let pod = |name: &str| {
            let containers = ["model", "asya-runtime", "asya-sidecar", "last"];
            let containers = containers.map(|name| json!({"name": name, "image": "x:1"}));
            json!({"metadata": {"name": name}, "spec": {"containers": containers}})
        };
        let mut tries = 0;
        // A configuration takes a moment to be in force.
        let kept = eventually("the sidecar is gone", SOON, async || {
            tries += 1;
            let made = hand
                .create(Kind::POD, &pod(&format!("pod-{tries}")))
                .await?;
            let containers = made["spec"]["containers"].as_array().cloned();
            let containers = containers.unwrap_or_default();
            let names: Vec<_> = containers.iter().map(|it| it["name"].clone()).collect();
            check(
                !names.contains(&json!("asya-sidecar")),
                format_args!("{names:?}"),
            )?;
            Ok(names)
        })
        .await?;
        assert_eq!(kept, ["model", "asya-runtime", "last"]);
        assert_eq!(stripper.removed(), 1);
        stripper.remove().await?;
        eventually("nobody asks it", Duration::from_secs(30), async || {
            tries += 1;
            let made = hand
                .create(Kind::POD, &pod(&format!("pod-{tries}")))
                .await?;
            let count = made["spec"]["containers"].as_array().map(Vec::len);
            check(count == Some(4), format_args!("{count:?}"))
        })
        .await
    })
    .await;
}
