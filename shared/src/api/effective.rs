//! Effective values: what the user set, else the default.

// Defaults are defined here only: the schema has none, and nothing writes them into a spec (API-2, API-3, API-4). A
// number below its minimum, possible only in an object older than the rules, counts as the minimum.

use std::time::Duration;

use serde_json::Value;
use thiserror::Error;

use super::{
    AdoptionPolicy, AdvancedScaling, AsyncActorSpec, Binding, BindingRollout, BindingStrategy,
    BoundRuntime, EnvVar, ImagePullPolicy, MetricType, Mode, Resources, Timeout, Workload,
    WorkloadKind, WorkloadRef, messages,
};

/// `workload.replicas`.
pub const REPLICAS: i32 = 1;
/// `workload.pythonExecutable` and `runtime.pythonExecutable`.
pub const PYTHON_EXECUTABLE: &str = "python3";
/// Maximum of `concurrency`.
pub const MAX_CONCURRENCY: i32 = 256;
/// `timeout.processing`, in seconds.
pub const PROCESSING_SECONDS: u32 = 300;
/// `timeout.gracefulShutdown`, in seconds.
pub const GRACEFUL_SHUTDOWN_SECONDS: u32 = 30;
/// `timeout.progress`, in seconds.
pub const PROGRESS_SECONDS: u32 = 600;
/// `scaling.minReplicas`.
pub const MIN_REPLICAS: i32 = 0;
/// `scaling.maxReplicas`.
pub const MAX_REPLICAS: i32 = 50;
/// `scaling.pollingInterval`, in seconds.
pub const POLLING_INTERVAL_SECONDS: u32 = 10;
/// `scaling.cooldownPeriod`, in seconds.
pub const COOLDOWN_SECONDS: u32 = 60;
/// `scaling.behavior.scaleDown.stabilizationWindowSeconds`.
pub const SCALE_DOWN_WINDOW_SECONDS: u64 = 300;
/// `scaling.queueLength`.
pub const QUEUE_LENGTH: i32 = 5;

/// A spec that sets neither or both of `workload` and `workloadRef`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{}", messages::ONE_MODE)]
pub struct ModeError;

/// Mode of an actor, with the settings of that mode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ModeSpec<'a> {
    /// The operator creates the workload.
    Standalone(&'a Workload),
    /// Another controller owns the workload.
    Binding(EffectiveBinding<'a>),
}

impl ModeSpec<'_> {
    /// Mode as shown in status.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self {
            Self::Standalone(_) => Mode::Standalone,
            Self::Binding(_) => Mode::Binding,
        }
    }
}

/// Settings of a binding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EffectiveBinding<'a> {
    /// The object to bind to.
    pub target: &'a WorkloadRef,
    /// How the sidecar gets into pods.
    pub strategy: BindingStrategy,
    /// Whether running pods without the sidecar are restarted.
    pub rollout: BindingRollout,
    /// Whether no pod may start without the sidecar.
    pub required: bool,
    /// Runtime container to add.
    pub runtime: EffectiveRuntime<'a>,
}

/// The runtime container of a binding. What is `None` depends on the configuration or the target's kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EffectiveRuntime<'a> {
    /// Image; `None`: the configured one.
    pub image: Option<&'a str>,
    /// Python interpreter in that image.
    pub python_executable: &'a str,
    /// Handler; `None`: the adapter of the target's kind.
    pub handler: Option<&'a str>,
    /// URL of the model; `None`: that of the target's kind.
    pub target_url: Option<&'a str>,
    /// Additional environment variables.
    pub env: &'a [EnvVar],
    /// Resources; `None`: the default of BIND-27.
    pub resources: Option<&'a Resources>,
}

/// The sidecar. What is `None` comes from the operator's configuration.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EffectiveSidecar<'a> {
    /// Image; `None`: the configured one.
    pub image: Option<&'a str>,
    /// When the kubelet pulls it.
    pub image_pull_policy: ImagePullPolicy,
    /// Resources; `None`: the configured ones.
    pub resources: Option<&'a Resources>,
    /// Additional environment variables.
    pub env: &'a [EnvVar],
    /// Whether it runs as an init container with restart policy Always.
    pub native: bool,
    /// Security context; `None`: the default of POD-1.
    pub security_context: Option<&'a Value>,
}

/// Time limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectiveTimeout {
    /// Seconds for one message; `None`: no limit.
    pub processing: Option<u32>,
    /// Seconds for a pod to stop.
    pub graceful_shutdown: u32,
    /// Seconds without progress; `None`: no limit.
    pub progress: Option<u32>,
}

