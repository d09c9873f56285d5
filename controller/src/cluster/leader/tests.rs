#![allow(clippy::unwrap_used, clippy::expect_used)]

mod server;

use std::sync::{Arc, Mutex};

use k8s_openapi::api::coordination::v1::LeaseSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep};

use jiff::Timestamp;

use super::*;
use server::{Link, Server};

const NAME: &str = "asya-operator.asya.sh";

/// A running candidate.
struct Process {
    identity: String,
    fence: Fence,
    link: Arc<Mutex<Link>>,
    shutdown: CancellationToken,
    phase: LeadershipPhase,
    task: JoinHandle<(LeadershipEnd, Instant)>,
}

impl Process {
    fn start(server: &Server, identity: &str) -> Self {
        Self::start_with(server, identity, Readiness::default())
    }

    fn start_with(server: &Server, identity: &str, readiness: Readiness) -> Self {
        let (client, link) = server.client();
        let (fence, shutdown) = (Fence::closed(), CancellationToken::new());
        let candidate = Candidate {
            readiness: readiness.clone(),
            client,
            namespace: "asya-system".to_owned(),
            name: NAME.to_owned(),
            identity: identity.to_owned(),
            fence: fence.clone(),
        };
        let phase = LeadershipPhase::default();
        let campaign = candidate.run(shutdown.clone(), phase.clone());
        let task = tokio::spawn(async move { (campaign.await, Instant::now()) });
        tokio::spawn(work(phase.clone(), readiness));
        Self {
            identity: identity.to_owned(),
            fence,
            link,
            shutdown,
            phase,
            task,
        }
    }

    fn set_link(&self, link: Link) {
        *self.link.lock().unwrap() = link;
    }

    fn leads(&self) -> bool {
        assert!(!self.fence.is_open() || self.phase.phase() != Phase::Standby);
        self.fence.is_open()
    }
}

/// The work of a candidate.
async fn work(phase: LeadershipPhase, readiness: Readiness) {
    loop {
        phase.reaches(Phase::Preparing).await;
        let is_ready = tokio::select! {
            () = readiness.all_ready() => true,
            () = phase.reaches(Phase::GivenBack) => false,
        };
        if is_ready && phase.advance(Phase::Preparing, Phase::Leading) {
            return;
        }
        phase.reaches(Phase::GivenBack).await;
        phase.advance(Phase::GivenBack, Phase::Standby);
    }
}

/// Advances time, and checks throughout that at most one of `processes` may write.
async fn run_for(millis: u64, processes: &[&Process]) {
    for _ in 0..millis / 10 {
        sleep(Duration::from_millis(10)).await;
        let leaders = processes.iter().filter(|process| process.leads()).count();
        assert!(leaders <= 1, "two leaders");
    }
}

fn spec(server: &Server) -> LeaseSpec {
    server.lease().unwrap().spec.unwrap()
}

fn foreign(holder: &str, renewed: &str) -> Lease {
    let renewed = Some(MicroTime(renewed.parse().unwrap()));
    let spec = LeaseSpec {
        holder_identity: Some(holder.to_owned()),
        lease_duration_seconds: Some(10),
        renew_time: renewed.clone(),
        acquire_time: renewed,
        lease_transitions: Some(4),
        ..LeaseSpec::default()
    };
    let mut lease = record::created(NAME, holder, Timestamp::now());
    lease.metadata.labels = Some([("team".to_owned(), "a".to_owned())].into());
    lease.spec = Some(spec);
    lease
}

#[tokio::test(start_paused = true)]
async fn only_one_of_several_candidates_creates_or_acquires_the_lease() {
    for previous in [None, Some(foreign("", "2020-01-01T00:00:00Z"))] {
        let server = Server::default();
        server.put(previous);
        let candidates: Vec<_> = ["a", "b", "c", "d"]
            .map(|name| Process::start(&server, name))
            .into();
        run_for(30_000, &candidates.iter().collect::<Vec<_>>()).await;
        let leaders: Vec<_> = candidates
            .iter()
            .filter(|candidate| candidate.leads())
            .collect();
        assert_eq!(leaders.len(), 1);
        assert_eq!(server.holder().unwrap(), leaders[0].identity);
    }
}

#[tokio::test(start_paused = true)]
async fn leader_renews_the_lease_and_keeps_its_record() {
    let server = Server::default();
    server.put(Some(foreign("", "2020-01-01T00:00:00Z")));
    let leader = Process::start(&server, "a");
    run_for(100, &[]).await;
    let first = spec(&server);
    assert!(leader.leads());
    run_for(60_000, &[&leader]).await;
    let now = spec(&server);
    assert!(leader.leads());
    assert_eq!(
        (now.lease_transitions, now.lease_duration_seconds),
        (Some(5), Some(10))
    );
    assert_eq!(now.acquire_time, first.acquire_time);
    assert!(
        now.acquire_time
            > foreign("", "2020-01-01T00:00:00Z")
                .spec
                .unwrap()
                .acquire_time
    );
    assert!(now.renew_time > first.renew_time);
    assert_eq!(
        server.writes(),
        1 + 30,
        "acquired once and renewed every 2 s"
    );
    assert_eq!(
        server.lease().unwrap().metadata.labels.unwrap()["team"],
        "a"
    );
}

