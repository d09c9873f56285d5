//! Whether a controller replica leads.

use super::*;

/// docs/cli.md: `check` takes a while, and does not depend on this computer's clock.
#[test]
fn leader_is_judged_when_its_lease_was_read_and_by_what_it_does() {
    let later = now() + k8s_openapi::jiff::SignedDuration::from_mins(1);
    for (renewed, is_renewed, detail) in [
        (
            "2026-11-23T11:59:58Z",
            false,
            "asya-operator-0, renewed 2s ago",
        ),
        (
            "2026-11-23T12:00:01Z",
            false,
            "asya-operator-0, renewed 0s ago",
        ),
        (
            "2026-11-23T11:00:00Z",
            true,
            "asya-operator-0, which renews its Lease",
        ),
        (
            "2026-11-23T13:00:00Z",
            true,
            "asya-operator-0, which renews its Lease",
        ),
    ] {
        let mut observed = healthy();
        let lease = observed.lease.as_mut().unwrap().as_mut().unwrap();
        lease.spec["renewTime"] = json!(renewed);
        lease.is_renewed = is_renewed;
        let checks = installed(&observed, later);
        let leader = checks.iter().find(|it| it.subject == "leader").unwrap();
        assert_eq!((leader.result, &*leader.detail), (CheckResult::Ok, detail));
    }
}

/// docs/cli.md: `check` says whether the installation works, which it does with a single replica and no leader
/// election.
#[test]
fn without_leader_election_no_lease_is_needed() {
    for lease in [Ok(None), healthy().lease] {
        let mut observed = healthy();
        observed.lease = lease;
        let controller = &mut observed.deployments.as_mut().unwrap()[0];
        controller.args = vec!["--leader-elect=false".to_owned()];
        let later = now() + k8s_openapi::jiff::SignedDuration::from_hours(1);
        let checks = installed(&observed, later);
        let leader = checks.iter().find(|it| it.subject == "leader").unwrap();
        assert_eq!(
            (leader.result, &*leader.detail),
            (CheckResult::Ok, "leader election is off")
        );
    }
}

/// docs/cli.md: `check` takes a while, and does not depend on this computer's clock.
#[test]
fn lease_that_nobody_renews_is_a_finding_whatever_its_age() {
    for (renewed, detail) in [
        (
            "2026-11-23T11:00:00Z",
            "asya-operator-0 renewed it 60m ago.",
        ),
        ("2026-11-23T13:00:00Z", "asya-operator-0 does not renew it."),
    ] {
        let mut observed = healthy();
        let lease = observed.lease.as_mut().unwrap().as_mut().unwrap();
        lease.spec["renewTime"] = json!(renewed);
        assert_eq!(findings(&observed), ["ASYA-LeaderMissing"]);
        let checks = installed(&observed, now());
        let leader = checks.iter().find(|it| it.subject == "leader").unwrap();
        assert!(leader.detail.ends_with(detail), "{}", leader.detail);
    }
}
