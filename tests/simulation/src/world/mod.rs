//! The environment of the controller: API server, brokers, users and other controllers.

pub mod admission;
pub mod hpa;
pub mod invariants;
pub mod keda;
pub mod owners;
pub mod pods;
pub mod quotas;
pub mod replacements;
pub mod rivals;
pub mod sqs;
pub mod targets;
pub mod webhooks;
pub mod workloads;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use reqwest::{Method, Url};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::api_server::ApiServer;
use crate::api_server::id::Id;
use crate::api_server::managed::Writer;
use crate::api_server::request::Verb;
use crate::api_server::resources;
use crate::api_server::store::{Change, Objects, Store};
use crate::broker::Broker;
use crate::broker::rabbitmq::Response;
use crate::broker::sqs::{TRANSPORTS, TWIN, location};
use crate::faults::Faults;
use crate::installation::{BROKERS, OPERATOR_NAMESPACE, RELEASE, broker_at};
use crate::process::Process;
use crate::randomness::{Seed, delay};
use crate::trace::Trace;

use keda::Keda;
use owners::Owners;
use webhooks::Webhooks;

/// Namespaces of actors.
pub const NAMESPACES: [&str; 2] = ["team-a", "team-b"];

/// How long the operator may act on something that it has verified.
const READ_VALID_FOR: Duration = Duration::from_secs(3);

/// How long a process may still read from brokers after another has become the leader.
const LAST_READS: Duration = Duration::from_secs(5);

/// The environment of the controller.
pub struct World {
    /// The seed of the run.
    pub seed: Seed,
    /// Whether the replicas elect a leader.
    pub elects: bool,
    /// The API server.
    pub server: Mutex<ApiServer>,
    /// The brokers, by transport name.
    pub brokers: Mutex<BTreeMap<String, Broker>>,
    /// The faults of calls.
    pub faults: Faults,
    /// The trace of the run.
    pub trace: Trace,
    /// The webhook's replicas.
    pub webhooks: Webhooks,
    /// The controllers that own targets.
    pub owners: Owners,
    /// Notified of events outside the API server, such as the arrival of messages.
    pub messages: Notify,
    /// The state of KEDA.
    pub keda: Mutex<Keda>,
    /// Kinds on which the operator lacks permission because a chart value is off.
    pub forbidden: Mutex<BTreeSet<&'static str>>,
    /// The holder of the lease, and since when.
    leader: Mutex<Option<(String, Instant)>>,
    violations: Mutex<Vec<String>>,
    /// The states that processes saw when they read an actor, a workload or pods, with the time.
    found: Mutex<BTreeMap<String, VecDeque<(Instant, Objects)>>>,
    /// The states that dry runs of pods saw, by process, with the time.
    dry_runs: Mutex<BTreeMap<String, VecDeque<(Instant, Objects)>>>,
    /// Writes by the controller, except to leases.
    writes: Mutex<Vec<String>>,
    /// The version up to which the workload controllers have nothing left to do; `None` if they retry.
    workloads_seen: Mutex<Option<u64>>,
    /// Host and name of the queues that a policy keeps.
    kept: Mutex<BTreeSet<(String, String)>>,
    /// UIDs of actors deleted with propagation policy Orphan.
    orphaned: Mutex<BTreeSet<String>>,
    /// Targets whose pods may keep the sidecar of a deleted actor.
    sidecars_kept: Mutex<BTreeSet<Id>>,
}

/// A writer of the main resource.
#[must_use]
pub fn writer(manager: &str) -> Writer {
    Writer {
        manager: manager.to_owned(),
        status: false,
    }
}

/// A writer of the `status` subresource.
#[must_use]
pub fn status_writer(manager: &str) -> Writer {
    Writer {
        manager: manager.to_owned(),
        status: true,
    }
}

