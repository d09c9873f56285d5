//! The schedule of faults, which depends only on the seed (SC-106, SC-107).

use std::time::Duration;

use fastrand::Rng;

use super::proxy::Direction;
use super::setup::Setup;

/// A pod, by its index in [`super::pod::Pods`].
pub type PodIndex = usize;

/// Number of pods whose sidecar may be killed. The last pod's never is, so that a leak would show.
const MORTAL: usize = super::pod::COUNT - 1;

/// What the runtime is doing when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    Idle,
    Reading,
    InHandler,
    Writing,
}

/// A fault with its random parameters. A duration is how long it lasts.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    KillSidecar(PodIndex),
    TerminateSidecar(PodIndex),
    KillRuntime(Moment, PodIndex, Duration),
    KillBroker(Duration),
    SuspendBroker(Duration),
    Cut(PodIndex, Direction, u64),
    Refuse(PodIndex, Duration),
    /// The broker processes requests, but its responses are lost.
    Mute(PodIndex, Duration),
    Delay(PodIndex, Duration, Duration),
    /// Bytes per second.
    Rate(PodIndex, u32, Duration),
    ServerError(PodIndex, Duration),
    Throttle(PodIndex, Duration),
    MemoryAlarm(Duration),
    DiskAlarm(Duration),
    DeleteQueue(Duration),
    /// The queue for a result is created only after the fault.
    MissingQueue(Duration),
    FullQueue(Duration),
    RefuseLogin(Duration),
    HangGateway(Duration),
    RemoveReadyFile(PodIndex, Duration),
    Deadline,
}

/// The messages that a fault may duplicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtRisk {
    Nothing,
    Pod(PodIndex),
    AllPods,
}

impl Fault {
    /// The kind's name in the summary.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::KillSidecar(_) => "kill -9 of a sidecar",
            Self::TerminateSidecar(_) => "SIGTERM of a sidecar",
            Self::KillRuntime(Moment::Idle, ..) => "kill -9 of a runtime, at any time",
            Self::KillRuntime(Moment::Reading, ..) => "kill -9 of a runtime, reading",
            Self::KillRuntime(Moment::InHandler, ..) => "kill -9 of a runtime, in the handler",
            Self::KillRuntime(Moment::Writing, ..) => "kill -9 of a runtime, writing",
            Self::KillBroker(_) => "kill -9 of the broker",
            Self::SuspendBroker(_) => "SIGSTOP of the broker",
            Self::Cut(_, Direction::ToServer, _) => "cut after the n-th byte to the broker",
            Self::Cut(_, Direction::ToClient, _) => "cut after the n-th byte from the broker",
            Self::Refuse(..) => "connections refused",
            Self::Mute(..) => "acted without an answer",
            Self::Delay(..) => "delay",
            Self::Rate(..) => "low rate",
            Self::ServerError(..) => "5xx",
            Self::Throttle(..) => "throttled",
            Self::MemoryAlarm(_) => "memory alarm",
            Self::DiskAlarm(_) => "disk alarm",
            Self::DeleteQueue(_) => "queue deleted and created again",
            Self::MissingQueue(_) => "queue created late",
            Self::FullQueue(_) => "full queue",
            Self::RefuseLogin(_) => "login refused",
            Self::HangGateway(_) => "gateway hangs",
            Self::RemoveReadyFile(..) => "ready file removed",
            Self::Deadline => "handler past its deadline",
        }
    }

    /// SC-73: the messages that it may duplicate.
    pub fn at_risk(&self) -> AtRisk {
        match self {
            Self::KillSidecar(pod)
            | Self::TerminateSidecar(pod)
            | Self::Cut(pod, ..)
            | Self::Refuse(pod, _)
            | Self::Mute(pod, _)
            | Self::ServerError(pod, _)
            | Self::Throttle(pod, _) => AtRisk::Pod(*pod),
            Self::KillBroker(_) | Self::SuspendBroker(_) | Self::RefuseLogin(_) => AtRisk::AllPods,
            Self::KillRuntime(..)
            | Self::Delay(..)
            | Self::Rate(..)
            | Self::DeleteQueue(_)
            | Self::MemoryAlarm(_)
            | Self::DiskAlarm(_)
            | Self::MissingQueue(_)
            | Self::FullQueue(_)
            | Self::HangGateway(_)
            | Self::RemoveReadyFile(..)
            | Self::Deadline => AtRisk::Nothing,
        }
    }

    /// Whether messages in the handler may go to error-end as `runtime_crashed` (SC-49).
    pub fn kills_runtime(&self) -> bool {
        // When a sidecar dies its connection closes, and a runtime that is processing a call exits (RUN-20).
        matches!(self, Self::KillRuntime(..))
    }
}