#[tokio::test(start_paused = true)]
async fn new_lease_counts_transitions_from_0() {
    let server = Server::default();
    let _leader = Process::start(&server, "a");
    run_for(100, &[]).await;
    let spec = spec(&server);
    assert_eq!(spec.lease_transitions, Some(0));
    assert!(spec.acquire_time.is_some() && spec.acquire_time == spec.renew_time);
}

/// FW-11, OPS-6
#[tokio::test(start_paused = true)]
async fn leader_cut_off_from_the_api_server_stops_before_another_leads() {
    let server = Server::default();
    let old = Process::start(&server, "a");
    run_for(5000, &[]).await;
    let new = Process::start(&server, "b");
    run_for(500, &[]).await;
    let cut = Instant::now();
    old.set_link(Link::Silent);
    run_for(12_000, &[&old, &new]).await;
    assert!(new.leads());
    assert_eq!(spec(&server).lease_transitions, Some(1));
    let (end, ended_at) = old.task.await.unwrap();
    assert_eq!(end, LeadershipEnd::Lost);
    let held = (ended_at - cut).as_millis();
    assert!(
        (5000..=7000).contains(&held),
        "7 s after its last renewal started: {held}"
    );
}

#[tokio::test(start_paused = true)]
async fn short_api_server_failure_does_not_lose_the_lease() {
    for link in [Link::Silent, Link::Fails(500), Link::Fails(403)] {
        let server = Server::default();
        let leader = Process::start(&server, "a");
        run_for(2500, &[]).await;
        leader.set_link(link);
        run_for(3500, &[]).await;
        leader.set_link(Link::Works);
        run_for(30_000, &[]).await;
        assert!(leader.leads());
        assert_eq!(spec(&server).lease_transitions, Some(0));
    }
}

/// A restart of the leader would add to the load that makes the API server slow.
#[tokio::test(start_paused = true)]
async fn slow_api_server_does_not_cost_the_lease() {
    let server = Server::default();
    let leader = Process::start(&server, "a");
    run_for(2500, &[]).await;
    leader.set_link(Link::Slow(Duration::from_secs(3)));
    let standby = Process::start(&server, "b");
    run_for(60_000, &[&leader, &standby]).await;
    assert!(leader.leads());
    assert_eq!(spec(&server).lease_transitions, Some(0));
}

#[tokio::test(start_paused = true)]
async fn renewal_with_a_lost_response_is_recognized_as_own() {
    let server = Server::default();
    let leader = Process::start(&server, "a");
    run_for(2500, &[]).await;
    leader.set_link(Link::LosesResponses);
    run_for(3000, &[]).await;
    leader.set_link(Link::Works);
    run_for(30_000, &[]).await;
    assert!(leader.leads());
}

#[tokio::test(start_paused = true)]
async fn creation_with_a_lost_response_is_recognized_as_own() {
    let server = Server::default();
    let candidate = Process::start(&server, "a");
    candidate.set_link(Link::LosesResponses);
    run_for(1000, &[&candidate]).await;
    assert_eq!(server.holder().as_deref(), Some("a"));
    assert!(!candidate.leads());
    candidate.set_link(Link::Works);
    run_for(5000, &[]).await;
    assert!(candidate.leads());
    assert_eq!(spec(&server).lease_transitions, Some(0));
}

/// OPS-6
#[tokio::test(start_paused = true)]
async fn leader_loses_the_lease_when_another_process_holds_it() {
    let server = Server::default();
    let leader = Process::start(&server, "a");
    run_for(2500, &[]).await;
    server.put(Some(foreign("b", "2026-01-01T00:00:00Z")));
    run_for(2500, &[]).await;
    assert!(!leader.leads());
    assert_eq!(leader.task.await.unwrap().0, LeadershipEnd::Lost);
    assert_eq!(server.holder().as_deref(), Some("b"), "it is not released");
}

#[tokio::test(start_paused = true)]
async fn deleted_lease_is_recreated_by_its_holder() {
    let server = Server::default();
    let leader = Process::start(&server, "a");
    run_for(1000, &[]).await;
    let standby = Process::start(&server, "b");
    run_for(2100, &[]).await;
    server.put(None);
    run_for(30_000, &[&leader, &standby]).await;
    assert!(leader.leads());
    assert_eq!(server.holder().as_deref(), Some("a"));
}

/// OPS-6
#[tokio::test(start_paused = true)]
async fn suspended_process_ends_without_a_write() {
    let server = Server::default();
    let leader = Process::start(&server, "a");
    run_for(1000, &[]).await;
    let writes = server.writes();
    advance(Duration::from_secs(20)).await;
    assert!(!leader.fence.is_open());
    assert_eq!(leader.task.await.unwrap().0, LeadershipEnd::Lost);
    assert_eq!(server.writes(), writes);
}

