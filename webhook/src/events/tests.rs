use std::time::Duration;

use serde_json::Value;

use super::{About, Events, Note, Told, WAITING, events};
use crate::index::Contact;
use crate::testing::Fake;

fn told(actor: &str, note: Note, reason: &'static str) -> Told {
    Told {
        namespace: "models".into(),
        actor: About::actor(actor, "u1"),
        owner: Some(About {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "phi-7d9f".into(),
            uid: "u2".into(),
        }),
        note,
        reason,
        text: "what happened".to_owned(),
    }
}

fn start() -> (Fake, Events) {
    let fake = Fake::default();
    let (events, writer) = events(fake.client(&Contact::default()), "pod-1");
    tokio::spawn(writer.run());
    (fake, events)
}

/// Returns what has been written. Paused time advances only once the writer is idle, so that is everything.
async fn written(fake: &Fake) -> Vec<Value> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    std::mem::take(&mut *fake.posted.lock().await)
}

/// OBS-2
#[tokio::test(start_paused = true)]
async fn actor_and_owner_get_one_event_per_reason_and_minute() {
    let (fake, events) = start();
    for _ in 0..50 {
        events.tell(told("phi", Note::Injected, "Injected"));
    }
    let first = written(&fake).await;
    assert_eq!(first.len(), 2);
    let kinds: Vec<_> = first.iter().map(|it| &it["regarding"]["kind"]).collect();
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
    events.tell(told("phi", Note::InjectionSkipped, "HostNetwork"));
    events.tell(told("phi", Note::InjectionSkipped, "Windows"));
    events.tell(told("other", Note::Injected, "Injected"));
    let types: Vec<_> = written(&fake)
        .await
        .iter()
        .map(|it| it["type"].clone())
        .collect();
    assert_eq!(
        types,
        ["Warning", "Warning", "Warning", "Warning", "Normal"]
    );

    tokio::time::sleep(Duration::from_secs(58)).await;
    events.tell(told("phi", Note::Injected, "Injected"));
    assert_eq!(written(&fake).await.len(), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    events.tell(told("phi", Note::Injected, "Injected"));
    assert_eq!(written(&fake).await.len(), 2);
}

/// OBS-2: no review waits for an Event.
#[tokio::test]
async fn events_beyond_the_queue_capacity_are_dropped() {
    let (events, writer) = events(Fake::default().client(&Contact::default()), "pod-1");
    for _ in 0..=WAITING {
        events.tell(told("phi", Note::Injected, "Injected"));
    }
    assert_eq!(writer.waiting.len(), WAITING);
}
