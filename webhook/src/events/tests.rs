use std::time::Duration;

use serde_json::Value;

use super::{Events, InvolvedObject, PodEvent, PodEventReason, QUEUE_CAPACITY, channel};
use crate::index::LastResponse;
use crate::testing::Fake;

fn pod_event(actor: &str, event_reason: PodEventReason, cause: &'static str) -> PodEvent {
    PodEvent {
        namespace: "models".into(),
        actor: InvolvedObject::actor(actor, "u1"),
        owner: Some(InvolvedObject {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "phi-7d9f".into(),
            uid: "u2".into(),
        }),
        event_reason,
        cause,
        text: "what happened".to_owned(),
    }
}

fn start() -> (Fake, Events) {
    let fake = Fake::default();
    let (events, writer) = channel(fake.client(&LastResponse::default()), "pod-1");
    tokio::spawn(writer.run());
    (fake, events)
}

/// Everything written so far: paused time advances only when the writer is idle.
async fn written(fake: &Fake) -> Vec<Value> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    std::mem::take(&mut *fake.posted.lock().await)
}

/// OBS-2
#[tokio::test(start_paused = true)]
async fn actor_and_owner_get_one_event_per_reason_and_minute() {
    let (fake, events) = start();
    for _ in 0..50 {
        events.publish(pod_event("phi", PodEventReason::Injected, "Injected"));
    }
    let first = written(&fake).await;
    assert_eq!(first.len(), 2);
    let kinds: Vec<_> = first
        .iter()
        .map(|event| &event["regarding"]["kind"])
        .collect();
    assert_eq!(kinds, ["AsyncActor", "ReplicaSet"]);
    assert_eq!(first[0]["regarding"]["uid"], "u1");
    let name = first[1]["metadata"]["name"].as_str().unwrap();
    let (object, number) = name.rsplit_once('.').unwrap();
    assert_eq!(object, "phi-7d9f");
    assert!(u128::from_str_radix(number, 16).is_ok(), "{name}");
    assert_eq!(first[0]["reason"], "Injected");
    assert_eq!(first[0]["type"], "Normal");
    assert_eq!(first[0]["note"], "what happened");
    assert_eq!(first[0]["metadata"]["namespace"], "models");
    assert_eq!(first[0]["reportingInstance"], "pod-1");

    // Another reason, and another actor of the same owner.
    events.publish(pod_event(
        "phi",
        PodEventReason::InjectionSkipped,
        "HostNetwork",
    ));
    events.publish(pod_event(
        "phi",
        PodEventReason::InjectionSkipped,
        "Windows",
    ));
    events.publish(pod_event("other", PodEventReason::Injected, "Injected"));
    let types: Vec<_> = written(&fake)
        .await
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    assert_eq!(
        types,
        ["Warning", "Warning", "Warning", "Warning", "Normal"]
    );

    tokio::time::sleep(Duration::from_secs(58)).await;
    events.publish(pod_event("phi", PodEventReason::Injected, "Injected"));
    assert_eq!(written(&fake).await.len(), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    events.publish(pod_event("phi", PodEventReason::Injected, "Injected"));
    assert_eq!(written(&fake).await.len(), 2);
}

/// OBS-2: reviews never wait for Events.
#[tokio::test]
async fn events_beyond_the_queue_capacity_are_dropped() {
    let (events, writer) = channel(Fake::default().client(&LastResponse::default()), "pod-1");
    for _ in 0..=QUEUE_CAPACITY {
        events.publish(pod_event("phi", PodEventReason::Injected, "Injected"));
    }
    assert_eq!(writer.receiver.len(), QUEUE_CAPACITY);
}

/// OBS-2
#[tokio::test(start_paused = true)]
async fn long_texts_and_names_become_events_that_the_api_server_accepts() {
    let fake = Fake::default();
    let instance = "p".repeat(253);
    let (events, writer) = channel(fake.client(&LastResponse::default()), &instance);
    tokio::spawn(writer.run());
    let mut event = pod_event("phi", PodEventReason::InjectionDenied, "Denied");
    event.text = "ü".repeat(1024);
    event.owner = None;
    event.actor.name = format!("{}.b", "a".repeat(199)).into();
    events.publish(event);
    let written = written(&fake).await;
    let length = |field: &str| written[0][field].as_str().unwrap().len();
    assert!(length("note") <= 1024 && length("reportingInstance") <= 128);
    let name = written[0]["metadata"]["name"].as_str().unwrap();
    assert!(!name.contains(".."), "{name}");
}
