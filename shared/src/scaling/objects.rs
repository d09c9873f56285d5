//! The `ScaledObject`, its `TriggerAuthentication`, and the `ConfigMap` that the latter reads besides Secrets.

use serde_json::{Map, Value, json};

use super::{Authentication, KEDA_GROUP, KEDA_VERSION, Trigger, TriggerError, TriggerRequest};
use crate::api::{AdvancedScaling, EffectiveScaling, WorkloadKind};
use crate::applied::{HashedManifest, child_labels, owner_reference};
use crate::config::{QueueNames, Transport};
use crate::hash;
use crate::names::{TRANSPORT_CONFIG_MAP, TRIGGER_NAME, annotation, label};

/// KEDA prefixes the HPA's name with `keda-hpa-`, and the result may have at most 63 characters.
const LONGEST_NAME_FOR_DEFAULT_HPA: usize = 54;

/// Inputs of [`scaling_objects`].
#[derive(Clone, Copy, Debug)]
pub struct ScalingInputs<'a> {
    /// Namespace of the actor.
    pub namespace: &'a str,
    /// Name of the actor.
    pub actor: &'a str,
    /// UID of the actor.
    pub uid: &'a str,
    /// The actor's scaling settings.
    pub scaling: EffectiveScaling<'a>,
    /// The object to scale.
    pub target: ScaleTarget<'a>,
    /// The transport of the actor's queue.
    pub transport: &'a Transport,
    /// Names of the actor's queues.
    pub names: &'a QueueNames,
    /// The queue's URL as returned by the broker, if the broker uses URLs.
    pub queue_url: Option<&'a str>,
}

/// The object to scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScaleTarget<'a> {
    /// Group and version.
    pub api_version: &'a str,
    /// Kind; KEDA defaults to Deployment.
    pub kind: &'a str,
    /// Name of the object.
    pub name: &'a str,
}

impl<'a> ScaleTarget<'a> {
    /// The workload that we create for an actor.
    #[must_use]
    pub fn workload(kind: WorkloadKind, actor: &'a str) -> Self {
        Self {
            api_version: "apps/v1",
            kind: kind.name(),
            name: actor,
        }
    }
}

/// All objects that scaling an actor needs, in the order in which they are applied.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingObjects {
    /// Non-secret parameters for KEDA. All actors of the transport in the namespace share it, so it has no owner
    /// reference.
    pub config_map: Option<HashedManifest>,
    /// Credentials for KEDA.
    pub trigger_authentication: Option<HashedManifest>,
    /// The scale target and the trigger.
    pub scaled_object: HashedManifest,
}

impl ScalingObjects {
    /// Makes KEDA pause scaling of the workload (CONF-4).
    pub fn pause(&mut self) {
        let mut object = self.scaled_object.object.clone();
        let annotations = &mut object["metadata"]["annotations"];
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.remove(annotation::APPLIED_HASH);
        }
        annotations[annotation::KEDA_PAUSED] = Value::from("true");
        self.scaled_object = HashedManifest::new(object);
    }
}

/// Renders the objects.
///
/// # Errors
/// When a value that KEDA needs is not known (KEDA-4).
pub fn scaling_objects(inputs: &ScalingInputs<'_>) -> Result<ScalingObjects, TriggerError> {
    let trigger = inputs.transport.broker().trigger(&TriggerRequest {
        queue: &inputs.names.queue,
        queue_url: inputs.queue_url,
        queue_length: inputs.scaling.queue_length,
        activation_queue_length: inputs.scaling.activation_queue_length,
        count_in_flight: inputs.scaling.count_in_flight,
    })?;
    let authentication = trigger.authentication.as_ref();
    let settings = authentication.filter(|it| !it.settings.is_empty());
    Ok(ScalingObjects {
        config_map: settings.map(|it| HashedManifest::new(config_map(inputs, it))),
        trigger_authentication: authentication
            .map(|it| HashedManifest::new(trigger_authentication(inputs, it))),
        scaled_object: HashedManifest::new(scaled_object(inputs, &trigger)),
    })
}

/// Name of an actor's `TriggerAuthentication`.
#[must_use]
pub fn trigger_authentication_name(actor: &str) -> String {
    format!("{actor}-trigger-auth")
}

/// Name of a transport's `ConfigMap`. A transport can have any name, an object cannot.
#[must_use]
pub fn transport_config_map_name(transport: &str) -> String {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fits = (1..=200).contains(&transport.len())
        && transport.chars().all(legal)
        && !transport.ends_with('-');
    if fits {
        format!("{TRANSPORT_CONFIG_MAP}-{transport}")
    } else {
        let hash = hash::of_bytes(transport.as_bytes());
        format!("{TRANSPORT_CONFIG_MAP}-{hash}")
    }
}

/// Name of the HPA that KEDA creates for an actor.
#[must_use]
pub fn hpa_name(actor: &str) -> String {
    own_hpa_name(actor).map_or_else(|| format!("keda-hpa-{actor}"), str::to_owned)
}

/// The HPA name to set explicitly, where KEDA's default would be too long.
fn own_hpa_name(actor: &str) -> Option<&str> {
    (actor.len() > LONGEST_NAME_FOR_DEFAULT_HPA).then_some(actor)
}

