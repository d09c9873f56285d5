//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::ByteString;
use kube::Client;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};

use super::Options;
use crate::error::{Context, Error, Result};
use crate::eventually::{NotYet, eventually};
use crate::pki::{self, TestCa, Use};
use crate::ports;
use crate::process::{Process, Spec};
use crate::real;

const ADMIN_TOKEN: &str = "admintoken";
const START: Duration = Duration::from_mins(2);

/// The control plane's processes and how to reach them.
pub(crate) struct ControlPlane {
    pub(crate) api_server: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) client: Client,
    pub(crate) processes: Vec<Process>,
}

/// Starts the control plane; `folder/egress.sock` must be listening. With a real node, it is reachable from pods, too.
pub(crate) async fn start(bin: &Path, folder: &Path, options: Options) -> Result<ControlPlane> {
    write_certificates(folder, options.real)?;
    write_file(
        &folder.join("tokens.csv"),
        &format!("{ADMIN_TOKEN},admin,admin,\"system:masters\"\n"),
    )?;
    write_json(&folder.join("egress.yaml"), &egress_configuration(folder))?;
    write_json(&folder.join("audit-policy.yaml"), &audit_policy())?;
    let (etcd_port, api_port) = (ports::free()?, ports::free()?);
    let api_server = format!("https://127.0.0.1:{api_port}");
    let kubeconfig = folder.join("kubeconfig");
    write_json(
        &kubeconfig,
        &self::kubeconfig(&api_server, &folder.join("ca.crt"), ADMIN_TOKEN)?,
    )?;
    let client = client(&api_server, folder)?;

    let etcd = Process::start(etcd(bin, folder, etcd_port, ports::free()?)).await?;
    let server = api_server_spec(bin, folder, (etcd_port, api_port), options);
    let server = Process::start(server).await?;
    let ready = async {
        let answer = eventually("the API server is ready", START, async || {
            let request = http::Request::get("/readyz").body(Vec::new())?;
            let text = client.request_text(request).await?;
            if text == "ok" {
                Ok(())
            } else {
                Err(NotYet::new(text))
            }
        });
        server.alive_while(answer).await
    };
    etcd.alive_while(ready).await?;
    // Started last, because both exit if they cannot read their configuration from the API server.
    let manager =
        Process::start(controller_manager(bin, folder, &kubeconfig, ports::free()?)).await?;
    let scheduler = Process::start(scheduler(bin, folder, &kubeconfig, ports::free()?)).await?;
    Ok(ControlPlane {
        api_server,
        kubeconfig,
        client,
        processes: vec![etcd, server, manager, scheduler],
    })
}

/// A kubeconfig with a bearer token and an inlined CA, so that it depends on no other file.
pub(crate) fn kubeconfig(server: &str, authority: &Path, token: &str) -> Result<Value> {
    let mut cluster = json!({"server": server});
    if server.starts_with("https:") {
        let pem = std::fs::read(authority).context(format_args!("read {}", authority.display()))?;
        cluster["certificate-authority-data"] = json!(ByteString(pem));
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }))
}

/// The administrator's client for the API server, or for a proxy in front of it.
pub(crate) fn client(server: &str, folder: &Path) -> Result<Client> {
    let mut config = kube::Config::new(server.parse().map_err(Error::other)?);
    config.auth_info.token = Some(ADMIN_TOKEN.to_owned().into());
    let authority = folder.join("ca.crt");
    let pem = std::fs::read(&authority).context(format_args!("read {}", authority.display()))?;
    let certificates = rustls::pki_types::pem::PemObject::pem_slice_iter(&pem);
    let certificates: Result<Vec<CertificateDer<'_>>, _> = certificates.collect();
    config.root_cert = Some(
        certificates
            .map_err(Error::other)?
            .iter()
            .map(|der| der.to_vec())
            .collect(),
    );
    // No retries: tests must see each failure.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

pub(crate) fn write_json(path: &Path, value: &Value) -> Result<()> {
    write_file(path, &serde_json::to_string_pretty(value)?)
}

fn write_file(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).context(format_args!("write {}", path.display()))
}

fn write_certificates(folder: &Path, real: bool) -> Result<()> {
    let authority = TestCa::new("test-ca")?;
    authority.write(folder, "ca")?;
    let mut hosts = vec![
        "127.0.0.1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
    ];
    if real {
        hosts.extend([real::ADDRESS, real::API_SERVICE]);
        authority.issue(folder, "to-kubelet", "kube-apiserver", &[], Use::Client)?;
    }
    authority.issue(folder, "api", "kube-apiserver", &hosts, Use::Server)?;
    let front_proxy = TestCa::new("test-front-proxy-ca")?;
    front_proxy.write(folder, "front-proxy-ca")?;
    front_proxy.issue(
        folder,
        "front-proxy",
        "front-proxy-client",
        &[],
        Use::Client,
    )?;
    pki::write_signing_key(folder, "service-accounts")
}

fn egress_configuration(folder: &Path) -> Value {
    json!({
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{
            "name": "cluster",
            "connection": {
                "proxyProtocol": "HTTPConnect",
                "transport": {"uds": {"udsName": folder.join("egress.sock")}},
            },
        }],
    })
}

