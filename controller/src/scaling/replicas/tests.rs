use asya_shared::api::AsyncActorStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{LastScale, desired_replicas, hpa_of, last_scale};
use crate::scaling::tests::fixtures::{hpa, scaled_object};

fn at(time: &str) -> Timestamp {
    time.parse().unwrap()
}

/// KEDA-11
#[test]
fn hpa_decides_the_desired_number_while_the_workload_has_pods() {
    let desiring = |desired: i32| hpa(&json!({"status": {"desiredReplicas": desired}}));
    for (workload, autoscaler, expected) in [
        (0, Some(3), 0),
        (1, Some(3), 3),
        (4, Some(3), 3),
        (2, Some(0), 2),
        (2, None, 2),
        (0, None, 0),
    ] {
        let autoscaler = autoscaler.map(desiring);
        assert_eq!(desired_replicas(workload, autoscaler.as_deref()), expected);
    }
}

/// KEDA-11
#[test]
fn hpa_is_found_by_its_name_in_status_or_the_default() {
    let with_name = scaled_object(&json!({"status": {"hpaName": "x"}}));
    let without_name = scaled_object(&json!({}));
    let named = |name: &str| hpa(&json!({"metadata": {"name": name}}));
    let all = [named("keda-hpa-a"), named("x"), named("y")];
    assert_eq!(&*hpa_of(&with_name, &all).unwrap().metadata.key.name, "x");
    assert_eq!(
        &*hpa_of(&without_name, &all).unwrap().metadata.key.name,
        "keda-hpa-a"
    );
    assert_eq!(hpa_of(&without_name, &all[1..]), None);
    let earlier = json!([{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "a", "uid": "u-old", "controller": true}]);
    let left = [hpa(&json!({"metadata": {"ownerReferences": earlier}}))];
    assert_eq!(hpa_of(&without_name, &left), None);
    let foreign = [hpa(&json!({"metadata": {"ownerReferences": []}}))];
    assert_eq!(hpa_of(&without_name, &foreign), None);
}

fn status(desired: Option<i32>) -> AsyncActorStatus {
    AsyncActorStatus {
        desired_replicas: desired,
        ..AsyncActorStatus::default()
    }
}

/// STA-9
#[test]
fn change_of_the_desired_number_is_reported_with_its_direction() {
    let now = at("2026-01-01T00:00:09.7Z");
    let expected = |direction: &str| LastScale {
        time: Some(Time(at("2026-01-01T00:00:09Z"))),
        direction: Some(direction.to_owned()),
        formatted: format!("2026-01-01T00:00:09Z ({direction})"),
    };
    assert_eq!(last_scale(&status(Some(0)), Some(2), now), expected("up"));
    assert_eq!(last_scale(&status(Some(3)), Some(2), now), expected("down"));
}

/// STA-9
#[test]
fn first_number_and_the_same_number_are_no_change() {
    let now = at("2026-01-01T00:00:00Z");
    let never = LastScale {
        time: None,
        direction: None,
        formatted: "-".to_owned(),
    };
    assert_eq!(last_scale(&status(None), Some(2), now), never);
    assert_eq!(last_scale(&status(Some(2)), Some(2), now), never);
    let mut scaled = status(Some(2));
    scaled.last_scale_time = Some(Time(at("2025-12-31T00:00:00Z")));
    scaled.last_scale_direction = Some("up".to_owned());
    scaled.last_scale_formatted = Some("2025-12-31T00:00:00Z (up)".to_owned());
    assert_eq!(
        last_scale(&scaled, Some(2), now),
        LastScale {
            time: scaled.last_scale_time.clone(),
            direction: scaled.last_scale_direction.clone(),
            formatted: "2025-12-31T00:00:00Z (up)".to_owned(),
        }
    );
}
