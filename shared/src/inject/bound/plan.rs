//! The fields that a binding adds to a pod (BIND-20 to BIND-28).

use std::fmt;

use asya_wire::env as variable;
use serde_json::{Map, Value, json};

use super::existing::ContainerList;
use super::names::{HANDLER, METRICS_ADDR, TARGET_URL};
use super::pod_properties::PodProperties;
use super::resources::{self, injected_resources};
use crate::api::{AsyncActorSpec, EffectiveRuntime, EnvVar, ModeSpec, ResolvedTarget, Resources};
use crate::config::{Settings, Transport};
use crate::hash;
use crate::inject::keyed::{BY_NAME, upsert};
use crate::inject::sidecar::{self, SidecarInputs, gateway_of};
use crate::inject::volumes::BOUND_VOLUMES;
use crate::inject::{list_at, runtime};
use crate::names::{ROLE_TOKEN_VOLUME, RUNTIME_CONTAINER, SIDECAR_CONTAINER, label};
use crate::resolve::{Integration, Resolver, adapter_of, resolver};
use crate::transport::text;

const TARGET_MODEL: &str = "ASYA_TARGET_MODEL";
/// How long the adapters wait for the model, in seconds. The sidecar times out at the same moment.
const TARGET_TIMEOUT: &str = "ASYA_TARGET_TIMEOUT";
/// Loading a model can take long, and the sidecar cannot know how long.
const READY_TIMEOUT: (&str, &str) = (variable::RUNTIME_READY_TIMEOUT, "1h");

/// Handlers that only wait for a model server, which batches requests itself.
const OPENAI_ADAPTERS: &str = "asya_adapters.openai_";
const OPENAI_CONCURRENCY: i32 = 8;

const ROLE_TOKEN_DIR: &str = "/var/run/secrets/asya.sh/role";
const ROLE_TOKEN_FILE: &str = "token";
const ROLE_TOKEN_SECONDS: u32 = 86_400;

/// Inputs of a [`BoundPlan`].
#[derive(Clone, Copy)]
pub struct PlanInputs<'a> {
    /// Namespace of the actor.
    pub namespace: &'a str,
    /// Name of the actor.
    pub actor: &'a str,
    /// UID of the actor.
    pub uid: &'a str,
    /// Spec of the actor.
    pub spec: &'a AsyncActorSpec,
    /// The actor's `eks.amazonaws.com/role-arn` annotation.
    pub role_arn: Option<&'a str>,
    /// The transport that the actor uses.
    pub transport: &'a Transport,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// Hash of the `ConfigMap` with runtime script and adapters, as mounted (ROLL-8).
    pub scripts_hash: &'a str,
}

/// The fields that are injected into the pods of one actor, as far as they do not depend on the individual pod.
#[derive(Clone)]
pub struct BoundPlan {
    pub(super) uid: String,
    pub(super) hash: InjectedHash,
    /// The container list that the sidecar is added to.
    pub(super) sidecar_list: ContainerList,
    pub(super) volumes: Vec<Value>,
    pub(super) grace_seconds: u32,
    /// The model's URL, if the actor sets it.
    pub(super) target_url: Option<String>,
    /// The handler that calls the model, if the actor sets it.
    pub(super) handler: Option<String>,
    /// Whether the actor sets the sidecar's metrics address.
    pub(super) metrics_given: bool,
    /// The user that both containers run as, if the actor sets it.
    pub(super) user: Option<i64>,
    pub(super) openshift: bool,
    /// Whether the sidecar is `asya-sidecar` of this version.
    own_sidecar: bool,
    pub(super) resolver: &'static dyn Resolver,
    /// The adapter, if the target determines it.
    pub(super) adapter: Option<&'static str>,
    pub(super) labels: [(&'static str, String); 2],
    runtime: Value,
    sidecar: Value,
    resources: [Option<Resources>; 2],
    /// Limits that a quota of the namespace requires; set on both containers where the user has set none.
    limits: Vec<(String, Value)>,
}

/// The hash annotation of an injected pod, written as `<actor>.<platform>` (INJ-9, ROLL-8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InjectedHash {
    /// Hash of the actor's and its transport's settings: a change rolls the pods.
    pub actor: String,
    /// Hash of the operator's version and settings: a change marks pods as outdated but rolls none.
    pub platform: String,
}

impl InjectedHash {
    /// Parses the annotation of a pod.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (actor, platform) = text.split_once('.')?;
        Some(Self {
            actor: actor.to_owned(),
            platform: platform.to_owned(),
        })
    }
}