fn config_map(inputs: &ScalingInputs<'_>, authentication: &Authentication) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": transport_config_map_name(&inputs.transport.name),
            "namespace": inputs.namespace,
            "labels": {
                label::NAME: TRANSPORT_CONFIG_MAP,
                label::COMPONENT: TRANSPORT_CONFIG_MAP,
                label::PART_OF: "asya",
            },
        },
        "data": authentication.settings,
    })
}

fn trigger_authentication(inputs: &ScalingInputs<'_>, authentication: &Authentication) -> Value {
    let mut spec = Map::new();
    if !authentication.settings.is_empty() {
        let name = transport_config_map_name(&inputs.transport.name);
        let references = authentication
            .settings
            .keys()
            .map(|key| json!({"parameter": key, "name": name, "key": key}))
            .collect();
        spec.insert("configMapTargetRef".to_owned(), Value::Array(references));
    }
    if !authentication.secrets.is_empty() {
        let references = authentication
            .secrets
            .iter()
            .map(|(parameter, secret)| {
                json!({"parameter": parameter, "name": secret.name, "key": secret.key})
            })
            .collect();
        spec.insert("secretTargetRef".to_owned(), Value::Array(references));
    }
    if !authentication.pod_identity.is_empty() {
        let identity = Value::Object(authentication.pod_identity.clone());
        spec.insert("podIdentity".to_owned(), identity);
    }
    json!({
        "apiVersion": format!("{KEDA_GROUP}/{KEDA_VERSION}"),
        "kind": "TriggerAuthentication",
        "metadata": {
            "name": trigger_authentication_name(inputs.actor),
            "namespace": inputs.namespace,
            "labels": child_labels(inputs.actor),
            "ownerReferences": [owner_reference(inputs.actor, inputs.uid)],
        },
        "spec": spec,
    })
}

fn scaled_object(inputs: &ScalingInputs<'_>, trigger: &Trigger) -> Value {
    let (scaling, target) = (&inputs.scaling, inputs.target);
    let mut spec = json!({
        "scaleTargetRef": {"apiVersion": target.api_version, "kind": target.kind, "name": target.name},
        "minReplicaCount": scaling.min_replicas,
        "maxReplicaCount": scaling.max_replicas,
        "pollingInterval": scaling.polling_interval,
        "cooldownPeriod": scaling.cooldown_period,
        "advanced": advanced(inputs),
        "triggers": [{"type": trigger.kind, "name": TRIGGER_NAME, "metadata": trigger.metadata}],
    });
    // KEDA's default, which KEDA up to 2.16 removes when it adds its finalizer.
    if let Some(seconds) = scaling
        .initial_cooldown_period
        .filter(|seconds| *seconds > 0)
    {
        spec["initialCooldownPeriod"] = Value::from(seconds);
    }
    if let Some(fallback) = scaling.fallback {
        spec["fallback"] = fallback.clone();
    }
    if trigger.authentication.is_some() {
        let name = trigger_authentication_name(inputs.actor);
        spec["triggers"][0]["authenticationRef"] = json!({"name": name});
    }
    json!({
        "apiVersion": format!("{KEDA_GROUP}/{KEDA_VERSION}"),
        "kind": "ScaledObject",
        "metadata": {
            "name": inputs.actor,
            "namespace": inputs.namespace,
            // KEDA copies labels to the HPA, on which it sets managed-by itself
            "labels": {label::ASYA: inputs.actor, label::ACTOR: inputs.actor},
            "ownerReferences": [owner_reference(inputs.actor, inputs.uid)],
        },
        "spec": spec,
    })
}

fn advanced(inputs: &ScalingInputs<'_>) -> Value {
    let mut hpa = json!({"behavior": behavior(inputs.scaling.behavior)});
    if let Some(name) = own_hpa_name(inputs.actor) {
        hpa["name"] = Value::from(name);
    }
    let mut advanced = json!({"horizontalPodAutoscalerConfig": hpa});
    let Some(settings) = inputs.scaling.advanced else {
        return advanced;
    };
    if settings.restore_to_original_replica_count == Some(true) {
        advanced["restoreToOriginalReplicaCount"] = Value::from(true);
    }
    if let Some(modifiers) = modifiers(settings) {
        advanced["scalingModifiers"] = modifiers;
    }
    advanced
}

/// The formula refers to the trigger by name (KEDA-3).
fn modifiers(settings: &AdvancedScaling) -> Option<Value> {
    let (formula, target) = settings.effective_formula()?;
    let metric_type = settings.effective_metric_type();
    let mut modifiers = json!({"formula": formula, "target": target, "metricType": metric_type});
    let activation = settings.activation_target.as_deref();
    if let Some(activation) = activation.filter(|it| !it.is_empty()) {
        modifiers["activationTarget"] = Value::from(activation);
    }
    Some(modifiers)
}

/// Scales from 0 to 50 pods within a minute, and down slowly (KEDA-2). A half that the user sets replaces ours;
/// everything else is passed through, so that the API server reports what it rejects.
fn behavior(given: Option<&Value>) -> Value {
    let mut behavior = json!({
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Pods", "value": 10, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 300,
            "selectPolicy": "Max",
            "policies": [
                {"type": "Pods", "value": 1, "periodSeconds": 60},
                {"type": "Percent", "value": 50, "periodSeconds": 60},
            ],
        },
    });
    for (half, rules) in given.and_then(Value::as_object).into_iter().flatten() {
        if !rules.is_null() {
            behavior[half.as_str()] = rules.clone();
        }
    }
    behavior
}
