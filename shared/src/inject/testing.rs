//! Fixtures shared by the tests of several modules.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::{PodInputs, pod_template};
use crate::api::{AsyncActorSpec, EnvVar};
use crate::config::testing::transport;
use crate::config::{Settings, Transport};
use crate::transport::testing::lines;

/// An actor and the configuration around it.
pub(crate) struct Fixture {
    pub(crate) actor: &'static str,
    pub(crate) spec: AsyncActorSpec,
    pub(crate) transport: Transport,
    pub(crate) settings: Settings,
    pub(crate) service_account: Option<&'static str>,
}

impl Fixture {
    /// Actor `foo` in `team-a` on a RabbitMQ broker, with these fields in its spec. Adds a template if they have none.
    pub(crate) fn new(spec: &Value) -> Self {
        let mut spec = spec.clone();
        spec["transport"] = json!("t");
        if spec.get("workload").is_none() {
            let runtime = json!({"name": "asya-runtime", "image": "me/handler:1"});
            spec["workload"] = json!({"template": {"spec": {"containers": [runtime]}}});
        }
        Self {
            actor: "foo",
            spec: serde_json::from_value(spec).unwrap(),
            transport: transport("rabbitmq", &json!({"host": "broker"})),
            settings: Settings::parse(None, None, None).unwrap(),
            service_account: None,
        }
    }

    /// As [`Fixture::new`], with this template.
    pub(crate) fn with_template(template: &Value) -> Self {
        Self::new(&json!({"workload": {"template": template}}))
    }

    /// As [`Fixture::new`], with these fields in the runtime container.
    pub(crate) fn with_runtime(fields: &Value) -> Self {
        let mut runtime = json!({"name": "asya-runtime", "image": "me/handler:1"});
        runtime
            .as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        Self::with_template(&json!({"spec": {"containers": [runtime]}}))
    }

    pub(crate) fn inputs(&self) -> PodInputs<'_> {
        PodInputs {
            namespace: "team-a",
            actor: self.actor,
            spec: &self.spec,
            workload: self.spec.workload.as_ref().unwrap(),
            transport: &self.transport,
            settings: &self.settings,
            runtime_hash: "0123456789abcdef",
            service_account: self.service_account,
        }
    }

    pub(crate) fn template(&self) -> Value {
        pod_template(&self.inputs())
    }

    /// The value of a variable of the sidecar.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let container = self.container("asya-sidecar");
        let env = container["env"].as_array().unwrap();
        let entry = env.iter().find(|entry| entry["name"] == name)?;
        Some(entry["value"].as_str().unwrap().to_owned())
    }

    /// A container of the rendered template.
    pub(crate) fn container(&self, name: &str) -> Value {
        let template = self.template();
        let all =
            ["initContainers", "containers"].map(|list| template["spec"][list].as_array().cloned());
        let mut all = all.into_iter().flatten().flatten();
        all.find(|container| container["name"] == name).unwrap()
    }

    /// A container's environment, formatted by [`lines`].
    pub(crate) fn env(&self, container: &str) -> Vec<String> {
        let env: Vec<EnvVar> =
            serde_json::from_value(self.container(container)["env"].clone()).unwrap();
        lines(&env)
    }
}
