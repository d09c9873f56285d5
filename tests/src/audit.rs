//! Reads the API server's audit log: who wrote what.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde::Deserialize;
use serde_json::json;

use crate::error::{Context, Error, Result};
use crate::eventually::{NotYet, eventually};

/// A position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64);

/// A write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// When the request was received.
    pub time: Timestamp,
    /// The authenticated user.
    pub user: String,
    /// Which of the user's tokens was used; see [`Instance::credential`](crate::operator::Instance::credential).
    pub credential: String,
    /// The impersonated user; empty without impersonation.
    pub acting_as: String,
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// Plural name, such as `deployments`.
    pub resource: String,
    /// Subresource, such as `status`; empty for the resource itself.
    pub subresource: String,
    /// Empty for cluster-scoped resources.
    pub namespace: String,
    /// Empty for a create with `generateName`.
    pub name: String,
    /// The HTTP status of the response.
    pub code: i32,
    /// Whether it was a dry run, which persists nothing.
    pub dry_run: bool,
}

/// The audit log of a cluster.
#[derive(Clone)]
pub struct Audit {
    log: PathBuf,
    client: Client,
}

impl Audit {
    pub(crate) fn new(log: PathBuf, client: Client) -> Self {
        Self { log, client }
    }

    /// The start of the log, which is that of the cluster.
    #[must_use]
    pub fn beginning(&self) -> Mark {
        Mark(0)
    }

    /// The end of the log, after every request answered so far.
    ///
    /// # Errors
    /// When the log cannot be read or the API server does not answer.
    pub async fn mark(&self) -> Result<Mark> {
        self.barrier().await
    }

    /// All writes by a user after a mark, including rejected ones, except leases and dry runs.
    ///
    /// # Errors
    /// When the log cannot be read or the API server does not answer.
    pub async fn writes_since(&self, mark: Mark, user: &str) -> Result<Vec<Write>> {
        let mut writes = self.requests_since(mark, user).await?;
        writes.retain(|write| !write.dry_run);
        Ok(writes)
    }

    /// All mutating requests by a user after a mark, including rejected ones and dry runs, except leases.
    ///
    /// # Errors
    /// When the log cannot be read or the API server does not answer.
    pub async fn requests_since(&self, mark: Mark, user: &str) -> Result<Vec<Write>> {
        self.barrier().await?;
        let mut writes = self.read(mark)?;
        writes.retain(|write| write.user == user && write.resource != "leases");
        Ok(writes)
    }

    /// All writes in a namespace after a mark, by any user, including rejected ones, except dry runs.
    ///
    /// # Errors
    /// When the log cannot be read or the API server does not answer.
    pub async fn writes_in(&self, mark: Mark, namespace: &str) -> Result<Vec<Write>> {
        let mut writes = self.requests_in(mark, namespace).await?;
        writes.retain(|write| !write.dry_run);
        Ok(writes)
    }

    /// All mutating requests in a namespace after a mark, by any user, including rejected ones and dry runs.
    ///
    /// # Errors
    /// When the log cannot be read or the API server does not answer.
    pub async fn requests_in(&self, mark: Mark, namespace: &str) -> Result<Vec<Write>> {
        self.barrier().await?;
        let mut writes = self.read(mark)?;
        writes.retain(|write| write.namespace == namespace);
        Ok(writes)
    }

    /// Waits until the log is complete: it is written after the response is sent, so send a request that stores nothing
    /// and wait until the log contains it. Returns the end of the lines that are complete then.
    async fn barrier(&self) -> Result<Mark> {
        let (start, name) = (
            self.length()?,
            format!("barrier-{}", Timestamp::now().as_nanosecond()),
        );
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview",
        });
        let path = format!("/apis/authentication.k8s.io/v1/selfsubjectreviews?fieldManager={name}");
        let request = http::Request::post(path)
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(&review)?)
            .map_err(Error::other)?;
        self.client.request_text(request).await?;
        eventually(
            "the audit log has our own write",
            Duration::from_secs(10),
            async || {
                let text = self.complete_lines(Mark(start)).map_err(NotYet::new)?;
                if text.contains(&name) {
                    return Ok(Mark(start + text.len() as u64));
                }
                Err(NotYet::new("nothing"))
            },
        )
        .await
    }

    fn length(&self) -> Result<u64> {
        Ok(std::fs::metadata(&self.log)
            .context(format_args!("read {}", self.log.display()))?
            .len())
    }

    /// The lines after a mark, without one that is still being written.
    fn complete_lines(&self, mark: Mark) -> Result<String> {
        let what = format!("read {}", self.log.display());
        let mut file = File::open(&self.log).context(&what)?;
        file.seek(SeekFrom::Start(mark.0)).context(&what)?;
        let mut log = Vec::new();
        file.read_to_end(&mut log).context(&what)?;
        String::from_utf8(whole_lines(log)).map_err(Error::other)
    }

    fn read(&self, mark: Mark) -> Result<Vec<Write>> {
        let writes = self.complete_lines(mark)?;
        let writes = writes
            .lines()
            .map(|line| Ok(serde_json::from_str::<Line>(line)?.into()));
        let mut writes: Vec<Write> = writes.collect::<Result<_>>()?;
        // The log is in the order of responses, but a write may have been answered after another one that it caused.
        writes.sort_by_key(|write| write.time);
        Ok(writes)
    }
}

fn whole_lines(mut log: Vec<u8>) -> Vec<u8> {
    let end = log.iter().rposition(|byte| *byte == b'\n');
    log.truncate(end.map_or(0, |end| end + 1));
    log
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    request_received_timestamp: Timestamp,
    user: User,
    impersonated_user: Option<User>,
    verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    object_ref: Option<Object>,
    response_status: Option<Response>,
}

#[derive(Deserialize)]
struct User {
    username: String,
    #[serde(default)]
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    api_group: String,
}

#[derive(Deserialize)]
struct Response {
    #[serde(default)]
    code: i32,
}

fn credential(user: &User) -> String {
    let ids = user.extra.get("authentication.kubernetes.io/credential-id");
    ids.and_then(|ids| ids.first()?.strip_prefix("JTI=").map(str::to_owned))
        .unwrap_or_default()
}

impl From<Line> for Write {
    fn from(line: Line) -> Self {
        let object = line.object_ref.unwrap_or_default();
        Self {
            time: line.request_received_timestamp,
            credential: credential(&line.user),
            user: line.user.username,
            acting_as: line
                .impersonated_user
                .map_or_else(String::new, |user| user.username),
            verb: line.verb,
            group: object.api_group,
            resource: object.resource,
            subresource: object.subresource,
            namespace: object.namespace,
            name: object.name,
            dry_run: line.uri.contains("dryRun=All"),
            code: line.response_status.map_or(0, |response| response.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::whole_lines;

    #[test]
    fn line_that_is_still_being_written_is_not_read() {
        for (log, expected) in [
            ("", ""),
            ("{\"verb\"", ""),
            ("{}\n", "{}\n"),
            ("{}\n{}\n{\"verb\"", "{}\n{}\n"),
        ] {
            assert_eq!(whole_lines(log.into()), expected.as_bytes());
        }
    }
}
