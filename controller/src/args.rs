//! Flags and environment (OPS-1, OPS-2). A bad value stops the start, naming it.

use std::path::PathBuf;
use std::time::Duration;

use std::ffi::OsStr;

use asya_process::flags::InstallationFlags;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, CommandFactory, Parser};

use crate::admission::flags::RuleFlags;
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
    /// Asks these URLs (http://host:port/readyz), separated by commas, until each answers that it is ready, and does
    /// nothing else; after a minute that is a failure.
    #[arg(long, value_name = "URL", value_delimiter = ',')]
    pub check: Vec<String>,

    /// Tells whether actors are left, which nobody could delete without the operator, and does nothing else: it is a
    /// failure while there are some.
    #[arg(long, default_value_t = false)]
    pub check_uninstall: bool,

    /// With --check-uninstall: the command after which Helm upgrades the release again. Helm takes a release whose
    /// uninstallation was refused for one that is being uninstalled.
    #[arg(
        long,
        default_value = "helm rollback RELEASE REVISION",
        value_name = "COMMAND"
    )]
    pub helm_rollback: String,

    /// Address of /metrics.
    #[arg(long, default_value = ":8080")]
    pub metrics_bind_address: String,

    /// Address of /healthz and /readyz.
    #[arg(long, default_value = ":8081")]
    pub health_probe_bind_address: String,

    /// Whether replicas elect a leader, which alone writes.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub leader_elect: bool,

    /// Namespace in which the runtime script stays without actors (default: the operator's own).
    #[arg(long, env = "ASYA_RUNTIME_NAMESPACE")]
    pub runtime_namespace: Option<String>,

    /// Most passes at a time.
    #[arg(long, env = "ASYA_MAX_CONCURRENT_RECONCILES", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_concurrent_reconciles: u16,

    /// Kubeconfig file (default: the pod's service account, else KUBECONFIG).
    #[arg(long)]
    pub kubeconfig: Option<String>,

    /// error, warn, info, debug or trace; or a filter by module.
    #[arg(long, alias = "zap-log-level", default_value = "info")]
    pub log_level: String,

    /// Namespaces whose actors are served, separated by commas (default: all).
    #[arg(long, value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,

    /// File with the namespaces whose actors are served, one a line; read again when it changes.
    #[arg(long, conflicts_with = "watch_namespaces")]
    pub watch_namespaces_file: Option<PathBuf>,

    /// Every actor is seen again after this long without an event; 0 is never.
    #[arg(long, default_value = "10h", value_parser = interval)]
    pub max_reconcile_interval: Duration,

    /// Least time between two passes over one actor.
    #[arg(long, default_value = "1s", value_parser = interval)]
    pub min_reconcile_interval: Duration,

    /// Delay before the first retry of a pass that failed.
    #[arg(long, default_value = "1s", value_parser = interval)]
    pub retry_initial: Duration,

    /// What each further failure multiplies the delay by.
    #[arg(long, default_value_t = 2.0)]
    pub retry_multiplier: f64,

    /// Longest delay before a retry.
    #[arg(long, default_value = "5m", value_parser = interval)]
    pub retry_max: Duration,

    /// Retries of a pass that failed, until only an event starts the next one; 0 is unlimited.
    #[arg(long, default_value_t = 0)]
    pub retry_attempts: u32,

    /// A pod that runs and is not ready for this long degrades its actor; 0 is never.
    #[arg(long, default_value = "5m", value_parser = interval)]
    pub unready_deadline: Duration,

    /// An HPA without metrics for this long makes its actor's scaling fail; 0 is never.
    #[arg(long, default_value = "2m", value_parser = interval)]
    pub hpa_metrics_deadline: Duration,

    /// What is waited after something took back what was written to a bound target; doubled with each time, and 5m at
    /// most.
    #[arg(long, default_value = "5s", value_parser = interval)]
    pub conflict_wait: Duration,

    /// Whether children are applied in the name of the `ServiceAccount` asya-applier of their namespace.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub impersonate: bool,

    /// Whether the leader applies the CRD.
    #[arg(long, default_value_t = true, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub manage_crds: bool,

    /// Transports, and what pods get.
    #[command(flatten)]
    pub installation: InstallationFlags,

    /// File with the runtime script.
    #[arg(long, env = "ASYA_RUNTIME_SCRIPT_PATH")]
    pub runtime_script_path: Option<String>,

    /// File with the runtime script, for development.
    #[arg(long, env = "ASYA_RUNTIME_LOCAL_PATH")]
    pub runtime_local_path: Option<String>,

    /// How often every queue is looked at; 0 is never.
    #[arg(long, env = "ASYA_QUEUE_HEALTH_CHECK_INTERVAL", default_value = "5m", value_parser = interval)]
    pub queue_health_check_interval: Duration,

    /// How often the messages of actors with replicas are counted; 0 is never.
    #[arg(long, env = "ASYA_QUEUE_METRICS_INTERVAL", default_value = "30s", value_parser = interval)]
    pub queue_metrics_interval: Duration,

    /// No queue is created, changed or deleted.
    #[arg(long, env = "ASYA_DISABLE_QUEUE_MANAGEMENT", default_value = "false", value_parser = yes_or_no, action = ArgAction::Set)]
    pub disable_queue_management: bool,

    /// Targets of bindings whose pods are replaced at the same time, in the whole cluster; at most half of them, rounded up,
    /// in one namespace.
    #[arg(long, default_value_t = 3)]
    pub max_rollouts: u16,

    /// Workloads of actors whose pods are replaced at the same time because the installation changed, in the whole
    /// cluster.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_workload_rollouts: u16,

    /// The webhook's certificates.
    #[command(flatten)]
    pub certificates: CertificateFlags,

    /// What the API server is told of the webhook.
    #[command(flatten)]
    pub rules: RuleFlags,

    /// The operator's own namespace.
    #[arg(long, env = "POD_NAMESPACE", default_value = "asya-system")]
    pub namespace: String,

    /// The pod's name; a part of the leader's identity.
    #[arg(long, env = "POD_NAME", default_value = "asya-controller")]
    pub pod_name: String,
}

