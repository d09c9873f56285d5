//! `spec.scaling`.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::messages;
use super::rules::unless_broken_before;

/// Scaling by the depth of the queue, done by KEDA.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
// VAL-12, with the defaults of `in_force`.
#[x_kube(validation = unless_broken_before(
    "(has(self.minReplicas) ? self.minReplicas : 0) <= (has(self.maxReplicas) ? self.maxReplicas : 50)"
).message(messages::MIN_ABOVE_MAX).field_path(".minReplicas"))]
pub struct Scaling {
    /// Whether the queue decides the number of pods. Default false: then workload.replicas does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Fewest pods. Default 0: an actor without messages has no pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub min_replicas: Option<i32>,
    /// Most pods. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1").message(messages::AT_LEAST_1))]
    pub max_replicas: Option<i32>,
    /// Seconds between two looks at the queue while there are no pods. Default 10, also for 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub polling_interval: Option<i32>,
    /// Seconds without messages before the last pod goes. Default 60; 0 is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub cooldown_period: Option<i32>,
    /// Seconds after scaling begins in which there is no scaling to 0. Default: none; with workloadRef,
    /// cooldownPeriod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub initial_cooldown_period: Option<i32>,
    /// Messages per pod that scaling aims at. Default 5: 20 messages ask for 4 pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1").message(messages::AT_LEAST_1))]
    pub queue_length: Option<i32>,
    /// The first pod starts when the queue holds more messages than this. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub activation_queue_length: Option<i32>,
    /// Whether messages that a pod is working on count. Default true, so that no pod is stopped in its work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_in_flight: Option<bool>,
    /// Scaling by a formula, and what happens when scaling is switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advanced: Option<AdvancedScaling>,
    /// Scaling behaviour of the HorizontalPodAutoscaler: scaleUp, scaleDown or both, as there; the half that is
    /// given replaces the operator's. Default up: 10 pods or 100 % in 15 s; down: 1 pod or 50 % in 60 s, after
    /// 300 s of less load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::optional_object")]
    pub behavior: Option<Value>,
    /// Replicas to fall back to while KEDA cannot read the queue, as in a ScaledObject. Example:
    /// {failureThreshold: 3, replicas: 2}.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::optional_object")]
    pub fallback: Option<Value>,
}

/// Scaling by a formula (KEDA's scaling modifiers).
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    // VAL-13. Text, as KEDA reads it: digits with an optional fraction and exponent; before the
    // exponent one digit is not 0.
    validation = Rule::new(
        "!has(self.formula) || self.formula == '' || (has(self.target) && self.target.matches('^([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]+)?$') && self.target.matches('^[^eE]*[1-9]'))"
    )
    .message(messages::FORMULA_TARGET)
    .field_path(".target")
)]
pub struct AdvancedScaling {
    /// Formula over the trigger queueLength whose value is scaled by, for example "queueLength * 2". It needs a
    /// target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formula: Option<String>,
    /// Value of the formula per pod that scaling aims at: a number above 0, as text, for example "10".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub target: Option<String>,
    /// The first pod starts when the formula's value exceeds this number, as text. Default "0".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_target: Option<String>,
    /// How the formula's value is read: AverageValue (the default) divides it by the number of pods, Value takes
    /// it as it is. Utilization is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // VAL-13
    #[x_kube(validation = Rule::new("self != 'Utilization'").message(messages::METRIC_TYPE))]
    pub metric_type: Option<MetricType>,
    /// Whether the number of pods goes back to what it was when scaling is switched off. Default false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_to_original_replica_count: Option<bool>,
}

/// How the formula's value is read.
// Utilization was in the former operator's schema; a rule refuses it with a text that helps (VAL-13).
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema)]
#[schemars(transform = super::schema::without_description)]
pub enum MetricType {
    /// Divided by the number of pods.
    #[default]
    AverageValue,
    /// As it is.
    Value,
    /// Refused.
    Utilization,
}
