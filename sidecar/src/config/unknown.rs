//! Detects unknown `ASYA_*` variables (SC-2, SC-6).

use asya_wire::env;

use super::reader::Reader;

/// More known variables, including those of the pod's other containers.
const KNOWN: [&str; 3] = [
    env::SOCKET_NAME,
    "ASYA_LOG_FORMAT",
    "ASYA_TEST_SIDECAR_CRASH",
];

pub(super) fn report(reader: &mut Reader<'_>) {
    let names: Vec<&str> = reader
        .names()
        .filter(|name| name.starts_with("ASYA_"))
        .collect();
    let (later, rest): (Vec<&str>, Vec<&str>) =
        names.into_iter().partition(|name| is_newer_setting(name));
    for name in later {
        reader.invalid(
            name,
            "is a setting of a later generation, which this sidecar does not support; remove it",
        );
    }
    let unknown = |name: &&str| {
        !env::ALL.contains(name) && !KNOWN.contains(name) && !is_made_of_a_service(name)
    };
    let unknown: Vec<&str> = rest.into_iter().filter(unknown).collect();
    if !unknown.is_empty() {
        reader.warn(&unknown.join(", "), "unknown variable, ignored");
    }
}

fn is_newer_setting(name: &str) -> bool {
    env::OF_LATER_GENERATIONS.contains(&name) || name.starts_with(env::PREFIX_OF_LATER_GENERATIONS)
}

/// Whether Kubernetes may have derived this variable from a Service named `asya-…`.
fn is_made_of_a_service(name: &str) -> bool {
    let of_a_port = || {
        let (_, port) = name.rsplit_once("_PORT_")?;
        let (number, rest) = port.split_once('_')?;
        let protocols = ["TCP", "UDP", "SCTP"];
        let is_port = number.bytes().all(|digit| digit.is_ascii_digit());
        Some(is_port && protocols.iter().any(|protocol| rest.starts_with(protocol)))
    };
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || of_a_port().unwrap_or(false)
        || (name.ends_with("_PORT") && !env::ALL.contains(&name))
}
