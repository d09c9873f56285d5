mod fuzz;

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Tracer;
use super::context::TraceContext;
use super::export::{Finished, SpanKind, body};
use crate::config::Traces;
use crate::gateway::testing::Fake;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

fn tracer(ratio: f64, parent_based: bool) -> (Tracer, mpsc::Receiver<Finished>) {
    let (spans, told) = mpsc::channel(8);
    (
        Tracer {
            spans,
            ratio,
            parent_based,
            finishing: CancellationToken::new(),
            exporter: TaskTracker::new(),
        },
        told,
    )
}

fn message(headers: &str) -> Bytes {
    format!(r#"{{ "id":"1",{headers}"payload": [1.0 ] }}"#).into()
}

/// SC-96
#[test]
fn context_is_spliced_in_without_other_changes() {
    let context = TraceContext {
        trace: TRACE.to_owned(),
        span: "1".repeat(16),
        sampled: true,
    };
    let own = format!("00-{TRACE}-{}-01", "1".repeat(16));
    for (headers, expected) in [
        (
            format!(r#""headers": {{"a":1 , "traceparent" : "00-{TRACE}-{PARENT}-01"}},"#),
            format!(
                r#"{{ "id":"1","headers": {{"a":1 , "traceparent" : "{own}"}},"payload": [1.0 ] }}"#
            ),
        ),
        (
            r#""headers": { "tracestate":"x"},"#.to_owned(),
            format!(
                r#"{{ "id":"1","headers": {{"traceparent":"{own}", "tracestate":"x"}},"payload": [1.0 ] }}"#
            ),
        ),
        (
            r#""headers":{},"#.to_owned(),
            format!(r#"{{ "id":"1","headers":{{"traceparent":"{own}"}},"payload": [1.0 ] }}"#),
        ),
        (
            String::new(),
            format!(r#"{{"headers":{{"traceparent":"{own}"}}, "id":"1","payload": [1.0 ] }}"#),
        ),
    ] {
        let spliced = context.spliced_into(&message(&headers)).expect("a place");
        assert_eq!(String::from_utf8(spliced).expect("UTF-8"), expected);
    }
    assert_eq!(context.spliced_into(&message(r#""headers":null,"#)), None);
    assert_eq!(context.spliced_into(b"no JSON"), None);
}

/// SC-96
#[test]
fn spans_continue_the_messages_trace_if_it_has_a_valid_one() {
    let (tracer, mut told) = tracer(1.0, true);
    let continuing = message(&format!(
        r#""headers":{{"traceparent":"00-{TRACE}-{PARENT}-01"}},"#
    ));
    let mut span = tracer.consume(&continuing);
    let continued = TraceContext::of(&span.continued(&continuing)).expect("a context");
    span.called(std::time::Instant::now(), true);
    span.end(true);
    let (call, consume) = (
        told.try_recv().expect("a span"),
        told.try_recv().expect("a span"),
    );
    assert_eq!(
        (consume.trace.as_str(), consume.parent.as_deref()),
        (TRACE, Some(PARENT))
    );
    assert_eq!(
        (continued.trace.as_str(), &continued.span),
        (TRACE, &consume.span)
    );
    assert_eq!(
        (call.name, call.parent.as_ref()),
        ("runtime", Some(&consume.span))
    );
    for wrong in [
        "",
        "00-0-0-01",
        &format!("ff-{TRACE}-{PARENT}-01"),
        &format!("00-{}-{PARENT}-01", "0".repeat(32)),
    ] {
        let message = message(&format!(r#""headers":{{"traceparent":"{wrong}"}},"#));
        assert_eq!(TraceContext::of(&message), None, "{wrong}");
    }
}

/// SC-96
#[test]
fn sampling_follows_the_parent_or_the_ratio() {
    let unsampled = message(&format!(
        r#""headers":{{"traceparent":"00-{TRACE}-{PARENT}-00"}},"#
    ));
    for (ratio, parent_based, message, expected) in [
        (1.0, true, &unsampled, false),
        (1.0, false, &unsampled, true),
        (0.0, true, &message(""), false),
        (1.0, true, &message(""), true),
    ] {
        let (tracer, mut told) = tracer(ratio, parent_based);
        tracer.consume(message).end(true);
        assert_eq!(told.try_recv().is_ok(), expected);
    }
}

/// SC-96: otherwise a trace across several actors would rarely be complete.
#[test]
fn ratio_decides_by_the_id_of_the_trace() {
    for (random, ratio, expected) in [
        ("0000000000000000", 0.0, false),
        ("0000000000000000", 0.01, true),
        ("3fffffffffffffff", 0.25, true),
        ("4000000000000000", 0.25, false),
        ("ffffffffffffffff", 0.99, false),
        ("ffffffffffffffff", 1.0, true),
    ] {
        let (tracer, mut told) = tracer(ratio, false);
        let context = format!("00-8448eb211c80319c{random}-{PARENT}-00");
        let message = message(&format!(r#""headers":{{"traceparent":"{context}"}},"#));
        for _ in 0..3 {
            tracer.consume(&message).end(true);
            assert_eq!(told.try_recv().is_ok(), expected, "{random} {ratio}");
        }
    }
    let (tracer, mut told) = tracer(0.5, true);
    let sampled = (0..1000).filter(|_| {
        tracer.consume(&message("")).end(true);
        told.try_recv().is_ok()
    });
    let count = sampled.count();
    assert!(
        (400..600).contains(&count),
        "a root has a random id: {count}"
    );
}

/// SC-96
#[test]
fn full_span_queue_never_blocks() {
    let (tracer, mut told) = tracer(1.0, true);
    (0..100).for_each(|_| tracer.consume(&message("")).end(true));
    assert_eq!(std::iter::from_fn(|| told.try_recv().ok()).count(), 8);
}

/// SC-96
#[test]
fn spans_are_encoded_as_otlp() {
    let finished = Finished {
        trace: TRACE.to_owned(),
        span: PARENT.to_owned(),
        parent: None,
        name: "consume",
        kind: SpanKind::Consumer,
        started: UNIX_EPOCH + Duration::from_nanos(1),
        ended: UNIX_EPOCH + Duration::from_secs(2),
        succeeded: false,
    };
    let sent = body("foo", &[finished]);
    let resource = &sent["resourceSpans"][0];
    assert_eq!(
        resource["resource"]["attributes"][0]["value"]["stringValue"],
        "foo"
    );
    let span = &resource["scopeSpans"][0]["spans"][0];
    assert_eq!(
        (&span["traceId"], &span["kind"], &span["status"]["code"]),
        (&TRACE.into(), &5.into(), &2.into())
    );
    assert_eq!(
        (&span["startTimeUnixNano"], &span["endTimeUnixNano"]),
        (&"1".into(), &"2000000000".into())
    );
    assert_eq!(span.get("parentSpanId"), None);
}

fn traces(url: String) -> Traces {
    Traces {
        url,
        service: "foo".to_owned(),
        ratio: 1.0,
        parent_based: true,
        headers: Vec::new(),
    }
}

/// SC-96: the last spans of a process show, for example, why it was slow to exit.
#[tokio::test]
async fn spans_that_have_ended_are_exported_at_exit() {
    let fake = Fake::start(&[200]).await;
    let tracer = Tracer::start(&traces(fake.url.clone())).expect("a tracer");
    // Like the span of a message that was given back.
    let _unfinished = tracer.consume(&message(""));
    for _ in 0..300 {
        tracer.consume(&message("")).end(true);
    }
    tracer.finish().await;
    let spans = |(_, body): &(String, Value)| {
        let spans = &body["resourceSpans"][0]["scopeSpans"][0]["spans"];
        spans.as_array().map_or(0, Vec::len)
    };
    let counts: Vec<usize> = fake.requests.lock().iter().map(spans).collect();
    assert_eq!(counts, [256, 44]);
}

/// SC-79, SC-96
#[tokio::test(start_paused = true)]
async fn exit_waits_a_second_at_most_for_a_collector_that_does_not_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let tracer = Tracer::start(&traces(format!("http://{address}"))).expect("a tracer");
    let started = tokio::time::Instant::now();
    tracer.finish().await;
    assert_eq!(started.elapsed(), Duration::ZERO, "no spans");
    let tracer = Tracer::start(&traces(format!("http://{address}"))).expect("a tracer");
    tracer.consume(&message("")).end(true);
    tracer.finish().await;
    assert!(started.elapsed() <= Duration::from_millis(1010));
}

/// SC-96
#[tokio::test]
async fn endpoint_without_a_path_is_posted_to_at_its_root() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a listener");
    let address = listener.local_addr().expect("an address");
    let tracer = Tracer::start(&traces(format!("http://{address}"))).expect("a tracer");
    tracer.consume(&message("")).end(true);
    drop(tracer);
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut line = [0; 16];
    stream.read_exact(&mut line).await.expect("a request");
    assert_eq!(&line, b"POST / HTTP/1.1\r");
}