impl fmt::Display for InjectedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.actor, self.platform)
    }
}

impl BoundPlan {
    /// Plans a binding; `None` for a standalone actor.
    #[must_use]
    pub fn new(inputs: &PlanInputs<'_>) -> Option<Self> {
        let Ok(ModeSpec::Binding(binding)) = inputs.spec.mode() else {
            return None;
        };
        let target = binding.target;
        let resolver = resolver(target.group(), &target.kind);
        let integration = Integration::of_target(target);
        // KServe serves the model under the name of its InferenceService
        let model = (integration == Integration::Kserve).then_some(target.name.as_str());
        let role = inputs.transport.role_of_pods(inputs.role_arn);
        let sidecar = inputs.spec.effective_sidecar();

        let runtime = runtime_container(inputs, &binding.runtime, model);
        let mut plan = Self {
            uid: inputs.uid.to_owned(),
            hash: InjectedHash {
                actor: actor_hash_of(inputs, &binding.runtime, model, role),
                platform: String::new(),
            },
            sidecar_list: if sidecar.native {
                ContainerList::InitContainers
            } else {
                ContainerList::Containers
            },
            volumes: volumes(inputs.transport, role.is_some()),
            grace_seconds: inputs.spec.effective_timeout().graceful_shutdown,
            target_url: binding.runtime.target_url.map(str::to_owned),
            handler: binding.runtime.handler.map(str::to_owned),
            metrics_given: sidecar.env.iter().any(|it| it.name == METRICS_ADDR),
            user: sidecar
                .security_context
                .and_then(|context| context.get("runAsUser")?.as_i64()),
            openshift: inputs.settings.binding.openshift,
            own_sidecar: sidecar::is_own(inputs.spec, inputs.settings),
            resolver,
            adapter: None,
            labels: [label::ASYA, label::ACTOR].map(|key| (key, inputs.actor.to_owned())),
            sidecar: sidecar_container(inputs, &runtime, role),
            runtime,
            resources: [
                binding.runtime.resources.cloned(),
                sidecar.resources.cloned(),
            ],
            limits: Vec::new(),
        };
        let [runtime, sidecar] = plan.containers(&PodProperties::placeholder());
        let platform = json!([
            inputs.scripts_hash,
            runtime,
            sidecar,
            plan.volumes,
            plan.openshift
        ]);
        plan.hash.platform = hash::of_value(&platform);
        Some(plan)
    }

    /// Adds what the resolved target determines. Not part of the hash: a pod that was injected with other values keeps
    /// them and is not outdated.
    #[must_use]
    pub fn for_target(mut self, resolved: Option<&ResolvedTarget>) -> Self {
        self.adapter = adapter_of(resolved);
        self
    }

    /// Adds limits for the resources whose limits a quota of the namespace requires; the installation's settings
    /// determine the quantities. Not part of the hash: pods without these limits are not outdated.
    #[must_use]
    pub fn with_limits(mut self, names: &[String], installed: &Resources) -> Self {
        let limits = names.iter();
        self.limits = limits
            .filter_map(|name| Some((name.clone(), resources::limit(name, installed)?)))
            .collect();
        self
    }

    /// The hash by which pods made from this plan are recognised.
    #[must_use]
    pub fn hash(&self) -> &InjectedHash {
        &self.hash
    }

