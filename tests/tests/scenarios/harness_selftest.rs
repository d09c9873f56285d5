//! The test cluster provides what scenarios rely on.

use asya_tests::Error;
use asya_tests::cluster::{CONTAINER, MODE};
use asya_tests::counting_proxy::{CountingProxy, HookPoint};
use asya_tests::eventually::{NotYet, SOON, check, eventually};
use asya_tests::scenario::Scenario;
use futures::TryStreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::policy::v1::Eviction;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::core::Status;
use serde_json::json;

fn pod(name: &str, labels: &serde_json::Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"containers": [{"name": "one", "image": "one"}, {"name": "two", "image": "two"}]},
    }))
    .unwrap()
}

#[tokio::test]
async fn a_deployment_of_three_becomes_available() {
    Scenario::run("deployment", async |scenario| {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "three"},
            "spec": {
                "replicas": 3,
                "selector": {"matchLabels": {"app": "three"}},
                "template": {
                    "metadata": {"labels": {"app": "three"}},
                    "spec": {"containers": [{"name": "main", "image": "main"}]},
                },
            },
        }))?;
        let api = scenario.api::<Deployment>();
        api.create(&PostParams::default(), &deployment).await?;
        eventually("three are available", SOON, async || {
            let available = api
                .get("three")
                .await?
                .status
                .and_then(|status| status.available_replicas);
            check(available == Some(3), format_args!("{available:?}"))
        })
        .await
    })
    .await;
}

