//! Removes possible secrets from objects and texts: whatever is not known to be harmless.

use serde_json::{Map, Value};

const REDACTED: &str = "REDACTED";
/// Words in names of fields, flags and variables whose values may be secret, in lower case and without separators.
const SECRET_WORDS: [&str; 11] = [
    "authorization",
    "bearer",
    "password",
    "passwd",
    "passphrase",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "clientsecret",
    "credential",
];
/// More such words, for `args` and `command` only: fields such as `secretName` hold names.
const SECRET_ARGUMENT_WORDS: [&str; 4] = ["secret", "pass", "pwd", "auth"];
/// Variables with this prefix are settings of Asya, which refer to Secrets by name.
const SETTINGS: &str = "ASYA_";

/// Removes possible secrets from an object: values of variables and of probes' HTTP headers, annotations that hold
/// whole objects, values of fields and flags with names like those of secrets, scripts that name one, and user names
/// and passwords in URLs.
pub fn object(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("managedFields");
            for (name, value) in fields {
                field(name, value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(object),
        Value::String(text) => *text = urls(text),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn field(name: &str, value: &mut Value) {
    match (name, &mut *value) {
        ("annotations", Value::Object(annotations)) => annotations.iter_mut().for_each(annotation),
        ("env", Value::Array(variables)) => {
            for variable in variables.iter_mut().filter_map(Value::as_object_mut) {
                variable_value(variable);
            }
        }
        ("httpHeaders", Value::Array(headers)) => {
            for header in headers.iter_mut().filter_map(Value::as_object_mut) {
                header.insert("value".to_owned(), Value::from(REDACTED));
            }
        }
        ("args" | "command", Value::Array(items)) => flags(items),
        (_, Value::String(text)) if is_secret(name) => REDACTED.clone_into(text),
        _ => {}
    }
    object(value);
}

/// Annotations may hold a whole object, such as the one of `kubectl apply`.
fn annotation((name, value): (&String, &mut Value)) {
    let Value::String(text) = value else { return };
    let is_object = text.trim_start().starts_with(['{', '[']);
    if is_object || name.contains("last-applied") {
        REDACTED.clone_into(text);
    }
}

fn variable_value(variable: &mut Map<String, Value>) {
    let name = variable.get("name").and_then(Value::as_str);
    let is_setting = name.is_some_and(|name| name.starts_with(SETTINGS) && !is_secret(name));
    if let Some(value) = variable.get_mut("value").filter(|_| !is_setting) {
        *value = Value::from(REDACTED);
    }
}

/// Redacts flags in the forms `--password=VALUE` and `--password VALUE`, values that name a secret themselves, such as
/// a header or a connection string, and scripts, such as those of `sh -c`.
fn flags(items: &mut [Value]) {
    let mut is_next = false;
    for item in items {
        let Value::String(text) = item else { continue };
        let redacted = argument(text);
        // A flag without a value may precede another flag.
        let precedes = text.starts_with('-') && !is_pair(text) && is_secret_argument(text);
        if std::mem::replace(&mut is_next, precedes) {
            REDACTED.clone_into(text);
        } else if let Some(redacted) = redacted {
            *text = redacted;
        }
    }
}

/// An argument without the secret that it names; `None` if it names none, or contains only the name.
fn argument(text: &str) -> Option<String> {
    if !is_pair(text) || !is_secret_argument(text) {
        return None;
    }
    match text.split_once('=') {
        Some((flag, _)) if !text.contains(char::is_whitespace) && !flag.contains(':') => {
            let value = &text[flag.len() + 1..];
            let is_named = is_secret_argument(flag) || is_pair(value);
            is_named.then(|| format!("{flag}={REDACTED}"))
        }
        _ => Some(REDACTED.to_owned()),
    }
}

/// Whether a text may consist of a name and a value, rather than a path or a word.
fn is_pair(text: &str) -> bool {
    text.contains(|c: char| c.is_whitespace() || "=:;,".contains(c))
}

fn is_secret_argument(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut words = lower.split(|c: char| !c.is_ascii_alphanumeric());
    is_secret(text)
        || SECRET_ARGUMENT_WORDS.iter().any(|word| lower.contains(word))
        // Only at the end of a word, as in `apiKey`: `keyspaces` are not secrets.
        || words.any(|word| word.ends_with("key") || word.ends_with("keys"))
}

fn is_secret(name: &str) -> bool {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let name: String = letters.map(|it| it.to_ascii_lowercase()).collect();
    SECRET_WORDS.iter().any(|word| name.contains(word))
}

/// Removes user names and passwords from the URLs in a text.
pub fn urls(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        result.push_str(before);
        let is_end = |c: char| c.is_whitespace() || "/?#\"'<>".contains(c);
        let authority = &after[..after.find(is_end).unwrap_or(after.len())];
        // A password may contain a slash, which should be escaped but often is not.
        let word = &after[..after
            .find(|c: char| c.is_whitespace() || "\"'<>".contains(c))
            .unwrap_or(after.len())];
        rest = match (authority.rfind('@'), word.rfind('@')) {
            (Some(at), _) => {
                result.push_str(REDACTED);
                &after[at..]
            }
            (None, Some(at)) if authority.contains(':') => {
                result.push_str(REDACTED);
                &after[at..]
            }
            _ => after,
        };
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SECRET: &str = "hunter2";

    #[test]
    fn no_place_keeps_a_secret() {
        let mut pod = json!({
            "metadata": {
                "managedFields": [{"fieldsV1": SECRET}],
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": format!("{{\"env\":\"{SECRET}\"}}"),
                    "other.io/original": format!(" [\"{SECRET}\"]"),
                    "kept": "yes",
                },
            },
            "spec": {
                "containers": [{
                    "command": ["sh", "-c", "TOKEN=hunter2 exec serve", "serve --port 80"],
                    "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "X-Key", "value": SECRET}]}},
                    "args": ["--header", "Authorization: hunter2", "--password=hunter2", "--api-key", SECRET, "--port=80", "amqp://u:hunter2@mq:1/v"],
                    "env": [
                        {"name": "DB", "value": SECRET},
                        {"name": "ASYA_RABBITMQ_PASSWORD", "value": SECRET},
                        {"name": "ASYA_GATEWAY_URL", "value": "http://u:hunter2@gateway"},
                        {"name": "ASYA_HANDLER", "value": "app.handle"},
                        {"name": "FROM", "valueFrom": {"secretKeyRef": {"name": "mq", "key": "password"}}},
                    ],
                }],
                "triggers": [{"metadata": {"password": SECRET, "host": "http://u:hunter2/x@mq/vhost"}}],
            },
        });
        object(&mut pod);
        let text = pod.to_string();
        assert!(!text.contains(SECRET), "{text}");
        for kept in [
            "app.handle",
            "\"serve --port 80\"",
            "X-Key",
            "\"kept\":\"yes\"",
            "--port=80",
            "secretKeyRef",
            "\"key\":\"password\"",
            "@gateway",
        ] {
            assert!(text.contains(kept), "{kept}: {text}");
        }
    }

    #[test]
    fn arguments_lose_what_may_be_secret_and_keep_the_rest() {
        for (arguments, expected) in [
            (
                &["--secret-key=hunter2"][..],
                &["--secret-key=REDACTED"][..],
            ),
            (&["--secret=hunter2"], &["--secret=REDACTED"]),
            (&["--pass=hunter2"], &["--pass=REDACTED"]),
            (&["--pwd=hunter2"], &["--pwd=REDACTED"]),
            (&["--masterKey=hunter2"], &["--masterKey=REDACTED"]),
            (
                &["--requirepass", "hunter2"],
                &["--requirepass", "REDACTED"],
            ),
            (
                &["--webhook-secret", "hunter2", "--port", "80"],
                &["--webhook-secret", "REDACTED", "--port", "80"],
            ),
            (
                &["--enable-auth", "--password", "hunter2"],
                &["--enable-auth", "REDACTED", "REDACTED"],
            ),
            (&["--dsn=Server=db;Password=hunter2"], &["--dsn=REDACTED"]),
            (&["--header=X-Api-Key:hunter2"], &["--header=REDACTED"]),
            (&["-H", "X-Api-Key:hunter2"], &["-H", "REDACTED"]),
            (&["--url=http://a/b?key=hunter2"], &["--url=REDACTED"]),
            (&["http://a/b?sign=1&key=hunter2"], &["REDACTED"]),
            (&["/password:hunter2"], &["REDACTED"]),
            (&["redis-server --requirepass hunter2"], &["REDACTED"]),
        ] {
            let mut object_of = json!({"args": arguments, "command": arguments});
            object(&mut object_of);
            assert_eq!(object_of, json!({"args": expected, "command": expected}));
        }
        let kept = json!({
            "args": [
                "--keyspace=orders", "--keyspace", "orders", "--config=/etc/secrets/app.yaml", "auth-server",
                "--mode=token", "--port=80", "--steps-assigned=1", "a:b",
            ],
            "secretName": "mq", "secretKeyRef": {"key": "pass"},
        });
        let mut object_of = kept.clone();
        object(&mut object_of);
        assert_eq!(object_of, kept);
    }

    #[test]
    fn urls_lose_users_only() {
        for (text, expected) in [
            ("see https://a.b/c@d and x", "see https://a.b/c@d and x"),
            (
                "amqp://me:p@ss@mq:5672/v, http://mq",
                "amqp://REDACTED@mq:5672/v, http://mq",
            ),
            ("http://me@mq", "http://REDACTED@mq"),
            ("no url", "no url"),
        ] {
            assert_eq!(urls(text), expected, "{text}");
        }
    }
}
