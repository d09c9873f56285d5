use std::collections::BTreeMap;

use super::on_loopback;

#[test]
fn every_listener_moves_to_a_loopback_port_of_its_own() {
    let mut listening = BTreeMap::new();
    let metrics = on_loopback("--metrics-bind-address=:8080", &mut listening).unwrap();
    let health = on_loopback("--health-probe-bind-address=0.0.0.0:8081", &mut listening).unwrap();
    assert!(
        metrics.starts_with("--metrics-bind-address=127.0.0.1:"),
        "{metrics}"
    );
    assert_ne!(
        listening["metrics-bind-address"],
        listening["health-probe-bind-address"]
    );
    assert!(health.ends_with(&listening["health-probe-bind-address"]));
}

#[test]
fn a_listener_that_is_off_and_other_flags_stay() {
    let mut listening = BTreeMap::new();
    for word in ["--metrics-bind-address=0", "--leader-elect=true", "run"] {
        assert_eq!(on_loopback(word, &mut listening).unwrap(), word);
    }
    assert!(listening.is_empty());
}