/// ROLL-4 (d): an eviction with another uid as precondition does not evict the pod.
#[tokio::test]
async fn eviction_that_names_another_uid_is_refused() {
    Scenario::run("evictions", async |scenario| {
        let api = scenario.api::<Pod>();
        let params = PostParams::default();
        let created = api.create(&params, &pod("web-0", &json!({}))).await?;
        let evict = async |uid: &str| {
            let eviction: Eviction = serde_json::from_value(json!({
                "metadata": {"name": "web-0"},
                "deleteOptions": {"preconditions": {"uid": uid}},
            }))?;
            let evicted = api
                .create_subresource("eviction", "web-0", &params, &eviction)
                .await;
            Ok::<_, Error>(evicted.map(|_: Status| ()))
        };
        let refused = evict("another").await?;
        assert!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 409));
        assert!(
            api.get("web-0")
                .await?
                .metadata
                .deletion_timestamp
                .is_none()
        );
        evict(&created.metadata.uid.unwrap_or_default()).await??;
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_pod_behaves_as_its_mode_label_says() {
    Scenario::run("modes", async |scenario| {
        let api = scenario.api::<Pod>();
        for (name, labels) in [
            ("plain", json!({})),
            ("imagepull", json!({MODE: "imagepull"})),
            ("crashloop", json!({MODE: "crashloop", CONTAINER: "two"})),
            ("notready", json!({MODE: "notready"})),
            ("hold", json!({MODE: "hold"})),
        ] {
            api.create(&PostParams::default(), &pod(name, &labels))
                .await?;
        }
        for (name, phase, reasons) in [
            ("plain", "Running", [None, None]),
            (
                "imagepull",
                "Pending",
                [Some("ImagePullBackOff"), Some("ImagePullBackOff")],
            ),
            ("crashloop", "Running", [None, Some("CrashLoopBackOff")]),
            ("notready", "Running", [None, None]),
        ] {
            eventually(
                format_args!("{name} is {phase} with {reasons:?}"),
                SOON,
                async || {
                    let status = api.get(name).await?.status.unwrap_or_default();
                    let waiting: Vec<Option<String>> = status
                        .container_statuses
                        .iter()
                        .flatten()
                        .map(|container| container.state.as_ref()?.waiting.as_ref()?.reason.clone())
                        .collect();
                    let ready =
                        status.conditions.iter().flatten().any(|condition| {
                            condition.type_ == "Ready" && condition.status == "True"
                        });
                    let as_expected = status.phase.as_deref() == Some(phase)
                        && waiting.iter().map(Option::as_deref).eq(reasons)
                        && ready == (name == "plain");
                    check(as_expected, format_args!("{status:?}"))
                },
            )
            .await?;
        }
        let held = api.get("hold").await?.status.unwrap_or_default();
        assert_eq!(held.phase.as_deref(), Some("Pending"));
        assert_eq!(held.container_statuses, None);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_pod_that_stops_slowly_stays_while_it_terminates() {
    Scenario::run("slowstop", async |scenario| {
        let api = scenario.api::<Pod>();
        for name in ["slow", "fast"] {
            let labels = if name == "slow" {
                json!({MODE: "slowstop"})
            } else {
                json!({})
            };
            api.create(&PostParams::default(), &pod(name, &labels))
                .await?;
            eventually(format_args!("{name} runs"), SOON, async || {
                let phase = api.get(name).await?.status.unwrap_or_default().phase;
                check(
                    phase.as_deref() == Some("Running"),
                    format_args!("{phase:?}"),
                )
            })
            .await?;
        }
        api.delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        let names = async || -> Result<Vec<String>, kube::Error> {
            let pods = api.list(&ListParams::default()).await?;
            Ok(pods
                .into_iter()
                .filter_map(|pod| pod.metadata.name)
                .collect())
        };
        eventually("the fast one alone is gone", SOON, async || {
            let names = names().await?;
            check(names == ["slow"], format_args!("{names:?}"))
        })
        .await?;
        eventually("the slow one is gone", SOON, async || {
            let names = names().await?;
            check(names.is_empty(), format_args!("{names:?}"))
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn the_audit_log_shows_the_writer_of_each_change() {
    Scenario::run("audit", async |scenario| {
        let audit = scenario.cluster().audit();
        let mark = audit.mark().await?;
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "written"}}))?;
        let api = scenario.api::<ConfigMap>();
        api.create(&PostParams::default(), &map).await?;
        api.get("written").await?;
        api.delete("written", &DeleteParams::default()).await?;
        let mut writes = audit.writes_since(mark, "admin").await?;
        writes.retain(|write| write.namespace == scenario.namespace() && write.name == "written");
        let seen: Vec<_> = writes
            .iter()
            .map(|write| (write.verb.as_str(), write.resource.as_str(), write.code))
            .collect();
        assert_eq!(
            seen,
            [("create", "configmaps", 201), ("delete", "configmaps", 200)]
        );
        let after = audit.mark().await?;
        assert_eq!(audit.writes_since(after, "nobody").await?, []);
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn rabbitmq_keeps_and_counts_messages() {
    Scenario::run("rabbitmq", async |scenario| {
        let rabbitmq = scenario.cluster().rabbitmq()?;
        let name = scenario.name("asya-queue");
        let mark = rabbitmq.access_log().mark()?;
        rabbitmq.declare(&name, json!({})).await?;
        assert!(
            rabbitmq.publish("", &name, "hello").await?,
            "the message reached no queue"
        );
        assert!(!rabbitmq.publish("", "nothing-here", "hello").await?);
        assert_eq!(rabbitmq.messages(&name, 10, true).await?, ["hello"]);
        eventually("the depth is reported", SOON, async || {
            let queue = rabbitmq
                .queue(&name)
                .await
                .map_err(NotYet::new)?
                .ok_or_else(|| NotYet::new("no queue"))?;
            check(queue.messages == Some(1), format_args!("{queue:?}"))
        })
        .await?;
        let bindings = rabbitmq.queue_bindings(&name).await?;
        assert_eq!(bindings.len(), 1);
        assert_eq!(
            (bindings[0].source.as_str(), &bindings[0].routing_key),
            ("", &name)
        );
        assert!(rabbitmq.delete_queue(&name).await?);
        assert!(!rabbitmq.delete_queue(&name).await?);
        eventually("the access log records the deletion", SOON, async || {
            let calls = rabbitmq
                .access_log()
                .calls_since(mark, "admin")
                .map_err(NotYet::new)?;
            let found = calls.iter().any(|call| {
                call.method == "DELETE" && call.path.ends_with(&name) && call.status == 204
            });
            check(found, format_args!("{calls:?}"))
        })
        .await
    })
    .await;
}

#[tokio::test]
async fn the_proxy_runs_its_hook_at_the_requested_write() {
    Scenario::run("proxy", async |scenario| {
        let proxy = CountingProxy::to_rabbitmq(scenario.cluster()).await?;
        let rabbitmq = scenario.cluster().rabbitmq()?.through(proxy.port())?;
        let names = [1, 2, 3].map(|number| scenario.name(&format!("asya-proxy-{number}")));
        for (name, point, answered, there) in [
            (&names[0], HookPoint::BeforeForwarding, false, false),
            (&names[1], HookPoint::BeforeAnswering, false, true),
            (&names[2], HookPoint::AfterAnswering, true, true),
        ] {
            let (sender, has_run) = tokio::sync::oneshot::channel();
            proxy.on_write(1, point, move || {
                let _ = sender.send(());
            });
            rabbitmq.queues().await?;
            assert!(proxy.hook_pending(), "a read counted as a write");
            assert_eq!(
                rabbitmq.declare(name, json!({})).await.is_ok(),
                answered,
                "{point:?}"
            );
            assert!(has_run.await.is_ok());
            assert_eq!(rabbitmq.queue(name).await?.is_some(), there, "{point:?}");
            rabbitmq.delete_queue(name).await?;
        }
        let methods: Vec<_> = proxy
            .writes()
            .into_iter()
            .map(|write| {
                (
                    write.method.to_string(),
                    write.status.map(|status| status.as_u16()),
                )
            })
            .collect();
        let (put, delete) = ("PUT".to_owned(), "DELETE".to_owned());
        assert_eq!(
            methods,
            [
                (put.clone(), None),
                (delete.clone(), Some(404)),
                (put.clone(), Some(201)),
                (delete.clone(), Some(204)),
                (put, Some(201)),
                (delete, Some(204)),
            ]
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_watch_streams_through_the_proxy_and_leases_do_not_count() {
    Scenario::run("proxied-watch", async |scenario| {
        let proxy = CountingProxy::to_api_server(scenario.cluster()).await?;
        let api =
            Api::<ConfigMap>::namespaced(proxy.client(scenario.cluster())?, scenario.namespace());
        let version = api
            .list(&ListParams::default())
            .await?
            .metadata
            .resource_version
            .unwrap();
        let mut events = Box::pin(api.watch(&WatchParams::default(), &version).await?);
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "seen"}}))?;
        api.create(&PostParams::default(), &map).await?;
        let seen = eventually(
            "the watch reports the ConfigMap",
            SOON,
            async || match events.try_next().await? {
                Some(WatchEvent::Added(map)) if map.metadata.name.as_deref() == Some("seen") => {
                    Ok(())
                }
                other => Err(NotYet::new(format!("{other:?}"))),
            },
        );
        seen.await?;
        let lease: Lease = serde_json::from_value(json!({"metadata": {"name": "uncounted"}}))?;
        Api::namespaced(proxy.client(scenario.cluster())?, scenario.namespace())
            .create(&PostParams::default(), &lease)
            .await?;
        assert_eq!(proxy.writes().len(), 1);
        Ok(())
    })
    .await;
}
