//! Injects a fault, and ends it.

use std::time::Duration;

use asya_tests::error::{Error, Result};
use asya_tests::process::Signal;
use tokio::time::sleep;

use super::ledger::Task;
use super::pod::{COUNT, FIRST, Pod, RUNTIME_TIMEOUT, SECOND};
use super::producer::{NewMessage, OUT, WAY};
use super::proxy::Mode;
use super::run::Run;
use super::schedule::{Fault, Moment, PodIndex};
use crate::rig::SOON;

/// Duration of a cut, long enough for some bytes to be in transit.
const CUT: Duration = Duration::from_secs(1);
/// Time in which a sidecar fills the buffers of a runtime that does not read.
const WRITE: Duration = Duration::from_millis(300);
/// Time for all queued messages to be processed.
const EMPTY: Duration = Duration::from_mins(2);
/// Longer than any deadline.
const FOR_EVER_SECONDS: f64 = 600.0;

impl Run {
    /// Injects a fault. On return it is over, and every process that it ended runs again.
    pub(super) async fn inject(&mut self, fault: &Fault) -> Result<()> {
        match fault {
            Fault::KillSidecar(pod) => self.end_sidecar(*pod, Signal::KILL).await,
            Fault::TerminateSidecar(pod) => self.end_sidecar(*pod, Signal::TERM).await,
            Fault::KillRuntime(moment, pod, after) => {
                self.kill_runtime(*moment, *pod, *after).await
            }
            Fault::KillBroker(down) => {
                self.broker.kill(*down).await?;
                self.producer.reaches_all_queues(&self.broker).await
            }
            Fault::SuspendBroker(lasting) => {
                self.broker.signal(Signal::STOP).await;
                sleep(*lasting).await;
                self.broker.signal(Signal::CONT).await;
                Ok(())
            }
            Fault::Cut(pod, direction, after) => {
                self.through_proxy(*pod, Mode::cut(*direction, *after), CUT)
                    .await
            }
            Fault::Refuse(pod, lasting) => self.through_proxy(*pod, Mode::Refuse, *lasting).await,
            Fault::Mute(pod, lasting) => self.through_proxy(*pod, Mode::Mute, *lasting).await,
            Fault::Delay(pod, pause, lasting) => {
                self.through_proxy(*pod, Mode::Delay(*pause), *lasting)
                    .await
            }
            Fault::Rate(pod, rate, lasting) => {
                self.through_proxy(*pod, Mode::Rate(*rate), *lasting).await
            }
            Fault::ServerError(pod, lasting) => {
                let mode = Mode::Elsewhere(self.servers.unavailable);
                self.through_proxy(*pod, mode, *lasting).await
            }
            Fault::Throttle(pod, lasting) => {
                let mode = Mode::Elsewhere(self.servers.throttling);
                self.through_proxy(*pod, mode, *lasting).await
            }
            Fault::MemoryAlarm(lasting) => {
                self.alarm(
                    "set_vm_memory_high_watermark",
                    ["0.0000001", "0.4"],
                    *lasting,
                )
                .await
            }
            Fault::DiskAlarm(lasting) => {
                self.alarm("set_disk_free_limit", ["1000000GB", "50MB"], *lasting)
                    .await
            }
            Fault::DeleteQueue(lasting) => self.delete_queue(*lasting).await,
            Fault::MissingQueue(lasting) => self.missing_queue(*lasting).await,
            Fault::FullQueue(lasting) => {
                self.broker.set_full(SECOND, true).await?;
                sleep(*lasting).await;
                self.broker.set_full(SECOND, false).await
            }
            Fault::RefuseLogin(lasting) => self.refuse_login(*lasting).await,
            Fault::HangGateway(lasting) => {
                self.servers.gateway.set(Mode::Stall);
                sleep(*lasting).await;
                self.servers.gateway.set(Mode::Pass);
                Ok(())
            }
            Fault::RemoveReadyFile(pod, lasting) => self.remove_ready_file(*pod, *lasting).await,
            Fault::Deadline => self.deadline().await,
        }
    }

    fn pod(&self, index: PodIndex) -> &Pod {
        &self.pods.0[index]
    }

