//! The connections of a server: how many there are, whose they are, and which is closed for another (ADM-20, ADM-21).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::fair::{self, Share};

/// A client that sends its first request later than this may lose its connection to another.
const FRESH: Duration = Duration::from_secs(1);
/// From accepting a connection to the answer to its first request.
const FIRST_ANSWER: Duration = Duration::from_secs(10);
/// From the first byte of a later request's head to its last.
const HEAD: Duration = Duration::from_secs(5);

/// Ranks of connections: the lowest is closed first.
const SILENT: u8 = 0;
const IDLE: u8 = 1;
const BUSY: u8 = 2;
/// Whoever proved who they are is closed after all who did not.
const AUTHENTICATED: u8 = 3;

/// The connections of one server. A clone looks at the same ones.
#[derive(Clone)]
pub struct Connections(Arc<Inner>);

struct Inner {
    /// How much all may weigh together.
    most: usize,
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
    /// Since when it is idle, or busy.
    since: Instant,
    /// Since when the head of a request has been arriving.
    head: Option<Instant>,
    weight: usize,
    requests: usize,
    /// A request of it was answered, however.
    answered: bool,
    /// A request of it was answered with success.
    proven: bool,
    authenticated: bool,
    close: CancellationToken,
}

/// How many connections there are, and how many were closed for others or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Open now.
    pub open: usize,
    /// Closed to make room.
    pub evicted: u64,
    /// Closed at once: there was no room, and the peer had taken the most of it.
    pub refused: u64,
    /// Closed because a request did not arrive in time.
    pub overdue: u64,
}

impl Connections {
    /// None yet. A connection weighs 1 until its server says otherwise.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner {
            most,
            table: Mutex::default(),
            evicted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            overdue: AtomicU64::new(0),
        }))
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> Count {
        Count {
            open: self.0.table().entries.len(),
            evicted: self.0.evicted.load(Ordering::Relaxed),
            refused: self.0.refused.load(Ordering::Relaxed),
            overdue: self.0.overdue.load(Ordering::Relaxed),
        }
    }

    /// Takes a connection in, closing another where there is no room; none where this peer's own requests fill it.
    pub(super) fn admit(&self, peer: IpAddr, now: Instant) -> Option<Connection> {
        let peer = peer.to_canonical();
        let mut table = self.0.table();
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
            answered: false,
            proven: false,
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

    /// Closes those whose requests do not arrive.
    pub(super) fn close_overdue(&self, now: Instant) {
        let mut table = self.0.table();
        let late = table
            .entries
            .iter()
            .filter(|(_, entry)| entry.is_overdue(now));
        for id in late.map(|(id, _)| *id).collect::<Vec<_>>() {
            table.close(id);
            self.0.overdue.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is room for so much more, after others were closed.
    fn make_room(&self, table: &mut Table, more: usize, peer: IpAddr, now: Instant) -> bool {
        while table.weight + more > self.most {
            let entries = table.entries.iter();
            let shares: Vec<_> = entries.map(|(id, entry)| entry.share(*id, now)).collect();
            match fair::victim(&shares) {
                None => return false,
                // Its own requests under way are worth more than one that has not even begun.
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
    /// Its task ends soon; its place is free at once.
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
        let rank = match (self.proven, self.requests) {
            (false, _) if now.duration_since(self.accepted) >= FRESH => SILENT,
            (false, _) | (true, 0) => IDLE,
            (true, _) => BUSY,
        };
        rank + if self.authenticated { AUTHENTICATED } else { 0 }
    }

    fn is_overdue(&self, now: Instant) -> bool {
        let first = !self.answered && now.duration_since(self.accepted) >= FIRST_ANSWER;
        let head = self
            .head
            .is_some_and(|since| now.duration_since(since) >= HEAD);
        first || head
    }
}

/// An accepted connection. Its place is free when it is dropped.
pub(super) struct Connection {
    pub(super) activity: Activity,
    /// Cancelled when it has to end.
    pub(super) close: CancellationToken,
}

impl Connection {
    /// It takes more than others do, or is known to be somebody's. Answers whether there is room for that.
    pub(super) fn known(&self, weight: usize, authenticated: bool, now: Instant) -> bool {
        let Activity { inner, id, peer } = &self.activity;
        let mut table = inner.table();
        // Out of the way, so that it cannot be closed for its own sake.
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
        self.activity.inner.table().close(self.activity.id);
    }
}

/// What happens on a connection; found among a request's extensions. A clone tells of the same one.
#[derive(Clone)]
pub struct Activity {
    inner: Arc<Inner>,
    id: u64,
    /// The client's address.
    pub peer: IpAddr,
}

impl Activity {
    /// Bytes of a request have come.
    pub(super) fn reads(&self, now: Instant) {
        self.change(|entry| {
            if entry.requests == 0 {
                entry.head.get_or_insert(now);
            }
        });
    }

    /// A request's head is there.
    pub(super) fn begin(&self, now: Instant) -> Answering {
        self.change(|entry| {
            entry.head = None;
            entry.requests += 1;
            if entry.requests == 1 {
                entry.since = now;
            }
        });
        Answering {
            activity: self.clone(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.inner.table().entries.get_mut(&self.id) {
            change(entry);
        }
    }
}

/// A request that is being answered.
pub(super) struct Answering {
    activity: Activity,
}

impl Answering {
    /// It was a good one.
    pub(super) fn succeeded(&self) {
        self.activity.change(|entry| entry.proven = true);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.activity.change(|entry| {
            entry.requests = entry.requests.saturating_sub(1);
            entry.answered = true;
            entry.since = Instant::now();
        });
    }
}

#[cfg(test)]
mod tests;
