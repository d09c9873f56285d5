//! Events on actors state what is currently true, and are not written more often than needed.

use asya_tests::Result;
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::scenario::Scenario;
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::minimal_actor;

/// The texts of an actor's Events, each with its count.
async fn texts(scenario: &Scenario, actor: &str) -> Result<Vec<(String, i32)>, NotYet> {
    let all = scenario.api::<Event>().list(&ListParams::default()).await?;
    let about = all.into_iter().filter(|event| {
        let regarding = event.regarding.as_ref();
        regarding.is_some_and(|it| it.name.as_deref() == Some(actor))
    });
    let mut texts: Vec<_> = about
        .map(|event| {
            let count = event.series.map_or(1, |series| series.count);
            (event.note.unwrap_or_default(), count)
        })
        .collect();
    texts.sort();
    Ok(texts)
}

/// An actor that sets a container's command, which only the operator may set.
fn with_command(actor: &str) -> Value {
    let mut manifest = minimal_actor(actor);
    manifest["spec"]["workload"]["template"]["spec"]["containers"][0]["command"] =
        json!(["python"]);
    manifest
}

/// OPS-7
#[tokio::test]
async fn events_are_current_and_repeats_are_counted() {
    Scenario::run("events", async |scenario| {
        let name = scenario.name("told");
        let mut reserved = minimal_actor(&name);
        reserved["spec"]["workload"]["template"]["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .push(json!({"name": "asya-sidecar", "image": "mine"}));
        let with_command = with_command(&name);
        let expected = async |manifest: &Value, wanted: &[(&str, i32)]| {
            scenario.apply(manifest).await?;
            eventually(format_args!("Events {wanted:?}"), SOON, async || {
                let told = texts(scenario, &name).await?;
                let is_told = told.len() == wanted.len()
                    && wanted.iter().all(|(part, count)| {
                        told.iter()
                            .any(|(text, times)| text.contains(part) && times == count)
                    });
                check(is_told, format_args!("{told:?}"))
            })
            .await
        };
        let (command, sidecar) = ("command is set by the operator", "asya-sidecar is reserved");
        expected(&with_command, &[(command, 1)]).await?;
        expected(&reserved, &[(command, 1), (sidecar, 1)]).await?;
        expected(&with_command, &[(command, 2), (sidecar, 1)]).await?;

        // A deleted Event is recreated.
        let events = scenario.api::<Event>();
        events
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        expected(&reserved, &[(sidecar, 1)]).await
    })
    .await;
}

/// OPS-7: actors from before VAL-11 may have long names, and error texts may be long, too.
#[tokio::test]
async fn long_names_and_texts_fit_into_an_event() {
    Scenario::run("long", async |scenario| {
        let name = format!("{}.{}", "a".repeat(199), "b".repeat(50));
        let mut actor = minimal_actor(&name);
        let containers = &mut actor["spec"]["workload"]["template"]["spec"]["containers"];
        let wrong =
            (0..40).map(|number| json!({"name": format!("helper-{}", number / 2), "image": "x"}));
        containers.as_array_mut().unwrap().extend(wrong);
        scenario.apply(&actor).await?;
        eventually("its Event", SOON, async || {
            let told = texts(scenario, &name).await?;
            let [(text, 1)] = &told[..] else {
                return Err(NotYet::new(format!("{told:?}")));
            };
            check(
                text.len() > 1000 && text.ends_with('…'),
                format_args!("{text}"),
            )
        })
        .await
    })
    .await;
}
