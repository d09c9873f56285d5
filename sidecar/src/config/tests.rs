use std::collections::BTreeMap;
use std::time::Duration;

use asya_wire::env;

use super::{Config, Invalid, Lookahead, Password, Publish, RabbitMqConfig, SqsConfig, Transport};
use crate::decide::EndActor;

fn read(variables: &[(&str, &str)]) -> Result<Config, Invalid> {
    let actor = (env::ACTOR_NAME.to_owned(), "foo".to_owned());
    let variables = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let environment: BTreeMap<String, String> = [actor].into_iter().chain(variables).collect();
    Config::read(&environment)
}

fn config(variables: &[(&str, &str)]) -> Config {
    read(variables).unwrap_or_else(|wrong| panic!("{variables:?}: {wrong}"))
}

fn rabbitmq(variables: &[(&str, &str)]) -> RabbitMqConfig {
    match config(variables).transport {
        Transport::RabbitMq(settings) => settings,
        Transport::Sqs(_) => panic!("not RabbitMQ"),
    }
}

fn sqs(variables: &[(&str, &str)]) -> SqsConfig {
    let variables: Vec<(&str, &str)> = [(env::TRANSPORT, "SQS")]
        .into_iter()
        .chain(variables.iter().copied())
        .collect();
    match config(&variables).transport {
        Transport::Sqs(settings) => settings,
        Transport::RabbitMq(_) => panic!("not SQS"),
    }
}

fn password(settings: &RabbitMqConfig) -> &str {
    match &settings.password {
        Password::Value(value) => value.reveal(),
        Password::File(path) => path.to_str().expect("a path"),
    }
}

/// SC-1, SC-3, SC-5
#[test]
fn actor_name_suffices_and_empty_values_mean_defaults() {
    for variables in [
        &[][..],
        &[
            (env::RUNTIME_TIMEOUT, ""),
            (env::CONCURRENCY, ""),
            (env::QUEUE_TEMPLATE, ""),
        ],
    ] {
        let config = config(variables);
        assert_eq!(config.rules.queues.of("foo"), "asya-foo");
        assert_eq!(
            (
                config.rules.happy_end.as_str(),
                config.rules.error_end.as_str()
            ),
            ("happy-end", "error-end")
        );
        assert_eq!(
            (config.runtime.timeout, config.runtime.concurrency),
            (Duration::from_mins(5), 1)
        );
        assert_eq!(config.runtime.ready_timeout, Some(Duration::from_mins(5)));
        assert_eq!(
            (config.lookahead, config.rules.crash_retries),
            (Lookahead::Auto, 1)
        );
        assert_eq!(
            (config.rules.max_message_size, config.grace_period),
            (64 << 20, Duration::from_secs(30))
        );
        assert!(config.gateway.is_none() && config.traces.is_none() && config.listen.is_some());
        assert!(
            config.rules.end.is_none() && config.warnings.is_empty(),
            "{:?}",
            config.warnings
        );
    }
    let ready = config(&[(env::RUNTIME_READY_TIMEOUT, "0")])
        .runtime
        .ready_timeout;
    assert_eq!(ready, None, "0 is no end");
}

/// SC-1, SC-3
#[test]
fn queues_are_named_by_the_template_or_the_namespace() {
    for (variables, name) in [
        (&[(env::NAMESPACE, "shop")][..], "asya-shop-bar"),
        (&[(env::QUEUE_TEMPLATE, "asya-x-{actor}")], "asya-x-bar"),
        (
            &[
                (env::NAMESPACE, "shop"),
                (env::QUEUE_TEMPLATE, "asya-{actor}"),
            ],
            "asya-bar",
        ),
        (
            &[
                (env::NAMESPACE, "shop"),
                (env::QUEUE_TEMPLATE, "asya-{namespace}.{actor}"),
            ],
            "asya-shop.bar",
        ),
    ] {
        assert_eq!(config(variables).rules.queues.of("bar"), name);
    }
}

/// SC-88
#[test]
fn kind_of_end_actor_follows_from_its_name() {
    for (name, expected) in [
        ("foo", EndActor::Other),
        ("done", EndActor::Happy),
        ("failed", EndActor::Error),
    ] {
        let variables = [
            (env::ACTOR_NAME, name),
            (env::IS_END_ACTOR, "Yes"),
            (env::ACTOR_HAPPY_END, "done"),
            (env::ACTOR_ERROR_END, "failed"),
        ];
        assert_eq!(config(&variables).rules.end, Some(expected));
    }
}

