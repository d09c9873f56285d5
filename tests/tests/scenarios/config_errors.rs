//! A configuration that cannot work stops the controller with an error that names the mistake. No cluster is needed:
//! the configuration is validated before the first request to one.

use std::process::Stdio;
use std::time::Duration;

use asya_tests::operator::bin_folder;
use tokio::process::Command;

/// Exit status and output of the controller.
struct Ended {
    code: Option<i32>,
    said: String,
}

async fn run(args: &[&str], env: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(bin_folder().unwrap().join("asya-controller"));
    command
        .args(args)
        .env_clear()
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ended = tokio::time::timeout(Duration::from_secs(10), command.output()).await;
    let output = ended
        .unwrap_or_else(|_| panic!("{args:?} {env:?} did not stop it"))
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    Ended {
        code: output.status.code(),
        said: String::from_utf8_lossy(&said).replace("\\\"", "\""),
    }
}

async fn stops(args: &[&str], env: &[(&str, &str)], says: &[&str]) {
    let Ended { code, said } = run(args, env).await;
    assert!(
        matches!(code, Some(1 | 2)),
        "{args:?} {env:?}: {code:?}\n{said}"
    );
    for text in says {
        assert!(
            said.contains(text),
            "{args:?} {env:?}: {text} is not in\n{said}"
        );
    }
    // An invalid configuration is reported without a panic.
    assert!(!said.contains("panicked"), "{said}");
}

/// OPS-2, OPS-3, RMQ-1
#[tokio::test]
async fn invalid_transport_configuration_is_reported_with_its_path() {
    let rabbitmq = |config: &str| {
        format!(
            r#"{{"transports": {{"main": {{"type": "rabbitmq", "enabled": true, "config": {config}}}}}}}"#
        )
    };
    for (config, says) in [
        (r#"{"transports": "#.to_owned(), "EOF"),
        (r#"{"transport": {}}"#.to_owned(), "unknown field `transport`"),
        (rabbitmq(r#"{"host": "h", "queues": {"dlq": {"maxRetires": 3}}}"#), "transports.main.config.queues.dlq.maxRetires: unknown"),
        (rabbitmq(r#"{"host": "h", "management": {"scheme": "ftp"}}"#), "transports.main.config.management.scheme: "),
        (rabbitmq(r#"{"host": "h", "passwordSecretRef": {"name": "s"}}"#), "transports.main.config.passwordSecretRef: missing field `key`"),
        (rabbitmq(r#"{"host": "h", "port": "5672"}"#), "transports.main.config.port: "),
        (rabbitmq(r#"{"host": "amqp://h:5672"}"#), "transports.main.config.host: "),
        (rabbitmq("{}"), "transports.main.config.host: must be set"),
        (r#"{"transports": {"main": {"type": "pigeon"}}}"#.to_owned(), r#"transports.main.type: "pigeon" is not a transport type"#),
        (r#"{"transports": {"main": {"enabled": true}}}"#.to_owned(), "transports.main: missing field `type`"),
        // A disabled transport is validated, too.
        (r#"{"transports": {"off": {"type": "sqs", "enabled": false, "config": {"regoin": "x"}}}}"#.to_owned(), "transports.off.config.regoin: unknown"),
    ] {
        stops(&[], &[("ASYA_TRANSPORT_CONFIG", &config)], &["ASYA_TRANSPORT_CONFIG", says]).await;
    }
}

/// OPS-1, OPS-2, QUE-12
#[tokio::test]
async fn invalid_variable_or_flag_is_named() {
    for (variable, value, says) in [
        (
            "ASYA_SIDECAR_DEFAULT_RESOURCES",
            r#"{"limits": {"memory": "1GB"}}"#,
            r#"limits.memory: "1GB" is not a quantity"#,
        ),
        (
            "ASYA_SIDECAR_DEFAULT_RESOURCES",
            r#"{"limit": {}}"#,
            "limit: unknown key",
        ),
        ("ASYA_SIDECAR_DEFAULT_RESOURCES", "lots", "expected value"),
        ("ASYA_MAX_CONCURRENT_RECONCILES", "many", "many"),
        ("ASYA_MAX_CONCURRENT_RECONCILES", "0", "0"),
        (
            "ASYA_DISABLE_QUEUE_MANAGEMENT",
            "off",
            "must be true, 1, false or 0",
        ),
    ] {
        stops(&[], &[(variable, value)], &[variable, says]).await;
    }
    for flag in [
        "--no-such-flag",
        "--leader-elect=maybe",
        "--max-concurrent-reconciles=-1",
        "--log-level=asya=loud",
        "--kubeconfig=/nowhere/config",
    ] {
        let name = flag.split('=').next().unwrap();
        stops(&[flag], &[], &[name]).await;
    }
}

/// RUN-1
#[tokio::test]
async fn missing_or_empty_runtime_script_stops_the_start() {
    for variable in ["ASYA_RUNTIME_SCRIPT_PATH", "ASYA_RUNTIME_LOCAL_PATH"] {
        for (path, says) in [
            ("/nowhere/runtime.py", "No such file"),
            ("/dev/null", "empty"),
        ] {
            stops(&[], &[(variable, path)], &[variable, path, says]).await;
        }
    }
}

/// OPS-1: a port in use is reported with its flag, rather than as a failed probe.
#[tokio::test]
async fn port_in_use_stops_the_start_and_names_its_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let folder = std::env::temp_dir().join(format!("asya-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let kubeconfig = folder.join("kubeconfig");
    // Nothing listens there: ports are bound before the API server is contacted.
    let content = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {}}],
    });
    std::fs::write(&kubeconfig, content.to_string()).unwrap();
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    for (flag, other) in [
        ("--metrics-bind-address", "--health-probe-bind-address"),
        ("--health-probe-bind-address", "--metrics-bind-address"),
    ] {
        let args = [
            &*kubeconfig,
            &format!("{flag}={address}"),
            &format!("{other}=127.0.0.1:0"),
        ];
        stops(&args, &[], &[flag, &address]).await;
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
