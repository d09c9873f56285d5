//! Publishes messages over AMQP with confirms: the management API takes some 30 ms per message, more with a kubelet.

use std::collections::BTreeSet;

use asya_amqp::{Connection, Event, Login, Purpose};
use asya_tests::cluster::Cluster;
use asya_tests::rabbitmq::OPERATOR_PASSWORD;
use asya_tests::{Error, Result};
use tokio::net::TcpStream;

/// The exchange to which actors' queues are bound.
const EXCHANGE: &str = "asya";

/// A publishing connection.
pub(crate) struct Producer {
    connection: Connection,
    /// Number of publications so far: the broker confirms them by number.
    published: u64,
}

impl Producer {
    pub(crate) async fn connect(cluster: &Cluster) -> Result<Self> {
        let broker = cluster.rabbitmq()?;
        let broker = broker.state();
        let connecting = TcpStream::connect((broker.host.as_str(), broker.port));
        let stream = connecting.await.map_err(Error::other)?;
        let login = Login {
            user: &broker.user,
            password: OPERATOR_PASSWORD,
            vhost: &broker.vhost,
            product: "asya-tests",
            name: "producer",
        };
        let opened = Connection::open(Box::new(stream), &login, Purpose::Publish);
        Ok(Self {
            connection: opened.await.map_err(Error::other)?,
            published: 0,
        })
    }

    /// Sends messages to an actor, and waits until the broker has stored all of them.
    pub(crate) async fn send(&mut self, actor: &str, messages: &[String]) -> Result<()> {
        let mut waiting = BTreeSet::new();
        for message in messages {
            let body = message.clone().into_bytes().into();
            self.connection.publish(EXCHANGE, actor, "", body);
            self.published += 1;
            waiting.insert(self.published);
        }
        while !waiting.is_empty() {
            match self.connection.event().await {
                Event::Confirmed {
                    number,
                    multiple,
                    stored: true,
                } => waiting.retain(|it| *it > number || (!multiple && *it != number)),
                event => return Err(Error::Other(format!("{actor}: no confirm but {event:?}"))),
            }
        }
        Ok(())
    }

    pub(crate) async fn close(self) {
        self.connection.close().await;
    }
}
