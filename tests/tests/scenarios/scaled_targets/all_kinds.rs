//! Every scalable kind with its controller, side by side.

use std::time::Duration;

use asya_shared::resolve::{known_kinds, resolver};
use asya_tests::Result;
use asya_tests::eventually::{LATER, check, eventually};
use asya_tests::owners::inference_set::{INFERENCE_SET, InferenceSets, inference_set};
use asya_tests::owners::kaito::{Kaito, WORKSPACE, workspace};
use asya_tests::owners::kserve::{self, INFERENCE_SERVICE, Kserve, inference_service};
use asya_tests::owners::leader_worker_set::{
    LEADER_WORKER_SET, LeaderWorkerSets, leader_worker_set,
};
use asya_tests::owners::llmisvc::{self, LLM_INFERENCE_SERVICE, LlmIsvc, llm_inference_service};
use asya_tests::owners::seldon::{self, SELDON_DEPLOYMENT, Seldon, seldon_deployment};
use asya_tests::owners::seldon2::{SERVER, Seldon2, server};
use asya_tests::owners::{Kind, Owner, RecordingClient, crds};
use asya_tests::scenario::Scenario;
use futures::future::try_join_all;
use kube::api::ListParams;
use serde_json::{Value, json};

use super::served::{COOLDOWN, QUIET, SCALED_TO_ZERO, is_scaled_in_order, scaling, serves_during};
use crate::admission::Stage;
use crate::binding::{bound_actor, condition, model, status_is};
use crate::own_cluster;
use crate::scaling::of_keda;

/// A target, and the object that is scaled for it.
pub(crate) struct Case {
    target: (Kind, Value),
    scaled: (Kind, String),
    /// Additional fields of its actor's spec.
    spec: Value,
}

impl Case {
    pub(crate) fn new(target: (Kind, Value), scaled: (Kind, &str)) -> Self {
        Self {
            target,
            scaled: (scaled.0, scaled.1.to_owned()),
            spec: json!({}),
        }
    }

    fn name(&self) -> &str {
        self.target.1["metadata"]["name"]
            .as_str()
            .unwrap_or_default()
    }

    fn scaled(&self) -> (Kind, &str) {
        (self.scaled.0, &self.scaled.1)
    }

    pub(crate) fn actor(&self, scenario: &Scenario, scaling: &Value) -> (String, Value) {
        let (kind, name) = (self.target.0, scenario.name(self.name()));
        let mut actor = bound_actor(&name, self.name());
        actor["spec"]["workloadRef"]["apiVersion"] = json!(kind.api_version());
        actor["spec"]["workloadRef"]["kind"] = json!(kind.kind);
        actor["spec"]["scaling"] = scaling.clone();
        for (key, value) in self.spec.as_object().into_iter().flatten() {
            actor["spec"][key] = value.clone();
        }
        (name, actor)
    }
}

/// One target of each kind, with more than one pod where the kind has a replica count.
pub(crate) fn all() -> Result<Vec<Case>> {
    let deployment = serde_json::to_value(model("web", 2)?)?;
    let mut set = serde_json::to_value(model("set", 2)?)?;
    set["spec"]["serviceName"] = json!("set");
    let mut iris = inference_service("iris", &json!({}));
    iris["spec"]["predictor"]["minReplicas"] = json!(1);
    let mut mlserver = server("mlserver", "mlserver:1");
    mlserver["spec"]["replicas"] = json!(2);
    let seldon = seldon_deployment("classifier", &json!({}));
    let qwen = (LLM_INFERENCE_SERVICE, llm_inference_service("qwen"));
    Ok(vec![
        Case::new((Kind::DEPLOYMENT, deployment), (Kind::DEPLOYMENT, "web")),
        Case::new((Kind::STATEFUL_SET, set), (Kind::STATEFUL_SET, "set")),
        Case::new(
            (WORKSPACE, workspace("phi", "phi-4")),
            (Kind::STATEFUL_SET, "phi"),
        ),
        Case::new(
            (INFERENCE_SET, inference_set("phis", "phi-4", 2)),
            (INFERENCE_SET, "phis"),
        ),
        Case::new(
            (INFERENCE_SERVICE, iris),
            (Kind::DEPLOYMENT, &kserve::deployment_of("iris")),
        ),
        Case {
            spec: json!({"runtime": {"targetURL": "http://127.0.0.1:8000"}}),
            ..Case::new(qwen, (Kind::DEPLOYMENT, &llmisvc::deployment_of("qwen")))
        },
        Case::new(
            (SELDON_DEPLOYMENT, seldon),
            (Kind::DEPLOYMENT, &seldon::deployment_of("classifier")),
        ),
        Case::new((SERVER, mlserver), (SERVER, "mlserver")),
        Case::new(
            (LEADER_WORKER_SET, leader_worker_set("leaders", 2)),
            (LEADER_WORKER_SET, "leaders"),
        ),
    ])
}