    async fn end_sidecar(&self, pod: PodIndex, signal: Signal) -> Result<()> {
        let sidecar = &self.pod(pod).sidecar;
        let exits = sidecar.exits().len();
        sidecar.signal(signal);
        sidecar.runs_again(exits, SOON).await
    }

    async fn through_proxy(&self, pod: PodIndex, mode: Mode, lasting: Duration) -> Result<()> {
        let proxy = &self.pod(pod).proxy;
        proxy.set(mode);
        sleep(lasting).await;
        proxy.set(Mode::Pass);
        Ok(())
    }

    async fn kill_runtime(&self, moment: Moment, pod: PodIndex, after: Duration) -> Result<()> {
        // A message whose first actor runs in this pod.
        let route = if pod < COUNT / 2 { &WAY[..] } else { &WAY[1..] };
        let new = NewMessage {
            seconds: if moment == Moment::InHandler {
                0.6
            } else {
                0.0
            },
            large: matches!(moment, Moment::Reading | Moment::Writing),
            ..NewMessage::new(Task::Pass, route)
        };
        let pod = match moment {
            Moment::Idle => pod,
            Moment::Reading => {
                self.pod(pod).runtime.signal(Signal::STOP);
                for _pod in 0..COUNT {
                    self.producer.deliver(&self.broker, &new).await?;
                }
                sleep(WRITE).await;
                pod
            }
            Moment::InHandler | Moment::Writing => {
                let since = self.pods.calls_lengths();
                let id = self.producer.deliver(&self.broker, &new).await?;
                self.pods.caller(&id, &since).await?
            }
        };
        sleep(after).await;
        let runtime = &self.pod(pod).runtime;
        let exits = runtime.exits().len();
        runtime.signal(Signal::KILL);
        runtime.runs_again(exits, SOON).await
    }

    async fn alarm(&self, command: &str, [on, off]: [&str; 2], lasting: Duration) -> Result<()> {
        self.broker.control(&[command, on]).await?;
        sleep(lasting).await;
        self.broker.control(&[command, off]).await
    }

    /// Waits until the messages that deleting the queue would remove have been processed.
    async fn delete_queue(&self, lasting: Duration) -> Result<()> {
        let _paused = self.producer.pause().await;
        self.broker.are_empty(&[FIRST, SECOND], EMPTY).await?;
        self.broker.delete_queue(FIRST).await?;
        sleep(lasting).await;
        self.broker.create_queue(FIRST).await
    }

    async fn missing_queue(&mut self, lasting: Duration) -> Result<()> {
        let name = format!("{OUT}-{}", self.outs.len());
        let route = [FIRST, &name];
        let new = NewMessage::new(Task::Pass, &route);
        self.producer.deliver(&self.broker, &new).await?;
        sleep(lasting).await;
        self.broker.create_queue(&name).await?;
        self.outs.push(name);
        Ok(())
    }

    async fn refuse_login(&self, lasting: Duration) -> Result<()> {
        self.broker.refuse_logins(true).await?;
        for mode in [Mode::Refuse, Mode::Pass] {
            for pod in &self.pods.0 {
                pod.proxy.set(mode.clone());
            }
            sleep(WRITE).await;
        }
        sleep(lasting).await;
        self.broker.refuse_logins(false).await
    }

    async fn remove_ready_file(&self, pod: PodIndex, lasting: Duration) -> Result<()> {
        let file = self.pod(pod).actor.folder().join("runtime-ready");
        let text = std::fs::read(&file).map_err(Error::other)?;
        std::fs::remove_file(&file).map_err(Error::other)?;
        sleep(lasting).await;
        std::fs::write(&file, text).map_err(Error::other)
    }

    async fn deadline(&self) -> Result<()> {
        let new = NewMessage {
            seconds: FOR_EVER_SECONDS,
            ..NewMessage::new(Task::Hang, &WAY)
        };
        let since = self.pods.calls_lengths();
        let exits: Vec<usize> = self
            .pods
            .0
            .iter()
            .map(|pod| pod.runtime.exits().len())
            .collect();
        let id = self.producer.deliver(&self.broker, &new).await?;
        let pod = self.pods.caller(&id, &since).await?;
        let runtime = &self.pod(pod).runtime;
        runtime.runs_again(exits[pod], RUNTIME_TIMEOUT + SOON).await
    }
}
