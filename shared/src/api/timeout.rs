//! `spec.timeout`.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::messages;

/// Time limits, in whole seconds.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeout {
    /// Seconds that the handler may spend on one message; then the sidecar gives up and sends the message to error-end.
    /// Default: 300; 0 leaves the limit to the sidecar. On SQS the limit is at most 43200, and the queue's visibility
    /// timeout is twice this value (0 counts as 300), at most 43200, unless the transport sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub processing: Option<i32>,
    /// Seconds that a pod has to finish its message when it is stopped. Default: 30; 0 means the default. A
    /// terminationGracePeriodSeconds in the pod template takes precedence, and with workloadRef the pods keep their own
    /// grace period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub graceful_shutdown: Option<i32>,
    /// Seconds without progress after which an actor that is Creating, Updating or ScalingUp becomes Degraded or
    /// WorkloadError, with reason ProgressDeadlineExceeded. Default: 600; 0 sets no limit. If set, it also limits how
    /// long a pod may run without being Ready; otherwise the operator's controller.unreadyDeadline does (5 minutes by
    /// default). For a model that loads slowly, set at least its loading time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub progress: Option<i32>,
}
