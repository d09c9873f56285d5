//! Access to an actor's queues: their names, the broker's address, and the credentials.

use asya_shared::api::QueueStatus;
use asya_shared::config::{RabbitmqConfig, SqsConfig, Transport, TransportKind};
use asya_shared::names::{ERROR_END, HAPPY_END};
use asya_wire::queue::route_name;
use serde_json::Value;

use super::guard::{QueueUse, must_allow};
use super::rabbitmq::Credentials;
pub use super::secret::Secrets;
use super::secret::password;
use super::sqs::Account;
use crate::actor::{has_confirmed_queue, status_of};
use crate::answer::Failure;
use crate::args::queue::{Address, BrokerArgs};
use crate::cluster::Cluster;
use crate::installation::Installation;

const DEFAULT_USER: &str = "guest";
/// If the delivery limit is unknown, a message that was delivered before might not be delivered again.
const UNKNOWN_LIMIT: u64 = 1;

/// Names of an actor's queues, and of those where its messages end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub transport: String,
    pub queue: String,
    pub dlq: Option<DeadLetters>,
    /// The actor's name in routes.
    pub actor: String,
    pub happy_end: String,
    pub error_end: String,
}

/// A dead letter queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetters {
    pub queue: String,
    /// Whether it is shared with other actors.
    pub shared: bool,
}

/// Address and credentials of a broker.
#[derive(Clone, Debug)]
pub enum BrokerEndpoint {
    RabbitMq {
        host: String,
        port: u16,
        tls: bool,
        /// PEM bundle to trust instead of the system's CAs.
        ca: Option<String>,
        credentials: Credentials,
    },
    Sqs(Account),
}

/// Everything known about an actor's queues.
#[derive(Clone, Debug)]
pub struct Access {
    pub names: Names,
    pub server: BrokerEndpoint,
    /// The delivery limit that the operator gives queues of the transport, if it gives them one.
    pub limit: Option<u64>,
    pub notes: Vec<String>,
}

/// Determines how to reach an actor's queues. Flags take precedence over the operator's configuration.
///
/// # Errors
/// If the actor's state forbids this use of its queues, for example because they belong to another actor; or if the
/// address is unknown, or the user may not read the credentials, and no flag replaces them.
pub async fn access(
    cluster: &Cluster,
    name: &str,
    actor: &Value,
    args: &BrokerArgs,
    intent: QueueUse,
) -> Result<Access, Failure> {
    must_allow(name, actor, intent)?;
    let transport = actor["spec"]["transport"].as_str().unwrap_or_default();
    let (configured, mut notes) = match configured(cluster, transport).await {
        Ok(found) => (Some(found), Vec::new()),
        Err(why) if args.address.is_some() => (None, vec![format!("only flags count: {why}")]),
        Err(why) => {
            return Err(Failure::new(format!(
                "the broker's address is unknown: {why}; or pass --address"
            )));
        }
    };
    let names = names(&cluster.namespace, name, actor, configured.as_ref());
    notes.extend(note_of_recorded(&names, actor, configured.as_ref()));
    notes.extend(note_of_unconfirmed(&names, actor));
    let secrets = Secrets {
        cluster,
        namespace: &cluster.namespace,
    };
    let kind = configured.as_ref().map(|transport| &transport.kind);
    let server = match (&args.address, kind) {
        (Some(Address::Http(_)) | None, Some(TransportKind::Sqs(config))) => {
            sqs(&secrets, Some(config), args).await?
        }
        (Some(Address::Http(_)), None) => sqs(&secrets, None, args).await?,
        (Some(Address::Amqp { .. }) | None, Some(TransportKind::Rabbitmq(config))) => {
            rabbitmq(&secrets, Some(config), args).await?
        }
        (Some(Address::Amqp { .. }) | None, None) => rabbitmq(&secrets, None, args).await?,
        (Some(_), Some(_)) => {
            return Err(Failure::new(format!(
                "--address does not fit transport {transport}: RabbitMQ takes HOST:PORT or amqps://HOST:PORT, SQS an \
                 http or https URL"
            )));
        }
    };
    Ok(Access {
        names,
        server,
        limit: delivery_limit(kind),
        notes,
    })
}

/// The number of deliveries after which a queue that the operator creates dead-letters or drops a message; `None` if it
/// sets none. `kind` is the transport's configuration, if known. An older queue may have another limit, as may one to
/// which a policy applies, and AMQP shows neither.
fn delivery_limit(kind: Option<&TransportKind>) -> Option<u64> {
    match kind {
        Some(TransportKind::Rabbitmq(config)) if config.queues.dlq.enabled => {
            Some(config.queues.dlq.max_retry_count.into())
        }
        Some(_) => None,
        None => Some(UNKNOWN_LIMIT),
    }
}