impl Args {
    /// Reads command line and environment; ends the process when a value is bad.
    #[must_use]
    pub fn read() -> Self {
        Self::try_parse().unwrap_or_else(|error| {
            let given = |flag: &str| std::env::args().any(|word| word.starts_with(flag));
            let set = |variable: &OsStr| std::env::var_os(variable).is_some();
            naming_its_source(error, given, set).exit()
        })
    }
}

/// clap names the flag of a bad value, even when that comes from a variable.
fn naming_its_source(
    mut error: clap::Error,
    given: impl Fn(&str) -> bool,
    set: impl Fn(&OsStr) -> bool,
) -> clap::Error {
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let flag = shown.split(' ').next().unwrap_or_default();
    let command = Args::command();
    let mut args = command.get_arguments();
    let found =
        args.find(|arg| Some(flag) == arg.get_long().map(|name| format!("--{name}")).as_deref());
    let variable = found.and_then(Arg::get_env).filter(|name| set(name));
    if let Some(variable) = variable.filter(|_| !given(flag)) {
        let named = format!("{}, that is {shown}", variable.display());
        error.insert(ContextKind::InvalidArg, ContextValue::String(named));
    }
    error
}

/// QUE-12: any case; empty is what a chart renders for a value nobody gave.
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

    use super::{Args, interval, naming_its_source, yes_or_no};
    use clap::{CommandFactory, Parser};

    #[test]
    fn flags_are_consistent() {
        Args::command().debug_assert();
    }

    /// OPS-1
    #[test]
    fn todays_flags_are_understood() {
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
    fn bad_values_stop_the_start_and_are_named() {
        for bad in ["--max-concurrent-reconciles=0", "--leader-elect=maybe"] {
            let error = Args::try_parse_from(["asya-controller", bad])
                .unwrap_err()
                .to_string();
            let flag = bad.split('=').next().unwrap();
            assert!(error.contains(flag), "{error}");
        }
    }

    /// FW-5, FW-6, FW-8
    #[test]
    fn intervals_are_times_with_a_unit() {
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
    fn bad_value_of_a_variable_names_the_variable() {
        let flag = "--max-concurrent-reconciles";
        let error = || Args::try_parse_from(["asya-controller", &format!("{flag}=0")]).unwrap_err();
        let named =
            |given| naming_its_source(error(), |word| given && word == flag, |_| true).to_string();
        assert!(
            named(false).contains("for 'ASYA_MAX_CONCURRENT_RECONCILES, that is --max"),
            "{}",
            named(false)
        );
        assert!(!named(true).contains("ASYA_MAX"), "{}", named(true));
    }

    /// QUE-12
    #[test]
    fn queue_management_is_switched_off_in_any_spelling() {
        for (text, wanted) in [
            ("true", true),
            ("True", true),
            ("1", true),
            ("false", false),
            ("0", false),
            ("", false),
        ] {
            assert_eq!(yes_or_no(text), Ok(wanted), "{text:?}");
        }
        yes_or_no("off").unwrap_err();
    }
}
