//! Starts the sidecar, or the bare mover, with the same settings.

use std::net::TcpStream;
use std::path::{Path, PathBuf};

use asya_tests::process::{Process, Spec};
use asya_tests::{Error, Result, ports};
use clap::ValueEnum;

use crate::amqp::Login;
use crate::machine::{self, Memory};
use crate::messages::FROM;

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    Rabbitmq,
    Sqs,
}

impl Transport {
    fn name(self) -> &'static str {
        match self {
            Self::Rabbitmq => "rabbitmq",
            Self::Sqs => "sqs",
        }
    }
}

/// The program that moves messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Sidecar,
    Bare,
}

/// Both, in the order in which they take turns.
pub const KINDS: [Kind; 2] = [Kind::Bare, Kind::Sidecar];

/// The settings for both movers.
#[derive(Clone)]
pub struct Settings {
    transport: Transport,
    env: Vec<(String, String)>,
    log: PathBuf,
}

impl Settings {
    /// Settings for RabbitMQ, with the runtime in this folder.
    pub fn rabbitmq(login: &Login, folder: &Path) -> Self {
        let login = login.env().map(|(name, value)| (name.to_owned(), value));
        Self::new(Transport::Rabbitmq, folder, login.to_vec())
    }

    /// Settings for SQS.
    pub fn sqs(url: &str, folder: &Path) -> Self {
        let env = [
            ("ASYA_SQS_ENDPOINT", url),
            ("ASYA_AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self::new(Transport::Sqs, folder, env.to_vec())
    }

    fn new(transport: Transport, folder: &Path, env: Vec<(String, String)>) -> Self {
        let this = Self {
            transport,
            env,
            log: folder.join("movers.log"),
        };
        let folder = folder.display().to_string();
        this.with(&[
            ("ASYA_TRANSPORT", transport.name()),
            ("ASYA_ACTOR_NAME", FROM),
            ("ASYA_SOCKET_DIR", &folder),
            // As set in the image (SC-98).
            ("MALLOC_ARENA_MAX", "1"),
            ("MALLOC_MMAP_THRESHOLD_", "1048576"),
        ])
    }

    /// The same settings, plus these variables.
    pub fn with(mut self, variables: &[(&str, &str)]) -> Self {
        let variables = variables.iter();
        self.env
            .extend(variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        self
    }

    /// Starts one of the two movers.
    pub async fn start(&self, kind: Kind) -> Result<Mover> {
        let probes = ports::free()?;
        let spec = match kind {
            Kind::Sidecar => Spec::new("sidecar", bin_folder().join("asya-sidecar"))
                .env("ASYA_METRICS_ADDR", format!("127.0.0.1:{probes}")),
            Kind::Bare => Spec::new("bare mover", std::env::current_exe().map_err(Error::other)?)
                .args(["--bare", self.transport.name()]),
        };
        let env = self.env.iter();
        let spec = env.fold(spec.log(&self.log), |spec, (name, value)| {
            spec.env(name, value)
        });
        Ok(Mover {
            process: Process::start(spec).await?,
            probes,
        })
    }
}

/// The folder with the programs.
fn bin_folder() -> PathBuf {
    std::env::var_os("ASYA_BIN_DIR").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_asya-cluster")).with_file_name(""),
        PathBuf::from,
    )
}

/// A running mover; it is killed when dropped.
pub struct Mover {
    pub process: Process,
    probes: u16,
}

impl Mover {
    /// Processor time used so far, in milliseconds.
    pub fn cpu(&self) -> Result<f64> {
        Ok(machine::cpu(self.process.pid())?.as_secs_f64() * 1e3)
    }

    /// Resident memory, in MiB.
    pub fn memory(&self) -> Result<f64> {
        Ok(Memory::of(self.process.pid())?.resident)
    }

    /// Number of threads.
    pub fn threads(&self) -> Result<usize> {
        Ok(self.tasks()?.len())
    }

    /// The exact processor time of all threads in nanoseconds, for a process that does almost nothing.
    pub fn exact_cpu(&self) -> Result<u64> {
        let times = self.tasks()?.into_iter().map(|task| {
            let text = std::fs::read_to_string(task.join("schedstat")).map_err(Error::other)?;
            let time = text.split(' ').next().unwrap_or_default();
            time.parse::<u64>().map_err(Error::other)
        });
        times.sum()
    }

    fn tasks(&self) -> Result<Vec<PathBuf>> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.pid()));
        let tasks = tasks.map_err(Error::other)?;
        Ok(tasks.flatten().map(|task| task.path()).collect())
    }

    /// Whether the probes answer.
    pub fn listens(&self) -> bool {
        TcpStream::connect(("127.0.0.1", self.probes)).is_ok()
    }

    /// Runs `work`, but fails as soon as the mover exits.
    pub async fn while_it_runs<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.process.alive_while(work).await
    }
}
