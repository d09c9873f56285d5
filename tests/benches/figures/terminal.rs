//! `kubectl asya status` of a crowd, compared with a bare `kubectl get`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use asya_tests::cluster::Cluster;
use asya_tests::counting_proxy::CountingProxy;
use asya_tests::operator::bin_folder;
use asya_tests::{Error, Result};
use tokio::process::Command;

use crate::crowd::Crowd;

/// How often each command runs, alternating with the other one.
const RUNS: usize = 7;

/// A command, and how long its runs took, in seconds.
struct Timed {
    program: PathBuf,
    args: Vec<String>,
    seconds: Vec<f64>,
    bytes: usize,
}

impl Timed {
    fn new(program: &Path, args: &str) -> Self {
        Self {
            program: program.to_owned(),
            args: args.split(' ').map(str::to_owned).collect(),
            seconds: Vec::new(),
            bytes: 0,
        }
    }

    /// Measures one run, from the start of the process to its end.
    async fn run(&mut self, kubeconfig: &Path, home: &Path) -> Result<()> {
        let began = Instant::now();
        let output = Command::new(&self.program)
            .args(&self.args)
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", home)
            .output()
            .await
            .map_err(Error::other)?;
        self.seconds.push(began.elapsed().as_secs_f64());
        self.bytes = output.stdout.len();
        // Exit code 1: an actor needs attention.
        if !matches!(output.status.code(), Some(0 | 1)) || output.stdout.is_empty() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::other(format!("{self}: {message}")));
        }
        Ok(())
    }
}

impl std::fmt::Display for Timed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut seconds = self.seconds.clone();
        seconds.sort_by(f64::total_cmp);
        let at = |index: usize| seconds.get(index).copied().unwrap_or(f64::NAN);
        let name = self.program.file_name().unwrap_or_default();
        write!(
            f,
            "{} {}: {:.3} s ({:.3} to {:.3}), {} kB",
            name.to_string_lossy(),
            self.args.join(" "),
            at(seconds.len() / 2),
            at(0),
            at(seconds.len().saturating_sub(1)),
            self.bytes / 1000,
        )
    }
}

/// A line per command: the median of its runs, the fastest and the slowest. Then the requests of one run.
pub async fn status(cluster: &Cluster, crowd: &Crowd) -> Result<String> {
    let (state, folder) = (cluster.state(), cluster.folder());
    let (asya, kubectl) = (
        bin_folder()?.join("kubectl-asya"),
        state.control_plane.join("kubectl"),
    );
    let namespace = &crowd.namespace;
    let mut commands = [
        Timed::new(&asya, "--version"),
        Timed::new(&kubectl, "get asyncactors.asya.sh -A -o json"),
        Timed::new(&asya, "status -A"),
        Timed::new(&asya, "status -A -o json"),
        Timed::new(&asya, &format!("status -n {namespace}")),
        Timed::new(&asya, &format!("status -n {namespace} -o json")),
    ];
    for _ in 0..RUNS {
        for command in &mut commands {
            command.run(&state.kubeconfig, folder).await?;
        }
    }
    let mut lines: Vec<String> = commands.iter().map(ToString::to_string).collect();
    let proxy = CountingProxy::to_api_server(cluster).await?;
    let kubeconfig = proxy.kubeconfig(cluster, "through-proxy")?;
    Timed::new(&asya, "status -A")
        .run(&kubeconfig, folder)
        .await?;
    let requests: usize = proxy.read_counts().values().sum();
    lines.push(format!(
        "requests of status -A: {requests} ({} writes)",
        proxy.writes().len()
    ));
    let size = crowd.names.len();
    Ok(lines
        .into_iter()
        .map(|line| format!("{size} actors, {line}"))
        .collect::<Vec<_>>()
        .join("\n"))
}
