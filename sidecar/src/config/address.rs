//! Listen address of probes and metrics (SC-18).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use asya_wire::env;

use super::reader::Reader;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    port: u16,
    address: Option<IpAddr>,
}

impl Listen {
    /// The addresses to bind, in order of preference. If none is set, all interfaces, dual-stack if possible.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let all = [
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        ];
        let addresses = self
            .address
            .map_or_else(|| all.to_vec(), |address| vec![address]);
        addresses
            .into_iter()
            .map(|address| SocketAddr::new(address, self.port))
            .collect()
    }
}

/// The address to listen on; `None` if disabled.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Listen> {
    let enabled = reader.boolean(env::METRICS_ENABLED, true);
    let text = reader.text(env::METRICS_ADDR, env::DEFAULT_METRICS_ADDR);
    let Some(listen) = parse(text.trim()) else {
        reader.invalid(
            env::METRICS_ADDR,
            "not an address; write ADDRESS:PORT, :PORT or [::]:PORT",
        );
        return None;
    };
    enabled.then_some(listen)
}

fn parse(text: &str) -> Option<Listen> {
    let (host, port) = text.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let address = match host {
        "" => None,
        "localhost" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        host => {
            let inner = host
                .strip_prefix('[')
                .and_then(|host| host.strip_suffix(']'));
            Some(inner.unwrap_or(host).parse().ok()?)
        }
    };
    Some(Listen { port, address })
}