/// The broker of a transport, from the operator's configuration.
///
/// # Errors
/// If the user may not read its credentials.
pub async fn server(
    secrets: &Secrets<'_>,
    transport: &Transport,
) -> Result<BrokerEndpoint, Failure> {
    let args = BrokerArgs::default();
    match &transport.kind {
        TransportKind::Rabbitmq(config) => rabbitmq(secrets, Some(config), &args).await,
        TransportKind::Sqs(config) => sqs(secrets, Some(config), &args).await,
    }
}

async fn configured(cluster: &Cluster, transport: &str) -> Result<Transport, Failure> {
    let installation = Installation::read(cluster).await?;
    let found = installation.transports.usable(transport);
    found.cloned().map_err(|why| Failure::new(why.to_string()))
}

/// The names in the actor's status, or else those that follow from the configuration. The dead letter queue is the
/// configured one, since the status also keeps the names of former ones (QUE-14).
pub fn names(namespace: &str, name: &str, actor: &Value, transport: Option<&Transport>) -> Names {
    let reported = status_of(actor).queue;
    let transport_name = actor["spec"]["transport"].as_str().unwrap_or_default();
    let Some(transport) = transport else {
        let queue = reported.as_ref().map(|it| it.name.clone());
        let queue = queue.unwrap_or_else(|| format!("asya-{name}"));
        // The names of the end actors' queues differ from it only in the actor.
        let stem = queue.strip_suffix(name).unwrap_or("asya-");
        let sibling = |end: &str| format!("{stem}{end}");
        return Names {
            transport: transport_name.to_owned(),
            dlq: reported.and_then(|it| recorded_dead_letters(&it)),
            actor: route_name(&queue).to_owned(),
            happy_end: sibling(HAPPY_END),
            error_end: sibling(ERROR_END),
            queue,
        };
    };
    let of = |actor: &str| transport.names_of(namespace, actor);
    let own = of(name);
    let reported = reported.filter(|it| it.transport == transport.name);
    let queue = reported.as_ref().map_or(own.queue, |it| it.name.clone());
    let dlq = &transport.queues().dlq;
    let configured = dlq.enabled.then(|| DeadLetters {
        queue: dlq.name_for(&queue),
        shared: dlq.is_shared(),
    });
    Names {
        transport: transport_name.to_owned(),
        queue,
        dlq: configured.or_else(|| reported.and_then(|it| recorded_dead_letters(&it))),
        actor: own.actor,
        happy_end: of(HAPPY_END).queue,
        error_end: of(ERROR_END).queue,
    }
}

/// A dead letter queue that belongs, or belonged, to this queue alone. If there are several, the one with RabbitMQ's
/// default name, because their order means nothing.
fn recorded_dead_letters(queue: &QueueStatus) -> Option<DeadLetters> {
    let usual = format!("{}-dlq", queue.name);
    let all = &queue.dead_letters;
    let recorded = all.iter().find(|it| **it == usual).or(all.first())?;
    Some(DeadLetters {
        queue: recorded.clone(),
        shared: false,
    })
}

/// A note that the dead letter queue comes from the status, and may be a former one.
fn note_of_recorded(
    names: &Names,
    actor: &Value,
    configured: Option<&Transport>,
) -> Option<String> {
    let reported = status_of(actor).queue?;
    let used = &names.dlq.as_ref()?.queue;
    let of_several = (reported.dead_letters.len() > 1).then(|| {
        let all = reported.dead_letters.join(", ");
        format!("; status.queue.deadLetters names several: {all}")
    });
    match configured {
        Some(transport) if transport.queues().dlq.enabled => None,
        Some(transport) => Some(format!(
            "transport {} configures no dead letter queue (queues.dlq.enabled); {used} is a former one of the actor{}",
            transport.name,
            of_several.unwrap_or_default()
        )),
        None => of_several.map(|several| {
            format!(
                "the dead letter queue of the configuration is unknown; this is {used}{several}"
            )
        }),
    }
}

/// A note that the names follow from the configuration alone, so that the queues may belong to another actor.
fn note_of_unconfirmed(names: &Names, actor: &Value) -> Option<String> {
    (!has_confirmed_queue(actor)).then(|| {
        format!(
            "the operator has not confirmed yet that {} is this actor's queue (status.queue); it may be another's",
            names.queue
        )
    })
}

