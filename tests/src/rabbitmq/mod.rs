//! RabbitMQ: the server, a client of its management API for tests, and a parser for that API's access log.

use std::path::Path;

use crate::build::{self, Component};
use crate::error::Result;
use crate::process::{self, Process, Spec};

mod access_log;
mod admin;
pub(crate) mod server;

pub use access_log::{AccessLog, Call, Mark as AccessMark};
pub use admin::{Queue, QueueBinding, RabbitMq};
pub use server::{ADMIN, OPERATOR, OPERATOR_PASSWORD};

/// Starts a server without a cluster. It ends with the processes, the last of which is the server itself.
///
/// # Errors
/// When it cannot be started.
pub async fn serve(folder: &Path) -> Result<(RabbitMq, Vec<Process>)> {
    let bin = build::ensure(Component::RabbitMq).await?;
    let (state, processes) = server::start(&bin, folder, "127.0.0.1").await?;
    Ok((RabbitMq::new(&state)?, processes))
}

/// Runs `rabbitmqctl` against a server of [`serve`].
///
/// # Errors
/// When it fails.
pub async fn control(server: &Process, args: &[&str]) -> Result<()> {
    let bin = build::ensure(Component::RabbitMq).await?;
    let spec = Spec::new("rabbitmqctl", bin.join("rabbitmqctl"))
        .inherit_env()
        .args(args);
    let env = &server.spec().env;
    let spec = env
        .iter()
        .fold(spec, |spec, (name, value)| spec.env(name, value));
    process::output(spec).await.map(drop)
}

/// Creates a virtual host and a user on a running server.
///
/// # Errors
/// When a request fails.
pub async fn add_virtual_host(server: &RabbitMq) -> Result<RabbitMq> {
    RabbitMq::new(&server::add_virtual_host(server.state()).await?)
}