impl World {
    /// A world with only namespaces, KEDA's CRDs and brokers.
    #[must_use]
    pub fn new(seed: Seed, elects: bool, faults: Faults) -> Self {
        let mut server = ApiServer::default();
        server.page = 2;
        for namespace in NAMESPACES
            .iter()
            .chain(&[OPERATOR_NAMESPACE, "kube-system", "default"])
        {
            let id = Id::new(&resources::NAMESPACES, "", namespace);
            let labels = json!({"kubernetes.io/metadata.name": namespace});
            let object = json!({"metadata": {"labels": labels}});
            let _ = server.store.create(&id, object, &writer("kubectl"));
        }
        let role = format!("{RELEASE}-webhook-anchor");
        let role = Id::new(&resources::CLUSTER_ROLES, "", &role);
        let _ = server
            .store
            .create(&role, json!({"metadata": {}}), &writer("helm"));
        server.applies_while_terminating = seed.rng_for("Kubernetes version").bool();
        keda::install(&mut server.store);
        let transports = TRANSPORTS.iter().chain([&TWIN]);
        let keys: BTreeSet<_> = transports.map(|it| location(it).1).collect();
        // Bound pods read them in their own namespace (SAFE-42).
        let namespaces = NAMESPACES.iter().chain([&OPERATOR_NAMESPACE]);
        for (namespace, name) in namespaces.flat_map(|it| keys.iter().map(move |key| (it, key))) {
            let id = Id::new(&resources::SECRETS, namespace, name);
            let data = json!({"id": STANDARD.encode(name), "secret": STANDARD.encode("secret")});
            let secret = json!({"metadata": {}, "data": data});
            let _ = server.store.create(&id, secret, &writer("kubectl"));
        }
        Self {
            seed,
            elects,
            server: Mutex::new(server),
            brokers: Mutex::new(
                BROKERS
                    .iter()
                    .chain(&TRANSPORTS)
                    .map(|name| ((*name).to_owned(), Broker::new(name)))
                    .collect(),
            ),
            faults,
            trace: Trace::default(),
            webhooks: Webhooks::default(),
            owners: Owners::default(),
            messages: Notify::new(),
            keda: Mutex::default(),
            forbidden: Mutex::default(),
            leader: Mutex::default(),
            violations: Mutex::default(),
            found: Mutex::default(),
            dry_runs: Mutex::default(),
            writes: Mutex::default(),
            workloads_seen: Mutex::default(),
            kept: Mutex::default(),
            orphaned: Mutex::default(),
            sidecars_kept: Mutex::default(),
        }
    }

    /// Frees the memory of the run. Clients hold the world, and processes that live as long as the program may hold
    /// themselves, and so their clients, forever.
    pub fn clear(&self) {
        self.webhooks.clear();
        self.trace.clear();
        self.found.lock().clear();
        self.dry_runs.lock().clear();
        *self.server.lock() = ApiServer::default();
    }

    /// Records a violated invariant.
    pub fn violation(&self, what: String) {
        self.trace.add("INVARIANT", &what);
        self.violations.lock().push(what);
    }

