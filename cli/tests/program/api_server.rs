//! Runs the built program against a minimal API server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::file;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The lines of a request's head.
type Head = Vec<String>;

/// Responds to requests with a status and a body until the test ends. Returns its address, and the first lines of
/// requests.
fn serve(
    answer: impl Fn(&Head) -> (u16, String) + Send + 'static,
) -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, requests) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let head = head_of(&stream);
            let (code, body) = answer(&head);
            // The test may have ended.
            let _ = sender.send(head.into_iter().next().unwrap_or_default());
            let length = body.len();
            let _ = write!(
                stream,
                "HTTP/1.1 {code} Answer\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
        }
    });
    (address, requests)
}

fn head_of(stream: &TcpStream) -> Head {
    let lines = BufReader::new(stream).lines();
    let lines = lines.map_while(Result::ok);
    lines.take_while(|line| !line.is_empty()).collect()
}

/// A kubeconfig of this API server.
fn kubeconfig(name: &str, server: &str, proxy: &str) -> String {
    let text = format!(
        "current-context: c
contexts: [{{name: c, context: {{cluster: c, user: u, namespace: models}}}}]
clusters: [{{name: c, cluster: {{server: '{server}', proxy-url: '{proxy}'}}}}]
users: [{{name: u, user: {{}}}}]
"
    );
    file(name, &text)
}

fn list(items: &str) -> String {
    format!(
        r#"{{"kind": "AsyncActorList", "apiVersion": "asya.sh/v1alpha1", "metadata": {{}}, "items": [{items}]}}"#
    )
}

const ACTOR: &str = r#"{"kind": "AsyncActor", "apiVersion": "asya.sh/v1alpha1",
    "metadata": {"name": "embed", "namespace": "models"}, "spec": {"transport": "mq"}}"#;

/// Reads lines until one contains this text.
fn wait_for(lines: &Receiver<String>, text: &str) -> String {
    loop {
        let line = lines.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|error| panic!("{text}: {error}"));
        if line.contains(text) {
            return line;
        }
    }
}

fn lines_of(output: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    lines
}

/// docs/cli.md: proxies work as with kubectl. This machine is reached without one, except that `proxy-url` is always
/// used.
#[test]
fn proxy_is_used_as_by_kubectl() {
    let (server, _requests) = serve(|_| (200, list(ACTOR)));
    let (proxy, tunnels) = serve(|_| (502, String::new()));
    let nothing = "http://127.0.0.1:1";
    let proxy: &str = &format!("http://{proxy}");
    let elsewhere = "https://api.invalid:6443";
    let local = format!("http://{server}");
    let tunnel = Some("CONNECT api.invalid:6443 HTTP/1.1");
    for (server, proxy_url, variables, code, expected) in [
        (
            &*local,
            "",
            &[("HTTPS_PROXY", nothing), ("HTTP_PROXY", nothing)][..],
            1,
            None,
        ),
        (elsewhere, "", &[("HTTPS_PROXY", proxy)][..], 2, tunnel),
        (
            elsewhere,
            "",
            &[("HTTPS_PROXY", proxy), ("NO_PROXY", ".invalid")],
            2,
            None,
        ),
        (
            elsewhere,
            "",
            &[("HTTPS_PROXY", proxy), ("NO_PROXY", "127.0.0.1")],
            2,
            tunnel,
        ),
        (
            elsewhere,
            proxy,
            &[("HTTPS_PROXY", nothing), ("NO_PROXY", "*")],
            2,
            tunnel,
        ),
    ] {
        let config = kubeconfig("proxied.yaml", server, proxy_url);
        let mut command = Command::new(assert_cmd::cargo::cargo_bin("kubectl-asya"));
        let command = command
            .args(["status", "--kubeconfig", &config])
            .env_clear();
        let output = command.envs(variables.iter().copied()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{server} {variables:?}: {text}"
        );
        let tunnels: Vec<String> = tunnels.try_iter().collect();
        assert_eq!(
            tunnels.first().map(String::as_str),
            expected,
            "{variables:?}: {text}"
        );
    }
}

/// docs/cli.md: if the user may read actors but not watch them, `--watch` prints an answer and says so.
#[test]
fn watch_that_is_refused_leaves_the_first_answer_and_a_note() {
    let (address, _requests) = serve(|head| {
        let is_watch = head
            .iter()
            .any(|line| line.contains("as=PartialObjectMetadataList"));
        if is_watch {
            (403, "may not watch".to_owned())
        } else {
            (200, list(ACTOR))
        }
    });
    let config = kubeconfig("watched.yaml", &format!("http://{address}"), "");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("kubectl-asya"));
    let mut program = command
        .args(["status", "--watch", "--kubeconfig", &config])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = lines_of(program.stdout.take().unwrap());
    let err = lines_of(program.stderr.take().unwrap());
    wait_for(&out, "embed");
    wait_for(&err, "note: cannot watch asyncactors: ");
    program.kill().unwrap();
    program.wait().unwrap();
}

/// docs/cli.md: `--timeout` limits requests. A credential plugin waits for the user.
#[test]
fn login_takes_no_time_from_requests() {
    let (address, _requests) = serve(|head| {
        let is_missing = head.first().is_some_and(|it| it.contains("/classify "));
        if is_missing {
            let text = r#"{"kind": "Status", "reason": "NotFound", "code": 404, "message": "\"classify\" not found"}"#;
            return (404, text.to_owned());
        }
        (200, list(ACTOR))
    });
    let credential = r#"{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}"#;
    let script = file("login.sh", &format!("sleep 2; echo '{credential}'\n"));
    let config = kubeconfig("login.yaml", &format!("http://{address}"), "");
    let text = std::fs::read_to_string(&config).unwrap();
    let plugin = format!(
        "{{exec: {{apiVersion: client.authentication.k8s.io/v1, command: sh, args: ['{script}'], interactiveMode: Never}}}}"
    );
    let config = file(
        "login.yaml",
        &text.replace("user: {}", &format!("user: {plugin}")),
    );
    for (command, code, expected) in [
        (&["status"][..], 1, "embed"),
        (&["queue", "classify"], 2, "no AsyncActor classify"),
    ] {
        let mut program = Command::new(assert_cmd::cargo::cargo_bin("kubectl-asya"));
        let program = program.args(command);
        let program = program.args(["--timeout", "1s", "--kubeconfig", &config]);
        let output = program.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(expected), "{text}");
    }
}
