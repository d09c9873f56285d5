//! The simulators of Seldon and Yatai (SIM-5).

use asya_tests::owners::seldon::{SELDON_DEPLOYMENT, Seldon, deployment_of, seldon_deployment};
use asya_tests::owners::seldon2::{SERVER, Seldon2, server};
use asya_tests::owners::yatai::{BENTO_DEPLOYMENT, Yatai, bento_deployment};
use asya_tests::owners::{Kind, RecordingClient};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::{ALL, add_foreign_entries, edit, left, owner_of, somebody};

const DEPLOYMENT: Kind = Kind::DEPLOYMENT;

/// Gives the first container an image other than its owner's.
async fn swap_image(client: &RecordingClient, deployment: &str) -> asya_tests::Result<()> {
    let live = client.get(DEPLOYMENT, deployment).await?.unwrap();
    let name = &live["spec"]["template"]["spec"]["containers"][0]["name"];
    let other = json!([{"name": name, "image": "other:1"}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": other}}}});
    client.strategic(DEPLOYMENT, &live, &patch).await?;
    Ok(())
}

/// SIM-5
#[tokio::test]
async fn seldon_leaves_everything_until_a_field_of_its_own_differs() {
    Scenario::run("sim-seldon", async |scenario| {
        let target = seldon_deployment("income", &json!({}));
        let owner = owner_of(scenario, Seldon, (SELDON_DEPLOYMENT, &target)).await?;
        let name = deployment_of("income");
        add_foreign_entries(scenario, DEPLOYMENT, &name).await?;
        owner.rounds(3).await?;
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, ALL.into());
        assert_eq!(owner.changes(DEPLOYMENT), 1, "it made it");
        let client = somebody(scenario);
        assert_eq!(client.get(Kind::HPA, &name).await?, None);

        swap_image(&client, &name).await?;
        owner.rounds(3).await?;
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, ["replicas"].into());
        assert_eq!(owner.changes(DEPLOYMENT), 2);

        // A field that the owner no longer sets counts as a difference, too.
        add_foreign_entries(scenario, DEPLOYMENT, &name).await?;
        let ports = json!({"spec": {"predictors": [{
            "name": "default", "graph": {"name": "classifier"},
            "componentSpecs": [{"spec": {"containers": [{"name": "classifier", "image": "model:1"}]}}],
        }]}});
        edit(scenario, SELDON_DEPLOYMENT, "income", &ports).await?;
        owner.rounds(3).await?;
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, ["replicas"].into());
        assert_eq!(owner.changes(DEPLOYMENT), 3);
        let told = client.get(SELDON_DEPLOYMENT, "income").await?.unwrap();
        assert!(told["status"]["deploymentStatus"].get(&name).is_some(), "{told}");
        Ok(())
    })
    .await;
}

/// SIM-5
#[tokio::test]
async fn seldon_reverts_replicas_only_where_it_sets_them() {
    Scenario::run("sim-seldon-2", async |scenario| {
        let target = seldon_deployment("fixed", &json!({"replicas": 2}));
        let owner = owner_of(scenario, Seldon, (SELDON_DEPLOYMENT, &target)).await?;
        let name = deployment_of("fixed");
        add_foreign_entries(scenario, DEPLOYMENT, &name).await?;
        owner.rounds(1).await?;
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, [].into());

        let client = somebody(scenario);
        let hpa: Value = json!({"hpaSpec": {"minReplicas": 1, "maxReplicas": 4}, "replicas": 2});
        let scaled = seldon_deployment("scaled", &hpa);
        client.create(SELDON_DEPLOYMENT, &scaled).await?;
        owner.rounds(1).await?;
        let name = deployment_of("scaled");
        assert!(client.get(Kind::HPA, &name).await?.is_some());
        add_foreign_entries(scenario, DEPLOYMENT, &name).await?;
        owner.rounds(1).await?;
        assert_eq!(left(scenario, DEPLOYMENT, &name).await?, ALL.into());
        Ok(())
    })
    .await;
}

/// SIM-5
#[tokio::test]
async fn yatai_rolls_by_its_extra_metadata_and_always_has_an_hpa() {
    Scenario::run("sim-yatai", async |scenario| {
        let target = bento_deployment("iris", "iris-1");
        let owner = owner_of(scenario, Yatai, (BENTO_DEPLOYMENT, &target)).await?;
        let client = somebody(scenario);
        assert!(client.get(Kind::HPA, "iris").await?.is_some());
        add_foreign_entries(scenario, DEPLOYMENT, "iris").await?;
        owner.rounds(3).await?;
        assert_eq!(left(scenario, DEPLOYMENT, "iris").await?, ALL.into());

        let more = json!({"spec": {"extraPodMetadata": {"annotations": {"roll": "1"}}}});
        edit(scenario, BENTO_DEPLOYMENT, "iris", &more).await?;
        owner.rounds(3).await?;
        assert_eq!(
            left(scenario, DEPLOYMENT, "iris").await?,
            ["replicas"].into()
        );
        let live = client.get(DEPLOYMENT, "iris").await?.unwrap();
        let annotations = &live["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations, &json!({"roll": "1"}));
        assert_eq!(owner.changes(DEPLOYMENT), 2);
        Ok(())
    })
    .await;
}

/// SIM-5
#[tokio::test]
async fn seldon_2_reverts_replicas_and_everything_else() {
    Scenario::run("sim-seldon2", async |scenario| {
        let target = server("mlserver", "mlserver:1");
        let owner = owner_of(scenario, Seldon2, (SERVER, &target)).await?;
        let kind = Kind::STATEFUL_SET;
        let foreign = json!({"spec": {"template": {"metadata": {"annotations": {"foreign.example.com/x": "yes"}}}}});
        edit(scenario, kind, "mlserver", &foreign).await?;
        owner.rounds(3).await?;
        assert_eq!(left(scenario, kind, "mlserver").await?, ["annotation"].into());
        assert_eq!(owner.changes(kind), 1, "it made it");

        add_foreign_entries(scenario, kind, "mlserver").await?;
        owner.rounds(1).await?;
        assert_eq!(left(scenario, kind, "mlserver").await?, [].into());
        assert_eq!(owner.changes(kind), 2);

        // Through the `/scale` subresource, as KEDA does.
        let client = somebody(scenario);
        let live = client.get(SERVER, "mlserver").await?.unwrap();
        client.scale(SERVER, &live, 3).await?;
        owner.rounds(1).await?;
        assert_eq!(left(scenario, kind, "mlserver").await?, ["replicas"].into());
        Ok(())
    })
    .await;
}
