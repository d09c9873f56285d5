//! Children applied by impersonating a service account of their namespace.

use asya_tests::Result;
use asya_tests::cluster::{Options, RunningCluster};
use asya_tests::eventually::{AFTER_START, NotYet, eventually};
use asya_tests::operator::Operator;
use asya_tests::scenario::Scenario;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::ownership::condition_with_reason;
use crate::{minimal_actor, own_cluster};

const ACCOUNT: &str = "asya-applier";

/// Changes the actor's spec, which triggers a reconcile, and waits until its status reports this refusal.
async fn refusal(scenario: &Scenario, processing: u32, contains: &str) -> Result<()> {
    let mut actor = minimal_actor("acted");
    actor["spec"]["timeout"] = json!({"processing": processing});
    scenario.apply(&actor).await?;
    eventually(
        format_args!("the actor says {contains}"),
        AFTER_START,
        async || {
            let told =
                condition_with_reason(scenario, "acted", "WorkloadReady", "NotAuthorized").await;
            let told = told.map_err(NotYet::new)?;
            let message = told["message"].as_str().unwrap_or_default();
            asya_tests::eventually::check(message.contains(contains), message)
        },
    )
    .await
}

/// FW-27
#[tokio::test]
async fn impersonated_account_is_named_with_the_rule_it_lacks() {
    let _turn = own_cluster().await;
    let options = Options {
        guards_owners: true,
        ..Options::default()
    };
    let cluster = RunningCluster::start(options).await.unwrap();
    Scenario::run_on(Ok((*cluster).clone()), "acted", async |scenario| {
        let values = json!({"controller": {"impersonate": true}});
        let operator = Operator::install(&cluster, values).await?;
        let _instance = operator.start("operator").await?;
        eventually("the CRD is served", AFTER_START, async || {
            let actor = minimal_actor("acted");
            scenario.apply(&actor).await.map_err(NotYet::new)
        })
        .await?;
        let account = format!("ServiceAccount {}/{ACCOUNT} ", scenario.namespace());
        refusal(scenario, 100, &format!("{account}does not exist")).await?;

        scenario
            .kubectl(&["create", "serviceaccount", ACCOUNT])
            .await?;
        let rule = r#"is missing the rule {apiGroups: [""], resources: [configmaps], verbs: [create, patch]}"#;
        refusal(scenario, 200, &format!("{account}{rule}")).await?;
        let both = "create,patch";
        grant(scenario, "scripts", both, "configmaps").await?;
        let rule = r#"is missing the rule {apiGroups: ["apps"], resources: [deployments], verbs: [create, patch]}"#;
        refusal(scenario, 300, &format!("{account}{rule}")).await?;

        grant(scenario, "workloads", both, "deployments.apps").await?;
        let rule = r#"is missing the rule {apiGroups: ["asya.sh"], resources: [asyncactors/finalizers], verbs: [update]}"#;
        refusal(scenario, 350, rule).await?;
        grant(scenario, "owners", "update", "asyncactors.asya.sh/finalizers").await?;

        let mark = cluster.audit().mark().await?;
        let mut actor = minimal_actor("acted");
        actor["spec"]["timeout"] = json!({"processing": 400});
        scenario.apply(&actor).await?;
        scenario.actor_status("acted", "Running", AFTER_START).await?;
        let writes = cluster
            .audit()
            .writes_since(mark, &operator.user())
            .await?;
        let names = |resource: &str| {
            let writes = writes.iter().filter(|write| write.resource == resource);
            writes.map(|it| it.acting_as.as_str()).collect::<Vec<_>>()
        };
        let user = format!("system:serviceaccount:{}:{ACCOUNT}", scenario.namespace());
        // There may be several: a retry may precede the reconcile triggered by the change.
        let users = names("deployments");
        assert!(!users.is_empty() && users.iter().all(|it| *it == user), "{users:?}");
        assert!(names("asyncactors").iter().all(|user| user.is_empty()));

        // The API server would impersonate even a deleted account while a role is bound to its name.
        let delete = |what| ["delete", what, "--wait=true"];
        scenario
            .kubectl(&delete("serviceaccount/asya-applier"))
            .await?;
        scenario.kubectl(&delete("configmap/asya-runtime")).await?;
        let told = condition_with_reason(scenario, "acted", "WorkloadReady", "NotAuthorized").await?;
        let message = told["message"].as_str().unwrap_or_default();
        assert!(message.contains(&format!("{account}does not exist")), "{message}");
        let scripts = scenario.api::<ConfigMap>().get_opt("asya-runtime").await?;
        assert!(scripts.is_none(), "nobody was there to apply it");
        scenario
            .kubectl(&["create", "serviceaccount", ACCOUNT])
            .await?;
        scenario.actor_status("acted", "Running", AFTER_START).await?;
        scenario.api::<ConfigMap>().get("asya-runtime").await?;
        Ok(())
    })
    .await;
}

async fn grant(scenario: &Scenario, role: &str, verbs: &str, resource: &str) -> Result<()> {
    let (verbs, resource) = (format!("--verb={verbs}"), format!("--resource={resource}"));
    let role_ = ["create", "role", role, &verbs, &resource];
    scenario.kubectl(&role_).await?;
    let account = format!("--serviceaccount={}:{ACCOUNT}", scenario.namespace());
    let role_flag = format!("--role={role}");
    let binding = ["create", "rolebinding", role, &role_flag, &account];
    scenario.kubectl(&binding).await.map(drop)
}
