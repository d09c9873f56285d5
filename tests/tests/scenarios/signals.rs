//! A second SIGTERM ends a program that is still shutting down.

use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::counting_proxy::CountingProxy;
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::operator::{Instance, Launch, Operator};
use asya_tests::scenario::Scenario;
use asya_tests::webhook::Webhook;
use asya_tests::{Error, Result};
use rustix::process::Signal;
use serde_json::json;

use crate::{minimal_actor, own_cluster};

/// Sends SIGTERM twice. A program that has finished its work exits with 0, one that must abandon it exits with 1.
async fn terminate_twice(instance: &Instance) -> Result<Option<i32>> {
    instance.process().signal(Signal::TERM);
    eventually("it is stopping", SOON, async || {
        check(instance.log().contains("stopping"), "no sign of it")
    })
    .await?;
    instance.process().signal(Signal::TERM);
    let exit = tokio::time::timeout(SOON, instance.process().wait());
    Ok(exit.await.map_err(Error::other)?.code())
}

/// FW-16, ADM-28
#[tokio::test]
async fn second_signal_ends_programs_that_are_still_stopping() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "signals", async |scenario| {
        let proxy = CountingProxy::to_api_server(&cluster).await?;
        let operator = Operator::install(&cluster, json!({})).await?;
        let launch = Launch {
            server: Some(proxy.url()),
            ..Launch::default()
        };
        let controller = operator.launch("operator", launch).await?;
        controller.wait_ready().await?;
        let webhook = Webhook::start(&operator).await?;
        // The chart's shutdown delay keeps it serving after the first signal.
        assert_eq!(terminate_twice(&webhook.replicas()[0]).await?, Some(1));

        let name = scenario.name("held");
        let held = proxy.hold(&format!("/deployments/{name}"));
        eventually("the CRD is served", SOON, async || {
            scenario
                .apply(&minimal_actor(&name))
                .await
                .map_err(NotYet::new)
        })
        .await?;
        let held = tokio::time::timeout(SOON, held.arrived());
        let _held = held.await.map_err(Error::other)??;
        assert_eq!(terminate_twice(&controller).await?, Some(1));
        Ok(())
    })
    .await;
}
