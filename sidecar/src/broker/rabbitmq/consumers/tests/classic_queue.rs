//! A simulated classic queue: it redelivers returned messages at once, before all others, to any consumer with room.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, split};
use tokio::sync::Notify;

use crate::broker::rabbitmq::testing::{frame, method};

#[derive(Clone)]
pub(super) struct ClassicQueue {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    ready: VecDeque<(usize, bool)>,
    prefetch: usize,
    consumers: Vec<(String, usize)>,
    unsettled: BTreeMap<u64, (String, usize)>,
    last: u64,
    answers_no_cancellation: bool,
    /// Consumers whose cancellation has not been confirmed yet.
    cancelled: Vec<String>,
    outgoing: Vec<u8>,
}

impl ClassicQueue {
    /// Serves a queue of messages with the bodies `0`, `1`, `2`…
    pub(super) fn serve(stream: DuplexStream, messages: usize) -> Self {
        let state = State {
            ready: (0..messages).map(|number| (number, false)).collect(),
            ..State::default()
        };
        let this = Self {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::default(),
        };
        let (read, write) = split(stream);
        tokio::spawn(this.clone().receive(read));
        tokio::spawn(this.clone().send(write));
        this
    }

    /// The number of ready and of unsettled messages.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.ready.len(), state.unsettled.len())
    }

    pub(super) fn ready(&self) -> Vec<usize> {
        let state = self.state.lock();
        state.ready.iter().map(|(number, _)| *number).collect()
    }

    /// Sets whether to withhold `basic.cancel-ok`.
    pub(super) fn answer_no_cancellation(&self, withhold: bool) {
        self.state.lock().answers_no_cancellation = withhold;
        self.changed.notify_one();
    }

    async fn receive(self, mut stream: ReadHalf<DuplexStream>) {
        // Reads the protocol header and the client's part of the handshake like everything else.
        let mut header = [0; 8];
        let _ = stream.read_exact(&mut header).await;
        while let Ok(kind) = stream.read_u8().await {
            let _ = stream.read_u16().await;
            let length = stream.read_u32().await.unwrap_or_default();
            let mut payload = vec![0; length as usize];
            if stream.read_exact(&mut payload).await.is_err() || stream.read_u8().await.is_err() {
                return;
            }
            if kind == 1 {
                let number = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
                self.state.lock().take(number(0), number(2), &payload[4..]);
                self.changed.notify_one();
            }
        }
    }

    async fn send(self, mut stream: WriteHalf<DuplexStream>) {
        loop {
            let frames = self.state.lock().frames();
            if stream.write_all(&frames).await.is_err() {
                return;
            }
            self.changed.notified().await;
        }
    }
}

impl State {
    fn take(&mut self, class: u16, id: u16, arguments: &[u8]) {
        let tag = || {
            let bytes = arguments.first_chunk().expect("a delivery tag");
            u64::from_be_bytes(*bytes)
        };
        match (class, id) {
            // qos
            (60, 10) => self.prefetch = u16::from_be_bytes([arguments[4], arguments[5]]).into(),
            // consume
            (60, 20) => {
                let rest = &arguments[3 + usize::from(arguments[2])..];
                let name = short_text(rest);
                self.outgoing
                    .extend(method(1, 60, 21, &short_text_of(&name)));
                self.consumers.push((name, self.prefetch));
            }
            // cancel
            (60, 30) => {
                let name = short_text(arguments);
                self.consumers.retain(|(consumer, _)| *consumer != name);
                self.cancelled.push(name);
            }
            // ack
            (60, 80) if arguments[8] == 1 => {
                self.unsettled = self.unsettled.split_off(&(tag() + 1));
            }
            (60, 80) => drop(self.unsettled.remove(&tag())),
            // reject, nack
            (60, 90 | 120) => {
                if let Some((_, number)) = self.unsettled.remove(&tag()) {
                    let place = self.ready.partition_point(|(other, _)| *other < number);
                    self.ready.insert(place, (number, true));
                }
            }
            _ => {}
        }
        self.deliver();
    }

    /// Frames to send.
    fn frames(&mut self) -> Vec<u8> {
        if !self.answers_no_cancellation {
            for name in std::mem::take(&mut self.cancelled) {
                self.outgoing
                    .extend(method(1, 60, 31, &short_text_of(&name)));
            }
        }
        std::mem::take(&mut self.outgoing)
    }

    /// Called after each method, so that consumers get messages before the next method is read.
    fn deliver(&mut self) {
        for (consumer, prefetch) in &self.consumers {
            let held = |unsettled: &BTreeMap<u64, (String, usize)>| {
                unsettled
                    .values()
                    .filter(|(name, _)| name == consumer)
                    .count()
            };
            while held(&self.unsettled) < *prefetch {
                let Some((number, redelivered)) = self.ready.pop_front() else {
                    return;
                };
                self.last += 1;
                self.unsettled.insert(self.last, (consumer.clone(), number));
                self.outgoing
                    .extend(delivery(consumer, self.last, redelivered, number));
            }
        }
    }
}

fn delivery(consumer: &str, tag: u64, redelivered: bool, number: usize) -> Vec<u8> {
    let body = number.to_string();
    let deliver = [
        &short_text_of(consumer)[..],
        &tag.to_be_bytes(),
        &[redelivered.into(), 0, 0],
    ];
    let header = [
        &[0, 60, 0, 0][..],
        &(body.len() as u64).to_be_bytes(),
        &[0, 0],
    ];
    [
        method(1, 60, 60, &deliver.concat()),
        frame(2, 1, &header.concat()),
        frame(3, 1, body.as_bytes()),
    ]
    .concat()
}

fn short_text_of(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).expect("a short text");
    [&[length][..], text.as_bytes()].concat()
}

fn short_text(bytes: &[u8]) -> String {
    let end = 1 + usize::from(bytes[0]);
    String::from_utf8_lossy(&bytes[1..end]).into_owned()
}
