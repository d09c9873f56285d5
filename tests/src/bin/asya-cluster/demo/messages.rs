//! The part of the demo that sends messages and shows the results.

use std::path::Path;
use std::time::Instant;

use asya_tests::cluster::RunningCluster;
use asya_tests::eventually::SOON;
use asya_tests::pod_process::{PodProcess, Surroundings};
use asya_tests::process::{Process, Spec};
use asya_tests::rabbitmq::RabbitMq;
use asya_tests::{Error, Result, ports};
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::progress::Progress;
use super::{NAMESPACE, manifest};

const ROUTE: &str = include_str!("route.yaml");
const ENDS: &str = include_str!("ends.yaml");
/// How many messages a pod with an `openai_*` adapter handles at a time, unless `spec.concurrency` says otherwise.
const IN_FLIGHT: usize = 8;

/// Shows a chain, a fan-out and an error, processed by three pods.
pub(super) async fn show_routes(cluster: &RunningCluster, progress: &Progress) -> Result<()> {
    progress
        .say("two more actors, with other functions of hello.py, and those where messages end:");
    let route = manifest(cluster, progress, "route.yaml", ROUTE)?;
    let ends = manifest(cluster, progress, "ends.yaml", ENDS)?;
    for file in [route, ends] {
        let apply = ["apply", "--namespace", NAMESPACE, "--filename", &file];
        cluster.kubectl(&apply).await?;
    }
    let wait = ["wait", "--namespace", NAMESPACE, "--timeout=120s"];
    let all = [
        "asya/shout",
        "asya/split",
        "asya/happy-end",
        "asya/error-end",
    ];
    let running = ["--for=jsonpath={.status.status}=Running"];
    cluster
        .kubectl(&[&wait[..], &all, &running].concat())
        .await?;
    progress.say("Running, but nothing runs in a fake pod. So asya-runtime and asya-sidecar of these pods run as processes here, with the pods' environment:",
    );
    let start = async |actor: &str| {
        let selector = format!("asya.sh/actor={actor}");
        let pod = PodProcess::start(cluster, NAMESPACE, &selector, Surroundings::default());
        let pod = Box::pin(pod).await?;
        println!("         | pod {}", pod.name());
        Ok::<_, Error>(pod)
    };
    let (hello, shout, split) = tokio::try_join!(start("hello"), start("shout"), start("split"))?;
    let rabbitmq = cluster.rabbitmq()?;
    let shown = show_answers(&rabbitmq, progress);
    let shown = shout.while_alive(split.while_alive(shown));
    hello.while_alive(shown).await?;
    tokio::try_join!(hello.stop(), shout.stop(), split.stop())?;
    progress.say(
        "the processes of these pods have ended; from now on their messages stay in the queues",
    );
    Ok(())
}

async fn show_answers(rabbitmq: &RabbitMq, progress: &Progress) -> Result<()> {
    progress.say("a chain of two actors; to queue asya-hello:");
    let one = message("1", &["hello", "shout"], json!({"name": "you"}));
    put_and_print(rabbitmq, &one).await?;
    let answers = take(rabbitmq, "happy-end", 1).await?;
    progress.say("from queue asya-happy-end, after hello (hello.handle) and shout (hello.shout):");
    print_messages(answers);

    progress.say("a fan-out; to queue asya-split:");
    let text = json!({"text": "one two three"});
    put_and_print(rabbitmq, &message("2", &["split", "shout"], text)).await?;
    let answers = take(rabbitmq, "happy-end", 3).await?;
    progress.say("from queue asya-happy-end: split (hello.split) returned a list, and shout (hello.shout) got each item:",
    );
    print_messages(answers);

    progress.say("an error: a payload without a name; to queue asya-hello:");
    put_and_print(rabbitmq, &message("3", &["hello", "shout"], json!({}))).await?;
    let mut errors = take(rabbitmq, "error-end", 1).await?;
    for error in &mut errors {
        if let Some(details) = error["payload"]["details"].as_object_mut() {
            details.remove("traceback");
        }
    }
    progress.say("from queue asya-error-end, without its traceback: hello (hello.handle) raised an exception:",
    );
    print_messages(errors);
    Ok(())
}

