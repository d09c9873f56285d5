//! `spec.timeout`.

use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::messages;

/// Time limits, in whole seconds.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct Timeout {
    /// Seconds that one message may take in the handler before the sidecar gives it up and sends it to
    /// error-end. Default 300; 0 sets no limit of its own. On SQS twice this value is also the queue's
    /// visibility timeout, unless the transport sets one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub processing: Option<i32>,
    /// Seconds that a pod has to finish its message when it is stopped. Default 30, also for 0. A
    /// terminationGracePeriodSeconds in the template wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub graceful_shutdown: Option<i32>,
    /// Seconds without progress after which an actor that is creating, updating or scaling up is shown as
    /// Degraded or WorkloadError with reason ProgressDeadlineExceeded. Default 600; 0 sets no limit.
    /// Where it is set, it also limits how long a pod may run without being Ready (else the operator's
    /// controller.unreadyDeadline, 5 minutes): for a model that loads long, set at least that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("self >= 0").message(messages::AT_LEAST_0))]
    pub progress: Option<i32>,
}