async fn rabbitmq(
    secrets: &Secrets<'_>,
    config: Option<&RabbitmqConfig>,
    args: &BrokerArgs,
) -> Result<BrokerEndpoint, Failure> {
    let configured_tls = config.is_some_and(|it| it.tls);
    let (host, port, tls) = match (&args.address, config) {
        (Some(Address::Amqp { tls, host, port }), _) => {
            let tls = tls.unwrap_or(configured_tls);
            let usual = if tls { 5671 } else { 5672 };
            (host.clone(), port.unwrap_or(usual), tls)
        }
        (_, Some(config)) => (config.host.clone(), config.port, config.tls),
        (_, None) => return Err(Failure::new("pass --address")),
    };
    let ca = match (
        &args.ca_file,
        config.and_then(|it| it.ca_secret_ref.as_ref()),
    ) {
        (Some(path), _) => Some(super::secret::file(path)?),
        (None, Some(reference)) if tls => Some(secrets.read(reference).await?),
        _ => None,
    };
    let secret = config.and_then(|it| it.password_secret_ref.as_ref());
    let password = match (password(args)?, secret) {
        (Some(given), _) => given,
        (None, Some(reference)) if args.user.is_none() => secrets.read(reference).await?,
        (None, _) if args.user.is_some() => {
            return Err(Failure::new(
                "the user's password is missing: pass --password-file, or set ASYA_BROKER_PASSWORD",
            ));
        }
        (None, _) => DEFAULT_USER.to_owned(),
    };
    let user = args.user.clone();
    let user = user.or_else(|| config.map(|it| it.username.clone()));
    let vhost = args.vhost.clone();
    let vhost = vhost.or_else(|| config.map(|it| it.vhost.clone()));
    Ok(BrokerEndpoint::RabbitMq {
        host,
        port,
        tls,
        ca,
        credentials: Credentials {
            user: user.unwrap_or_else(|| DEFAULT_USER.to_owned()),
            password,
            vhost: vhost.unwrap_or_else(|| "/".to_owned()),
        },
    })
}

async fn sqs(
    secrets: &Secrets<'_>,
    config: Option<&SqsConfig>,
    args: &BrokerArgs,
) -> Result<BrokerEndpoint, Failure> {
    let keys = match (
        args.user.clone(),
        config.and_then(|it| it.credentials.as_ref()),
    ) {
        (Some(id), _) => {
            let secret = password(args)?.ok_or_else(|| {
                Failure::new("the secret access key is missing: pass --password-file, or set ASYA_BROKER_PASSWORD")
            })?;
            Some((id, secret))
        }
        (None, Some(references)) => {
            let id = secrets.read(&references.access_key_id).await?;
            Some((id, secrets.read(&references.secret_access_key).await?))
        }
        (None, None) => None,
    };
    let endpoint = match &args.address {
        Some(Address::Http(url)) => Some(url.clone()),
        _ => config.and_then(|it| it.endpoint.clone()),
    };
    Ok(BrokerEndpoint::Sqs(Account {
        region: config.and_then(|it| it.region.clone()),
        endpoint,
        is_forwarded: false,
        keys,
        owner: config.and_then(|it| it.account_id.clone()),
    }))
}

#[cfg(test)]
mod tests {
    use asya_shared::config::TransportsConfig;
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn transport(queues: &Value) -> Transport {
        let config = json!({"host": "mq", "queues": queues});
        let all =
            json!({"transports": {"mq": {"type": "rabbitmq", "enabled": true, "config": config}}});
        let all = TransportsConfig::parse(&all.to_string()).unwrap();
        all.usable("mq").unwrap().clone()
    }

