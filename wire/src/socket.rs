//! The socket between sidecar and runtime (RUN-10, RUN-14).

/// Default directory of the socket and the ready file.
pub const DIRECTORY: &str = "/var/run/asya";
/// File name of the runtime's socket in that directory.
pub const SOCKET: &str = "asya-runtime.sock";
/// File next to the socket, present while the runtime accepts requests. Its first line is `ready`; the others have the
/// form `NAME=VALUE`.
pub const READY_FILE: &str = "runtime-ready";

/// In the ready file: how many requests the runtime serves at a time (SC-54).
const CONCURRENCY: &str = "concurrency";

/// How many requests a runtime serves at a time, according to its ready file; one if the file does not tell.
///
/// ```
/// assert_eq!(asya_wire::socket::concurrency_in("ready\nconcurrency=8\n"), 8);
/// assert_eq!(asya_wire::socket::concurrency_in("ready"), 1);
/// ```
#[must_use]
pub fn concurrency_in(ready_file: &str) -> usize {
    ready_file
        .lines()
        .filter_map(|line| line.split_once('='))
        .find(|(name, _)| name.trim() == CONCURRENCY)
        .and_then(|(_, value)| value.trim().parse().ok())
        .filter(|count| *count > 0)
        .unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::concurrency_in;

    /// SC-54
    #[test]
    fn runtime_without_usable_ready_file_serves_one_request_at_a_time() {
        for text in [
            "",
            "ready",
            "ready\n",
            "ready\nconcurrency=0",
            "ready\nconcurrency=many",
        ] {
            assert_eq!(concurrency_in(text), 1, "{text:?}");
        }
    }

    /// SC-54
    #[test]
    fn other_lines_of_the_ready_file_are_skipped() {
        assert_eq!(
            concurrency_in("ready\nversion=2\n concurrency = 32 \nx"),
            32
        );
    }
}