/// FW-16
#[tokio::test(start_paused = true)]
async fn stopping_leader_releases_the_lease() {
    let server = Server::default();
    let old = Process::start(&server, "a");
    run_for(1000, &[]).await;
    let new = Process::start(&server, "b");
    run_for(3000, &[]).await;
    old.shutdown.cancel();
    run_for(1100, &[&old, &new]).await;
    assert_eq!(old.task.await.unwrap().0, LeadershipEnd::Released);
    assert!(new.leads());
    assert_eq!(spec(&server).lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn changed_lease_is_released_if_still_held() {
    for (holder, remaining) in [("a", ""), ("b", "b")] {
        let server = Server::default();
        let leader = Process::start(&server, "a");
        run_for(1000, &[]).await;
        server.put(Some(foreign(holder, "2026-01-01T00:00:00Z")));
        leader.shutdown.cancel();
        assert_eq!(leader.task.await.unwrap().0, LeadershipEnd::Released);
        assert_eq!(server.holder().as_deref(), Some(remaining));
    }
}

/// FW-16
#[tokio::test(start_paused = true)]
async fn leader_stopping_without_api_server_does_not_wait_for_it() {
    let server = Server::default();
    let leader = Process::start(&server, "a");
    run_for(1000, &[]).await;
    leader.set_link(Link::Silent);
    let stopped_at = Instant::now();
    leader.shutdown.cancel();
    let (end, ended_at) = leader.task.await.unwrap();
    assert_eq!(end, LeadershipEnd::Released);
    assert!(ended_at - stopped_at <= 2 * ATTEMPT_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn stopping_follower_writes_nothing() {
    let server = Server::default();
    server.put(Some(foreign("b", "2026-01-01T00:00:00Z")));
    let follower = Process::start(&server, "a");
    run_for(3000, &[]).await;
    follower.shutdown.cancel();
    assert_eq!(follower.task.await.unwrap().0, LeadershipEnd::Released);
    assert_eq!(follower.phase.phase(), Phase::Standby);
    assert_eq!(
        (server.holder().as_deref(), server.writes()),
        (Some("b"), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn clocks_of_other_machines_are_ignored() {
    for renewed in ["1971-01-01T00:00:00Z", "2099-01-01T00:00:00Z"] {
        let server = Server::default();
        let follower = Process::start(&server, "a");
        for _ in 0..5 {
            server.put(Some(foreign("b", renewed))); // renewed, according to any clock
            run_for(4000, &[]).await;
            assert!(!follower.leads());
        }
        run_for(8000, &[]).await;
        assert!(follower.leads(), "no longer renewed");
    }
}

/// FW-12
#[tokio::test(start_paused = true)]
async fn candidate_without_permission_keeps_trying() {
    let server = Server::default();
    let candidate = Process::start(&server, "a");
    for code in [403, 404, 500] {
        candidate.set_link(Link::Fails(code));
        run_for(20_000, &[]).await;
        assert!(!candidate.leads());
    }
    candidate.set_link(Link::Works);
    run_for(2000, &[]).await;
    assert!(candidate.leads());
}

/// FW-11
#[tokio::test(start_paused = true)]
async fn unready_candidate_leaves_the_lease_to_one_that_is_ready() {
    let server = Server::default();
    server.put(Some(foreign("other", "2020-01-01T00:00:00Z")));
    let readiness = Readiness::default();
    let check = readiness.check("watch Pod");
    let unready = Process::start_with(&server, "a", readiness);
    let readiness = Readiness::default();
    let other_check = readiness.check("watch Pod");
    let ready = Process::start_with(&server, "b", readiness);
    run_for(20_000, &[&unready, &ready]).await;
    assert!(!unready.leads() && !ready.leads(), "the lease has expired");
    other_check.ready();
    run_for(60_000, &[&unready, &ready]).await;
    assert!(ready.leads());
    ready.shutdown.cancel();
    run_for(12_000, &[&unready, &ready]).await;
    assert!(!unready.leads());
    check.ready();
    run_for(100, &[&unready, &ready]).await;
    assert!(unready.leads(), "at once when it becomes ready");
}

/// FW-11
#[tokio::test(start_paused = true)]
async fn leader_that_does_not_become_ready_gives_the_lease_back() {
    let server = Server::default();
    let readiness = Readiness::default();
    let check = readiness.check("watch AsyncActor");
    let unready = Process::start_with(&server, "a", readiness);
    run_for(59_000, &[&unready]).await;
    assert!(unready.leads(), "a first install needs a leader");
    run_for(3_000, &[&unready]).await;
    assert!(!unready.leads());
    assert_eq!(server.holder().as_deref(), Some(""));
    run_for(15_000, &[&unready]).await;
    assert!(unready.leads(), "there is no other");
    let ready = Process::start(&server, "b");
    run_for(50_000, &[&unready, &ready]).await;
    assert!(unready.leads());
    run_for(12_000, &[&unready, &ready]).await;
    assert!(ready.leads());

    ready.shutdown.cancel();
    check.ready();
    run_for(2_000, &[&unready, &ready]).await;
    run_for(90_000, &[&unready, &ready]).await;
    assert!(unready.leads(), "it is ready now");
}
