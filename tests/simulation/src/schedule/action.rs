//! Actions of users, bystanders and the environment.

use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::world::owners::OwnerKind;
use crate::world::quotas::Limited;
use crate::world::targets::TargetKind;

/// Namespace and name of an actor.
pub type Actor = (&'static str, &'static str);

/// An action of a user, a bystander or the environment.
#[derive(Clone, Debug)]
pub enum Action {
    /// A user creates an actor with this spec, unless it exists.
    Create(Actor, Value),
    /// A user changes an actor's spec with a merge patch.
    Update(Actor, Value),
    /// A user pauses an actor.
    Pause(Actor),
    /// A user unpauses an actor.
    Resume(Actor),
    /// A user deletes an actor.
    Delete(Actor),
    /// A user deletes an actor with propagation policy Orphan.
    Orphan(Actor),
    /// Messages arrive in an actor's queue.
    Publish(Actor, u64),
    /// A user creates the target of an actor, with this many pods, unless it exists.
    CreateTarget(Actor, TargetKind, u8),
    /// A user changes the model version in an actor's target.
    ChangeTarget(Actor, TargetKind, u8),
    /// A user scales an actor's target, unless the queue scales it.
    ScaleTarget(Actor, TargetKind, u8),
    /// A user deletes an actor's target.
    DeleteTarget(Actor, TargetKind),
    /// Someone deletes an object that the operator created for an actor.
    DeleteChild(Actor, &'static str),
    /// Someone changes the operator's workload.
    ChangeChild(Actor),
    /// Someone deletes an actor's queue.
    DeleteQueue(Actor),
    /// A replica crashes after this many more calls.
    Crash(usize, u64),
    /// A replica is asked to stop.
    Stop(usize),
    /// A replica loses its network.
    Partition(usize, Duration),
    /// A webhook replica crashes after this many more calls of its own.
    CrashWebhook(usize, u64),
    /// A webhook replica loses its network.
    CutWebhook(usize, Duration),
    /// Someone deletes what an owner created for an actor's target.
    DeleteWorkload(Actor, OwnerKind),
    /// An owner of targets crashes after this many more calls of its own.
    CrashOwner(OwnerKind, u64),
    /// An owner of targets loses its network.
    CutOwner(OwnerKind, Duration),
    /// The API server discards its history, so that watches must list again.
    Compact,
    /// Someone removes the operator's permissions on the kind of an owner's targets.
    Forbid(OwnerKind),
    /// Someone grants them again.
    Allow(OwnerKind),
    /// Someone uninstalls KEDA with its CRDs; its operator stops either before or after they are gone.
    UninstallKeda {
        /// Whether the operator stops first.
        stops_first: bool,
    },
    /// Someone installs KEDA.
    InstallKeda,
    /// A user creates an HPA for the workload of an actor, if it exists.
    CreateHpa(Actor),
    /// A user deletes that HPA.
    DeleteHpa(Actor),
    /// An administrator limits the pods of a namespace to what they use now and this much more.
    SetQuota(&'static str, Limited, i64),
    /// An administrator limits the namespace of a target to what its pods use now, this many more pods of the target
    /// without the sidecar, and this much more.
    FillQuota(Actor, TargetKind, Limited, u8, i64),
    /// A user lets the pods of an actor's target request this much cpu, in thousandths, and memory, in Mi.
    RequestResources(Actor, TargetKind, u16, u16),
    /// Someone deletes a pod of an actor's target.
    DeletePod(Actor, TargetKind, u8),
    /// An administrator removes the limit.
    DeleteQuota(&'static str),
    /// From now on, the clocks of the operator's nodes are off by this many seconds.
    SetClock(i16),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |actor: &Actor| format!("{}/{}", actor.0, actor.1);
        match self {
            Self::Create(actor, spec) => write!(f, "a user creates {}: {spec}", name(actor)),
            Self::Update(actor, patch) => write!(f, "a user changes {}: {patch}", name(actor)),
            Self::Pause(actor) => write!(f, "a user pauses {}", name(actor)),
            Self::Resume(actor) => write!(f, "a user resumes {}", name(actor)),
            Self::Delete(actor) => write!(f, "a user deletes {}", name(actor)),
            Self::Orphan(actor) => write!(f, "a user orphans the objects of {}", name(actor)),
            Self::Publish(actor, count) => write!(f, "{count} messages for {}", name(actor)),
            Self::CreateTarget(actor, kind, replicas) => {
                let name = name(actor);
                write!(
                    f,
                    "a user creates the {kind:?} of {name} with {replicas} pods"
                )
            }
            Self::ChangeTarget(actor, kind, version) => {
                write!(
                    f,
                    "a user updates the {kind:?} of {} to {version}",
                    name(actor)
                )
            }
            Self::ScaleTarget(actor, kind, replicas) => {
                write!(
                    f,
                    "a user scales the {kind:?} of {} to {replicas}",
                    name(actor)
                )
            }
            Self::DeleteTarget(actor, kind) => {
                write!(f, "a user deletes the {kind:?} of {}", name(actor))
            }
            Self::DeleteChild(actor, kind) => {
                write!(f, "somebody deletes the {kind} of {}", name(actor))
            }
            Self::ChangeChild(actor) => {
                write!(f, "somebody changes the Deployment of {}", name(actor))
            }
            Self::DeleteQueue(actor) => write!(f, "somebody deletes the queue of {}", name(actor)),
            Self::Crash(replica, calls) => write!(f, "r{replica} will crash after {calls} calls"),
            Self::Stop(replica) => write!(f, "r{replica} is asked to stop"),
            Self::Partition(replica, time) => write!(f, "r{replica} is cut off for {time:?}"),
            Self::CrashWebhook(replica, calls) => {
                write!(f, "w{replica} will crash after {calls} calls")
            }
            Self::CutWebhook(replica, time) => write!(f, "w{replica} is cut off for {time:?}"),
            Self::DeleteWorkload(actor, owner) => {
                write!(
                    f,
                    "somebody deletes the workload that {owner:?} has made of {}",
                    name(actor)
                )
            }
            Self::CrashOwner(owner, calls) => {
                write!(f, "{owner:?} will crash after {calls} calls")
            }
            Self::CutOwner(owner, time) => write!(f, "{owner:?} is cut off for {time:?}"),
            Self::Forbid(owner) => write!(f, "the operator may not use targets of {owner:?}"),
            Self::Allow(owner) => write!(f, "the operator may use targets of {owner:?}"),
            Self::Compact => f.write_str("the API server forgets its history"),
            Self::UninstallKeda { stops_first: true } => {
                f.write_str("KEDA stops and is uninstalled")
            }
            Self::UninstallKeda { stops_first: false } => f.write_str("KEDA is uninstalled"),
            Self::InstallKeda => f.write_str("KEDA is installed"),
            Self::CreateHpa(actor) => write!(f, "a user creates an HPA for {}", name(actor)),
            Self::DeleteHpa(actor) => write!(f, "a user deletes the HPA for {}", name(actor)),
            Self::SetQuota(namespace, limited, room) => {
                write!(f, "a quota leaves {namespace} room for {room} {limited}")
            }
            Self::FillQuota(actor, _, limited, pods, rest) => {
                let name = name(actor);
                write!(
                    f,
                    "a quota leaves room for {pods} pods of the target of {name} and {rest} {limited}"
                )
            }
            Self::RequestResources(actor, _, cpu, memory) => {
                let name = name(actor);
                write!(
                    f,
                    "a user lets the target of {name} request {cpu}m and {memory}Mi"
                )
            }
            Self::DeletePod(actor, ..) => {
                write!(f, "somebody deletes a pod of the target of {}", name(actor))
            }
            Self::DeleteQuota(namespace) => write!(f, "{namespace} has no quota any more"),
            Self::SetClock(seconds) => write!(f, "the operator's clock is off by {seconds} s"),
        }
    }
}
