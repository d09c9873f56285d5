//! What users with the cluster's built-in roles may do with actors.

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{AFTER_START, NotYet, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use serde_json::json;

use crate::{minimal_actor, own_cluster};

/// A user with one of the cluster's roles in the scenario's namespace.
struct User<'a> {
    scenario: &'a Scenario,
    role: &'static str,
}

impl User<'_> {
    async fn make(&self) -> Result<()> {
        let (role, user) = (self.role, format!("--user={}", self.name()));
        let role_flag = format!("--clusterrole={role}");
        let bind = ["create", "rolebinding", role, &role_flag, &user];
        self.scenario.kubectl(&bind).await?;
        // The controller manager aggregates roles with a short delay.
        eventually(format_args!("{role} can list"), AFTER_START, async || {
            self.kubectl(&["get", "asya"]).await.map_err(NotYet::new)
        })
        .await
        .map(drop)
    }

    fn name(&self) -> String {
        format!("{}-of-{}", self.role, self.scenario.namespace())
    }

    async fn kubectl(&self, args: &[&str]) -> Result<String> {
        let user = format!("--as={}", self.name());
        self.scenario.kubectl(&[args, &[&user]].concat()).await
    }

    /// Checks that the API server denies each of these commands because a permission is missing.
    async fn is_denied(&self, commands: &[&[&str]]) -> Result<()> {
        for command in commands {
            let answer = self.kubectl(command).await;
            let told = match answer {
                Ok(answer) => panic!("{}: {command:?} is allowed: {answer}", self.role),
                Err(error) => error.to_string(),
            };
            assert!(told.contains("Forbidden"), "{command:?}: {told}");
        }
        Ok(())
    }
}

/// SEC-14
#[tokio::test]
async fn edit_may_write_actors_but_not_their_status_and_view_may_only_read() {
    let _turn = own_cluster().await;
    let cluster = RunningCluster::start(Options::default()).await.unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "users", async |scenario| {
        let operator = Operator::install(&cluster, json!({})).await?;
        let _instance = operator.start("one").await?;
        let user = |role| User { scenario, role };
        let (edit, view) = (user("edit"), user("view"));
        edit.make().await?;
        view.make().await?;

        let name = scenario.name("theirs");
        let manifest = cluster.folder().join(format!("{name}.json"));
        std::fs::write(&manifest, minimal_actor(&name).to_string())
            .map_err(asya_tests::Error::other)?;
        let manifest = manifest.display().to_string();
        let create: &[&str] = &["create", "--filename", &manifest];
        let label: &[&str] = &["label", "asya", &name, "team=ours"];
        let delete: &[&str] = &["delete", "asya", &name];
        let status: &[&str] = &[
            "patch",
            "asya",
            &name,
            "--subresource=status",
            "--type=merge",
            "--patch={\"status\": {\"status\": \"Running\"}}",
        ];
        let webhooks: &[&str] = &[
            "delete",
            "mutatingwebhookconfigurations,validatingwebhookconfigurations",
            "--all",
        ];
        let webhook: &[&str] = &[
            "annotate",
            "mutatingwebhookconfiguration",
            "asya-operator-injector",
            "by=us",
        ];

        view.is_denied(&[create]).await?;
        edit.kubectl(create).await?;
        scenario.actor_status(&name, "Running", AFTER_START).await?;
        for user in [&edit, &view] {
            let read = ["get", "asya", &name, "--output=jsonpath={.status.status}"];
            assert_eq!(user.kubectl(&read).await?, "Running", "{}", user.role);
            user.is_denied(&[status, webhooks, webhook]).await?;
        }
        let patch: &[&str] = &[
            "patch",
            "asya",
            &name,
            "--type=merge",
            "--patch={\"spec\": {\"timeout\": {\"processing\": 77}}}",
        ];
        view.is_denied(&[label, patch, delete]).await?;
        edit.kubectl(label).await?;
        edit.kubectl(patch).await?;
        let found = scenario.actors().get(&name).await?;
        assert_eq!(found.data["spec"]["timeout"]["processing"], 77);
        edit.kubectl(delete).await?;
        scenario.actor_gone(&name, AFTER_START).await?;

        let elsewhere: &[&str] = &["get", "asya", "--namespace=default"];
        edit.is_denied(&[elsewhere]).await
    })
    .await;
}