/// The endless sequence of faults of a seed.
pub struct Schedule {
    random: Rng,
    setup: Setup,
}

impl Schedule {
    pub fn new(seed: u64, setup: Setup) -> Self {
        Self {
            random: Rng::with_seed(seed ^ setup.salt()),
            setup,
        }
    }

    fn milliseconds(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(range))
    }

    fn pod(&mut self) -> PodIndex {
        self.random.usize(..super::pod::COUNT)
    }

    fn draw(&mut self) -> Fault {
        let pod = self.pod();
        let short = self.milliseconds(300..3000);
        match self.random.u32(..100) {
            0..12 => Fault::KillSidecar(self.random.usize(..MORTAL)),
            12..20 => Fault::TerminateSidecar(self.random.usize(..MORTAL)),
            20..24 => self.kill_runtime(Moment::Idle, pod),
            24..28 => self.kill_runtime(Moment::Reading, pod),
            28..33 => self.kill_runtime(Moment::InHandler, pod),
            33..37 => self.kill_runtime(Moment::Writing, pod),
            37..40 => Fault::SuspendBroker(self.milliseconds(1000..10_000)),
            40..49 => Fault::Cut(pod, Direction::ToServer, self.random.u64(1..4000)),
            49..58 => Fault::Cut(pod, Direction::ToClient, self.random.u64(1..4000)),
            58..61 => Fault::Refuse(pod, short),
            61..66 => Fault::Mute(pod, short),
            66..69 => Fault::Delay(pod, self.milliseconds(10..200), short),
            69..72 => Fault::Rate(pod, self.random.u32(2000..20_000), short),
            72..76 => Fault::HangGateway(short),
            76..80 => Fault::RemoveReadyFile(pod, short),
            80..83 => Fault::MissingQueue(short),
            83..85 => Fault::Deadline,
            _ => self.of_the_broker(pod, short),
        }
    }

    fn kill_runtime(&mut self, moment: Moment, pod: PodIndex) -> Fault {
        Fault::KillRuntime(moment, pod, self.milliseconds(0..30))
    }

    /// Faults that are specific to one of the brokers.
    fn of_the_broker(&mut self, pod: PodIndex, short: Duration) -> Fault {
        let number = self.random.u32(..15);
        if !self.setup.is_rabbitmq() {
            return if number < 8 {
                Fault::ServerError(pod, short)
            } else {
                Fault::Throttle(pod, short)
            };
        }
        match number {
            0..4 => Fault::KillBroker(short),
            4..6 => Fault::MemoryAlarm(short),
            6..8 => Fault::DiskAlarm(short),
            8..10 => Fault::DeleteQueue(short),
            10..13 => Fault::FullQueue(short),
            _ => Fault::RefuseLogin(short),
        }
    }
}

impl Iterator for Schedule {
    /// The pause before a fault, and the fault.
    type Item = (Duration, Fault);

    fn next(&mut self) -> Option<Self::Item> {
        let pause = self.milliseconds(50..400);
        Some((pause, self.draw()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// SC-106
    #[test]
    fn a_seed_replays_and_another_one_differs() {
        for setup in Setup::all() {
            let faults = |seed| Schedule::new(seed, setup).take(50).collect::<Vec<_>>();
            assert_eq!(faults(1), faults(1));
            assert_ne!(faults(1), faults(2));
        }
    }

    /// SC-107
    #[test]
    fn every_kind_of_fault_is_drawn() {
        for setup in Setup::all() {
            let faults = Schedule::new(1, setup).take(1000);
            let kinds: BTreeSet<_> = faults.map(|(_, fault)| fault.kind()).collect();
            let expected = if setup.is_rabbitmq() { 23 } else { 19 };
            assert_eq!(kinds.len(), expected, "{kinds:?}");
        }
    }

    #[test]
    fn one_sidecar_lives_throughout() {
        for (_, fault) in Schedule::new(1, Setup::all()[0]).take(1000) {
            if let Fault::KillSidecar(pod) | Fault::TerminateSidecar(pod) = fault {
                assert!(pod < MORTAL);
            }
        }
    }
}
