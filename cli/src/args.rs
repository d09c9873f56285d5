//! Commands and flags.

mod options;
pub mod queue;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::options::{ConnectionArgs, ConsentArgs, DryRun, OutputArgs, WatchArgs};
use self::queue::{DlqArgs, QueueArgs, SendArgs};

/// Inspects, explains and operates actors of Asya.
///
/// Uses your kubeconfig and your permissions only, and changes nothing unless the command says so.
///
/// Exit codes: 0 no findings, 1 findings, 2 could not be determined, 130 ended by Ctrl-C. Warnings alone end with 0;
/// check and lint count them as findings with --strict.
#[derive(Parser, Debug)]
#[command(
    name = "kubectl-asya",
    bin_name = "kubectl asya",
    version,
    max_term_width = 120,
    after_help = "`kubectl asya status` shows what needs attention, `kubectl asya explain REASON` what to do."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Show actors: target, queue, pods, scaling, and what needs attention.
    Status(StatusArgs),
    /// Show the tree of an actor: target, workload, pods, queue, scaling, and what is waiting for what.
    Trace(TraceArgs),
    /// Say why a pod gets the sidecar or not, rule by rule, as the webhook decides it.
    Why(WhyArgs),
    /// Show an actor's queue at the broker, and its next messages.
    Queue(QueueArgs),
    /// Show an actor's dead letters, move them back, or delete them: dlq NAME list|redrive|purge.
    Dlq(DlqArgs),
    /// Send a message to an actor, and follow it to its end.
    Send(SendArgs),
    /// Check manifests without a cluster: the CRD's schema and rules, and those of the webhook.
    Lint(LintArgs),
    /// Show what applying actors would do: changes, restarts and their cost, and what would be rejected.
    Preview(PreviewArgs),
    /// Check the installation: CRD, operator, webhook, KEDA, transports and actors.
    Check(CheckArgs),
    /// Explain a reason or the id of a finding.
    Explain(ExplainArgs),
    /// Write an archive for support: objects, logs and metrics, without the values of Secrets.
    Bundle(BundleArgs),
    /// Stop the operator's writes for an actor; pods and messages keep flowing.
    Pause(ChangeArgs),
    /// Let the operator manage a paused actor again.
    Resume(ChangeArgs),
    /// Replace pods without the sidecar, or with an outdated one, now, whatever spec.binding.rollout says.
    Roll(ChangeArgs),
    /// Keep queue and messages when the actor is deleted.
    Retain(ChangeArgs),
    /// Delete an actor that binds a workload: its sidecars leave the pods, the workload stays.
    Unbind(UnbindArgs),
    /// Print the completion script of a shell, for the command kubectl-asya.
    Completion {
        /// Shell to write it for, for example: source <(kubectl asya completion bash). It completes `kubectl-asya`, not
        /// `kubectl asya`.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder.
    Man {
        /// Folder to write to; created if it does not exist.
        folder: PathBuf,
    },
}

impl Command {
    /// Whether it waits for changes.
    pub fn watches(&self) -> bool {
        match self {
            Self::Status(args) => args.watch.watch,
            Self::Trace(args) => args.watch.watch,
            Self::Queue(args) => args.watch.watch,
            _ => false,
        }
    }

    /// Whether it has no answer without a cluster.
    pub fn needs_cluster(&self) -> bool {
        match self {
            Self::Status(_) | Self::Trace(_) | Self::Queue(_) | Self::Check(_) => true,
            Self::Why(args) => args.pod.is_some(),
            _ => false,
        }
    }

    /// Whether it may wait for changes or the user's consent, or take as long as there are messages.
    pub fn waits(&self) -> bool {
        self.watches()
            || matches!(
                self,
                Self::Pause(_)
                    | Self::Resume(_)
                    | Self::Roll(_)
                    | Self::Retain(_)
                    | Self::Unbind(_)
                    | Self::Bundle(_)
                    | Self::Dlq(_)
                    | Self::Send(_)
            )
    }
}

#[derive(Args, Debug)]
pub struct StatusArgs {
    /// Name of an actor; all actors of the namespace if absent.
    pub name: Option<String>,

