//! The settings of the installed operator, read from its Deployments.

use std::collections::BTreeMap;
use std::fmt;

use asya_shared::admission::facts::WebhookFacts;
use asya_shared::config::{ConfigError, Settings, TransportsConfig};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::Value;

use crate::answer::Failure;
use crate::cluster::{Cluster, resource};

/// Variables of the operator's containers that this program understands.
pub const VARIABLES: [&str; 8] = [
    TRANSPORTS,
    "ASYA_GATEWAY_URL",
    "ASYA_SIDECAR_IMAGE",
    "ASYA_OWN_SIDECAR_IMAGE",
    "ASYA_SIDECAR_DEFAULT_RESOURCES",
    "ASYA_PRIVILEGED_SIDECARS",
    "ASYA_BINDING_RUNTIME_IMAGE",
    "ASYA_OPENSHIFT",
];
const TRANSPORTS: &str = "ASYA_TRANSPORT_CONFIG";
const LEADER_ELECTION: &str = "--leader-elect=";
const FACTS_FLAG: &str = "--facts-config-map=";
/// The flag that names the Secret with the webhook's certificate.
pub const TLS_SECRET: &str = "--tls-secret=";

/// The configuration by which actors are validated and rendered.
#[derive(Clone, Debug)]
pub struct Installation {
    pub transports: TransportsConfig,
    pub settings: Settings,
    /// The facts that the controller publishes for the webhook; defaults if they could not be read.
    pub facts: WebhookFacts,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperatorDeployment {
    pub name: String,
    pub image: String,
    pub desired: i64,
    pub ready: i64,
    pub variables: BTreeMap<String, String>,
    pub args: Vec<String>,
    pub service_account: String,
    /// Name of the `ConfigMap` with the settings that the controller rereads at runtime.
    pub config_map: Option<String>,
}

/// Where an operator's controller is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ControllerLocation {
    pub namespace: String,
    pub name: String,
}

impl ControllerLocation {
    fn of(deployment: &Value) -> Option<Self> {
        let name = OperatorDeployment::of(deployment)
            .filter(|it| it.facts_config_map().is_none())?
            .name;
        let namespace = deployment["metadata"]["namespace"].as_str()?.to_owned();
        Some(Self { namespace, name })
    }
}

impl fmt::Display for ControllerLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "deployment/{} in namespace {}",
            self.name, self.namespace
        )
    }
}

impl Installation {
    /// Parses the variables that the operator will get.
    ///
    /// # Errors
    /// If a value is invalid or a key unknown; the operator would not start with it either.
    pub fn parse(variables: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        Self::parse_with(variables, TransportsConfig::parse)
    }

    /// Parses those variables of the operator's containers that are known, since the operator may be of a later
    /// release.
    ///
    /// # Errors
    /// If a value is invalid.
    fn parse_known(variables: &BTreeMap<String, String>) -> Result<Self, ConfigError> {
        Self::parse_with(variables, TransportsConfig::parse_known)
    }

    fn parse_with(
        variables: &BTreeMap<String, String>,
        transports: impl FnOnce(&str) -> Result<TransportsConfig, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let text = |name: &str| variables.get(name).cloned();
        let is_true = |name: &str| variables.get(name).is_some_and(|it| it == "true");
        let resources = text("ASYA_SIDECAR_DEFAULT_RESOURCES");
        let settings = Settings::parse(
            text("ASYA_GATEWAY_URL"),
            text("ASYA_SIDECAR_IMAGE"),
            resources.as_deref(),
        )?;
        let settings = settings.with_own_sidecar(text("ASYA_OWN_SIDECAR_IMAGE"));
        let settings = settings.with_privileged_sidecars(is_true("ASYA_PRIVILEGED_SIDECARS"));
        Ok(Self {
            transports: transports(&text(TRANSPORTS).unwrap_or_default())?,
            settings: settings.with_binding(
                text("ASYA_BINDING_RUNTIME_IMAGE"),
                is_true("ASYA_OPENSHIFT"),
            ),
            facts: WebhookFacts::default(),
        })
    }

    /// These settings, if given; otherwise the operator's, or a note why they are unknown.
    pub async fn given_or_read(
        given: Option<Self>,
        cluster: &Cluster,
        notes: &mut Vec<String>,
    ) -> Option<Self> {
        if given.is_some() {
            return given;
        }
        Self::read(cluster)
            .await
            .map_err(|failure| {
                notes.push(format!("the operator's settings are unknown: {failure}"));
            })
            .ok()
    }

