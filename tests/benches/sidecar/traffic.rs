//! Puts messages into one queue, and takes results out of another.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use asya_tests::{Error, Result};
use tokio::sync::watch;

use crate::amqp::{Acknowledgements, Connection, Event, Login};
use crate::messages::{FROM, TO_QUEUE, age, message, queue};

/// Maximum number of unconfirmed publications.
const UNCONFIRMED: usize = 500;
/// A result that takes longer than this will not come.
const PATIENCE: Duration = Duration::from_mins(3);

/// Fills the queue, and returns when all messages are stored.
pub async fn fill(login: &Login, count: usize) -> Result<()> {
    let login = login.clone();
    let filling = tokio::task::spawn_blocking(move || {
        let (mut broker, queue) = (Connection::open(&login)?, queue(FROM));
        let (mut sent, mut stored) = (0, 0);
        while stored < count {
            while sent < count && sent - stored < UNCONFIRMED {
                broker.publish(&queue, message(sent).as_bytes());
                sent += 1;
            }
            stored = stored_after(&broker.wait()?, stored)?;
        }
        Ok(())
    });
    filling.await.map_err(Error::other)?
}

fn stored_after(event: &Event, stored: usize) -> Result<usize> {
    match event {
        Event::Confirmed { number, multiple } if *multiple => {
            usize::try_from(*number).map_err(Error::other)
        }
        _ => Ok(stored + 1),
    }
}

/// Sends messages at a fixed rate, whatever happens to them.
pub async fn send_steadily(login: &Login, rate: u32, count: usize) -> Result<()> {
    let login = login.clone();
    let sending = tokio::task::spawn_blocking(move || {
        let (mut broker, queue) = (Connection::open(&login)?, queue(FROM));
        let (mut due, mut stored) = (Instant::now(), 0);
        for number in 0..count {
            due += Duration::from_secs(1) / rate;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            broker.publish(&queue, message(number).as_bytes());
            broker.flush()?;
            while let Some(event) = broker.poll()? {
                stored = stored_after(&event, stored)?;
            }
        }
        while stored < count {
            stored = stored_after(&broker.wait()?, stored)?;
        }
        Ok(())
    });
    sending.await.map_err(Error::other)?
}

/// A result's arrival.
#[derive(Clone, Copy)]
pub struct Arrival {
    pub at: Instant,
    /// Time since the source was sent.
    pub age: Duration,
}

/// Takes the results, on its own thread.
pub struct Sink {
    count: watch::Receiver<usize>,
    thread: JoinHandle<Result<Vec<Arrival>>>,
}

impl Sink {
    /// Takes this many results.
    pub fn start(login: &Login, count: usize) -> Result<Self> {
        let mut broker = Connection::open(login)?;
        broker.consume(TO_QUEUE, 0, Acknowledgements::None)?;
        let (counting, counted) = watch::channel(0);
        let thread = std::thread::spawn(move || {
            let mut arrivals = Vec::with_capacity(count);
            while arrivals.len() < count {
                if let Event::Delivered { body, .. } = broker.wait()? {
                    let age = age(&body).ok_or_else(|| Error::other("an unknown result"))?;
                    let at = Instant::now();
                    arrivals.push(Arrival { at, age });
                    counting.send_replace(arrivals.len());
                }
            }
            Ok(arrivals)
        });
        Ok(Self {
            count: counted,
            thread,
        })
    }

    /// Waits until this many results have arrived.
    pub async fn has(&mut self, count: usize) -> Result<()> {
        let arrived = self.count.wait_for(|arrived| *arrived >= count);
        let arrived = tokio::time::timeout(PATIENCE, arrived).await;
        let has_all = matches!(arrived, Ok(Ok(_)));
        drop(arrived);
        if has_all {
            return Ok(());
        }
        let arrived = *self.count.borrow();
        Err(Error::Other(format!("only {arrived} results came")))
    }

    /// Waits until all results have arrived.
    pub async fn all(self) -> Result<Vec<Arrival>> {
        let joining = tokio::task::spawn_blocking(move || self.thread.join());
        let joined = joining.await.map_err(Error::other)?;
        joined.map_err(|_| Error::other("the thread that takes results panicked"))?
    }
}