    /// Actors of all namespaces; with a name, the actor of that name, whichever namespace it is in.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub watch: WatchArgs,
}

#[derive(Args, Debug)]
pub struct TraceArgs {
    /// Name of an actor.
    pub name: String,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub watch: WatchArgs,
}

#[derive(Args, Debug)]
#[group(id = "pod_source", required = true, multiple = false, args = ["pod", "filename"])]
pub struct WhyArgs {
    /// Name of a pod, or actor/NAME, deploy/NAME or statefulset/NAME for each of its pods, or a new one if it has none.
    #[arg(value_name = "POD")]
    pub pod: Option<String>,

    /// File with a pod, or - for standard input. If it also holds actors, no cluster is needed.
    #[arg(short, long, value_name = "FILE")]
    pub filename: Option<PathBuf>,

    /// Values of the operator's chart, in place of the installed operator's settings.
    #[arg(long, value_name = "FILE")]
    pub values: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Output formats of `lint`: for people, for CI systems, and for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LintFormat {
    #[default]
    Text,
    Junit,
    Sarif,
    Json,
    Yaml,
}

#[derive(Args, Debug)]
pub struct LintArgs {
    /// File or folder with manifests, or - for standard input; repeatable.
    #[arg(short, long, required = true, value_name = "PATH")]
    pub filename: Vec<PathBuf>,

    /// Values of the operator's chart: the transports that actors may name.
    #[arg(long, value_name = "FILE")]
    pub values: Option<PathBuf>,

    /// Exit with 1 for warnings, too.
    #[arg(long)]
    pub strict: bool,

    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: LintFormat,
}

#[derive(Args, Debug)]
pub struct PreviewArgs {
    /// File or folder with manifests, or - for standard input; repeatable.
    #[arg(short, long, required = true, value_name = "PATH")]
    pub filename: Vec<PathBuf>,

    /// Values of the operator's chart, in place of the installed operator's settings.
    #[arg(long, value_name = "FILE")]
    pub values: Option<PathBuf>,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Check what an installation needs, before installing.
    #[arg(long)]
    pub pre: bool,

    /// Exit with 1 for warnings, too.
    #[arg(long)]
    pub strict: bool,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// A reason, such as Paused, or an id, such as ASYA-VAL-3; lists all of them if absent.
    pub name: Option<String>,

    #[command(flatten)]
    pub output: OutputArgs,
}

#[derive(Args, Debug)]
pub struct ChangeArgs {
    /// Name of the actor.
    pub name: String,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub consent: ConsentArgs,
}

#[derive(Args, Debug)]
pub struct BundleArgs {
    /// Archive to write (default: asya-bundle-TIME.tar.gz).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Actors of all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

#[derive(Args, Debug)]
pub struct UnbindArgs {
    /// Name of the actor.
    pub name: String,

    /// Keep the queue and its messages.
    #[arg(long)]
    pub keep_queue: bool,

    #[command(flatten)]
    pub output: OutputArgs,

    #[command(flatten)]
    pub consent: ConsentArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn combinations_that_mean_nothing_are_rejected() {
        for (args, valid) in [
            (&["why", "phi-0"][..], true),
            (&["why", "-f", "pod.yaml"], true),
            (&["why"], false),
            (&["why", "phi-0", "-f", "pod.yaml"], false),
            (&["status", "-A", "embed"], true),
            (&["check", "--strict"], true),
            (&["status", "--timeout", "0"], false),
            (&["status", "--timeout", "2m"], true),
            (&["queue", "embed", "--peek", "0"], false),
            (&["queue", "embed", "--peek", "2"], true),
            (&["dlq", "embed", "purge", "--max", "0"], false),
            (&["pause", "--dry-run", "embed"], true),
            (&["pause", "embed", "--dry-run=server"], true),
            (&["unbind", "embed", "-o", "json"], true),
            (&["send", "--wait", "embed", "{}"], true),
        ] {
            let all = ["kubectl-asya"].iter().chain(args);
            assert_eq!(Cli::try_parse_from(all).is_ok(), valid, "{args:?}");
        }
    }
}
