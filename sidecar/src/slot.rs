//! Slots: each permits one open request at the runtime.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

/// A permit for one open request at the runtime, released on drop.
pub struct Slot {
    number: u64,
    call: Option<Instant>,
    idle: Option<Duration>,
    events: UnboundedSender<SlotEvent>,
}

/// A state change of a slot.
#[derive(Clone, Copy)]
pub(crate) enum SlotEvent {
    /// The runtime call started.
    Called(u64, Instant),
    /// The slot was released, with the duration of its call, if there was one.
    Free(u64, Option<Duration>),
}

impl Slot {
    /// Marks the start of the runtime call.
    pub fn start_call(&mut self) {
        let now = Instant::now();
        self.call = Some(now);
        // The scheduler outlives its slots.
        let _ = self.events.send(SlotEvent::Called(self.number, now));
    }

    /// How long the slot was idle before it was acquired.
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

pub(crate) struct Slots {
    count: usize,
    last: u64,
    /// Acquired slots, and when their runtime calls started.
    taken: BTreeMap<u64, Option<Instant>>,
    free_since: Option<Instant>,
    event_sender: UnboundedSender<SlotEvent>,
    events: UnboundedReceiver<SlotEvent>,
}

impl Default for Slots {
    fn default() -> Self {
        let (event_sender, events) = unbounded_channel();
        Self {
            count: 0,
            last: 0,
            taken: BTreeMap::new(),
            free_since: None,
            event_sender,
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
            events: self.event_sender.clone(),
        }
    }

    pub(crate) async fn event(&mut self) -> Option<SlotEvent> {
        self.events.recv().await
    }

    /// Applies an event; returns the duration of a finished call.
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

    /// When the oldest running call started.
    pub(crate) fn oldest_call(&self) -> Option<Instant> {
        self.taken.values().flatten().min().copied()
    }
}
