//! A message passes through runtime and sidecar, run as the operator's pods specify them.

use std::path::Path;

use asya_tests::eventually::SOON;
use asya_tests::pod_process::{PodProcess, Surroundings};
use asya_tests::scenario::Scenario;
use serde_json::json;

use crate::{all_running, minimal_actor};

/// POD-2, POD-3, POD-5, POD-6, SC-10, SC-111
#[tokio::test]
async fn a_message_passes_a_pods_containers_to_happy_end() {
    Scenario::run("pod-process", async |scenario| {
        let name = scenario.name("shout");
        let mut actor = minimal_actor(&name);
        actor["spec"]["concurrency"] = json!(2);
        actor["spec"]["workload"]["template"]["spec"]["containers"][0]["env"] = json!([
            {"name": "ASYA_HANDLER", "value": "handlers.shout"},
            {"name": "MODE", "value": "as the pod says"},
        ]);
        let mut end = minimal_actor("happy-end");
        end["spec"]["workload"]["replicas"] = json!(0);
        scenario.apply_all(&[actor, end]).await?;
        all_running(scenario, &[name.clone(), "happy-end".to_owned()]).await?;

        let handlers = Path::new(env!("CARGO_MANIFEST_DIR")).join("pods");
        let surroundings = Surroundings {
            handlers: Some(&handlers),
            ..Surroundings::default()
        };
        let selector = format!("asya.sh/actor={name}");
        let (cluster, namespace) = (scenario.cluster(), scenario.namespace());
        let pod = PodProcess::start(cluster, namespace, &selector, surroundings).await?;
        let rabbitmq = cluster.rabbitmq()?;
        let message = json!({
            "id": "1",
            "route": {"actors": [&name], "current": 0},
            "payload": {"text": "hey"},
        });
        let queue = format!("asya-{name}");
        assert!(rabbitmq.publish("", &queue, &message.to_string()).await?);
        let answers = pod
            .while_alive(rabbitmq.take("asya-happy-end", 1, SOON))
            .await?;
        let [answer] = &answers[..] else {
            panic!("{answers:?}");
        };
        assert_eq!(answer["id"], "1");
        assert_eq!(answer["payload"]["text"], "HEY");
        assert_eq!(answer["payload"]["mode"], "as the pod says");
        pod.stop().await
    })
    .await;
}
