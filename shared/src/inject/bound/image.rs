//! Whether an image reference was only redirected: to a mirror registry, or pinned to a digest (INJ-8).

/// Whether `found` refers to the image `desired`. In air-gapped clusters webhooks replace the registry by a mirror or
/// prefix it with one; others add the digest of a tag, or replace the tag by it.
pub(super) fn is_same(desired: &str, found: &str) -> bool {
    let (desired, found) = match found.split_once('@') {
        None => (desired, found),
        Some(_) if desired.contains('@') => (desired, found),
        Some((pinned, _)) if without_tag(pinned) == pinned => (without_tag(desired), pinned),
        Some((tagged, _)) => (desired, tagged),
    };
    let path = without_registry(desired);
    found == desired || without_registry(found) == path || found.ends_with(&format!("/{path}"))
}

/// Strips the tag, but not the port of a registry.
fn without_tag(image: &str) -> &str {
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        _ => image,
    }
}

/// Strips the first component if it looks like a registry host.
fn without_registry(image: &str) -> &str {
    match image.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
        _ => image,
    }
}

#[cfg(test)]
mod tests {
    use super::is_same;

    /// INJ-8
    #[test]
    fn mirrored_or_digest_pinned_image_is_the_same() {
        let desired = "ghcr.io/asya/sidecar:1.2";
        for found in [
            desired,
            "mirror.local:5000/asya/sidecar:1.2",
            "mirror.local/ghcr.io/asya/sidecar:1.2",
            "mirror.local/proxy/asya/sidecar:1.2@sha256:0123",
            "ghcr.io/asya/sidecar:1.2@sha256:0123",
            "ghcr.io/asya/sidecar@sha256:0123",
            "mirror.local:5000/asya/sidecar@sha256:0123",
        ] {
            assert!(is_same(desired, found), "{found}");
        }
        for found in [
            "",
            "sidecar:1.2",
            "ghcr.io/asya/sidecar:1.3",
            "ghcr.io/other/sidecar:1.2",
            "ghcr.io/asya/sidecar",
            "mirror.local/notasya/sidecar:1.2",
            "ghcr.io/asya/sidecar:1.3@sha256:0123",
            "ghcr.io/other/sidecar@sha256:0123",
        ] {
            assert!(!is_same(desired, found), "{found}");
        }
        assert!(is_same(
            "python:3.13-slim",
            "mirror.local/library/python:3.13-slim"
        ));
        assert!(is_same(
            "python:3.13-slim",
            "index.docker.io/library/python@sha256:0123"
        ));
        let pinned = "ghcr.io/asya/sidecar@sha256:0123";
        assert!(is_same(pinned, "mirror.local/asya/sidecar@sha256:0123"));
        assert!(!is_same(pinned, "ghcr.io/asya/sidecar@sha256:4567"));
    }
}
