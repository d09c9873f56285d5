//! The result of a command, and its exit code.

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

/// Exit code of a command that Ctrl-C has ended, as shells report it.
pub const INTERRUPTED: u8 = 130;

/// The result of a command, which determines its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// 0: nothing to report.
    Fine,
    /// 1: there are findings.
    Findings,
    /// 2: the answer could not be determined.
    Unknown,
    /// 130: the user ended the command early.
    Interrupted,
}

impl From<Answer> for ExitCode {
    fn from(answer: Answer) -> Self {
        Self::from(match answer {
            Answer::Fine => 0,
            Answer::Findings => 1,
            Answer::Unknown => 2,
            Answer::Interrupted => INTERRUPTED,
        })
    }
}

/// The output of a command, and its exit code.
#[derive(Debug)]
pub struct Report {
    /// For standard output.
    pub text: String,
    /// For standard error, one line each: what is missing from the answer, and why.
    pub notes: Vec<String>,
    pub answer: Answer,
}

impl Report {
    pub fn new(text: String, answer: Answer) -> Self {
        Self {
            text,
            notes: Vec::new(),
            answer,
        }
    }

    #[must_use]
    pub fn with_notes(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }
}

/// Why a command has no answer: one line that says what is wrong and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure(String);

impl Failure {
    /// Joins the text into a single line, whatever a server or parser has put into it.
    pub fn new(text: impl AsRef<str>) -> Self {
        let words: Vec<&str> = text.as_ref().split_whitespace().collect();
        Self(words.join(" "))
    }

    pub fn timed_out(timeout: Duration) -> Self {
        let seconds = timeout.as_secs_f64();
        Self(format!(
            "no answer within {seconds} s; raise --timeout, or check the connection with `kubectl version`"
        ))
    }
}

/// Limits the total time of `requests`.
///
/// # Errors
/// Those of `requests`, or a timeout.
pub async fn within<T, F: From<Failure>>(
    timeout: Duration,
    requests: impl Future<Output = Result<T, F>>,
) -> Result<T, F> {
    // Such futures are large.
    let ended = tokio::time::timeout(timeout, Box::pin(requests)).await;
    ended.unwrap_or_else(|_| Err(Failure::timed_out(timeout).into()))
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_answered_in_time_is_a_failure() {
        let limit = Duration::from_secs(15);
        let silent = std::future::pending::<Result<(), Failure>>();
        assert_eq!(within(limit, silent).await, Err(Failure::timed_out(limit)));
        let answered = async { Ok::<_, Failure>(1) };
        assert_eq!(within(limit, answered).await, Ok(1));
    }

    #[test]
    fn failure_is_one_line() {
        let failure = Failure::new("cannot parse\n  line 3:\tno mapping\n");
        assert_eq!(failure.to_string(), "cannot parse line 3: no mapping");
    }
}
