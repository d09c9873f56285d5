//! The proxy for the API server, chosen like kubectl does. kube compares `NO_PROXY` with the proxy instead of the API
//! server, and does not exempt loopback addresses.

use std::net::IpAddr;

use http::Uri;

use crate::answer::Failure;

/// The proxy for an API server: the kubeconfig's `proxy-url`, or else that of the environment, unless the environment
/// excludes the server.
///
/// # Errors
/// If the proxy's URL is invalid or of an unsupported kind. The message omits the URL, which may contain a password.
pub fn of(
    server: &Uri,
    proxy_url: Option<String>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, Failure> {
    if let Some(url) = proxy_url {
        return parsed("proxy-url of the kubeconfig", &url).map(Some);
    }
    let either = |upper: &'static str, lower: &'static str| {
        let names = [upper, lower].into_iter();
        let mut values = names.filter_map(|name| Some((name, variable(name)?)));
        values.find(|(_, value)| !value.is_empty())
    };
    let proxy = if server.scheme_str() == Some("http") {
        either("HTTP_PROXY", "http_proxy")
    } else {
        either("HTTPS_PROXY", "https_proxy")
    };
    let excluded = either("NO_PROXY", "no_proxy").map(|(_, value)| value);
    match proxy {
        Some((name, url)) if !is_direct(server, &excluded.unwrap_or_default()) => {
            parsed(name, &url).map(Some)
        }
        _ => Ok(None),
    }
}

fn parsed(name: &str, url: &str) -> Result<Uri, Failure> {
    let url = match url.split_once("://") {
        None => format!("http://{url}"),
        // kube's proxies of this kind resolve names themselves, which is what the `h` means.
        Some(("socks5h", rest)) => format!("socks5://{rest}"),
        Some(_) => url.to_owned(),
    };
    let uri = url.parse::<Uri>().ok();
    let known = ["http", "https", "socks5"];
    let uri = uri.filter(|uri| {
        uri.scheme_str()
            .is_some_and(|scheme| known.contains(&scheme))
    });
    uri.ok_or_else(|| {
        Failure::new(format!(
            "{name} is not the URL of a proxy; name one that begins with http, https or socks5"
        ))
    })
}

/// Whether a server is reached without a proxy: it is on this machine, or an entry of `NO_PROXY` matches it.
fn is_direct(server: &Uri, excluded: &str) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    let host = host.to_lowercase();
    let address = host.parse::<IpAddr>().ok();
    let default_port = if server.scheme_str() == Some("http") {
        80
    } else {
        443
    };
    let port = server.port_u16().unwrap_or(default_port);
    let is_local = host == "localhost" || address.is_some_and(|it| it.is_loopback());
    let mut entries = excluded.split(',').map(|it| it.trim().to_lowercase());
    is_local || entries.any(|entry| is_about(&entry, &host, port, address))
}

/// Whether an entry of `NO_PROXY` matches a host. An entry is `*`, a network, an address or a domain; the latter two
/// may have a port.
fn is_about(entry: &str, host: &str, port: u16, address: Option<IpAddr>) -> bool {
    if entry == "*" {
        return true;
    }
    if let (Some((network, length)), Some(address)) = (entry.split_once('/'), address) {
        return is_in(address, network, length);
    }
    let (name, named_port) = match entry.rsplit_once(':') {
        // An IPv6 address contains colons itself.
        Some((name, named)) if !name.contains(':') || name.ends_with(']') => {
            (name, Some(named.parse::<u16>().ok()))
        }
        _ => (entry, None),
    };
    let name = name.trim_matches(['[', ']']);
    let name = name.strip_prefix('*').unwrap_or(name);
    if name.is_empty() || named_port.is_some_and(|named| named != Some(port)) {
        return false;
    }
    if let Some(address) = address {
        return name.parse() == Ok(address);
    }
    // `.domain` matches only names within a domain, `domain` also the domain itself.
    match name.strip_prefix('.') {
        Some(_) => host.ends_with(name),
        None => host == name || host.ends_with(&format!(".{name}")),
    }
}

