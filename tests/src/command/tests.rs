use super::rewrite::{expanded, rewritten};
use super::{Listening, on_loopback};

#[test]
fn each_listener_gets_its_own_loopback_port() {
    let mut listening = Listening::new();
    let metrics = on_loopback("--metrics-bind-address=:8080", &mut listening).unwrap();
    let health = on_loopback("--health-probe-bind-address=0.0.0.0:8081", &mut listening).unwrap();
    assert!(
        metrics.starts_with("--metrics-bind-address=127.0.0.1:"),
        "{metrics}"
    );
    let [first, other] =
        ["metrics-bind-address", "health-probe-bind-address"].map(|flag| &listening[flag]);
    assert_eq!((first.port, other.port), (8080, 8081));
    assert_ne!(first.address, other.address);
    assert!(health.ends_with(&other.address));
    assert!(on_loopback("--health-probe-bind-address=everywhere", &mut listening).is_err());
}

#[test]
fn disabled_listeners_and_other_flags_are_kept() {
    let mut listening = Listening::new();
    for word in ["--metrics-bind-address=0", "--leader-elect=true", "run"] {
        assert_eq!(on_loopback(word, &mut listening).unwrap(), word);
    }
    assert!(listening.is_empty());
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn references_to_earlier_variables_are_expanded() {
    let known = pairs(&[("USER", "old"), ("USER", "me"), ("PASSWORD", "a$(USER)")]);
    for (text, wanted) in [
        ("amqp://$(USER):$(PASSWORD)@host", "amqp://me:a$(USER)@host"),
        ("$(LATER) $(USER)", "$(LATER) me"),
        ("$$(USER) $5 $", "$(USER) $5 $"),
        ("$(USER", "$(USER"),
    ] {
        assert_eq!(expanded(text, &known), wanted, "{text}");
    }
}

#[test]
fn paths_of_mounts_become_paths_of_this_host() {
    let mounts = pairs(&[
        ("/tmp", "/tmp/pod/t"),
        ("/opt", "/tmp/pod/o"),
        ("/opt/a.py", "/tmp/pod/a"),
    ]);
    for (text, wanted) in [
        ("/opt/a.py --to=/tmp/x", "/tmp/pod/a --to=/tmp/pod/t/x"),
        ("/opt/b.py", "/tmp/pod/o/b.py"),
        ("/var/run", "/var/run"),
    ] {
        assert_eq!(rewritten(text, &mounts), wanted, "{text}");
    }
}
