//! Scenarios on a real cluster. Most share the one that `asya-cluster run`
//! starts, each in a namespace of its own; one that breaks its cluster starts
//! its own.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod harness;
mod lifecycle;
mod standalone;

/// The turn to run a cluster of one's own: more than one at a time besides the
/// shared one would slow everything down.
async fn own_cluster() -> tokio::sync::MutexGuard<'static, ()> {
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    TURN.lock().await
}