/// Shows that a pod's model gets several messages at a time.
pub(super) async fn show_model(cluster: &RunningCluster, progress: &Progress) -> Result<()> {
    let port = ports::free()?;
    let url = format!("http://127.0.0.1:{port}");
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("pods/model.py");
    let model = Spec::new("model", "python3")
        .arg(program.display())
        .arg(port)
        .env("HOST", "127.0.0.1")
        .env("SECONDS", "1")
        .log(cluster.folder().join("model.log"));
    let model = Process::start(model).await?;
    let surroundings = Surroundings {
        model_url: Some(&url),
        ..Surroundings::default()
    };
    let pod = PodProcess::start(cluster, NAMESPACE, "app=model", surroundings);
    let pod = model.alive_while(Box::pin(pod)).await?;
    progress.say(&format!(
        "the containers of pod {} run here, and a model that takes 1 s for an answer",
        pod.name()
    ));
    let rabbitmq = cluster.rabbitmq()?;
    let asked = pod.while_alive(ask(&rabbitmq, progress));
    model.alive_while(asked).await?;
    pod.stop().await?;
    model.stop(SOON).await?;
    Ok(())
}

async fn ask(rabbitmq: &RabbitMq, progress: &Progress) -> Result<()> {
    progress.say(&format!(
        "{IN_FLIGHT} messages to queue asya-chat, of which the first is:"
    ));
    let messages: Vec<Value> = (1..=IN_FLIGHT)
        .map(|number| {
            let text = json!({"text": format!("question {number}")});
            message(&format!("chat-{number}"), &["chat"], text)
        })
        .collect();
    print_messages(messages[..1].to_vec());
    let asked = Instant::now();
    try_join_all(messages.iter().map(|message| put(rabbitmq, message))).await?;
    let mut answers = take(rabbitmq, "happy-end", IN_FLIGHT).await?;
    progress.say(&format!(
            "from queue asya-happy-end: all {IN_FLIGHT} answers of chat (asya_adapters.openai_chat) after {:.1} s; one at a time would take {IN_FLIGHT} s",
            asked.elapsed().as_secs_f32()
        ),
    );
    answers.sort_by_key(id);
    answers.truncate(1);
    print_messages(answers);
    Ok(())
}

fn message(id: &str, actors: &[&str], payload: Value) -> Value {
    let mut message = json!({"id": id, "route": {"actors": actors, "current": 0}});
    message["payload"] = payload;
    message
}

fn id(message: &Value) -> String {
    message["id"].as_str().unwrap_or_default().to_owned()
}

async fn put_and_print(rabbitmq: &RabbitMq, message: &Value) -> Result<()> {
    print_messages(vec![message.clone()]);
    put(rabbitmq, message).await
}

/// Publishes a message to the queue of the first actor of its route.
async fn put(rabbitmq: &RabbitMq, message: &Value) -> Result<()> {
    let actor = message["route"]["actors"][0].as_str().unwrap_or_default();
    let queue = format!("asya-{actor}");
    if rabbitmq.publish("", &queue, &message.to_string()).await? {
        Ok(())
    } else {
        Err(Error::Other(format!("there is no queue {queue}")))
    }
}

/// Waits for messages in an actor's queue, and removes them.
async fn take(rabbitmq: &RabbitMq, actor: &str, count: usize) -> Result<Vec<Value>> {
    rabbitmq.take(&format!("asya-{actor}"), count, SOON).await
}

fn print_messages(mut messages: Vec<Value>) {
    messages.sort_by_key(id);
    for message in messages {
        println!("         | {message}");
    }
}