    /// The runtime and sidecar containers for a pod with these properties.
    pub(super) fn containers(&self, pod: &PodProperties) -> [Value; 2] {
        let [runtime_resources, sidecar_resources] = &self.resources;
        let resources = |given: &Option<Resources>| {
            injected_resources(given.as_ref(), pod.qos_class, &self.limits)
        };

        let mut runtime = self.runtime.clone();
        set(&mut runtime, HANDLER, &pod.handler);
        if pod.handler.starts_with(OPENAI_ADAPTERS) {
            add_default(&mut runtime, &sidecar::concurrency(OPENAI_CONCURRENCY));
        }
        set(&mut runtime, TARGET_URL, &pod.target_url);
        runtime["resources"] = resources(runtime_resources);
        runtime["securityContext"] = security_context(pod.user);

        let mut sidecar = self.sidecar.clone();
        if pod.handler.starts_with(OPENAI_ADAPTERS) {
            add_default(&mut sidecar, &sidecar::concurrency(OPENAI_CONCURRENCY));
        }
        if self.own_sidecar
            && let Some(period) = sidecar::grace_period(pod.grace_seconds)
        {
            add_default(&mut sidecar, &period);
        }
        if let Some(port) = pod.metrics_port {
            set(&mut sidecar, METRICS_ADDR, &format!(":{port}"));
        }
        sidecar["resources"] = resources(sidecar_resources);
        if sidecar.get("securityContext").is_none() {
            sidecar["securityContext"] = security_context(pod.user);
        }
        [runtime, sidecar]
    }
}

/// Plans are equal if they produce the same containers for every pod.
impl PartialEq for BoundPlan {
    fn eq(&self, other: &Self) -> bool {
        self.uid == other.uid
            && self.hash == other.hash
            && self.grace_seconds == other.grace_seconds
            && self.adapter == other.adapter
            && self.limits == other.limits
            && self.labels == other.labels
    }
}

