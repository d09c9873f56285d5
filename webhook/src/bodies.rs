//! Limits the memory of request bodies across all connections (ADM-22).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use asya_process::fair::{Share, victim};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The memory budget and its holders. Clones share state.
#[derive(Clone)]
pub struct Bodies(Arc<Inner>);

struct Inner {
    most: usize,
    table: Mutex<Table>,
    /// Notified when memory is released.
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

/// The body was given up for others, because its client uses the most memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp;

impl Bodies {
    /// Creates a budget of `most` bytes.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner {
            most,
            table: Mutex::default(),
            freed: Notify::new(),
        }))
    }

    /// Bytes in use.
    #[cfg(test)]
    pub fn taken(&self) -> usize {
        self.0.table.lock().taken
    }

    /// Registers a body that begins to arrive.
    pub fn begin(&self, peer: IpAddr) -> Memory {
        let given_up = CancellationToken::new();
        let mut table = self.0.table.lock();
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

impl Table {
    /// Reserves `more` bytes for a body if there is room; otherwise gives up the bodies in its way, or this one.
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
        // A body that was given up holds its memory until its request is answered.
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

/// The memory of one body; released on drop.
pub struct Memory {
    inner: Arc<Inner>,
    id: u64,
    given_up: CancellationToken,
}

impl Memory {
    /// Reserves `more` bytes, waiting for room if necessary.
    ///
    /// # Errors
    /// When this body is given up for others.
    pub async fn take(&self, more: usize) -> Result<(), GivenUp> {
        loop {
            let freed = self.inner.freed.notified();
            tokio::pin!(freed);
            // Register before the check, so that no release in between is missed.
            freed.as_mut().enable();
            if self
                .inner
                .table
                .lock()
                .take(self.id, more, self.inner.most)?
            {
                return Ok(());
            }
            tokio::select! {
                () = freed => {}
                () = self.given_up.cancelled() => return Err(GivenUp),
            }
        }
    }

    /// Waits until the body is given up for others.
    pub async fn given_up(&self) {
        self.given_up.cancelled().await;
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut table = self.inner.table.lock();
        if let Some(entry) = table.bodies.remove(&self.id) {
            table.taken -= entry.size;
        }
        drop(table);
        self.inner.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
