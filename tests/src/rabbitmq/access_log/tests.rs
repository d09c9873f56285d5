use super::parse;

#[test]
fn log_line_is_parsed() {
    let line = r#"127.0.0.1 - asya [21/Nov/2026:08:00:01 +0000] "PUT /api/queues/%2F/asya-a HTTP/1.1" 201 0 "" "curl""#;
    let call = parse(line).unwrap();
    assert_eq!(
        (call.user.as_str(), call.method.as_str(), call.status),
        ("asya", "PUT", 201)
    );
    assert_eq!(call.path, "/api/queues/%2F/asya-a");
    assert_eq!(call.agent, "curl");
}
