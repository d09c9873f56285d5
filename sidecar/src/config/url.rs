//! URLs of HTTP servers.

use super::reader::Reader;

/// The `http://` or `https://` URL in a variable, without a trailing slash.
pub(super) fn http(reader: &mut Reader<'_>, variable: &str) -> Option<String> {
    let text = reader.get(variable)?.trim();
    let url: Result<hyper::Uri, _> = text.parse();
    let usable = url.is_ok_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some()
    });
    if !usable {
        reader.invalid(
            variable,
            "not a URL; write http://HOST:PORT or https://HOST:PORT",
        );
        return None;
    }
    Some(text.trim_end_matches('/').to_owned())
}
