use asya_shared::api::{AsyncActorStatus, InjectionStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::{bound, is, now, status_of, told};
use crate::reconcile::injection::Probed;
use crate::reconcile::model::bound_pods::actor_part;

/// SAFE-1
#[test]
fn rejected_dry_run_is_reported_until_a_pod_is_admitted() {
    let extra = json!({"runtime": {"targetURL": "http://127.0.0.1:8000"}});
    let before = AsyncActorStatus {
        bound_since: Some(Time(now())),
        injection: Some(InjectionStatus::default()),
        ..AsyncActorStatus::default()
    };
    let after = |status: &AsyncActorStatus, probed: Probed| {
        let mut pass = bound(&extra, status);
        pass.2.probe.outcome = probed;
        status_of(&pass)
    };
    let refused = after(&before, Probed::Refused("exceeded quota".to_owned()));
    let rejected = is("False", "ProbeRejected");
    assert_eq!(told(&refused, "Injected"), rejected);
    let text = |status: &AsyncActorStatus| {
        let mut all = status.conditions.iter();
        all.find(|it| it.type_ == "Injected")
            .unwrap()
            .message
            .clone()
    };
    assert!(text(&refused).ends_with("exceeded quota"), "{refused:?}");
    let (observed, ..) = bound(&extra, &refused);
    let hash = observed.bound().unwrap().injected_hash.as_deref();
    let injection = refused.injection.as_ref().unwrap();
    assert_eq!(injection.refused.as_deref(), actor_part(hash));
    let still = after(&refused, Probed::Untried);
    assert_eq!(told(&still, "Injected"), rejected);
    let admitted = after(&refused, Probed::Admitted);
    assert_ne!(told(&admitted, "Injected"), rejected);
}

/// SAFE-28, FW-26
#[test]
fn model_not_ready_within_its_progress_limit_is_reported() {
    let ready = |progress: u32| {
        let since = now().checked_add(k8s_openapi::jiff::SignedDuration::from_mins(-10));
        let before = AsyncActorStatus {
            bound_since: Some(Time(now())),
            observed_generation: Some(2),
            ready_replicas: Some(0),
            progressing_since: since.ok().map(Time),
            ..AsyncActorStatus::default()
        };
        let extra = json!({
            "timeout": {"progress": progress}, "runtime": {"targetURL": "http://127.0.0.1:8000"},
        });
        told(&status_of(&bound(&extra, &before)), "WorkloadReady")
    };
    let late = is("False", "ProgressDeadlineExceeded");
    assert_eq!(ready(540), late);
    assert_ne!(ready(3000), late, "it loads for 50 minutes");
}