impl fmt::Debug for BoundPlan {
    /// Leaves out the environment, which may hold sensitive values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundPlan")
            .field("uid", &self.uid)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// Hashes the inputs rather than the resulting containers, so that an upgrade that renders them differently restarts no
/// model (ROLL-8).
fn actor_hash_of(
    inputs: &PlanInputs<'_>,
    runtime: &EffectiveRuntime<'_>,
    model: Option<&str>,
    role: Option<&str>,
) -> String {
    let sidecar = inputs.spec.effective_sidecar();
    let names = inputs.transport.names_of(inputs.namespace, inputs.actor);
    let mut settings = json!({
        "sidecar": {
            "image": sidecar.image,
            "imagePullPolicy": sidecar.image_pull_policy,
            "env": sidecar.env,
            "resources": sidecar.resources,
            "native": sidecar.native,
            "securityContext": sidecar.security_context,
        },
        "runtime": {
            "image": runtime.image,
            "python": runtime.python_executable,
            "handler": runtime.handler,
            "targetURL": runtime.target_url,
            "model": model,
            "env": runtime.env,
            "resources": runtime.resources,
        },
        "names": [names.actor, names.happy_end, names.error_end],
        "processing": inputs.spec.effective_timeout().processing,
        "transport": hashed_variables(inputs.transport.broker().sidecar_env()),
        "role": role,
    });
    // Only if set: an upgrade must not change the hash of actors without them.
    if let Some(ca) = inputs.transport.ca_secret() {
        settings["ca"] = json!([ca.name, ca.key]);
    }
    if let Some(concurrency) = inputs.spec.effective_concurrency() {
        settings["concurrency"] = json!(concurrency);
    }
    hash::of_value(&settings)
}

/// The transport variables whose change rolls pods. The list is closed: a variable that a later version adds belongs to
/// the platform hash (SAFE-35), unless a user sets its value, which then gets a key of its own above.
const HASHED_VARIABLES: [&str; 15] = [
    "ASYA_TRANSPORT",
    "ASYA_RABBITMQ_HOST",
    "ASYA_RABBITMQ_PORT",
    "ASYA_RABBITMQ_USERNAME",
    "ASYA_RABBITMQ_PASSWORD",
    "ASYA_RABBITMQ_EXCHANGE",
    "ASYA_RABBITMQ_URL",
    "ASYA_QUEUE_AUTO_CREATE",
    "ASYA_QUEUE_RETRY_MAX_ATTEMPTS",
    "ASYA_AWS_REGION",
    "ASYA_SQS_ENDPOINT",
    "ASYA_SQS_VISIBILITY_TIMEOUT",
    "ASYA_SQS_WAIT_TIME_SECONDS",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
];

/// Keeps only the variables listed in [`HASHED_VARIABLES`].
pub(super) fn hashed_variables(mut env: Vec<EnvVar>) -> Vec<EnvVar> {
    env.retain(|it| HASHED_VARIABLES.contains(&&*it.name));
    env
}

fn volumes(transport: &Transport, role: bool) -> Vec<Value> {
    let mut volumes = BOUND_VOLUMES.volumes();
    volumes.extend(sidecar::broker_ca(transport).map(|(volume, _)| volume));
    if role {
        let token = json!({"serviceAccountToken": {
            "audience": "sts.amazonaws.com", "expirationSeconds": ROLE_TOKEN_SECONDS, "path": ROLE_TOKEN_FILE,
        }});
        volumes.push(
            json!({"name": ROLE_TOKEN_VOLUME, "projected": {"defaultMode": 0o644, "sources": [token]}}),
        );
    }
    volumes
}

fn runtime_container(
    inputs: &PlanInputs<'_>,
    runtime: &EffectiveRuntime<'_>,
    model: Option<&str>,
) -> Value {
    let mut container = Map::new();
    container.insert("name".to_owned(), json!(RUNTIME_CONTAINER));
    let image = runtime
        .image
        .unwrap_or(&inputs.settings.binding.runtime_image);
    container.insert("image".to_owned(), json!(image));
    container.insert("imagePullPolicy".to_owned(), json!("IfNotPresent"));
    runtime::connect(&mut container, runtime.python_executable, &BOUND_VOLUMES);
    if let Some(env) = list_at(&mut container, "env") {
        env.push(json!(text(HANDLER, "")));
        env.push(json!(text(TARGET_URL, "")));
        env.extend(model.map(|model| json!(text(TARGET_MODEL, model))));
        // As long as the sidecar waits, also where that is its default.
        let seconds = inputs.spec.effective_timeout().processing_for_broker();
        let seconds = seconds.min(sidecar::longest_processing(inputs.transport));
        env.push(json!(text(TARGET_TIMEOUT, &seconds.to_string())));
        // a model's response carries no route
        env.push(runtime::without_validation());
        env.extend(
            inputs
                .spec
                .effective_concurrency()
                .map(|it| json!(sidecar::concurrency(it))),
        );
        for entry in runtime.env {
            upsert(env, json!(entry), BY_NAME);
        }
    }
    Value::Object(container)
}

fn sidecar_container(inputs: &PlanInputs<'_>, runtime: &Value, role: Option<&str>) -> Value {
    let (name, value) = READY_TIMEOUT;
    let mut further: Vec<EnvVar> = vec![text(METRICS_ADDR, ""), text(name, value)];
    if let Some(role) = role {
        let token = format!("{ROLE_TOKEN_DIR}/{ROLE_TOKEN_FILE}");
        further.push(text("AWS_ROLE_ARN", role));
        further.push(text("AWS_WEB_IDENTITY_TOKEN_FILE", &token));
    }
    let mut container = sidecar::base(&SidecarInputs {
        namespace: inputs.namespace,
        actor: inputs.actor,
        spec: inputs.spec,
        transport: inputs.transport,
        settings: inputs.settings,
        gateway: runtime.as_object().and_then(gateway_of),
        volumes: &BOUND_VOLUMES,
        further: &further,
    });
    if role.is_some()
        && let Some(mounts) = container["volumeMounts"].as_array_mut()
    {
        mounts.push(
            json!({"name": ROLE_TOKEN_VOLUME, "mountPath": ROLE_TOKEN_DIR, "readOnly": true}),
        );
    }
    if let Some(context) = inputs.spec.effective_sidecar().security_context {
        container["securityContext"] = context.clone();
    }
    debug_assert_eq!(container["name"], SIDECAR_CONTAINER);
    container
}

/// What Pod Security `restricted` requires, plus a read-only root file system (BIND-26).
fn security_context(user: Option<i64>) -> Value {
    let mut context = sidecar::restricted();
    context["readOnlyRootFilesystem"] = json!(true);
    context["runAsNonRoot"] = json!(true);
    if let Some(user) = user {
        context["runAsUser"] = json!(user);
    }
    context
}

/// Adds a variable unless the container has it.
fn add_default(container: &mut Value, variable: &EnvVar) {
    if let Some(env) = container["env"].as_array_mut()
        && env.iter().all(|entry| entry["name"] != *variable.name)
    {
        env.push(json!(variable));
    }
}

/// Sets the value of a variable that the container already has as a placeholder.
fn set(container: &mut Value, name: &str, value: &str) {
    let env = container["env"].as_array_mut().into_iter().flatten();
    for entry in env.filter(|entry| entry["name"] == name) {
        *entry = json!(text(name, value));
    }
}