    #[test]
    fn names_come_from_the_status_then_from_the_configuration() {
        let queue = |it: &Value| json!({"spec": {"transport": "mq"}, "status": {"queue": it}});
        let reported = queue(&json!({"transport": "mq", "name": "asya-m-e", "deadLetters": ["d"]}));
        let configured = transport(
            &json!({"nameTemplate": "asya-{namespace}-{actor}", "dlq": {"enabled": true}}),
        );
        for (actor, transport, expected) in [
            (
                &reported,
                Some(&configured),
                ["asya-m-e", "asya-m-e-dlq", "m-e", "asya-m-happy-end"],
            ),
            (
                &queue(&Value::Null),
                Some(&configured),
                ["asya-m-e", "asya-m-e-dlq", "m-e", "asya-m-happy-end"],
            ),
            (
                &queue(&Value::Null),
                Some(&transport(&json!({}))),
                ["asya-e", "", "e", "asya-happy-end"],
            ),
            (
                &queue(&json!({"transport": "mq", "name": "asya-e"})),
                None,
                ["asya-e", "", "e", "asya-happy-end"],
            ),
        ] {
            let found = names("m", "e", actor, transport);
            let dlq = found.dlq.as_ref().map_or("", |it| &it.queue);
            let found = [&*found.queue, dlq, &*found.actor, &*found.happy_end];
            assert_eq!(found, expected, "{actor}");
        }
    }
    /// QUE-14: the status keeps the names of former dead letter queues.
    #[test]
    fn configured_dead_letter_queue_comes_before_recorded_ones() {
        let (enabled, off) = (json!({"dlq": {"enabled": true}}), json!({}));
        let named = json!({"dlq": {"enabled": true, "name": "{queue}-dead"}});
        let shared = json!({"dlq": {"enabled": true, "name": "dead"}});
        let (one, several) = (&["asya-e-old"][..], &["a-old", "asya-e-dlq"][..]);
        for (recorded, queues, expected, note) in [
            (one, Some(&enabled), Some(("asya-e-dlq", false)), ""),
            (several, Some(&named), Some(("asya-e-dead", false)), ""),
            (several, Some(&shared), Some(("dead", true)), ""),
            (
                one,
                Some(&off),
                Some(("asya-e-old", false)),
                "transport mq configures no dead letter queue (queues.dlq.enabled); asya-e-old is a former one of the \
                 actor",
            ),
            (&[], Some(&off), None, ""),
            (one, None, Some(("asya-e-old", false)), ""),
            (
                several,
                None,
                Some(("asya-e-dlq", false)),
                "the dead letter queue of the configuration is unknown; this is asya-e-dlq; status.queue.deadLetters \
                 names several: a-old, asya-e-dlq",
            ),
        ] {
            let queue = json!({"transport": "mq", "name": "asya-e", "deadLetters": recorded});
            let actor = json!({"spec": {"transport": "mq"}, "status": {"queue": queue}});
            let configured = queues.map(transport);
            let found = names("m", "e", &actor, configured.as_ref());
            let dlq = found.dlq.as_ref().map(|it| (&*it.queue, it.shared));
            assert_eq!(dlq, expected, "{recorded:?} {queues:?}");
            let said = note_of_recorded(&found, &actor, configured.as_ref());
            assert_eq!(said.unwrap_or_default(), note, "{recorded:?} {queues:?}");
        }
    }

    /// Accesses a broker by flags alone: the API server has no objects.
    async fn by_flags(actor: &Value) -> Result<Access, Failure> {
        let answer = |_: Request<Body>| {
            let status =
                json!({"kind": "Status", "status": "Failure", "code": 404, "message": "not found"});
            let body = Body::from(status.to_string().into_bytes());
            let response = Response::builder().status(404).body(body);
            async move { response.map_err(tower::BoxError::from) }
        };
        let cluster = Cluster::of(Client::new(tower::service_fn(answer), "m"));
        let args = BrokerArgs {
            address: Some(Address::Amqp {
                tls: None,
                host: "mq".to_owned(),
                port: None,
            }),
            ..BrokerArgs::default()
        };
        access(&cluster, "e", actor, &args, QueueUse::Take).await
    }

    /// QUE-3: its names are those of the other actor's queues.
    #[tokio::test]
    async fn queue_of_another_actor_is_left_alone() {
        let actor = |reason: &str| {
            let condition = json!({
                "type": "TransportReady", "status": "False", "reason": reason,
                "message": "queue asya-e is in use by n/e", "lastTransitionTime": "2026-11-23T11:00:00Z",
            });
            json!({"spec": {"transport": "mq"}, "status": {"conditions": [condition]}})
        };
        let refused = by_flags(&actor("QueueConflict")).await.unwrap_err();
        assert_eq!(
            refused.to_string(),
            "AsyncActor e has no queue of its own (QueueConflict): queue asya-e is in use by n/e"
        );
        assert!(by_flags(&actor("BrokerUnreachable")).await.is_ok());
        let unreadable = json!({"spec": {"transport": "mq"}, "status": {"queue": 1}});
        assert!(by_flags(&unreadable).await.is_err());
    }

    /// QUE-3: messages are shown nevertheless.
    #[tokio::test]
    async fn queue_that_the_operator_has_not_confirmed_is_said_to_be_perhaps_anothers() {
        let note = "the operator has not confirmed yet that asya-e is this actor's queue (status.queue); it may be another's";
        for (transport, is_noted) in [("mq", false), ("old", true)] {
            let queue = json!({"transport": transport, "name": "asya-e"});
            let actor = json!({"spec": {"transport": "mq"}, "status": {"queue": queue}});
            let notes = by_flags(&actor).await.unwrap().notes;
            assert_eq!(notes.iter().any(|it| it == note), is_noted, "{notes:?}");
        }
    }

    #[tokio::test]
    async fn without_the_configuration_each_look_may_be_the_last() {
        let actor = json!({"spec": {"transport": "mq"}, "status": {"queue": {"transport": "mq", "name": "asya-e"}}});
        assert_eq!(by_flags(&actor).await.unwrap().limit, Some(1));
    }
}
