//! Flags that several commands have.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::output::Format;

/// How to reach the cluster.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cluster")]
pub struct ConnectionArgs {
    /// Path of the kubeconfig (default: KUBECONFIG, else ~/.kube/config).
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig.
    #[arg(long, global = true)]
    pub context: Option<String>,

    /// Namespace (default: that of the context).
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,

    /// Namespace of the operator.
    #[arg(
        long,
        global = true,
        default_value = "asya-system",
        value_name = "NAMESPACE"
    )]
    pub operator_namespace: String,

    /// Time for all requests together, such as 10s or 1m.
    #[arg(long, global = true, default_value = "15s", value_parser = duration, value_name = "DURATION")]
    pub timeout: Duration,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct OutputArgs {
    /// Output format; wide adds columns to some tables.
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct WatchArgs {
    /// Print again after every change, until Ctrl-C.
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Args, Clone, Copy, Debug)]
pub struct ConsentArgs {
    /// Write without asking.
    #[arg(short, long)]
    pub yes: bool,

    /// Let the API server check the change, and write nothing.
    #[arg(
        long,
        value_enum,
        default_value_t,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "server",
        value_name = "MODE"
    )]
    pub dry_run: DryRun,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    #[default]
    None,
    Server,
}

/// Parses a duration above 0.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed = asya_wire::duration::parse(text).filter(|it| !it.is_zero());
    parsed.ok_or_else(|| "use a duration above 0, such as 10s or 1m".to_owned())
}
