//! The user's consent.

use std::io::{IsTerminal, Write};

/// Asks the user; without a terminal, the answer is no. Waits on a thread of its own, so that connections to brokers
/// keep sending heartbeats however long the user thinks.
pub async fn confirmed(question: &str) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    eprint!("{question} [y/N] ");
    tokio::task::spawn_blocking(read_yes).await.unwrap_or(false)
}

fn read_yes() -> bool {
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
}
