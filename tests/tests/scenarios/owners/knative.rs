//! The simulators of Knative (SIM-4).

use asya_tests::Result;
use asya_tests::eventually::{SOON, check, eventually};
use asya_tests::owners::knative::{
    CONFIGURATION, Knative, Kpa, REVISION, Release, SERVICE, deployment_of, service,
};
use asya_tests::owners::{Kind, Owner, crds};
use asya_tests::scenario::Scenario;
use serde_json::json;

use super::{ALL, add_foreign_entries, all_but, edit, left, owner_of, somebody};

const DEPLOYMENT: Kind = Kind::DEPLOYMENT;
const TAKEN_BACK: [&str; 2] = ["container", "volume"];

fn knative(release: Release) -> Knative {
    Knative {
        release,
        queue_proxy: "queue:1",
    }
}

async fn start(scenario: &Scenario, release: Release) -> Result<Owner> {
    crds::install(scenario.cluster(), &[CONFIGURATION, REVISION]).await?;
    let target = service("echo", "echo:1");
    owner_of(scenario, knative(release), (SERVICE, &target)).await
}

/// SIM-4
#[tokio::test]
async fn knative_leaves_a_deployment_until_the_hash_of_what_it_wants_changes() {
    Scenario::run("sim-knative", async |scenario| {
        let owner = start(scenario, Release::Hashed).await?;
        let name = deployment_of("echo", 1);
        add_foreign_entries(scenario, DEPLOYMENT, &name).await?;
        owner.rounds(3).await?;
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, ALL.into());
        assert_eq!(owner.changes(DEPLOYMENT), 1, "it made it");
        drop(owner);

        let upgraded = Knative {
            release: Release::Hashed,
            queue_proxy: "queue:2",
        };
        let owner = Owner::start(scenario, upgraded);
        owner.rounds(3).await?;
        assert_eq!(
            left(scenario, DEPLOYMENT, &name).await?,
            all_but(&TAKEN_BACK)
        );
        assert_eq!(owner.changes(DEPLOYMENT), 1);

        let image = json!({"spec": service("echo", "echo:2")["spec"]});
        edit(scenario, SERVICE, "echo", &image).await?;
        owner.rounds(1).await?;
        let next = somebody(scenario)
            .get(DEPLOYMENT, &deployment_of("echo", 2))
            .await?;
        assert!(next.is_some(), "a new template is a new Revision");
        Ok(())
    })
    .await;
}

/// SIM-4
#[tokio::test]
async fn older_knative_reverts_containers_or_template_on_each_reconcile() {
    Scenario::run("sim-knative-old", async |scenario| {
        for (release, gone) in [
            (Release::Containers, &TAKEN_BACK[..]),
            (
                Release::Template,
                &["container", "volume", "annotation", "label"],
            ),
        ] {
            let owner = start(scenario, release).await?;
            let name = deployment_of("echo", 1);
            add_foreign_entries(scenario, DEPLOYMENT, &name).await?;
            owner.rounds(1).await?;
            assert_eq!(
                left(scenario, DEPLOYMENT, &name).await?,
                all_but(gone),
                "{release:?}"
            );
            let before = (owner.changes(DEPLOYMENT), owner.writes().len());
            owner.rounds(3).await?;
            assert_eq!(owner.changes(DEPLOYMENT), before.0, "{release:?}");
            assert!(owner.writes().len() >= before.1 + 3, "it PUTs at each look");
            let client = somebody(scenario);
            for kind in [SERVICE, CONFIGURATION, REVISION, DEPLOYMENT] {
                for live in client.list(kind).await? {
                    client.delete(kind, &live).await?;
                }
            }
            drop(owner);
            eventually("nothing is left", SOON, async || {
                let left = client.list(DEPLOYMENT).await?;
                check(left.is_empty(), left.len())
            })
            .await?;
        }
        Ok(())
    })
    .await;
}

/// SIM-4
#[tokio::test]
async fn knative_autoscaler_reverts_replicas() {
    Scenario::run("sim-kpa", async |scenario| {
        let owner = start(scenario, Release::Hashed).await?;
        let autoscaler = Owner::start(scenario, Kpa { replicas: 1 });
        let name = deployment_of("echo", 1);
        add_foreign_entries(scenario, DEPLOYMENT, &name).await?;
        eventually("replicas are its own again", SOON, async || {
            let seen = left(scenario, DEPLOYMENT, &name).await?;
            check(seen == all_but(&["replicas"]), format_args!("{seen:?}"))
        })
        .await?;
        // The owner counts a change once the API server has responded, when others may have observed it already.
        eventually("one change is counted", SOON, async || {
            let changes = autoscaler.changes(DEPLOYMENT);
            check(changes == 1, changes)
        })
        .await?;
        eventually("the second Revision has the pods", SOON, async || {
            let image = json!({"spec": service("echo", "echo:2")["spec"]});
            edit(scenario, SERVICE, "echo", &image).await?;
            owner.rounds(1).await?;
            let client = somebody(scenario);
            let old = client.get(DEPLOYMENT, &name).await?.unwrap_or_default();
            let service = client.get(SERVICE, "echo").await?.unwrap_or_default();
            let ready = &service["status"]["latestReadyRevisionName"];
            let as_expected = old["spec"]["replicas"] == 0 && ready == "echo-00002";
            check(as_expected, &service["status"])
        })
        .await
    })
    .await;
}
