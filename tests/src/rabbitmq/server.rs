//! A RabbitMQ server with its own epmd, so that several clusters can run side by side and no Erlang process is left
//! behind.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::RabbitMq;
use crate::cluster::RabbitMqState;
use crate::error::{Context, Error, Result};
use crate::eventually::{NotYet, eventually};
use crate::pki::{TestCa, Use};
use crate::ports;
use crate::process::{Process, Spec};

/// The user and password with which scenarios inspect and publish.
pub const ADMIN: &str = "admin";
/// The operator's user, with the permissions that it needs (RMQ-2).
pub const OPERATOR: &str = "asya";
/// The operator's password, with characters that reveal missing escaping.
pub const OPERATOR_PASSWORD: &str = "p@ss/w:rd";

/// Starts epmd and RabbitMQ, which listens on `host`, and creates the operator's user.
pub(crate) async fn start(
    bin: &Path,
    folder: &Path,
    host: &str,
) -> Result<(RabbitMqState, Vec<Process>)> {
    let home = folder.join("rabbitmq");
    let access_log = home.join("http");
    std::fs::create_dir_all(&access_log).context(format_args!("make {}", access_log.display()))?;
    let (epmd_port, port, management_port) = (ports::free()?, ports::free()?, ports::free()?);
    write(&home.join("enabled_plugins"), "[rabbitmq_management].\n")?;
    write(&home.join("env.conf"), "")?;
    let authority = TestCa::new("rabbitmq-ca")?;
    authority.write(&home, "ca")?;
    authority.issue(&home, "server", "rabbitmq", &[host], Use::Server)?;
    let (management_tls_port, tls_port) = (ports::free()?, ports::free()?);
    let mut configuration = configuration(host, port, management_port, &access_log);
    configuration.push_str(&tls(host, management_tls_port, tls_port, &home));
    write(&home.join("rabbitmq.conf"), &configuration)?;

    // Otherwise RabbitMQ would start an epmd that outlives it, even if ours is killed only a moment before RabbitMQ.
    let epmd = Spec::new("epmd", epmd_program()?)
        .log(folder.join("epmd.log"))
        .env("HOME", home.display())
        .args(["-port", &epmd_port.to_string(), "-address", "127.0.0.1"]);
    let epmd = Process::start(epmd).await?;
    epmd.alive_while(eventually(
        "epmd listens",
        Duration::from_secs(20),
        async || {
            tokio::net::TcpStream::connect(("127.0.0.1", epmd_port)).await?;
            Ok(())
        },
    ))
    .await?;

    let file = |name: &str| home.join(name).display().to_string();
    let server = Spec::new("rabbitmq", bin.join("rabbitmq-server"))
        .log(folder.join("rabbitmq.log"))
        .env("HOME", home.display())
        .env("LC_ALL", "C.UTF-8")
        // Makes the start script exec the server instead of waiting for it.
        .env("RUNNING_UNDER_SYSTEMD", "true")
        .env("ERL_FLAGS", "-start_epmd false")
        .env("ERL_EPMD_PORT", epmd_port)
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODENAME", "rabbit@localhost")
        .env("RABBITMQ_NODE_PORT", port)
        .env("RABBITMQ_DIST_PORT", ports::free()?)
        .env("RABBITMQ_CONF_ENV_FILE", file("env.conf"))
        .env("RABBITMQ_CONFIG_FILE", file("rabbitmq.conf"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", file("enabled_plugins"))
        .env("RABBITMQ_MNESIA_BASE", file("mnesia"))
        .env("RABBITMQ_LOG_BASE", file("log"))
        .env("RABBITMQ_LOGS", "-")
        // No busy waiting: idle schedulers would otherwise use CPU that the tests need.
        .env(
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
            "-kernel inet_dist_use_interface {127,0,0,1} +sbwt none +sbwtdcpu none +sbwtdio none",
        );
    let server = Process::start(server).await?;
    let state = RabbitMqState {
        host: host.to_owned(),
        port,
        management_port,
        management_tls_port,
        tls_port,
        ca: home.join("ca.crt"),
        access_log,
        vhost: "/".to_owned(),
        user: OPERATOR.to_owned(),
    };
    let admin = RabbitMq::new(&state)?;
    let started = eventually("RabbitMQ answers", Duration::from_mins(2), async || {
        admin.queues().await.map_err(NotYet::new)?;
        tokio::net::TcpStream::connect((host, port)).await?;
        Ok(())
    });
    server.alive_while(started).await?;
    admin.set_up().await?;
    Ok((state, vec![epmd, server]))
}

/// Creates a virtual host and a user on a running server. This takes a tenth of the time of starting a server, and
/// virtual hosts are isolated from each other.
pub(crate) async fn add_virtual_host(server: &RabbitMqState) -> Result<RabbitMqState> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!("{:x}-{number}", std::process::id());
    let state = RabbitMqState {
        user: format!("{OPERATOR}-{name}"),
        vhost: name,
        ..server.clone()
    };
    RabbitMq::new(&state)?.set_up().await?;
    Ok(state)
}

fn configuration(host: &str, port: u16, management_port: u16, access_log: &Path) -> String {
    [
        format!("listeners.tcp.default = {host}:{port}"),
        format!("management.tcp.ip = {host}"),
        format!("management.tcp.port = {management_port}"),
        format!("management.http_log_dir = {}", access_log.display()),
        format!("default_user = {ADMIN}"),
        format!("default_pass = {ADMIN}"),
        "default_user_tags.administrator = true".to_owned(),
        // How often the management API's queue depths are updated; the default is 5 s.
        "collect_statistics_interval = 1000".to_owned(),
        // The limit of 3.13 and earlier; later versions default to 16 MiB.
        "max_message_size = 134217728".to_owned(),
        "log.console = true".to_owned(),
        "log.file = false".to_owned(),
        String::new(),
    ]
    .join("\n")
}

/// Second listeners for the management API and AMQP, with a certificate signed by a private CA.
fn tls(host: &str, management_port: u16, port: u16, folder: &Path) -> String {
    let file = |name: &str| folder.join(name).display().to_string();
    [
        format!("management.ssl.ip = {host}"),
        format!("management.ssl.port = {management_port}"),
        format!("management.ssl.cacertfile = {}", file("ca.crt")),
        format!("management.ssl.certfile = {}", file("server.crt")),
        format!("management.ssl.keyfile = {}", file("server.key")),
        format!("listeners.ssl.default = {host}:{port}"),
        format!("ssl_options.cacertfile = {}", file("ca.crt")),
        format!("ssl_options.certfile = {}", file("server.crt")),
        format!("ssl_options.keyfile = {}", file("server.key")),
        String::new(),
    ]
    .join("\n")
}

fn epmd_program() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([
            PathBuf::from("/usr/lib/erlang/bin"),
            PathBuf::from("/usr/lib64/erlang/bin"),
        ])
        .map(|folder| folder.join("epmd"))
        .find(|program| program.exists())
        .ok_or_else(|| {
            Error::Missing("epmd is missing: install the package erlang-base".to_owned())
        })
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).context(format_args!("write {}", path.display()))
}