impl EffectiveTimeout {
    /// Seconds for one message as assumed by a broker, which always needs a number (SQS-3).
    #[must_use]
    pub fn processing_for_broker(&self) -> u32 {
        self.processing.unwrap_or(PROCESSING_SECONDS)
    }
}

/// Scaling that is switched on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EffectiveScaling<'a> {
    /// Minimum number of pods.
    pub min_replicas: i32,
    /// Maximum number of pods.
    pub max_replicas: i32,
    /// Seconds between two checks of the queue.
    pub polling_interval: u32,
    /// Seconds without messages before the last pod is removed.
    pub cooldown_period: u32,
    /// Seconds after the `ScaledObject`'s creation without scaling to zero; `None`: not set.
    pub initial_cooldown_period: Option<u32>,
    /// Target number of messages per pod.
    pub queue_length: i32,
    /// The first pod starts above this number of messages.
    pub activation_queue_length: i32,
    /// Whether messages in flight count.
    pub count_in_flight: bool,
    /// Scaling by a formula.
    pub advanced: Option<&'a AdvancedScaling>,
    /// Behavior of the HPA.
    pub behavior: Option<&'a Value>,
    /// KEDA's fallback.
    pub fallback: Option<&'a Value>,
}

impl EffectiveScaling<'_> {
    /// Seconds of lower load before the HPA removes a pod. The default is that of Kubernetes.
    #[must_use]
    pub fn scale_down_window(&self) -> u64 {
        let window = "/scaleDown/stabilizationWindowSeconds";
        let given = self.behavior.and_then(|it| it.pointer(window));
        given
            .and_then(Value::as_u64)
            .unwrap_or(SCALE_DOWN_WINDOW_SECONDS)
    }
}

impl Timeout {
    /// Fills in defaults for absent values.
    #[must_use]
    pub fn effective(&self) -> EffectiveTimeout {
        EffectiveTimeout {
            processing: limit(self.processing, PROCESSING_SECONDS),
            graceful_shutdown: limit(self.graceful_shutdown, GRACEFUL_SHUTDOWN_SECONDS)
                .unwrap_or(GRACEFUL_SHUTDOWN_SECONDS),
            progress: limit(self.progress, PROGRESS_SECONDS),
        }
    }
}

impl AsyncActorSpec {
    /// How many messages a pod processes at a time, if the user sets it. A number out of range counts as the nearest.
    #[must_use]
    pub fn effective_concurrency(&self) -> Option<i32> {
        self.concurrency.map(|it| it.clamp(1, MAX_CONCURRENCY))
    }

