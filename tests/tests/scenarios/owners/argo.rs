//! The simulators of Argo CD and of a controller that reverts annotations (SIM-7, SIM-8).

use std::collections::BTreeSet;

use asya_tests::owners::argo::{Argo, Sync};
use asya_tests::owners::reverter::Reverter;
use asya_tests::owners::{Kind, Owner};
use asya_tests::scenario::Scenario;
use serde_json::{Value, json};

use super::{add_foreign_entries, all_but, edit, left, somebody};

const DEPLOYMENT: Kind = Kind::DEPLOYMENT;

pub(super) fn manifest(name: &str, replicas: Option<i64>) -> Value {
    let mut manifest = json!({
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}, "annotations": {"team": "a"}},
                "spec": {"containers": [{"name": "model", "image": "model:1"}]},
            },
        },
    });
    if let Some(replicas) = replicas {
        manifest["spec"]["replicas"] = json!(replicas);
    }
    manifest
}

/// SIM-7
#[tokio::test]
async fn argo_reverts_only_what_its_manifest_sets() {
    Scenario::run("sim-argo", async |scenario| {
        for (name, replicas, gone) in [("without", None, &[][..]), ("with", Some(2), &["replicas"])]
        {
            let manifest = manifest(name, replicas);
            let owner = Owner::start(scenario, Argo::new(manifest, Sync::Apply));
            owner.rounds(1).await?;
            add_foreign_entries(scenario, DEPLOYMENT, name).await?;
            owner.rounds(3).await?;
            assert_eq!(
                left(scenario, DEPLOYMENT, name).await?,
                all_but(gone),
                "{name}"
            );
            assert_eq!(owner.changes(DEPLOYMENT), 1 + gone.len());

            let other = json!({"spec": {"template": {"metadata": {"annotations": {"team": "b"}}}}});
            edit(scenario, DEPLOYMENT, name, &other).await?;
            owner.rounds(3).await?;
            assert_eq!(
                left(scenario, DEPLOYMENT, name).await?,
                all_but(gone),
                "{name}"
            );
            assert_eq!(owner.changes(DEPLOYMENT), 2 + gone.len());
            let live = somebody(scenario).get(DEPLOYMENT, name).await?.unwrap();
            let team = &live["spec"]["template"]["metadata"]["annotations"]["team"];
            assert_eq!(team, "a");
        }
        Ok(())
    })
    .await;
}

/// SIM-7
#[tokio::test]
async fn argo_with_replace_removes_all_foreign_entries() {
    Scenario::run("sim-argo-replace", async |scenario| {
        let manifest = manifest("model", Some(2));
        let owner = Owner::start(scenario, Argo::new(manifest, Sync::Replace));
        owner.rounds(1).await?;
        add_foreign_entries(scenario, DEPLOYMENT, "model").await?;
        owner.rounds(1).await?;
        assert_eq!(left(scenario, DEPLOYMENT, "model").await?, BTreeSet::new());
        Ok(())
    })
    .await;
}

/// SIM-8
#[tokio::test]
async fn reverter_removes_unknown_annotations_from_templates() {
    Scenario::run("sim-reverter", async |scenario| {
        let client = somebody(scenario);
        client.create(DEPLOYMENT, &manifest("model", None)).await?;
        let owner = Owner::start(scenario, Reverter::new(vec!["team"]));
        add_foreign_entries(scenario, DEPLOYMENT, "model").await?;
        let restart = json!({"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}});
        edit(scenario, DEPLOYMENT, "model", &restart).await?;
        owner.rounds(2).await?;
        assert_eq!(left(scenario, DEPLOYMENT, "model").await?, all_but(&["annotation"]));
        let live = client.get(DEPLOYMENT, "model").await?.unwrap();
        let annotations = &live["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(annotations, &json!({"team": "a"}));
        Ok(())
    })
    .await;
}
