//! Handles Ctrl-C while a command does something that must not be left half done.

use futures::channel::oneshot;
use futures::future::{BoxFuture, FutureExt, Shared};

use crate::answer::INTERRUPTED;

/// Whether the user has pressed Ctrl-C.
#[derive(Clone, Debug)]
pub struct Interrupt(Shared<BoxFuture<'static, ()>>);

impl Interrupt {
    /// Listens from now on: Ctrl-C no longer ends the program by itself. A second Ctrl-C does, in case a broker does
    /// not answer.
    pub fn listen() -> Self {
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            // Without signals, it never comes.
            if tokio::signal::ctrl_c().await.is_ok() {
                let _ = tell.send(());
                if tokio::signal::ctrl_c().await.is_ok() {
                    std::process::exit(INTERRUPTED.into());
                }
            }
        });
        Self::when(async {
            if told.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }

    /// An interrupt that comes when a future ends.
    pub fn when(ended: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(ended.boxed().shared())
    }

    #[cfg(test)]
    pub fn never() -> Self {
        Self::when(std::future::pending())
    }

    pub fn has_come(&self) -> bool {
        self.0.clone().now_or_never().is_some()
    }

    /// Resolves when the interrupt comes.
    pub async fn come(&self) {
        self.0.clone().await;
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[tokio::test]
    async fn first_ctrl_c_is_noticed_and_does_not_end_the_program() {
        let interrupt = Interrupt::listen();
        // Lets the task begin to listen.
        tokio::task::yield_now().await;
        assert!(!interrupt.has_come());
        let kill = format!("kill -INT {}", std::process::id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
        interrupt.come().await;
        assert!(interrupt.has_come());
    }
}
