//! The setup of a run: the kind of queue, and how many messages a pod processes at a time.

use std::fmt;

use clap::ValueEnum;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Queues {
    Classic,
    Quorum,
    Sqs,
}

/// SC-106: queues and slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    pub queues: Queues,
    pub slots: usize,
}

impl Setup {
    pub fn all() -> Vec<Self> {
        let with = |queues| [1, 8].map(|slots| Self { queues, slots });
        Queues::value_variants()
            .iter()
            .copied()
            .flat_map(with)
            .collect()
    }

    pub fn is_rabbitmq(self) -> bool {
        self.queues != Queues::Sqs
    }

    /// Gives each setup its own schedule.
    pub fn salt(self) -> u64 {
        let queues = match self.queues {
            Queues::Classic => 1,
            Queues::Quorum => 2,
            Queues::Sqs => 3,
        };
        (queues << 60) | ((self.slots as u64) << 48)
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queues = match self.queues {
            Queues::Classic => "classic",
            Queues::Quorum => "quorum",
            Queues::Sqs => "sqs",
        };
        write!(f, "--queues {queues} --slots {}", self.slots)
    }
}
