//! Messages of the rules, each shown after its field path. The CRD's CEL rules and the validation rules share them.

/// VAL-1.
pub const TRANSPORT_MISSING: &str = "must name a configured transport";
/// VAL-2, BIND-10.
pub const ONE_MODE: &str = "set exactly one of workload and workloadRef";
/// VAL-12.
pub const MIN_ABOVE_MAX: &str = "minReplicas must not exceed maxReplicas";
/// VAL-12.
pub const AT_LEAST_0: &str = "must be >= 0";
/// VAL-12, for fields that cannot be 0.
pub const AT_LEAST_1: &str = "must be >= 1";
/// VAL-21.
pub const CONCURRENCY: &str = "must be from 1 to 256";
/// VAL-13.
pub const FORMULA_TARGET: &str = "target must be a number above 0";
/// VAL-13.
pub const METRIC_TYPE: &str = "use AverageValue or Value";
/// VAL-14.
pub const CLAIMS_NEED_STATEFUL_SET: &str = "only for kind StatefulSet";
/// VAL-14.
pub const CLAIMS_IMMUTABLE: &str = "is immutable";
/// BIND-11.
pub const RUNTIME_NEEDS_TARGET: &str = "spec.runtime needs spec.workloadRef";
/// BIND-12.
pub const BINDING_NEEDS_TARGET: &str = "spec.binding needs spec.workloadRef";
/// BIND-13.
pub const MODE_IMMUTABLE: &str = "cannot switch between workload and workloadRef; set queue.deletionPolicy to Retain, \
                                  which keeps the queue and its messages, then delete and recreate the AsyncActor";
/// BIND-14.
pub const TARGET_IMMUTABLE: &str = "workloadRef cannot change to another target; set queue.deletionPolicy to Retain, \
                                    which keeps the queue and its messages, then delete and recreate the AsyncActor";
/// BIND-15.
pub const API_VERSION: &str = "apiVersion must be group/version, for example apps/v1";
/// BIND-16.
pub const NO_JOBS: &str = "a queue worker never completes: Job and CronJob cannot be bound";
/// BIND-17.
pub const TEMPLATE_KIND: &str =
    "strategy Template needs a Deployment or StatefulSet without an owner; use Pod";
/// BIND-18.
pub const TEMPLATE_OPTIONS: &str = "strategy Template restarts pods at once and does not use admission: remove \
                                    rollout OnRestart and required";
/// BIND-19.
pub const TARGET_URL: &str = "targetURL must start with http:// or https:// and contain no user name and no space; \
                              pass credentials in runtime.env";
/// BIND-19.
pub const HANDLER: &str =
    "handler must be a dotted name of at least two parts, for example asya_adapters.openai_chat";
/// BIND-19.
pub const ENV_SOCKET_DIR: &str = "ASYA_SOCKET_DIR is set by the operator; remove it";
/// BIND-19.
pub const ENV_SOCKET_NAME: &str = "ASYA_SOCKET_NAME is set by the operator; remove it";
/// BIND-19.
pub const ENV_HANDLER: &str = "ASYA_HANDLER is set by the operator; use runtime.handler";
/// BIND-19.
pub const ENV_TARGET_URL: &str = "ASYA_TARGET_URL is set by the operator; use runtime.targetURL";
