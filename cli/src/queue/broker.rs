//! Operations on queues, independent of the broker.

use bytes::Bytes;

use crate::answer::Failure;
use crate::interrupt::Interrupt;

/// The size of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Messages that wait for a consumer.
    pub waiting: u64,
    /// Messages held by consumers, if the broker reports them.
    pub processing: Option<u64>,
    /// Consumers, if the broker reports them.
    pub consumers: Option<u64>,
}

/// A message that this program holds until it puts it back or moves it.
#[derive(Clone, Debug)]
pub struct Delivery<H> {
    pub handle: H,
    /// The broker's id of the message, if the broker may redeliver a message that this program still holds.
    pub id: Option<String>,
    /// How often the queue has delivered it before, if the queue counts that.
    pub deliveries: Option<u64>,
    /// The queue from which it was dead-lettered.
    pub source: Option<String>,
    pub body: Bytes,
}

/// The result of moving or removing a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    Done,
    /// Done, but this program may no longer have held the message, so the queue may still have it.
    Late,
    /// Nothing was done: this program no longer holds the message, and the queue has it.
    Lapsed,
}

/// The result of a move by the broker itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Approximate on SQS.
    pub count: u64,
    /// Whether an interrupt stopped it early.
    pub interrupted: bool,
}

/// Why a message may not be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SendFailure {
    /// The broker has not stored it.
    Refused(Failure),
    /// The broker has not confirmed it after it was sent, and may have stored it.
    Unconfirmed(Failure),
}

impl SendFailure {
    /// The failure of moving a message between two queues.
    pub fn of_copy(self, from: &str, to: &str) -> Failure {
        match self {
            Self::Refused(why) => why,
            Self::Unconfirmed(why) if from == to => {
                Failure::new(format!("{why}; one message may be in {to} twice"))
            }
            Self::Unconfirmed(why) => Failure::new(format!(
                "{why}; one message may be in {to} as well as in {from}"
            )),
        }
    }
}

impl From<Failure> for SendFailure {
    fn from(why: Failure) -> Self {
        Self::Refused(why)
    }
}

/// A broker client. If the program ends, the broker takes back the messages that it holds.
pub trait QueueClient {
    /// Identifies a delivery.
    type Handle;

    /// The size of a queue; `None` if it does not exist.
    async fn size(&mut self, queue: &str) -> Result<Option<Size>, Failure>;

    /// Takes up to `count` messages, oldest first; fewer if there are no more.
    async fn take(
        &mut self,
        queue: &str,
        count: usize,
    ) -> Result<Vec<Delivery<Self::Handle>>, Failure>;

    /// Keeps holding messages that the broker would soon take back. It may have taken back some already.
    async fn keep(
        &mut self,
        queue: &str,
        held: &mut [Delivery<Self::Handle>],
    ) -> Result<(), Failure>;

    /// Puts messages back in their place.
    async fn put_back(
        &mut self,
        queue: &str,
        held: Vec<Delivery<Self::Handle>>,
    ) -> Result<(), Failure>;

    /// Moves a message to the end of a queue. It is removed only after the broker has confirmed the copy.
    async fn relocate(
        &mut self,
        from: &str,
        delivery: Delivery<Self::Handle>,
        to: &str,
    ) -> Result<Settlement, Failure>;

    /// Removes a message. The broker has processed that once it answers the next request.
    async fn remove(
        &mut self,
        queue: &str,
        delivery: Delivery<Self::Handle>,
    ) -> Result<Settlement, Failure>;

    /// Sends a message; returns once the broker has stored it.
    async fn send(&mut self, queue: &str, id: &str, body: Bytes) -> Result<(), SendFailure>;

    /// Lets the broker itself move all dead letters to `queue`, until interrupted; `None` if it cannot.
    async fn move_all(
        &mut self,
        dlq: &str,
        queue: &str,
        interrupt: &Interrupt,
    ) -> Result<Option<Moved>, Failure>;

    /// The number of deliveries from which on the broker dead-letters or drops a message.
    fn delivery_limit(&self) -> Option<u64>;

    /// Where that number comes from.
    const LIMIT_SOURCE: &str;
}