fn audit_policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted"],
        "rules": [
            {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
            {"level": "None"},
        ],
    })
}

fn spec(name: &str, bin: &Path, folder: &Path) -> Spec {
    Spec::new(name, bin.join(name))
        .log(folder.join(format!("{name}.log")))
        .env("HOME", folder.display())
        // Otherwise garbage collection takes a quarter of an API server's time: its heap is small, and often full.
        .env("GOGC", "400")
}

fn etcd(bin: &Path, folder: &Path, port: u16, peer_port: u16) -> Spec {
    let (client, peer) = (
        format!("http://127.0.0.1:{port}"),
        format!("http://127.0.0.1:{peer_port}"),
    );
    spec("etcd", bin, folder).args([
        "--name=test".to_owned(),
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=test={peer}"),
        // Data need not survive a machine crash.
        "--unsafe-no-fsync".to_owned(),
        // etcd 3.5 supports only this name, and 3.6 still accepts it.
        "--experimental-watch-progress-notify-interval=5s".to_owned(),
        "--log-level=warn".to_owned(),
    ])
}

fn api_server_spec(
    bin: &Path,
    folder: &Path,
    (etcd_port, port): (u16, u16),
    options: Options,
) -> Spec {
    let file = |name: &str| folder.join(name).display().to_string();
    let reached: &[&str] = if options.real {
        // A sandbox is not reachable from outside.
        &[
            "--bind-address=0.0.0.0",
            "--kubelet-preferred-address-types=InternalIP",
        ]
    } else {
        &[
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
        ]
    };
    let spec = spec("kube-apiserver", bin, folder).args(reached);
    let spec = if options.real {
        spec.args([
            format!("--advertise-address={}", real::ADDRESS),
            format!("--kubelet-client-certificate={}", file("to-kubelet.crt")),
            format!("--kubelet-client-key={}", file("to-kubelet.key")),
            format!("--kubelet-certificate-authority={}", file("ca.crt")),
        ])
    } else {
        spec
    };
    let spec = if options.guards_owners {
        spec.arg("--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
    } else {
        spec
    };
    spec.args([
        format!("--etcd-servers=http://127.0.0.1:{etcd_port}"),
        format!("--secure-port={port}"),
        "--service-cluster-ip-range=198.51.100.0/24".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--allow-privileged=true".to_owned(),
        "--profiling=false".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
    ])
    .args(
        [
            ("tls-cert-file", "api.crt"),
            ("tls-private-key-file", "api.key"),
            ("client-ca-file", "ca.crt"),
            ("token-auth-file", "tokens.csv"),
            ("service-account-key-file", "service-accounts.pub"),
            ("service-account-signing-key-file", "service-accounts.key"),
            ("requestheader-client-ca-file", "front-proxy-ca.crt"),
            ("proxy-client-cert-file", "front-proxy.crt"),
            ("proxy-client-key-file", "front-proxy.key"),
            ("egress-selector-config-file", "egress.yaml"),
            ("audit-policy-file", "audit-policy.yaml"),
            ("audit-log-path", "audit.log"),
        ]
        .map(|(flag, name)| format!("--{flag}={}", file(name))),
    )
    // Megabytes. Tests read the log by offset, so it must not be rotated.
    .arg("--audit-log-maxsize=10000")
}

fn controller_manager(bin: &Path, folder: &Path, kubeconfig: &Path, port: u16) -> Spec {
    let file = |name: &str| folder.join(name).display().to_string();
    client_of_api_server("kube-controller-manager", bin, folder, kubeconfig, port).args([
        "--use-service-account-credentials=true".to_owned(),
        format!(
            "--service-account-private-key-file={}",
            file("service-accounts.key")
        ),
        format!("--root-ca-file={}", file("ca.crt")),
        format!("--cluster-signing-cert-file={}", file("ca.crt")),
        format!("--cluster-signing-key-file={}", file("ca.key")),
        // Short periods, so that tests do not wait for the autoscaler.
        "--horizontal-pod-autoscaler-sync-period=2s".to_owned(),
        "--horizontal-pod-autoscaler-downscale-stabilization=5s".to_owned(),
        "--horizontal-pod-autoscaler-initial-readiness-delay=0s".to_owned(),
        "--concurrent-deployment-syncs=20".to_owned(),
        "--concurrent-replicaset-syncs=20".to_owned(),
    ])
}

fn scheduler(bin: &Path, folder: &Path, kubeconfig: &Path, port: u16) -> Spec {
    client_of_api_server("kube-scheduler", bin, folder, kubeconfig, port)
}

fn client_of_api_server(
    name: &str,
    bin: &Path,
    folder: &Path,
    kubeconfig: &Path,
    port: u16,
) -> Spec {
    let kubeconfig = kubeconfig.display();
    spec(name, bin, folder).args([
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        "--leader-elect=false".to_owned(),
        // The default limits would need about a minute for a few hundred workloads.
        "--kube-api-qps=2000".to_owned(),
        "--kube-api-burst=4000".to_owned(),
    ])
}