fn is_in(address: IpAddr, network: &str, length: &str) -> bool {
    let (Ok(network), Ok(length)) = (network.parse::<IpAddr>(), length.parse::<u32>()) else {
        return false;
    };
    let (difference, bits) = match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            (u128::from(address.to_bits() ^ network.to_bits()), u32::BITS)
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            (address.to_bits() ^ network.to_bits(), u128::BITS)
        }
        _ => return false,
    };
    let host_bits = bits.checked_sub(length);
    // With a prefix length of 0, all bits belong to the host.
    host_bits.is_some_and(|host_bits| difference.checked_shr(host_bits).unwrap_or(0) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: &str = "http://proxy:3128";

    fn chosen(server: &str, proxy_url: Option<&str>, variables: &[(&str, &str)]) -> String {
        let variable = |name: &str| {
            let mut all = variables.iter();
            all.find(|it| it.0 == name).map(|it| it.1.to_owned())
        };
        let server = server.parse().unwrap();
        match of(&server, proxy_url.map(str::to_owned), variable) {
            Ok(proxy) => proxy.map_or_else(|| "none".to_owned(), |it| it.to_string()),
            Err(failure) => failure.to_string(),
        }
    }

    /// docs/cli.md: proxies work as with kubectl.
    #[test]
    fn proxy_of_the_kubeconfig_comes_first_and_the_environment_has_one_per_scheme() {
        let https = ("HTTPS_PROXY", PROXY);
        let all = ("NO_PROXY", "*");
        let api = "https://api.corp:6443";
        for (server, proxy_url, variables, expected) in [
            (api, None, &[][..], "none"),
            (api, None, &[https][..], "http://proxy:3128/"),
            (
                api,
                None,
                &[("HTTPS_PROXY", ""), ("https_proxy", PROXY)],
                "http://proxy:3128/",
            ),
            (
                api,
                None,
                &[("HTTPS_PROXY", "proxy:3128")],
                "http://proxy:3128/",
            ),
            (
                api,
                None,
                &[("HTTPS_PROXY", "socks5h://p:1")],
                "socks5://p:1/",
            ),
            (api, None, &[("HTTP_PROXY", PROXY)], "none"),
            ("http://api.corp", None, &[https], "none"),
            (
                "http://api.corp",
                None,
                &[("http_proxy", PROXY)],
                "http://proxy:3128/",
            ),
            (api, None, &[https, all], "none"),
            (
                api,
                Some("socks5://bastion:1080"),
                &[https, all],
                "socks5://bastion:1080/",
            ),
            (
                "https://127.0.0.1:6443",
                Some(PROXY),
                &[],
                "http://proxy:3128/",
            ),
            (
                api,
                None,
                &[("HTTPS_PROXY", "ftp://user:word@proxy")],
                "HTTPS_PROXY is not the URL of a proxy; name one that begins with http, https or socks5",
            ),
        ] {
            assert_eq!(
                chosen(server, proxy_url, variables),
                expected,
                "{server} {variables:?}"
            );
        }
    }

    /// docs/cli.md: proxies work as with kubectl.
    #[test]
    fn what_no_proxy_is_about_is_reached_directly() {
        for (server, excluded, direct) in [
            ("https://localhost:6443", "", true),
            ("https://127.0.0.1:6443", "", true),
            ("https://[::1]:6443", "", true),
            ("https://api.corp", "", false),
            ("https://api.corp", "corp", true),
            ("https://api.corp", ".corp", true),
            ("https://api.corp", "*.Corp", true),
            ("https://corp", ".corp", false),
            ("https://apicorp", "corp", false),
            ("https://api.corp", "other, api.corp ,", true),
            ("https://api.corp", "proxy", false),
            ("https://api.corp:6443", "api.corp:6443", true),
            ("https://api.corp", "api.corp:443", true),
            ("https://api.corp:6443", "api.corp:443", false),
            ("https://10.1.2.3:6443", "10.0.0.0/8", true),
            ("https://11.1.2.3:6443", "10.0.0.0/8", false),
            ("https://11.1.2.3:6443", "10.0.0.0/33,0.0.0.0/0", true),
            ("https://10.1.2.3", "10.1.2.3", true),
            ("https://10.1.2.3", "1.2.3", false),
            ("https://[fd00::1]", "fd00::/8", true),
            ("https://[fd00::1]", "fe00::/8", false),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", true),
            ("https://[fd00::1]:6443", "fd00::1", true),
            ("https://api.corp", "no/host, ,", false),
            ("https://api.corp", "*", true),
        ] {
            let variables = [("HTTPS_PROXY", PROXY), ("NO_PROXY", excluded)];
            let expected = if direct { "none" } else { "http://proxy:3128/" };
            assert_eq!(
                chosen(server, None, &variables),
                expected,
                "{server} {excluded}"
            );
        }
    }
}
