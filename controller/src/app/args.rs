//! Flags and environment variables (OPS-1, OPS-2). An invalid value fails startup with an error that names it.

use std::path::PathBuf;
use std::time::Duration;

use std::ffi::OsStr;

use asya_process::flags::InstallationFlags;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, CommandFactory, Parser};

use crate::admission::flags::WebhookConfigFlags;
use crate::certificates::flags::CertificateFlags;
use crate::flags::interval;

/// The controller of Asya's `AsyncActors`.
#[derive(Parser, Debug)]
#[command(name = "asya-controller", version)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub struct Args {
    /// Polls these URLs (http://host:port/readyz), separated by commas, until all report ready, then exits; fails after
    /// one minute.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub check: Vec<String>,

    /// Exits with an error while any actor with the operator's finalizer is left, because its deletion needs the
    /// operator; does nothing else.
    #[arg(long, default_value_t = false)]
    pub check_uninstall: bool,

    /// With --check-uninstall: the command to suggest for making Helm upgrade the release again, because Helm considers
    /// a release whose uninstall was refused to be uninstalling.
    #[arg(
        long,
        default_value = "helm rollback RELEASE REVISION",
        value_name = "COMMAND"
    )]
    pub helm_rollback: String,

    /// Address that serves /metrics.
    #[arg(long, default_value = ":8080")]
    pub metrics_bind_address: String,

    /// Address that serves /healthz and /readyz.
    #[arg(long, default_value = ":8081")]
    pub health_probe_bind_address: String,

    /// Elects a leader among the replicas; only the leader writes.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,

    /// Namespace that keeps the runtime script's `ConfigMap` even without actors (default: the operator's own).
    #[arg(long, env = "ASYA_RUNTIME_NAMESPACE")]
    pub runtime_namespace: Option<String>,

    /// Maximum number of concurrent reconciles.
    #[arg(long, env = "ASYA_MAX_CONCURRENT_RECONCILES", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_concurrent_reconciles: u16,

    /// Path of a kubeconfig file (default: the pod's service account, else KUBECONFIG).
    #[arg(long)]
    pub kubeconfig: Option<String>,

    /// Log level: error, warn, info, debug or trace; or a filter by module.
    #[arg(long, alias = "zap-log-level", default_value = "info", value_parser = asya_process::logs::level)]
    pub log_level: String,

    /// Namespaces whose actors are reconciled, separated by commas (default: all).
    #[arg(long, value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,

    /// File with the namespaces whose actors are reconciled, one per line; read again when it changes.
    #[arg(long, conflicts_with = "watch_namespaces")]
    pub watch_namespaces_file: Option<PathBuf>,

    /// Interval after which an actor is reconciled even without an event; 0 means never.
    #[arg(long, default_value = "10h", value_parser = interval)]
    pub max_reconcile_interval: Duration,

    /// Minimum time between two reconciles of one actor.
    #[arg(long, default_value = "1s", value_parser = interval)]
    pub min_reconcile_interval: Duration,

    /// Delay before the first retry of a failed reconcile.
    #[arg(long, default_value = "1s", value_parser = interval)]
    pub retry_initial: Duration,

    /// Factor by which each further failure multiplies that delay.
    #[arg(long, default_value_t = 2.0)]
    pub retry_multiplier: f64,

    /// Maximum delay before a retry.
    #[arg(long, default_value = "5m", value_parser = interval)]
    pub retry_max: Duration,

    /// Maximum number of retries of a failed reconcile; after that, only an event starts the next one. 0 means
    /// unlimited.
    #[arg(long, default_value_t = 0)]
    pub retry_attempts: u32,

    /// Time after which a running pod that is not ready makes its actor Degraded; 0 means never.
    #[arg(long, default_value = "5m", value_parser = interval)]
    pub unready_deadline: Duration,

    /// Time after which an HPA without metrics makes its actor report `ScalingError`; 0 means never.
    #[arg(long, default_value = "2m", value_parser = interval)]
    pub hpa_metrics_deadline: Duration,

    /// Base of the backoff before the operator restores a field that another field manager changed; doubled each time,
    /// at most 5m.
    #[arg(long, default_value = "5s", value_parser = interval)]
    pub conflict_wait: Duration,

    /// Applies children, and writes to bound targets, as the `ServiceAccount` asya-applier of their namespace.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub impersonate: bool,

    /// Lets the leader apply the CRD.
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub manage_crds: bool,

    /// Transports and settings of pods.
    #[command(flatten)]
    pub installation: InstallationFlags,

    /// Path of the runtime script, in place of the embedded one.
    #[arg(long, env = "ASYA_RUNTIME_SCRIPT_PATH")]
    pub runtime_script_path: Option<String>,

    /// Path of the runtime script for development; --runtime-script-path takes precedence.
    #[arg(long, env = "ASYA_RUNTIME_LOCAL_PATH")]
    pub runtime_local_path: Option<String>,

    /// Interval of the health check of every queue; 0 means never.
    #[arg(long, env = "ASYA_QUEUE_HEALTH_CHECK_INTERVAL", default_value = "5m", value_parser = interval)]
    pub queue_health_check_interval: Duration,

    /// Interval at which the messages of actors with replicas are counted; 0 means never.
    #[arg(long, env = "ASYA_QUEUE_METRICS_INTERVAL", default_value = "30s", value_parser = interval)]
    pub queue_metrics_interval: Duration,

    /// Never creates, changes or deletes queues.
    #[arg(long, env = "ASYA_DISABLE_QUEUE_MANAGEMENT", default_value = "false", value_parser = yes_or_no, action = ArgAction::Set)]
    pub disable_queue_management: bool,

    /// Maximum number of bound targets whose pods are replaced at the same time, in the whole cluster; at most half of
    /// it, rounded up, in one namespace.
    #[arg(long, default_value_t = 3)]
    pub max_rollouts: u16,

    /// Maximum number of actors' own workloads that are rolled out at the same time because the installation changed,
    /// in the whole cluster.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_workload_rollouts: u16,

    /// Certificates of the webhook.
    #[command(flatten)]
    pub certificates: CertificateFlags,

    /// Webhook configurations.
    #[command(flatten)]
    pub webhook_configs: WebhookConfigFlags,

    /// Namespace of the operator.
    #[arg(long, env = "POD_NAMESPACE", default_value = "asya-system")]
    pub namespace: String,

    /// Name of the pod; part of the identity in leader election.
    #[arg(long, env = "POD_NAME", default_value = "asya-controller")]
    pub pod_name: String,
}