    /// Returns the actor's mode. Nothing else decides it.
    ///
    /// # Errors
    /// When neither or both of `workload` and `workloadRef` are set.
    pub fn mode(&self) -> Result<ModeSpec<'_>, ModeError> {
        match (&self.workload, &self.workload_ref) {
            (Some(workload), None) => Ok(ModeSpec::Standalone(workload)),
            (None, Some(target)) => Ok(ModeSpec::Binding(self.binding_to(target))),
            (None, None) | (Some(_), Some(_)) => Err(ModeError),
        }
    }

    fn binding_to<'a>(&'a self, target: &'a WorkloadRef) -> EffectiveBinding<'a> {
        let binding: Option<&Binding> = self.binding.as_ref();
        let runtime: Option<&BoundRuntime> = self.runtime.as_ref();
        EffectiveBinding {
            target,
            strategy: binding.and_then(|it| it.strategy).unwrap_or_default(),
            rollout: binding.and_then(|it| it.rollout).unwrap_or_default(),
            required: binding.and_then(|it| it.required).unwrap_or(false),
            runtime: EffectiveRuntime {
                image: runtime.and_then(|it| non_empty(it.image.as_ref())),
                python_executable: runtime
                    .and_then(|it| non_empty(it.python_executable.as_ref()))
                    .unwrap_or(PYTHON_EXECUTABLE),
                handler: runtime.and_then(|it| non_empty(it.handler.as_ref())),
                target_url: runtime.and_then(|it| non_empty(it.target_url.as_ref())),
                env: runtime.and_then(|it| it.env.as_deref()).unwrap_or_default(),
                resources: runtime.and_then(|it| it.resources.as_ref()),
            },
        }
    }

    /// The sidecar.
    #[must_use]
    pub fn effective_sidecar(&self) -> EffectiveSidecar<'_> {
        let sidecar = self.sidecar.as_ref();
        EffectiveSidecar {
            image: sidecar.and_then(|it| non_empty(it.image.as_ref())),
            image_pull_policy: sidecar
                .and_then(|it| it.image_pull_policy)
                .unwrap_or_default(),
            resources: sidecar.and_then(|it| it.resources.as_ref()),
            env: sidecar.and_then(|it| it.env.as_deref()).unwrap_or_default(),
            native: sidecar.and_then(|it| it.native).unwrap_or(false),
            security_context: sidecar.and_then(|it| it.security_context.as_ref()),
        }
    }

    /// Time limits.
    #[must_use]
    pub fn effective_timeout(&self) -> EffectiveTimeout {
        self.timeout
            .as_ref()
            .map_or_else(|| Timeout::default().effective(), Timeout::effective)
    }

    /// How long a pod may run without being Ready: `timeout.progress` where the actor sets it, because a large model
    /// may load for an hour; else `default`. `None` means no limit.
    #[must_use]
    pub fn readiness_limit(&self, default: Option<Duration>) -> Option<Duration> {
        let progress = self.timeout.as_ref().and_then(|it| it.progress);
        match progress {
            Some(seconds) => limit(Some(seconds), 0).map(|it| Duration::from_secs(it.into())),
            None => default,
        }
    }

    /// Scaling; `None` while it is off.
    #[must_use]
    pub fn effective_scaling(&self) -> Option<EffectiveScaling<'_>> {
        let scaling = self
            .scaling
            .as_ref()
            .filter(|it| it.enabled == Some(true))?;
        let cooldown_period = scaling.cooldown_period.map_or(COOLDOWN_SECONDS, seconds);
        // KEDA counts cooldownPeriod from the last message, and immediately scales to 0 what never had one: a model
        // that serves requests gets the same time first.
        let initial = self.workload_ref.is_some().then_some(cooldown_period);
        Some(EffectiveScaling {
            min_replicas: scaling.effective_min_replicas(),
            max_replicas: scaling.effective_max_replicas(),
            polling_interval: limit(scaling.polling_interval, POLLING_INTERVAL_SECONDS)
                .unwrap_or(POLLING_INTERVAL_SECONDS),
            cooldown_period,
            initial_cooldown_period: scaling.initial_cooldown_period.map(seconds).or(initial),
            queue_length: scaling.queue_length.unwrap_or(QUEUE_LENGTH).max(1),
            activation_queue_length: scaling.activation_queue_length.unwrap_or(0).max(0),
            count_in_flight: scaling.count_in_flight.unwrap_or(true),
            advanced: scaling.advanced.as_ref(),
            behavior: scaling.behavior.as_ref(),
            fallback: scaling.fallback.as_ref(),
        })
    }

    /// Which existing objects of a needed name the operator may adopt.
    #[must_use]
    pub fn effective_adoption_policy(&self) -> AdoptionPolicy {
        self.adoption_policy.unwrap_or_default()
    }
}

impl super::Scaling {
    /// Minimum number of pods, even while scaling is off.
    #[must_use]
    pub fn effective_min_replicas(&self) -> i32 {
        self.min_replicas.unwrap_or(MIN_REPLICAS).max(0)
    }

    /// Maximum number of pods, even while scaling is off.
    #[must_use]
    pub fn effective_max_replicas(&self) -> i32 {
        self.max_replicas.unwrap_or(MAX_REPLICAS).max(1)
    }
}

impl Workload {
    /// Kind of the workload.
    #[must_use]
    pub fn effective_kind(&self) -> WorkloadKind {
        self.kind.unwrap_or_default()
    }

    /// Number of pods while scaling is off.
    #[must_use]
    pub fn effective_replicas(&self) -> i32 {
        self.replicas.unwrap_or(REPLICAS).max(0)
    }

    /// Python interpreter of the runtime.
    #[must_use]
    pub fn effective_python_executable(&self) -> &str {
        non_empty(self.python_executable.as_ref()).unwrap_or(PYTHON_EXECUTABLE)
    }
}

impl AdvancedScaling {
    /// The formula and its target, if a formula is set.
    #[must_use]
    pub fn effective_formula(&self) -> Option<(&str, &str)> {
        non_empty(self.formula.as_ref()).zip(non_empty(self.target.as_ref()))
    }

    /// How the formula's value is compared with its target.
    #[must_use]
    pub fn effective_metric_type(&self) -> MetricType {
        self.metric_type.unwrap_or_default()
    }
}

/// Templating tools render an empty string for an unset value.
fn non_empty(text: Option<&String>) -> Option<&str> {
    text.map(String::as_str).filter(|it| !it.is_empty())
}

fn seconds(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// A time limit; 0 means none.
fn limit(value: Option<i32>, default: u32) -> Option<u32> {
    Some(value.map_or(default, seconds)).filter(|it| *it > 0)
}
