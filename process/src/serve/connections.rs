//! Tracks a server's connections by client, and picks the one to evict when the limit is reached (ADM-20, ADM-21).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fair::{self, Share};

/// From this age on, a connection without a successful request counts as silent, and is evicted first.
const SILENT_AFTER: Duration = Duration::from_secs(1);
/// Deadline from the first to the last byte of a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Eviction ranks: the lowest is evicted first.
const SILENT: u8 = 0;
const IDLE: u8 = 1;
const BUSY: u8 = 2;
/// Added to the rank of authenticated clients, so that they are evicted after all others.
const AUTHENTICATED: u8 = 3;

/// The connections of one server. Clones share state.
#[derive(Clone)]
pub struct Connections(Arc<Inner>);

struct Inner {
    /// Limit on the total weight of all connections.
    max_weight: usize,
    table: Mutex<Table>,
    evicted: AtomicU64,
    refused: AtomicU64,
    overdue: AtomicU64,
}

#[derive(Default)]
struct Table {
    last: u64,
    weight: usize,
    entries: HashMap<u64, Entry>,
}

struct Entry {
    peer: IpAddr,
    accepted: Instant,
    /// When the connection was accepted, became busy, or last completed a request.
    since: Instant,
    /// When the head of the next request began to arrive.
    head: Option<Instant>,
    weight: usize,
    requests: usize,
    /// Whether a request has succeeded.
    has_succeeded: bool,
    authenticated: bool,
    close: CancellationToken,
}

/// Number of open connections, and totals of evicted, refused and overdue ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Open now.
    pub open: usize,
    /// Evicted to make room.
    pub evicted: u64,
    /// Refused because the limit was reached and the client itself had the most connections.
    pub refused: u64,
    /// Closed because a request did not arrive in time.
    pub overdue: u64,
}

impl Connections {
    /// Creates an empty table with this limit on the total weight. A connection weighs 1 until the server sets another
    /// weight.
    #[must_use]
    pub fn new(max_weight: usize) -> Self {
        Self(Arc::new(Inner {
            max_weight,
            table: Mutex::default(),
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            overdue: AtomicU64::new(0),
        }))
    }

    /// Returns the current counts.
    #[must_use]
    pub fn count(&self) -> Count {
        Count {
            open: self.0.table.lock().entries.len(),
            evicted: self.0.evicted.load(Ordering::Relaxed),
            refused: self.0.refused.load(Ordering::Relaxed),
            overdue: self.0.overdue.load(Ordering::Relaxed),
        }
    }

