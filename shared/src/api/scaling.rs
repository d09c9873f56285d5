//! `spec.scaling`.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::messages;
use super::rules::unless_broken_before;

/// Scales the workload by the depth of its queue, through KEDA.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, KubeSchema)]
#[serde(rename_all = "camelCase")]
// VAL-12, with the defaults of `effective.rs`.
#[x_kube(validation = unless_broken_before(
    "(has(self.minReplicas) ? self.minReplicas : 0) <= (has(self.maxReplicas) ? self.maxReplicas : 50)"
).message(messages::MIN_ABOVE_MAX).field_path(".minReplicas"))]
pub struct Scaling {
    /// Lets the depth of the queue decide the number of pods. Default: false; then workload.replicas decides, or with
    /// workloadRef the target itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Minimum number of pods. Default: 0, so that an actor without messages has no pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub min_replicas: Option<i32>,
    /// Maximum number of pods. Default: 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1").message(messages::AT_LEAST_1))]
    pub max_replicas: Option<i32>,
    /// Seconds between two checks of the queue while there are no pods. Default: 10; 0 means the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub polling_interval: Option<i32>,
    /// Seconds without messages before the last pod is removed. Default: 60; 0 means no wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub cooldown_period: Option<i32>,
    /// Seconds after the creation of the ScaledObject in which it does not scale to 0. Default: none; with workloadRef,
    /// the value of cooldownPeriod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub initial_cooldown_period: Option<i32>,
    /// Target number of messages per pod. Default: 5; 20 messages then ask for 4 pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 1").message(messages::AT_LEAST_1))]
    pub queue_length: Option<i32>,
    /// Starts the first pod when the queue holds more messages than this. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub activation_queue_length: Option<i32>,
    /// Also counts the messages that pods are processing. Default: true, so that the last pod is not removed while it
    /// processes a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count_in_flight: Option<bool>,
    /// Scales by a formula instead of the depth of the queue, and decides what happens when scaling is switched off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advanced: Option<AdvancedScaling>,
    /// Scaling behavior of the HorizontalPodAutoscaler: scaleUp, scaleDown or both, with the same fields. Each of the
    /// two replaces the operator's default. Default scaleUp: immediately, 10 pods or 100 % per 15 s, whichever is more.
    /// Default scaleDown: after 300 s of lower load, 1 pod or 50 % per 60 s, whichever is more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::schema::optional_object")]
    pub behavior: Option<Value>,
    /// Sets the number of replicas while KEDA cannot read the queue, as in a ScaledObject. Example: {failureThreshold:
    /// 3, replicas: 2}.
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
    /// Computes the value to scale by from the trigger queueLength, for example "queueLength * 2". It needs a target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub formula: Option<String>,
    /// Target value of the formula, per pod unless metricType is Value: a number above 0, as text, for example "10".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub target: Option<String>,
    /// Starts the first pod when the formula's value exceeds this number, given as text. Default: "0".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activation_target: Option<String>,
    /// Decides how the formula's value is compared with the target. AverageValue (the default): divided by the number
    /// of pods. Value: as it is. Utilization is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    // KEDA has no utilization of a formula's value (VAL-13).
    #[x_kube(validation = Rule::new("self != 'Utilization'").message(messages::METRIC_TYPE))]
    pub metric_type: Option<MetricType>,
    /// Restores the number of pods from before scaling when scaling is switched off. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_to_original_replica_count: Option<bool>,
}

/// How the formula's value is compared with the target.
// Utilization was in the Go operator's schema; a rule refuses it with a helpful message (VAL-13).
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