/// Creates the targets and starts their controllers, which stop when the result is dropped.
pub(crate) async fn served(scenario: &Scenario, cases: &[Case]) -> Result<Vec<Owner>> {
    let own = cases.iter().map(|case| case.target.0);
    let own: Vec<_> = own.filter(|kind| kind.group != "apps").collect();
    crds::install(scenario.cluster(), &own).await?;
    let user = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
    for Case { target, .. } in cases {
        user.create(target.0, &target.1).await?;
    }
    let owners = vec![
        Owner::start(scenario, Kaito),
        Owner::start(scenario, InferenceSets),
        Owner::start(scenario, Kserve),
        Owner::start(scenario, LlmIsvc),
        Owner::start(scenario, Seldon),
        Owner::start(scenario, Seldon2),
        Owner::start(scenario, LeaderWorkerSets),
    ];
    for case in cases {
        let (kind, name) = case.scaled();
        eventually(format_args!("{name} is there"), LATER, async || {
            let live = user.get(kind, name).await?;
            let asks = live.is_some_and(|it| it["spec"]["replicas"].as_i64() > Some(0));
            check(asks, "it asks for no pods")
        })
        .await?;
    }
    Ok(owners)
}

/// RES-10, RES-24, SO-4: exactly the kinds that are never scaled are missing below.
#[test]
fn every_kind_that_can_be_scaled_is_among_these() {
    let cases = all().unwrap();
    for kind in known_kinds() {
        let never = resolver(kind.group, kind.kind)
            .unscalable_reason()
            .is_some();
        // A Model is bound through its Server.
        let has_pods = kind.kind != "Model";
        let among = cases.iter().any(|case| {
            let found = case.target.0;
            (found.group, found.kind) == (kind.group, kind.kind)
        });
        assert_eq!(among, !never && has_pods, "{kind:?}");
    }
}

/// SAFE-20, SAFE-22, SO-1, RES-10, RES-13, RES-14, RES-15, RES-17, RES-21, RES-22, RES-24
#[tokio::test]
async fn every_kind_serves_until_a_pod_with_the_sidecar_is_ready_and_the_cooldown_is_over() {
    Scenario::run("served-all", async |scenario| {
        let cases = all()?;
        let _owners = served(scenario, &cases).await?;
        try_join_all(cases.iter().map(async |case| {
            let (name, actor) = case.actor(scenario, &scaling(COOLDOWN));
            scenario.apply(&actor).await?;
            is_scaled_in_order(scenario, &name, case.scaled()).await
        }))
        .await?;
        Ok(())
    })
    .await;
}

/// SAFE-20, SAFE-21: a model keeps its pods while these could not receive messages.
#[tokio::test]
async fn nothing_is_scaled_while_the_webhook_is_away_and_all_is_when_it_is_back() {
    let _turn = own_cluster().await;
    let mut stage = Stage::set(&[]).await.unwrap();
    stage.cluster.start_keda().await.unwrap();
    stage.webhook.kill().await.unwrap();
    Scenario::run_on(Ok(stage.cluster.clone()), "unserved", async |scenario| {
        let user = RecordingClient::new(scenario.client(), scenario.namespace(), "user");
        let later = "on-restart";
        let mut cases = all()?;
        cases.push(Case {
            spec: json!({"binding": {"rollout": "OnRestart"}}),
            ..Case::new(
                (Kind::DEPLOYMENT, serde_json::to_value(model(later, 2)?)?),
                (Kind::DEPLOYMENT, later),
            )
        });
        let _owners = served(scenario, &cases).await?;
        let mut names = Vec::new();
        for case in &cases {
            let (name, actor) = case.actor(scenario, &scaling(Duration::ZERO));
            scenario.apply(&actor).await?;
            names.push(name);
        }
        let waits = |status: &Value| condition(status, "ScalingReady") == ("Unknown", "NotProven");
        for name in &names {
            status_is(scenario, name, "it waits", LATER, waits).await?;
        }
        try_join_all(cases.iter().map(async |case| {
            serves_during(&user, case.scaled(), async {
                tokio::time::sleep(QUIET).await;
                Ok(())
            })
            .await
        }))
        .await?;
        let none = of_keda(scenario, "ScaledObject")
            .list(&ListParams::default())
            .await?;
        assert!(none.items.is_empty(), "{none:?}");

        stage.webhook.fill().await?;
        let napping = |status: &Value| status["status"] == "Napping";
        let (left, always) = names.split_last().unwrap();
        for name in always {
            status_is(scenario, name, "is scaled to zero", SCALED_TO_ZERO, napping).await?;
        }
        let text = "who is left to restarts waits for one";
        status_is(scenario, left, text, LATER, waits).await?;
        let selector = format!("app={later}");
        scenario
            .kubectl(&["delete", "pods", "-l", &selector])
            .await?;
        status_is(
            scenario,
            left,
            "is scaled to zero after a restart",
            SCALED_TO_ZERO,
            napping,
        )
        .await?;
        Ok(())
    })
    .await;
}
