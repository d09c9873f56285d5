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
