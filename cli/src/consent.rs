//! The user's consent.

use std::io::IsTerminal;

use crate::answer::Failure;
use crate::output::ask;

/// Asks the user; without a terminal, the answer is no. Waits on a separate thread, so that connections to brokers keep
/// sending heartbeats for as long as the user takes.
pub async fn confirmed(question: &str) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    ask(question);
    tokio::task::spawn_blocking(read_yes).await.unwrap_or(false)
}

/// The failure if the user has not consented to something; `done` is its participle.
pub fn refused(done: &str) -> Failure {
    let how = if std::io::stdin().is_terminal() {
        "confirm with y, or pass --yes"
    } else {
        "standard input is not a terminal; pass --yes"
    };
    Failure::new(format!("nothing was {done}; {how}"))
}

fn read_yes() -> bool {
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