    /// The violated invariants so far.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.violations.lock().clone()
    }

    /// The writes by the controller that changed anything, except to leases.
    #[must_use]
    pub fn writes(&self) -> Vec<String> {
        self.writes.lock().clone()
    }

    /// Whether an actor's policy keeps this queue even after the actor is gone.
    #[must_use]
    pub fn keeps(&self, host: &str, queue: &str) -> bool {
        self.kept
            .lock()
            .contains(&(host.to_owned(), queue.to_owned()))
    }

    /// Whether an actor may have left its sidecars in this target.
    #[must_use]
    pub fn keeps_sidecars(&self, target: &Id) -> bool {
        self.sidecars_kept.lock().contains(target)
    }

    /// Whether a binding leaves its pods unchanged until they are restarted.
    #[must_use]
    pub fn has_bindings_on_restart(&self) -> bool {
        let server = self.server.lock();
        let mut actors = server.store.all(&resources::ACTORS);
        actors.any(|(_, actor)| actor["spec"]["binding"]["rollout"] == "OnRestart")
    }

    /// Whether another writer has reverted a field that an actor set in its target.
    #[must_use]
    pub fn has_conflicts(&self) -> bool {
        let server = self.server.lock();
        let mut actors = server.store.all(&resources::ACTORS);
        actors.any(|(_, actor)| actor["status"]["conflicts"].is_array())
    }

    /// Records the state that a process saw when it read an actor, a workload or pods.
    pub fn note_read(&self, process: &Process, verb: &Verb) {
        let reads = match verb {
            Verb::Get(id) => [
                &resources::ACTORS,
                &resources::DEPLOYMENTS,
                &resources::STATEFUL_SETS,
            ]
            .contains(&id.resource),
            Verb::List { resource, .. } => *resource == &resources::PODS,
            _ => false,
        };
        if reads {
            let objects = self.server.lock().store.objects().clone();
            let mut found = self.found.lock();
            let found = found.entry(process.name.clone()).or_default();
            while found
                .front()
                .is_some_and(|(at, _)| at.elapsed() > READ_VALID_FOR)
            {
                found.pop_front();
            }
            found.push_back((Instant::now(), objects));
        }
    }

    /// Checks a write to something that users change concurrently: it is a violation only if it is wrong now and was
    /// already wrong when the process last verified it. Nobody can see later changes.
    fn check_unchanged_since_read(
        &self,
        process: &Process,
        what: &str,
        why: impl Fn(&Objects) -> Option<String>,
    ) {
        let Some(now) = why(self.server.lock().store.objects()) else {
            return;
        };
        let found = self.found.lock();
        let found = found.get(&process.name).into_iter().flatten();
        let mut recent = found.filter(|(at, _)| at.elapsed() < READ_VALID_FOR);
        if recent.all(|(_, objects)| why(objects).is_some()) {
            self.violation(format!("{} {what}{now}", process.name));
        }
    }

    /// Checks that only the leader writes.
    pub fn check_writer(&self, process: &Process, id: &Id) {
        if id.resource == &resources::LEASES {
            return;
        }
        if process.is_webhook {
            if id.resource != &resources::EVENTS {
                self.violation(format!("{} writes {id}", process.name));
            }
            return;
        }
        self.check_leader(process, &id.to_string());
    }

    /// Records the holder after a write to the lease.
    fn note_leader(&self) {
        let lease = Id::new(
            &resources::LEASES,
            OPERATOR_NAMESPACE,
            "asya-operator.asya.sh",
        );
        let lease = self.server.lock().store.get(&lease);
        let holder =
            lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str().map(str::to_owned));
        let mut leader = self.leader.lock();
        if leader.as_ref().map(|(holder, _)| holder) != holder.as_ref() {
            *leader = holder.map(|holder| (holder, Instant::now()));
        }
    }

    fn check_leader(&self, process: &Process, what: &str) {
        let leader = self.leader.lock();
        let holder = leader.as_ref().map(|(holder, _)| holder.as_str());
        if self.elects && !holder.is_some_and(|holder| is_identity_of(process, holder)) {
            let holder = holder.unwrap_or("nobody");
            self.violation(format!(
                "{} writes {what}, but {holder} leads",
                process.name
            ));
        }
    }

    /// Only the leader reads from brokers (QUE-21). A read in progress may end a moment after its lease.
    fn check_reader(&self, process: &Process, what: &str) {
        let leader = self.leader.lock();
        let other = leader
            .as_ref()
            .filter(|(holder, _)| !holder.is_empty() && !is_identity_of(process, holder));
        if let Some((holder, since)) = other
            && self.elects
            && since.elapsed() > LAST_READS
        {
            self.violation(format!(
                "{} reads {what}, but {holder} has led for {} s",
                process.name,
                since.elapsed().as_secs()
            ));
        }
    }

    /// Records a write that changed something.
    pub fn note_write(&self, process: &Process, id: &Id, verb: &str) {
        if id.resource == &resources::LEASES {
            self.note_leader();
        } else if !process.is_webhook {
            self.writes.lock().push(format!("{verb} {id}"));
            self.check_foreign(process, id);
        }
    }

    /// A broker carries out a call by the controller.
    pub fn act_on_broker(
        &self,
        process: &Process,
        host: &str,
        (method, url, body): (&Method, &Url, Option<&Value>),
    ) -> Response {
        let (path, host) = (url.path(), broker_at(host));
        if *method == Method::GET {
            self.check_reader(process, path);
        } else {
            self.check_leader(process, path);
        }
        if *method == Method::DELETE && path.starts_with("/api/queues/") {
            let queue = path.rsplit('/').next().unwrap_or_default();
            self.check_queue_deletion(process, host, (queue, url.query().unwrap_or_default()));
        }
        let mut brokers = self.brokers.lock();
        let Some(Broker::Rabbitmq(broker)) = brokers.get_mut(host) else {
            return (404, Value::Null);
        };
        let before = (*method != Method::GET).then(|| broker.clone());
        let answer = broker.answer(method, url, body);
        if before.is_some_and(|before| *broker != before) {
            self.writes.lock().push(format!("{method} {host}{path}"));
        }
        drop(brokers);
        self.trace.add(
            &process.name,
            format_args!("{method} {host}{path}: {}", answer.0),
        );
        answer
    }

    /// Runs the other controllers of the cluster forever.
    pub async fn run_controllers(self: Arc<Self>) {
        let changed = self.server.lock().store.subscribe(None);
        for round in 0_u64.. {
            let mut random = self.seed.rng_for(("controllers", round));
            sleep(delay(&mut random, 20..400)).await;
            let next = self.step();
            let next = next.unwrap_or(Duration::from_hours(1));
            tokio::select! {
                biased;
                () = changed.notified() => {}
                () = self.messages.notified() => {}
                () = sleep(next) => {}
            }
        }
    }

    /// Records that the actor with this UID is deleted with propagation policy Orphan.
    pub fn note_orphaned(&self, id: &Id, uid: &str) {
        self.orphaned.lock().insert(uid.to_owned());
        self.note_kept_queue(id);
    }

    /// Records that the queue of this actor may outlive it.
    pub fn note_kept_queue(&self, actor: &Id) {
        let queue = format!("asya-{}", actor.name);
        let hosts = BROKERS.iter().chain(&TRANSPORTS);
        self.kept
            .lock()
            .extend(hosts.map(|host| ((*host).to_owned(), queue.clone())));
    }

    /// Records queues that outlive their actor: with policy Retain, or with pods that outlive it. With rollout
    /// `OnRestart` the sidecars then stay as well (BIND-43).
    fn note_kept_queues(&self, store: &Store) {
        for (id, actor) in store.all(&resources::ACTORS) {
            let spec = &actor["spec"];
            let retains = spec["queue"]["deletionPolicy"] == "Retain";
            if retains && spec["binding"]["rollout"] == "OnRestart" {
                let name = targets::target_name(&id.name);
                let resources = [&resources::DEPLOYMENTS, &resources::STATEFUL_SETS];
                let targets = resources.map(|resource| Id::new(resource, &id.namespace, &name));
                let owned = owners::kind::ids_of(&id.namespace, &name);
                self.sidecars_kept
                    .lock()
                    .extend(targets.into_iter().chain(owned));
            }
            if retains || spec["deletionPolicy"] == "Orphan" {
                self.note_kept_queue(id);
            }
        }
    }

    /// Runs one step of the workload controllers, unless nothing that they read has changed. Returns whether a pod was
    /// denied.
    fn step_workloads(&self, store: &mut Store) -> bool {
        let mut seen = self.workloads_seen.lock();
        let is_read = |change: &Change| {
            let resource = change.id.resource;
            resource == &resources::PODS || workloads::RESOURCES.contains(&resource)
        };
        let changes = seen.map(|seen| store.changes_after(seen));
        let is_idle = matches!(changes, Some(Ok(changes)) if !changes.iter().any(is_read));
        let version = store.version();
        let denied = !is_idle && workloads::step(self, store);
        *seen = (!denied).then_some(version);
        denied
    }

    /// Runs one step of all controllers. Returns when the next one is due if nothing changes.
    fn step(&self) -> Option<Duration> {
        let mut server = self.server.lock();
        let store = &mut server.store;
        while store.collect_garbage() {}
        self.note_kept_queues(store);
        let denied = self.step_workloads(store);
        let mut brokers = self.brokers.lock();
        self.keda.lock().step(store, &brokers);
        hpa::step(store);
        let due = pods::step(store, self.seed);
        pods::consume(store, &mut brokers);
        // The workload controller retries.
        let retry = denied.then_some(Duration::from_secs(2));
        due.into_iter().chain(retry).min()
    }
}

/// Whether this lease identity belongs to the process.
fn is_identity_of(process: &Process, holder: &str) -> bool {
    holder.starts_with(&format!("{}_", process.name))
}
