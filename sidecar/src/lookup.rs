//! DNS lookups. They run on separate threads and cannot be cancelled.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::lookup_host;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

type Found = io::Result<Vec<SocketAddr>>;

/// Lookups of one host, at most one at a time: a request that times out leaves its running lookup to the next one.
/// Otherwise, lookups of an unresolvable host would queue up on these threads and delay those of the broker (SC-20).
#[derive(Clone)]
pub struct Lookup {
    host: String,
    port: u16,
    running: Arc<Mutex<Option<JoinHandle<Found>>>>,
}

impl Lookup {
    #[must_use]
    pub fn new(host: String, port: u16) -> Self {
        Self {
            host,
            port,
            running: Arc::default(),
        }
    }

    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The addresses of the host.
    ///
    /// # Errors
    /// If the lookup fails.
    pub async fn addresses(&self) -> Found {
        let (host, port) = (self.host.clone(), self.port);
        self.join(async move { Ok(lookup_host((host, port)).await?.collect()) })
            .await
    }

    /// Waits for the running lookup, or starts this one.
    async fn join(&self, lookup: impl Future<Output = Found> + Send + 'static) -> Found {
        let mut running = self.running.lock().await;
        let found = running.get_or_insert_with(|| tokio::spawn(lookup)).await;
        *running = None;
        found.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::Lookup;

    /// SC-20, SC-89
    #[tokio::test(start_paused = true)]
    async fn request_that_times_out_leaves_its_lookup_to_the_next() {
        let lookup = Lookup::new("gateway".to_owned(), 80);
        let started = Arc::new(AtomicUsize::new(0));
        let slow = || {
            let started = started.clone();
            async move {
                started.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_secs(30)).await;
                Ok(vec![([127, 0, 0, 1], 80).into()])
            }
        };
        for _ in 0..5 {
            let clone = lookup.clone();
            let late = timeout(Duration::from_secs(5), clone.join(slow())).await;
            assert!(late.is_err());
        }
        assert_eq!(started.load(Ordering::Relaxed), 1);
        let found = timeout(Duration::from_secs(6), lookup.join(slow())).await;
        assert_eq!(found.expect("in time").expect("an address").len(), 1);
        let late = timeout(Duration::from_secs(5), lookup.join(slow())).await;
        assert!(late.is_err());
        assert_eq!(started.load(Ordering::Relaxed), 2, "the next is a new one");
    }

    /// SC-89
    #[tokio::test]
    async fn address_needs_no_lookup() {
        let found = Lookup::new("::1".to_owned(), 80).addresses().await;
        assert_eq!(
            found.expect("itself"),
            ["[::1]:80".parse().expect("an address")]
        );
    }
}
