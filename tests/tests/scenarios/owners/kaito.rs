//! The simulator of KAITO (SIM-3).

use asya_tests::Result;
use asya_tests::owners::Kind;
use asya_tests::owners::kaito::{Kaito, UPGRADE, WORKSPACE, workspace};
use asya_tests::scenario::Scenario;
use kube::core::Status;
use serde_json::json;

use super::{ALL, add_foreign_entries, all_but, edit, left, owner_of, somebody};

const STATEFUL_SET: Kind = Kind::STATEFUL_SET;

/// SIM-3
#[tokio::test]
async fn kaito_leaves_everything_until_its_revision_changes() {
    Scenario::run("sim-kaito", async |scenario| {
        let target = workspace("phi", "phi-4");
        let owner = owner_of(scenario, Kaito, (WORKSPACE, &target)).await?;
        add_foreign_entries(scenario, STATEFUL_SET, "phi").await?;
        let somebody = somebody(scenario);
        let live = somebody.get(STATEFUL_SET, "phi").await?.unwrap();
        let env = json!({"spec": {"template": {"spec": {"containers": [
            {"name": "phi", "env": [{"name": "THEIRS", "value": "1"}]},
        ]}}}});
        somebody.strategic(STATEFUL_SET, &live, &env).await?;
        owner.rounds(3).await?;
        assert_eq!(left(scenario, STATEFUL_SET, "phi").await?, ALL.into());
        assert_eq!(owner.changes(STATEFUL_SET), 1, "it made it");

        let preset = json!({"inference": {"preset": {"name": "phi-4-mini"}}});
        edit(scenario, WORKSPACE, "phi", &preset).await?;
        owner.rounds(1).await?;
        assert_eq!(
            left(scenario, STATEFUL_SET, "phi").await?,
            all_but(&["volume"])
        );
        let live = somebody.get(STATEFUL_SET, "phi").await?.unwrap();
        let first = &live["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(
            first["env"],
            json!([{"name": "MODEL", "value": "phi-4-mini"}])
        );
        owner.rounds(3).await?;
        assert_eq!(owner.changes(STATEFUL_SET), 2);

        let upgrade = json!({"metadata": {"labels": {UPGRADE: "v2"}}});
        edit(scenario, WORKSPACE, "phi", &upgrade).await?;
        owner.rounds(2).await?;
        assert_eq!(
            left(scenario, STATEFUL_SET, "phi").await?,
            ["metadata"].into()
        );
        assert_eq!(owner.changes(STATEFUL_SET), 3);
        Ok(())
    })
    .await;
}

/// Up to this minor version, Kubernetes does not check that the volumes mounted by a StatefulSet's containers exist.
const LENIENT: u32 = 33;

/// SIM-3
#[tokio::test]
async fn kaito_stays_refused_while_a_foreign_container_mounts_a_foreign_volume() {
    Scenario::run("sim-kaito-422", async |scenario| {
        let target = workspace("phi", "phi-4");
        let owner = owner_of(scenario, Kaito, (WORKSPACE, &target)).await?;
        let somebody = somebody(scenario);
        let live = somebody.get(STATEFUL_SET, "phi").await?.unwrap();
        let patch = json!({"spec": {"template": {"spec": {
            "containers": [{"name": "foreign", "image": "foreign:1", "volumeMounts": [{"name": "foreign", "mountPath": "/x"}]}],
            "volumes": [{"name": "foreign", "emptyDir": {}}],
            "$setElementOrder/containers": [{"name": "phi"}, {"name": "foreign"}],
        }}}});
        somebody.strategic(STATEFUL_SET, &live, &patch).await?;
        let preset = json!({"inference": {"preset": {"name": "phi-4-mini"}}});
        edit(scenario, WORKSPACE, "phi", &preset).await?;
        let version = scenario.client().apiserver_version().await?;
        if version.minor.parse::<u32>().is_ok_and(|minor| minor <= LENIENT) {
            return owner.rounds(1).await.map(drop);
        }
        for _ in 0..2 {
            let refused = refusal(owner.rounds(1).await);
            assert_eq!(refused.code, 422, "{}", refused.message);
            assert!(refused.message.contains("volumeMounts[0].name"), "{}", refused.message);
        }
        assert_eq!(owner.changes(STATEFUL_SET), 1, "it made it");
        Ok(())
    })
    .await;
}

/// The API server's response to a write that it rejects.
fn refusal<T>(answer: Result<T>) -> Status {
    match answer {
        Err(asya_tests::Error::Kubernetes(kube::Error::Api(status))) => *status,
        Err(error) => panic!("not refused, but: {error}"),
        Ok(_) => panic!("not refused"),
    }
}