    /// Admits a connection, evicting others if the limit is reached. Returns `None` if the busy connections of this
    /// client itself would have to be evicted.
    pub(super) fn admit(&self, peer: IpAddr, now: Instant) -> Option<Connection> {
        let peer = peer.to_canonical();
        let mut table = self.0.table.lock();
        if !self.0.make_room(&mut table, 1, peer, now) {
            self.0.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        table.last += 1;
        table.weight += 1;
        let (id, close) = (table.last, CancellationToken::new());
        let entry = Entry {
            peer,
            accepted: now,
            since: now,
            head: None,
            weight: 1,
            requests: 0,
            has_succeeded: false,
            authenticated: false,
            close: close.clone(),
        };
        table.entries.insert(id, entry);
        drop(table);
        let activity = Activity {
            inner: Arc::clone(&self.0),
            id,
            peer,
        };
        Some(Connection { activity, close })
    }

    /// Closes connections whose requests are overdue.
    pub(super) fn close_overdue(&self, now: Instant) {
        let mut table = self.0.table.lock();
        let overdue = table
            .entries
            .iter()
            .filter(|(_, entry)| entry.is_overdue(now));
        for id in overdue.map(|(id, _)| *id).collect::<Vec<_>>() {
            table.close(id);
            self.0.overdue.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Inner {
    /// Evicts connections until there is room for `more`; returns whether there is.
    fn make_room(&self, table: &mut Table, more: usize, peer: IpAddr, now: Instant) -> bool {
        while table.weight + more > self.max_weight {
            let entries = table.entries.iter();
            let shares: Vec<_> = entries.map(|(id, entry)| entry.share(*id, now)).collect();
            match fair::eviction_candidate(&shares) {
                None => return false,
                // The client's in-flight requests take precedence over its new connection.
                Some(share) if share.rank % AUTHENTICATED == BUSY && share.peer == peer => {
                    return false;
                }
                Some(share) => table.close(share.key),
            }
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        true
    }
}

impl Table {
    /// Frees the slot immediately; the task of the connection ends soon after.
    fn close(&mut self, id: u64) {
        if let Some(entry) = self.entries.remove(&id) {
            self.weight -= entry.weight;
            entry.close.cancel();
        }
    }
}

impl Entry {
    fn share(&self, key: u64, now: Instant) -> Share<u64> {
        Share {
            key,
            peer: self.peer,
            rank: self.rank(now),
            size: self.weight,
            since: self.since,
        }
    }

    fn rank(&self, now: Instant) -> u8 {
        let rank = match (self.has_succeeded, self.requests) {
            (false, _) if now.duration_since(self.accepted) >= SILENT_AFTER => SILENT,
            (false, _) | (true, 0) => IDLE,
            (true, _) => BUSY,
        };
        rank + if self.authenticated { AUTHENTICATED } else { 0 }
    }

    fn is_overdue(&self, now: Instant) -> bool {
        self.head
            .is_some_and(|since| now.duration_since(since) >= HEAD_TIMEOUT)
    }
}

/// An accepted connection. Dropping it frees its slot.
pub(super) struct Connection {
    pub(super) activity: Activity,
    /// Cancelled when the connection must be closed.
    pub(super) close: CancellationToken,
}

impl Connection {
    /// Sets the weight, and whether the client is authenticated, after the handshake. Returns whether there is room for
    /// that weight.
    pub(super) fn set_weight(&self, weight: usize, authenticated: bool, now: Instant) -> bool {
        let Activity { inner, id, peer } = &self.activity;
        let mut table = inner.table.lock();
        // Remove the connection first, so that it cannot be evicted to make room for itself.
        let Some(mut entry) = table.entries.remove(id) else {
            return false;
        };
        table.weight -= entry.weight;
        if !inner.make_room(&mut table, weight, *peer, now) {
            inner.refused.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        (entry.weight, entry.authenticated) = (weight, authenticated);
        table.weight += weight;
        table.entries.insert(*id, entry);
        true
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.activity.inner.table.lock().close(self.activity.id);
    }
}

/// Records the activity on a connection; stored in the extensions of its requests. Clones share state.
#[derive(Clone)]
pub struct Activity {
    inner: Arc<Inner>,
    id: u64,
    /// The client's address.
    pub peer: IpAddr,
}

impl Activity {
    /// Records that bytes of a request arrived. Until then a connection may wait: API servers keep spare ones, and lose
    /// a review on one that is closed when they first use it.
    pub(super) fn bytes_received(&self, now: Instant) {
        self.change(|entry| {
            if entry.requests == 0 {
                entry.head.get_or_insert(now);
            }
        });
    }

    /// Records that a request's head is complete.
    pub(super) fn begin(&self, now: Instant) -> InFlightRequest {
        self.change(|entry| {
            entry.head = None;
            entry.requests += 1;
            if entry.requests == 1 {
                entry.since = now;
            }
        });
        InFlightRequest {
            activity: self.clone(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.inner.table.lock().entries.get_mut(&self.id) {
            change(entry);
        }
    }
}

/// Guard of an in-flight request.
pub(super) struct InFlightRequest {
    activity: Activity,
}

impl InFlightRequest {
    /// Records that the request succeeded.
    pub(super) fn succeeded(&self) {
        self.activity.change(|entry| entry.has_succeeded = true);
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.activity.change(|entry| {
            entry.requests = entry.requests.saturating_sub(1);
            entry.since = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests;
