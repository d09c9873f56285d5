//! `kubectl asya` sends few requests: it must not become slower with every actor.

use std::collections::BTreeMap;

use asya_tests::Result;
use asya_tests::counting_proxy::CountingProxy;
use asya_tests::scenario::Scenario;

use super::{MINUTE, asya};
use crate::minimal_actor;

/// The reads of a command by path and query, with their counts.
async fn reads(scenario: &Scenario, args: &[&str]) -> Result<BTreeMap<String, usize>> {
    let proxy = CountingProxy::to_api_server(scenario.cluster()).await?;
    let config = proxy.kubeconfig(scenario.cluster(), &scenario.name("proxy"))?;
    let config = config.display().to_string();
    let ended = asya(scenario, &[args, &["--kubeconfig", &config]].concat()).await?;
    assert_eq!(ended.code, Some(0), "{args:?}: {}{}", ended.out, ended.err);
    assert!(proxy.writes().is_empty(), "{args:?} only reads");
    Ok(proxy.read_counts())
}

#[tokio::test]
async fn status_lists_each_kind_once_however_many_actors_there_are() {
    Scenario::run("cli-requests", async |scenario| {
        let names = ["one", "two", "three"].map(|it| scenario.name(it));
        scenario
            .apply_all(&names.each_ref().map(|it| minimal_actor(it)))
            .await?;
        for name in &names {
            scenario.actor_status(name, "Running", MINUTE).await?;
        }
        let namespace = scenario.namespace();
        let actors = format!("/apis/asya.sh/v1alpha1/namespaces/{namespace}/asyncactors");
        let once = |path: &str| (path.to_owned(), 1);
        for (args, expected) in [
            (&["status"][..], vec![once(&format!("{actors}?&limit=500"))]),
            (
                &["status", "-o", "json"],
                vec![once(&format!("{actors}?&limit=500"))],
            ),
        ] {
            let found = reads(scenario, args).await?;
            assert_eq!(found, BTreeMap::from_iter(expected), "{args:?}");
        }
        let page = reads(scenario, &["status", &names[0]]).await?;
        assert!(page.values().all(|count| *count == 1), "{page:?}");
        // The actor, its Events, and what is needed to reach the broker: the operator's Deployments, the facts that it
        // publishes for the webhook, and the Secret.
        assert!(page.len() <= 5, "{page:?}");
        Ok(())
    })
    .await;
}
