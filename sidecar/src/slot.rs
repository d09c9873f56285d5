//! Slots: each is one request open at the runtime.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// A place at the runtime, held by one message; it is free when this is dropped.
pub struct Slot {
    number: u64,
    call: Option<Instant>,
    idle: Option<Duration>,
    events: UnboundedSender<SlotEvent>,
}

/// What happened to a slot.
#[derive(Clone, Copy)]
pub(crate) enum SlotEvent {
    /// Its message is handed to the runtime.
    Called(u64, Instant),
    /// It is free; its last call took so long.
    Free(u64, Option<Duration>),
}

impl Slot {
    /// The message is handed to the runtime now.
    pub fn call_begins(&mut self) {
        let now = Instant::now();
        self.call = Some(now);
        // The engine lives longer than its slots.
        let _ = self.events.send(SlotEvent::Called(self.number, now));
    }

    /// How long the slot was free before.
    pub(crate) fn idle(&self) -> Option<Duration> {
        self.idle
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let _ = self.events.send(SlotEvent::Free(
            self.number,
            self.call.map(|since| since.elapsed()),
        ));
    }
}

/// All slots.
pub(crate) struct Slots {
    count: usize,
    last: u64,
    /// Slots that are taken, and since when the runtime has worked on their messages.
    taken: BTreeMap<u64, Option<Instant>>,
    free_since: Option<Instant>,
    tell: UnboundedSender<SlotEvent>,
    events: UnboundedReceiver<SlotEvent>,
}

impl Default for Slots {
    fn default() -> Self {
        let (tell, events) = unbounded_channel();
        Self {
            count: 0,
            last: 0,
            taken: BTreeMap::new(),
            free_since: None,
            tell,
            events,
        }
    }
}

impl Slots {
    pub(crate) fn resize(&mut self, count: usize) {
        self.count = count;
        self.free_since.get_or_insert_with(Instant::now);
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn has_free(&self) -> bool {
        self.taken.len() < self.count
    }

    pub(crate) fn take(&mut self) -> Slot {
        self.last += 1;
        self.taken.insert(self.last, None);
        let idle = self.free_since.map(|since| since.elapsed());
        if !self.has_free() {
            self.free_since = None;
        }
        Slot {
            number: self.last,
            call: None,
            idle,
            events: self.tell.clone(),
        }
    }

    pub(crate) async fn event(&mut self) -> Option<SlotEvent> {
        self.events.recv().await
    }

    /// Notes what happened; returns how long a call took that has ended.
    pub(crate) fn apply(&mut self, event: SlotEvent) -> Option<Duration> {
        match event {
            SlotEvent::Called(number, at) => {
                if let Some(since) = self.taken.get_mut(&number) {
                    *since = Some(at);
                }
                None
            }
            SlotEvent::Free(number, call) => {
                self.taken.remove(&number);
                self.free_since = Some(Instant::now());
                call
            }
        }
    }

    /// Since when the oldest call runs.
    pub(crate) fn oldest_call(&self) -> Option<Instant> {
        self.taken.values().flatten().min().copied()
    }
}
