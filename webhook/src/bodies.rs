//! Memory that bodies of requests may take, over all connections (ADM-22).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use asya_process::fair::{Share, victim};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The memory, and who has how much of it. A clone looks at the same.
#[derive(Clone)]
pub struct Bodies(Arc<Inner>);

struct Inner {
    most: usize,
    table: Mutex<Table>,
    /// Somebody gave memory back.
    freed: Notify,
}

#[derive(Default)]
struct Table {
    last: u64,
    taken: usize,
    bodies: BTreeMap<u64, Entry>,
}

struct Entry {
    peer: IpAddr,
    size: usize,
    since: Instant,
    given_up: CancellationToken,
}

/// This body was given up for others: its client sends the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp;

impl Bodies {
    /// All together may take `most` bytes.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner {
            most,
            table: Mutex::default(),
            freed: Notify::new(),
        }))
    }

    /// How many bytes they take.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.0.table().taken
    }

    /// Of a body that begins to arrive.
    pub fn begin(&self, peer: IpAddr) -> Memory {
        let given_up = CancellationToken::new();
        let mut table = self.0.table();
        table.last += 1;
        let id = table.last;
        let entry = Entry {
            peer,
            size: 0,
            since: Instant::now(),
            given_up: given_up.clone(),
        };
        table.bodies.insert(id, entry);
        drop(table);
        Memory {
            inner: Arc::clone(&self.0),
            id,
            given_up,
        }
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Takes so much more for a body if there is room; else gives up the bodies that it needs, or this one.
    fn take(&mut self, id: u64, more: usize, most: usize) -> Result<bool, GivenUp> {
        let alive = |entry: &Entry| !entry.given_up.is_cancelled();
        if self.bodies.get(&id).is_none_or(|entry| !alive(entry)) {
            return Err(GivenUp);
        }
        if self.taken + more <= most {
            self.taken += more;
            self.bodies.entry(id).and_modify(|entry| entry.size += more);
            return Ok(true);
        }
        // What was given up is still there until its request is answered.
        let given_up = self.bodies.values().filter(|entry| !alive(entry));
        let mut kept = self.taken - given_up.map(|entry| entry.size).sum::<usize>();
        while kept + more > most {
            let shares = self.bodies.iter().filter(|(_, entry)| alive(entry));
            let shares: Vec<_> = shares.map(|(key, it)| it.share(*key, id, more)).collect();
            let share = victim(&shares)
                .filter(|share| share.key != id)
                .ok_or(GivenUp)?;
            kept -= share.size;
            if let Some(entry) = self.bodies.get(&share.key) {
                entry.given_up.cancel();
            }
        }
        Ok(false)
    }
}

impl Entry {
    fn share(&self, key: u64, asking: u64, more: usize) -> Share<u64> {
        Share {
            key,
            peer: self.peer,
            rank: 0,
            size: self.size + if key == asking { more } else { 0 },
            since: self.since,
        }
    }
}

/// The memory of one body; given back when it is dropped.
pub struct Memory {
    inner: Arc<Inner>,
    id: u64,
    given_up: CancellationToken,
}

impl Memory {
    /// Takes so much more.
    ///
    /// # Errors
    /// When others need it more.
    pub async fn take(&self, more: usize) -> Result<(), GivenUp> {
        loop {
            let freed = self.inner.freed.notified();
            tokio::pin!(freed);
            // Before the look, so that nothing that is freed after it is missed.
            freed.as_mut().enable();
            if self.inner.table().take(self.id, more, self.inner.most)? {
                return Ok(());
            }
            tokio::select! {
                () = freed => {}
                () = self.given_up.cancelled() => return Err(GivenUp),
            }
        }
    }

    /// Ends when the body is given up for others.
    pub async fn given_up(&self) {
        self.given_up.cancelled().await;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut table = self.inner.table();
        if let Some(entry) = table.bodies.remove(&self.id) {
            table.taken -= entry.size;
        }
        drop(table);
        self.inner.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