    /// Reads the settings of the operator that is installed in `--operator-namespace`.
    ///
    /// # Errors
    /// If its Deployments cannot be read, or there are none.
    pub async fn read(cluster: &Cluster) -> Result<Self, Failure> {
        let deployments = deployments(cluster).await?;
        let Some(deployment) = webhook(&deployments).or(deployments.first()) else {
            let advice = match controllers(cluster).await.as_deref() {
                Ok([ControllerLocation { namespace, .. }, ..]) => {
                    format!("there is one in {namespace}: pass --operator-namespace {namespace}")
                }
                _ => {
                    "name its namespace with --operator-namespace, or pass its --values".to_owned()
                }
            };
            return Err(Failure::new(format!(
                "no operator in namespace {}; {advice}",
                cluster.operator_namespace
            )));
        };
        let mut installation = Self::parse_known(&deployment.variables)
            .map_err(|error| Failure::new(format!("deployment {}: {error}", deployment.name)))?;
        if let Some(facts) = read_facts(cluster, deployment).await {
            installation.facts = facts;
        }
        Ok(installation)
    }
}

/// The operator's Deployments in `--operator-namespace`.
///
/// # Errors
/// If they cannot be listed.
pub async fn deployments(cluster: &Cluster) -> Result<Vec<OperatorDeployment>, Failure> {
    let kind = resource::<Deployment>();
    let all = cluster
        .list(&kind, Some(&cluster.operator_namespace))
        .await?;
    Ok(all.iter().filter_map(OperatorDeployment::of).collect())
}

/// The controllers of all operators in the cluster, sorted.
///
/// # Errors
/// If the user lacks permission to list the Deployments of all namespaces.
pub async fn controllers(cluster: &Cluster) -> Result<Vec<ControllerLocation>, Failure> {
    let all = cluster.list(&resource::<Deployment>(), None).await?;
    let mut found: Vec<_> = all.iter().filter_map(ControllerLocation::of).collect();
    found.sort();
    Ok(found)
}

/// The webhook's Deployment.
pub fn webhook(deployments: &[OperatorDeployment]) -> Option<&OperatorDeployment> {
    deployments
        .iter()
        .find(|it| it.facts_config_map().is_some())
}

/// The controller's Deployment.
pub fn controller(deployments: &[OperatorDeployment]) -> Option<&OperatorDeployment> {
    deployments
        .iter()
        .find(|it| it.facts_config_map().is_none())
}

async fn read_facts(cluster: &Cluster, deployment: &OperatorDeployment) -> Option<WebhookFacts> {
    let name = deployment.facts_config_map()?;
    let found = cluster
        .get(
            &resource::<ConfigMap>(),
            Some(&cluster.operator_namespace),
            name,
        )
        .await;
    let data = found.ok()??["data"].take();
    Some(WebhookFacts::read(&serde_json::from_value(data).ok()?))
}

