//! Limits the memory of request bodies across all connections (ADM-22).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use asya_process::fair::{Share, eviction_candidate};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The memory budget and its reservations. Clones share state.
#[derive(Clone)]
pub struct BodyBudget(Arc<Inner>);

struct Inner {
    max_bytes: usize,
    table: Mutex<Table>,
    /// Notified when memory is released.
    freed: Notify,
}

#[derive(Default)]
struct Table {
    last: u64,
    used: usize,
    bodies: BTreeMap<u64, Entry>,
}

struct Entry {
    peer: IpAddr,
    size: usize,
    /// When the body was registered.
    since: Instant,
    shed: CancellationToken,
}

/// The body was shed: its client uses the most memory, so its request is refused to free some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shed;

impl BodyBudget {
    /// Creates a budget of `max_bytes` bytes.
    pub fn new(max_bytes: usize) -> Self {
        Self(Arc::new(Inner {
            max_bytes,
            table: Mutex::default(),
            freed: Notify::new(),
        }))
    }

    /// Bytes in use.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.0.table.lock().used
    }

    /// Registers a body before its first bytes arrive.
    pub fn register(&self, peer: IpAddr) -> BodyReservation {
        let shed = CancellationToken::new();
        let mut table = self.0.table.lock();
        table.last += 1;
        let id = table.last;
        let entry = Entry {
            peer,
            size: 0,
            since: Instant::now(),
            shed: shed.clone(),
        };
        table.bodies.insert(id, entry);
        drop(table);
        BodyReservation {
            inner: Arc::clone(&self.0),
            id,
            shed,
        }
    }
}

impl Table {
    /// Reserves `more` bytes for a body. Without room, sheds bodies of heavier clients and returns false, or fails if
    /// this body is the one to shed.
    fn reserve(&mut self, id: u64, more: usize, max_bytes: usize) -> Result<bool, Shed> {
        let is_active = |entry: &Entry| !entry.shed.is_cancelled();
        if self.bodies.get(&id).is_none_or(|entry| !is_active(entry)) {
            return Err(Shed);
        }
        if self.used + more <= max_bytes {
            self.used += more;
            self.bodies.entry(id).and_modify(|entry| entry.size += more);
            return Ok(true);
        }
        // A shed body holds its memory until its request is completed.
        let shed = self.bodies.values().filter(|entry| !is_active(entry));
        let mut remaining = self.used - shed.map(|entry| entry.size).sum::<usize>();
        while remaining + more > max_bytes {
            let shares = self.bodies.iter().filter(|(_, entry)| is_active(entry));
            let shares: Vec<_> = shares
                .map(|(key, entry)| entry.share(*key, id, more))
                .collect();
            let share = eviction_candidate(&shares)
                .filter(|share| share.key != id)
                .ok_or(Shed)?;
            remaining -= share.size;
            if let Some(entry) = self.bodies.get(&share.key) {
                entry.shed.cancel();
            }
        }
        Ok(false)
    }
}

impl Entry {
    fn share(&self, key: u64, requesting: u64, more: usize) -> Share<u64> {
        Share {
            key,
            peer: self.peer,
            rank: 0,
            size: self.size + if key == requesting { more } else { 0 },
            since: self.since,
        }
    }
}

/// The memory of one body; released on drop.
pub struct BodyReservation {
    inner: Arc<Inner>,
    id: u64,
    shed: CancellationToken,
}

impl BodyReservation {
    /// Reserves `more` bytes, waiting for room if necessary.
    ///
    /// # Errors
    /// If this body is shed.
    pub async fn reserve(&self, more: usize) -> Result<(), Shed> {
        loop {
            let freed = self.inner.freed.notified();
            tokio::pin!(freed);
            // Register before the check, so that no release in between is missed.
            freed.as_mut().enable();
            if self
                .inner
                .table
                .lock()
                .reserve(self.id, more, self.inner.max_bytes)?
            {
                return Ok(());
            }
            tokio::select! {
                () = freed => {}
                () = self.shed.cancelled() => return Err(Shed),
            }
        }
    }

    /// Waits until the body is shed.
    pub async fn wait_until_shed(&self) {
        self.shed.cancelled().await;
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        let mut table = self.inner.table.lock();
        if let Some(entry) = table.bodies.remove(&self.id) {
            table.used -= entry.size;
        }
        drop(table);
        self.inner.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