impl Args {
    /// Parses the command line and environment; exits if a value is invalid.
    #[must_use]
    pub fn read() -> Self {
        Self::try_parse().unwrap_or_else(|error| {
            let given = |flag: &str| std::env::args().any(|argument| argument.starts_with(flag));
            let set = |variable: &OsStr| std::env::var_os(variable).is_some();
            with_its_source(error, given, set).exit()
        })
    }
}

/// clap reports the flag of an invalid value even if the value came from an environment variable: name the variable as
/// well.
fn with_its_source(
    mut error: clap::Error,
    given: impl Fn(&str) -> bool,
    set: impl Fn(&OsStr) -> bool,
) -> clap::Error {
    let Some(ContextValue::String(flag_usage)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let flag = flag_usage.split(' ').next().unwrap_or_default();
    let command = Args::command();
    let mut args = command.get_arguments();
    let matching =
        args.find(|arg| Some(flag) == arg.get_long().map(|name| format!("--{name}")).as_deref());
    let variable = matching.and_then(Arg::get_env).filter(|name| set(name));
    if let Some(variable) = variable.filter(|_| !given(flag)) {
        let source = format!("{}, that is {flag_usage}", variable.display());
        error.insert(ContextKind::InvalidArg, ContextValue::String(source));
    }
    error
}

/// Accepts any case, and the empty string that a chart renders for an unset value (QUE-12).
fn yes_or_no(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" | "" => Ok(false),
        _ => Err("must be true, 1, false or 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Args, interval, with_its_source, yes_or_no};
    use clap::{CommandFactory, Parser};

    #[test]
    fn flags_are_consistent() {
        Args::command().debug_assert();
    }

    /// OPS-1
    #[test]
    fn existing_flags_are_accepted() {
        let args = Args::try_parse_from([
            "asya-controller",
            "--metrics-bind-address=:8080",
            "--health-probe-bind-address=127.0.0.1:8081",
            "--leader-elect",
            "--zap-log-level=debug",
            "--max-concurrent-reconciles=50",
            "--watch-namespaces=a,b",
        ])
        .unwrap();
        assert!(args.leader_elect && args.manage_crds);
        assert_eq!(args.metrics_bind_address, ":8080");
        assert_eq!(args.log_level, "debug");
        assert_eq!(args.watch_namespaces, ["a", "b"]);
    }

    /// OPS-2
    #[test]
    fn invalid_values_are_rejected_by_name() {
        for bad in [
            "--max-concurrent-reconciles=0",
            "--leader-elect=maybe",
            "--log-level=warning",
        ] {
            let error = Args::try_parse_from(["asya-controller", bad])
                .unwrap_err()
                .to_string();
            let flag = bad.split('=').next().unwrap();
            assert!(error.contains(flag), "{error}");
        }
    }

    /// FW-5 (a), QUE-21 (c)
    #[test]
    fn resync_and_queue_health_check_are_on_by_default() {
        let defaults = Args::command().get_matches_from(["asya-controller"]);
        for (flag, seconds) in [
            ("max_reconcile_interval", 36_000),
            ("queue_health_check_interval", 300),
        ] {
            let interval = defaults.get_one::<Duration>(flag).unwrap();
            assert_eq!(interval.as_secs(), seconds, "{flag}");
        }
    }

    /// FW-5, FW-6, FW-8, QUE-21 (e)
    #[test]
    fn intervals_need_a_unit() {
        for (text, seconds) in [
            ("0", 0),
            ("30s", 30),
            ("5m", 300),
            ("1h30m", 5400),
            ("10h", 36000),
        ] {
            assert_eq!(interval(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for bad in ["", "5", "-1s", "soon", "5 parsecs"] {
            interval(bad).unwrap_err();
        }
    }

    /// OPS-2
    #[test]
    fn invalid_value_from_the_environment_names_the_variable() {
        let flag = "--max-concurrent-reconciles";
        let error = || Args::try_parse_from(["asya-controller", &format!("{flag}=0")]).unwrap_err();
        let message =
            |given| with_its_source(error(), |word| given && word == flag, |_| true).to_string();
        assert!(
            message(false).contains("for 'ASYA_MAX_CONCURRENT_RECONCILES, that is --max"),
            "{}",
            message(false)
        );
        assert!(!message(true).contains("ASYA_MAX"), "{}", message(true));
    }

    /// QUE-12
    #[test]
    fn queue_management_flag_accepts_every_spelling() {
        for (text, expected) in [
            ("true", true),
            ("True", true),
            ("1", true),
            ("false", false),
            ("0", false),
            ("", false),
        ] {
            assert_eq!(yes_or_no(text), Ok(expected), "{text:?}");
        }
        yes_or_no("off").unwrap_err();
    }
}
