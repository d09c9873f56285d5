//! `asya-cluster`: a real Kubernetes with the operator in it, for tests and
//! for trying things.

mod background;
mod demo;
mod real;
mod run;

use std::process::ExitCode;

use asya_tests::Result;
use asya_tests::build::{self, Component};
use asya_tests::cluster::{Cluster, OperatorState, Options, RunningCluster, State};
use clap::{Args, Parser, Subcommand};
use serde_json::Value;

/// A real Kubernetes on loopback ports with the Asya operator in it; only
/// nodes and pods are fake.
#[derive(Parser)]
#[command(name = "asya-cluster", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build or install parts into the cache (when none is named, all that need no root).
    Build {
        /// control-plane, tools, helm3, rabbitmq, sqs, keda, node, dns, containers, python.
        parts: Vec<String>,
    },
    /// Start a cluster with the operator and leave it running.
    Up(With),
    /// End the cluster that `up` left running.
    Down,
    /// Start a cluster, run a command on it, and end it.
    Run {
        #[command(flatten)]
        with: With,
        /// The command; it finds the cluster by `ASYA_TEST_CLUSTER` and `KUBECONFIG`.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Run a command in a sandbox of Linux namespaces, where a cluster can have a real node; say why not where that is
    /// impossible.
    Real {
        /// The command, such as `asya-cluster run --real -- COMMAND`.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Show actors go from `kubectl apply` to Running, and messages through them.
    Demo {
        /// Keep the cluster until Ctrl-C.
        #[arg(long)]
        stay: bool,
        /// Number of steps that were announced before the demo's own.
        #[arg(long, default_value_t, hide = true)]
        after: usize,
    },
    /// Starts the background process of `up`.
    #[command(hide = true)]
    Serve(With),
}

/// What a cluster has.
#[derive(Args, Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
struct With {
    /// Start an SQS server, too.
    #[arg(long)]
    sqs: bool,
    /// Start KEDA, too.
    #[arg(long)]
    keda: bool,
    /// Leave RabbitMQ out.
    #[arg(long)]
    no_rabbitmq: bool,
    /// Leave the operator out.
    #[arg(long)]
    no_operator: bool,
    /// Add a real node, on which the operator's pods run, too; in a sandbox (command `real`).
    #[arg(long)]
    real: bool,
}

impl With {
    fn options(self) -> Options {
        Options {
            rabbitmq: !self.no_rabbitmq,
            own_rabbitmq: true,
            sqs: self.sqs,
            keda: self.keda,
            real: self.real,
            ..Options::default()
        }
    }

    /// Starts a cluster with these options, and the operator with these values.
    async fn start(self, options: Options, values: Value) -> Result<RunningCluster> {
        self.build(|_| ()).await?;
        let mut cluster = RunningCluster::start(options).await?;
        if !self.no_operator
            && let Err(error) = cluster.start_operator(values).await
        {
            cluster.keep_logs();
            return Err(error);
        }
        Ok(cluster)
    }

    /// Builds everything in the foreground, where progress is visible, and announces each component first. Fails early
    /// if something cannot be built on this machine.
    async fn build(self, announce: impl Fn(Component)) -> Result<()> {
        if !self.no_operator {
            asya_tests::operator::bin_folder()?;
        }
        // Packages come before slow builds, because they may be missing.
        let parts = [
            (Component::RabbitMq, !self.no_rabbitmq),
            (Component::ControlPlane, true),
            (Component::Tools, true),
            (Component::Sqs, self.sqs),
            (Component::Keda, self.keda),
        ];
        for (component, _) in parts.into_iter().filter(|(_, wanted)| *wanted) {
            announce(component);
            build::ensure(component).await?;
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    asya_tests::install_crypto_provider();
    asya_tests::watch_signals();
    let done = match Cli::parse().command {
        Command::Build { parts } => build_parts(&parts).await,
        Command::Up(with) => background::up(with).await,
        Command::Down => background::down().await,
        Command::Serve(with) => background::serve(with).await,
        Command::Run { with, command } => run::run(with, &command).await,
        Command::Real { command } => real::real(&command).await,
        Command::Demo { stay, after } => demo::demo(stay, after).await,
    };
    asya_tests::wait_if_ending().await;
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("asya-cluster: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn build_parts(names: &[String]) -> Result<ExitCode> {
    let parts = names
        .iter()
        .map(|name| name.parse())
        .collect::<Result<Vec<Component>>>()?;
    let parts = if parts.is_empty() {
        let real = |component: &Component| Component::REAL.contains(component);
        Component::ALL
            .into_iter()
            .filter(|component| !real(component))
            .collect()
    } else {
        parts
    };
    for component in parts {
        println!("{component}: {}", build::ensure(component).await?.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints how to reach a cluster, and the namespaces that have the broker's Secret.
fn print_addresses(cluster: &Cluster, namespaces: &[&str]) {
    let State {
        kubeconfig,
        control_plane,
        tools,
        rabbitmq,
        sqs,
        operator,
        ..
    } = cluster.state();
    println!("export KUBECONFIG={}", kubeconfig.display());
    let plugin = asya_tests::operator::bin_folder()
        .ok()
        .filter(|bin| bin.join("kubectl-asya").exists());
    let folders = [control_plane, tools].into_iter().chain(&plugin);
    let folders: Vec<_> = folders.map(|it| it.display().to_string()).collect();
    println!("export PATH={}:$PATH", folders.join(":"));
    if plugin.is_none() {
        println!(
            "# `kubectl asya` needs `cargo build -p kubectl-asya`, and target/debug in the PATH"
        );
    }
    if let Some(rabbitmq) = rabbitmq {
        let (host, user) = (&rabbitmq.host, asya_tests::rabbitmq::ADMIN);
        println!("# RabbitMQ: amqp://{user}:{user}@{host}:{}", rabbitmq.port);
        println!(
            "#           http://{user}:{user}@{host}:{}",
            rabbitmq.management_port
        );
    }
    if operator.is_some() && rabbitmq.is_some() {
        println!(
            "# Actors with transport rabbitmq can run where its Secret is: namespace {}",
            namespaces.join(", ")
        );
    }
    if let Some(url) = sqs {
        println!("# SQS: {url}");
    }
    let pods = |operator: &OperatorState| [&*operator.instances, &*operator.webhooks].concat();
    for instance in operator.iter().flat_map(pods) {
        println!(
            "# {}: {}/metrics, log {}",
            instance.name,
            instance.metrics,
            instance.log.display()
        );
    }
}