/// SC-2, SC-3, SC-5, SC-7, SC-37
#[test]
fn invalid_value_is_fatal_and_the_error_says_how_to_fix_it() {
    for (variable, value, word) in [
        (env::ACTOR_NAME, "", "not set"),
        (env::RUNTIME_TIMEOUT, "300", "300s"),
        (env::RUNTIME_TIMEOUT, "0s", "greater than 0"),
        (env::CONCURRENCY, "0", "from 1 to 256"),
        (env::CONCURRENCY, "257", "from 1 to 256"),
        (env::LOOKAHEAD, "65", "from 0 to 64"),
        (env::CRASH_RETRIES, "-1", "from 0 to 10"),
        (env::MAX_MESSAGE_SIZE, "64M", "from 1Ki to 512Mi"),
        (env::MAX_MESSAGE_SIZE, "1000", "from 1Ki to 512Mi"),
        (env::GRACE_PERIOD, "0", "greater than 0"),
        (env::IS_END_ACTOR, "maybe", "true, false"),
        (env::TRANSPORT, "kafka", "rabbitmq, sqs"),
        (env::NAMESPACE, "Shop", "DNS label"),
        (env::QUEUE_TEMPLATE, "{actor}", "must start with asya-"),
        (
            env::QUEUE_TEMPLATE,
            "asya-{namespace}-{actor}",
            "ASYA_NAMESPACE is not set",
        ),
        (
            env::RABBITMQ_PORT,
            "tcp://10.0.0.1:5672",
            "enableServiceLinks",
        ),
        (env::RABBITMQ_PORT, "70000", "from 1 to 65535"),
        (env::RABBITMQ_URL, "http://h", "amqp://"),
        (env::RABBITMQ_URL, "amqp://:5672", "amqp://"),
        (env::RABBITMQ_PREFETCH, "0", "from 1 to 4096"),
        (env::RABBITMQ_PUBLISH, "topic", "queue, exchange"),
        (env::GATEWAY_URL, "gateway:80", "http://"),
        (env::GATEWAY_FINAL, "always", "best-effort, required"),
        (env::METRICS_ADDR, "8080", ":PORT"),
        (env::METRICS_NAMESPACE, "a-b", "letters, digits and _"),
        (env::LOG_LEVEL, "loud", "debug, info"),
        (env::CUSTOM_METRICS, "{", "not JSON"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector", "http://"),
        ("ASYA_ACTOR_SINK", "x-sink", "later generation"),
        (
            "ASYA_RESILIENCY_RETRY_MAX_ATTEMPTS",
            "3",
            "later generation",
        ),
    ] {
        let error = read(&[(variable, value)]).expect_err(variable).to_string();
        assert!(
            error.starts_with(&format!("{variable}: ")) && error.contains(word),
            "{error}"
        );
    }
    let long = "a".repeat(80);
    let error = read(&[
        (env::TRANSPORT, "sqs"),
        (env::ACTOR_NAME, &long),
        (env::RUNTIME_TIMEOUT, "13h"),
    ]);
    let error = error.expect_err("two errors").to_string();
    assert!(
        error.contains("ASYA_ACTOR_NAME: ")
            && error.contains("; ")
            && error.contains("at most 12h"),
        "{error}"
    );
    assert!(!error.contains('\n'));
}

/// SC-6
#[test]
fn unknown_variables_are_reported_without_values_except_those_of_services() {
    let config = config(&[
        ("ASYA_TYPO", "secret"),
        ("ASYA_GATEWAY_SERVICE_HOST", "10.0.0.1"),
        ("ASYA_GATEWAY_SERVICE_PORT", "80"),
        ("ASYA_GATEWAY_SERVICE_PORT_HTTP", "80"),
        ("ASYA_GATEWAY_PORT", "tcp://10.0.0.1:80"),
        ("ASYA_GATEWAY_PORT_80_TCP_ADDR", "10.0.0.1"),
        ("ASYA_SOCKET_NAME", "asya-runtime.sock"),
        ("OTHER", "x"),
    ]);
    assert_eq!(config.warnings, ["ASYA_TYPO: unknown variable, ignored"]);
}

/// SC-8
#[test]
fn users_and_passwords_of_any_bytes_are_parsed() {
    for odd in ["p@ss/w:rd", "a%40b", "100%", ":@/?#[]", "ü €", "guest"] {
        let encoded = asya_wire::percent::encode(odd);
        let parts = rabbitmq(&[(env::RABBITMQ_USERNAME, odd), (env::RABBITMQ_PASSWORD, odd)]);
        assert_eq!((parts.user.as_str(), password(&parts)), (odd, odd));
        let url = format!("amqps://{encoded}:{encoded}@[::1]:5673/{encoded}?heartbeat=5");
        let url = rabbitmq(&[(env::RABBITMQ_URL, &url), (env::RABBITMQ_HOST, "other")]);
        assert_eq!(
            (url.user.as_str(), password(&url), url.vhost.as_str()),
            (odd, odd, odd)
        );
        assert_eq!((url.host.as_str(), url.port, url.tls), ("::1", 5673, true));
        let composed = format!("amqp://user:{odd}@broker:5672/%2F");
        let composed = rabbitmq(&[
            (env::RABBITMQ_URL, &composed),
            (env::RABBITMQ_PASSWORD, odd),
        ]);
        assert_eq!(
            (composed.user.as_str(), password(&composed)),
            ("user", odd),
            "{odd}"
        );
        assert_eq!(
            (composed.host.as_str(), composed.vhost.as_str()),
            ("broker", "/"),
            "{odd}"
        );
    }
    for (url, host, port, vhost) in [
        ("amqp://h", "h", 5672, "/"),
        ("amqps://h/", "h", 5671, "/"),
        ("amqp://u@h:1/a%2Fb", "h", 1, "a/b"),
    ] {
        let settings = rabbitmq(&[(env::RABBITMQ_URL, url)]);
        assert_eq!(
            (
                settings.host.as_str(),
                settings.port,
                settings.vhost.as_str()
            ),
            (host, port, vhost),
            "{url}"
        );
        assert_eq!(password(&settings), "guest");
    }
    let file = rabbitmq(&[
        (env::RABBITMQ_PASSWORD_FILE, "/etc/password"),
        (env::RABBITMQ_TLS, "on"),
    ]);
    assert_eq!(
        (password(&file), file.port, file.publish),
        ("/etc/password", 5671, Publish::Queue)
    );
}

/// SC-9
#[test]
fn secrets_have_no_text_form() {
    let config = config(&[
        (env::RABBITMQ_PASSWORD, "s3cret"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "authorization=Bearer%20s3cret, x=1",
        ),
    ]);
    let shown = format!("{config:?}");
    assert!(!shown.contains("s3cret"), "{shown}");
    let traces = config.traces.expect("traces");
    assert_eq!(
        (traces.url.as_str(), traces.service.as_str()),
        ("http://collector:4318/v1/traces", "foo")
    );
    let headers = traces.headers.iter();
    let headers: Vec<(&str, &str)> = headers
        .map(|(name, value)| (name.as_str(), value.reveal()))
        .collect();
    assert_eq!(headers, [("authorization", "Bearer s3cret"), ("x", "1")]);
}

/// SC-31, SC-44
#[test]
fn go_sidecars_prefetch_replaces_the_lookahead() {
    assert_eq!(
        config(&[(env::LOOKAHEAD, "8")]).lookahead,
        Lookahead::Fixed(8)
    );
    let both = [(env::LOOKAHEAD, "8"), (env::RABBITMQ_PREFETCH, "10")];
    assert_eq!(config(&both).lookahead, Lookahead::InFlight(10));
}

/// SC-35, SC-37
#[test]
fn sqs_region_and_visibility_have_fallbacks() {
    let settings = sqs(&[
        ("AWS_REGION", "eu-1"),
        ("AWS_DEFAULT_REGION", "x"),
        (env::SQS_ENDPOINT, "http://h:1/"),
    ]);
    assert_eq!(
        (settings.region.as_str(), settings.endpoint.as_deref()),
        ("eu-1", Some("http://h:1"))
    );
    assert_eq!(
        (settings.visibility.as_secs(), settings.wait.as_secs()),
        (90, 20)
    );
    assert_eq!(
        sqs(&[(env::AWS_REGION, "own"), ("AWS_REGION", "x")]).region,
        "own"
    );
    let warned = config(&[(env::TRANSPORT, "sqs")]);
    assert!(
        warned
            .warnings
            .iter()
            .any(|text| text.contains("us-east-1")),
        "{:?}",
        warned.warnings
    );
    for (timeout, seconds, expected) in [
        ("10s", "0", 30),
        ("20s", "0", 40),
        ("12h", "0", 90),
        ("10s", "7", 7),
    ] {
        let variables = [
            (env::RUNTIME_TIMEOUT, timeout),
            (env::SQS_VISIBILITY_TIMEOUT, seconds),
            ("AWS_REGION", "x"),
        ];
        assert_eq!(
            sqs(&variables).visibility.as_secs(),
            expected,
            "{timeout} {seconds}"
        );
    }
}

/// SC-32
#[test]
fn delivery_that_may_outlast_the_brokers_default_causes_a_warning() {
    let timeout = |value| (env::RUNTIME_TIMEOUT, value);
    for (variables, is_warned) in [
        (&[timeout("20m")][..], false),
        (&[timeout("21m")], true),
        (&[timeout("10m"), (env::IS_END_ACTOR, "true")], true),
        (&[timeout("5m"), (env::LOOKAHEAD, "3")], false),
        (&[timeout("5m"), (env::LOOKAHEAD, "4")], true),
        (&[timeout("5m"), (env::RABBITMQ_PREFETCH, "5")], true),
    ] {
        let warnings = config(variables).warnings;
        let warned = warnings.iter().any(|it| it.contains("consumer-timeout"));
        assert_eq!(warned, is_warned, "{variables:?} {warnings:?}");
    }
}