impl OperatorDeployment {
    /// The Deployment, if it is one of the operator's, as its container's transports show.
    pub fn of(deployment: &Value) -> Option<Self> {
        let spec = &deployment["spec"];
        let pod = &spec["template"]["spec"];
        let (container, variables) = program(pod)?;
        Some(Self {
            name: deployment["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            image: container["image"].as_str().unwrap_or_default().to_owned(),
            desired: spec["replicas"].as_i64().unwrap_or(1),
            ready: deployment["status"]["readyReplicas"].as_i64().unwrap_or(0),
            variables,
            args: texts(&container["args"]),
            service_account: pod["serviceAccountName"]
                .as_str()
                .unwrap_or("default")
                .to_owned(),
            config_map: config_map(pod),
        })
    }

    /// Name of the `ConfigMap` with the controller's facts, a flag that only the webhook has.
    pub fn facts_config_map(&self) -> Option<&str> {
        self.flag(FACTS_FLAG)
    }

    /// The value of a flag, given as `--name=`.
    pub fn flag(&self, name: &str) -> Option<&str> {
        self.args.iter().find_map(|arg| arg.strip_prefix(name))
    }

    /// Whether the replicas elect a leader; otherwise, no program uses the Lease.
    pub fn elects_leader(&self) -> bool {
        self.flag(LEADER_ELECTION) != Some("false")
    }

    /// The release, from the image's tag; a digest that follows it is ignored.
    pub fn release(&self) -> Option<&str> {
        let named = self.image.split('@').next()?;
        let (_, tag) = named.rsplit_once(':')?;
        Some(tag).filter(|tag| !tag.contains('/'))
    }
}

/// Whether a pod runs one of the operator's programs.
pub fn is_operator(pod: &Value) -> bool {
    program(&pod["spec"]).is_some()
}

/// The container of the operator's program in a pod spec, and its variables: the one with the transports.
fn program(pod: &Value) -> Option<(&Value, BTreeMap<String, String>)> {
    let mut containers = pod["containers"].as_array()?.iter();
    containers.find_map(|container| {
        let variables = variables(container);
        let is_program = variables.contains_key(TRANSPORTS);
        is_program.then_some((container, variables))
    })
}

fn config_map(pod: &Value) -> Option<String> {
    let mut volumes = pod["volumes"].as_array()?.iter();
    let name = volumes.find_map(|volume| volume["configMap"]["name"].as_str())?;
    Some(name.to_owned())
}

fn variables(container: &Value) -> BTreeMap<String, String> {
    let all = container["env"].as_array().into_iter().flatten();
    let named =
        all.filter_map(|variable| Some((variable["name"].as_str()?, variable["value"].as_str()?)));
    let known = named.filter(|(name, _)| VARIABLES.contains(name));
    known
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn texts(list: &Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten();
    all.filter_map(|it| it.as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use asya_process::flags::InstallationFlags;
    use serde_json::json;

    use super::*;

    fn deployment() -> Value {
        let transports = json!({"transports": {"mq": {"type": "rabbitmq", "enabled": true, "config": {"host": "b"}}}});
        json!({
            "metadata": {"name": "asya-operator-webhook"},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [{
                "image": "registry.test:5000/asya-operator:0.1.0",
                "args": ["--facts-config-map=asya-operator-webhook-facts"],
                "env": [
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "ASYA_TRANSPORT_CONFIG", "value": transports.to_string()},
                    {"name": "ASYA_OPENSHIFT", "value": "true"},
                ],
            }]}}},
            "status": {"readyReplicas": 1},
        })
    }

    #[test]
    fn settings_come_from_the_webhooks_deployment() {
        let found = OperatorDeployment::of(&deployment()).unwrap();
        assert_eq!(
            found.facts_config_map(),
            Some("asya-operator-webhook-facts")
        );
        assert_eq!(
            (found.desired, found.ready, found.release()),
            (2, 1, Some("0.1.0"))
        );
        let installation = Installation::parse(&found.variables).unwrap();
        assert!(installation.transports.usable("mq").is_ok());
        assert!(installation.settings.binding.openshift);
        assert_eq!(
            OperatorDeployment::of(&json!({"spec": {"replicas": 1}})),
            None
        );
    }

    /// docs/cli.md: `check` compares releases, and the chart's `image.tag` may include a digest.
    #[test]
    fn release_is_the_tag_without_the_digest() {
        let digest = format!("sha256:{}", "9f86d081".repeat(8));
        for (image, release) in [
            (
                "registry.test:5000/asya-operator:0.1.0".to_owned(),
                Some("0.1.0"),
            ),
            (
                format!("registry.test:5000/asya-operator:0.1.0@{digest}"),
                Some("0.1.0"),
            ),
            (format!("asya-operator:0.1.0@{digest}"), Some("0.1.0")),
            (format!("registry.test:5000/asya-operator@{digest}"), None),
            (format!("asya-operator@{digest}"), None),
            ("registry.test:5000/asya-operator".to_owned(), None),
        ] {
            let deployment = OperatorDeployment {
                image,
                ..OperatorDeployment::default()
            };
            assert_eq!(deployment.release(), release, "{}", deployment.image);
        }
    }

    /// OPS-3: the operator may be newer than this program.
    #[test]
    fn keys_of_a_later_release_are_ignored_in_what_the_operator_has_and_rejected_in_what_it_is_to_have()
     {
        let mut found = OperatorDeployment::of(&deployment()).unwrap();
        let later = json!({"transports": {"mq": {
            "type": "rabbitmq", "enabled": true, "config": {"host": "b", "ofALaterRelease": 1},
        }}});
        let variables = &mut found.variables;
        variables.insert(TRANSPORTS.to_owned(), later.to_string());
        let installation = Installation::parse_known(variables).unwrap();
        assert!(installation.transports.usable("mq").is_ok());
        assert!(Installation::parse(variables).is_err());
    }

    /// A setting that the operator reads and this program ignores would make their answers differ.
    #[test]
    fn all_settings_of_the_operator_are_known() {
        let command = <InstallationFlags as clap::Args>::augment_args(clap::Command::new("test"));
        let theirs: BTreeSet<_> = command
            .get_arguments()
            .filter_map(|arg| arg.get_env()?.to_str())
            .collect();
        assert_eq!(theirs, BTreeSet::from(VARIABLES));
    }
}
