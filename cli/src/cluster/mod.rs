//! The cluster of the user's kubeconfig, accessed with the user's permissions.

mod connection;
mod dry_run;
mod failure;
mod kinds;
mod kubeconfig;
mod pods;
mod proxy;

use std::fmt;

use asya_shared::api::AsyncActor;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
    SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, PartialObjectMeta, Patch, PatchParams,
    PostParams, Preconditions, Resource,
};
use kube::{Api, Client};
use serde_json::Value;

pub use connection::Connection;
pub use failure::ApiFailure;
pub use pods::{has_sidecar, is_ready};

use crate::answer::Failure;

/// Page size of lists.
const PAGE: u32 = 500;
/// Field manager of changes that users make through this program.
const MANAGER: &str = "kubectl-asya";

/// A reachable cluster.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    /// The namespace that the user has chosen.
    pub namespace: String,
    pub operator_namespace: String,
    /// URL of the API server.
    pub server: String,
}

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    pub verb: &'static str,
    /// Empty for the core group.
    pub group: &'static str,
    /// A resource, or `resource/subresource`.
    pub resource: &'static str,
}

impl Permission {
    /// `None` in `namespace` or `name` means all.
    fn attributes(self, namespace: Option<&str>, name: Option<&str>) -> ResourceAttributes {
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (self.resource, None),
        };
        ResourceAttributes {
            group: Some(self.group.to_owned()),
            resource: Some(resource.to_owned()),
            subresource,
            verb: Some(self.verb.to_owned()),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            ..ResourceAttributes::default()
        }
    }
}

impl fmt::Display for Permission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dot = if self.group.is_empty() { "" } else { "." };
        write!(f, "{} {}{dot}{}", self.verb, self.resource, self.group)
    }
}

/// The resource of a kind that is known at compile time.
pub fn resource<K: Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}

impl Cluster {
    /// All objects of a kind, in one namespace or in all.
    pub async fn list(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
    ) -> Result<Vec<Value>, ApiFailure> {
        self.list_with(kind, namespace, ListParams::default()).await
    }

    /// Like [`Cluster::list`], with list parameters.
    pub async fn list_with(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        params: ListParams,
    ) -> Result<Vec<Value>, ApiFailure> {
        let api = self.api(kind, namespace);
        let mut params = params.limit(PAGE);
        let mut objects = Vec::new();
        loop {
            let page = api
                .list(&params)
                .await
                .map_err(|error| self.failure("list", kind, namespace, error))?;
            for object in page.items {
                objects.push(self.value(object)?);
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(objects),
            }
        }
    }

    /// An object; `None` if it does not exist.
    pub async fn get(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ApiFailure> {
        let found = self.api(kind, namespace).get_opt(name).await;
        let found = found.map_err(|error| self.failure("get", kind, namespace, error))?;
        found.map(|object| self.value(object)).transpose()
    }

    /// An actor in the chosen namespace.
    ///
    /// # Errors
    /// If it does not exist; the error names those that do.
    pub async fn actor(&self, name: &str) -> Result<Value, Failure> {
        let kind = resource::<AsyncActor>();
        if let Some(actor) = self.get(&kind, Some(&self.namespace), name).await? {
            return Ok(actor);
        }
        let others = self
            .list(&kind, Some(&self.namespace))
            .await
            .unwrap_or_default();
        Err(self.not_found("AsyncActor", &kind, name, &others).await)
    }

    /// A cluster with a mock client.
    #[cfg(test)]
    pub fn of(client: Client) -> Self {
        Self {
            namespace: client.default_namespace().to_owned(),
            client,
            operator_namespace: "asya-system".to_owned(),
            server: "https://mock".to_owned(),
        }
    }

    /// A pod in the chosen namespace.
    ///
    /// # Errors
    /// If it does not exist.
    pub async fn pod(&self, name: &str) -> Result<Value, Failure> {
        let kind = resource::<Pod>();
        let found = self.get(&kind, Some(&self.namespace), name).await?;
        match found {
            Some(pod) => Ok(pod),
            None => Err(self.not_found("pod", &kind, name, &[]).await),
        }
    }

    /// Applies a merge patch; with `dry_run`, the API server only checks it.
    pub async fn patch(
        &self,
        kind: &ApiResource,
        name: &str,
        patch: &Value,
        dry_run: bool,
    ) -> Result<(), ApiFailure> {
        let mut params = PatchParams::apply(MANAGER);
        params.dry_run = dry_run;
        let namespace = Some(&*self.namespace);
        let patched = self
            .api(kind, namespace)
            .patch(name, &params, &Patch::Merge(patch))
            .await;
        patched
            .map(drop)
            .map_err(|error| self.failure("patch", kind, namespace, error))
    }

    /// Deletes an object if it still has this UID and resource version.
    pub async fn delete(
        &self,
        kind: &ApiResource,
        name: &str,
        preconditions: Preconditions,
        dry_run: bool,
    ) -> Result<(), ApiFailure> {
        let params = DeleteParams {
            dry_run,
            ..DeleteParams::default()
        };
        let params = params.preconditions(preconditions);
        let namespace = Some(&*self.namespace);
        let deleted = self.api(kind, namespace).delete(name, &params).await;
        deleted
            .map(drop)
            .map_err(|error| self.failure("delete", kind, namespace, error))
    }

    /// The version of the API server, such as v1.33.2.
    pub async fn version(&self) -> Result<String, ApiFailure> {
        let version = self.client.apiserver_version().await;
        let version =
            version.map_err(|error| ApiFailure::new("read the version", &self.server, error))?;
        Ok(version.git_version)
    }

    /// Whether the user may do this in all namespaces.
    pub async fn may(&self, permission: Permission) -> Result<bool, ApiFailure> {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(permission.attributes(None, None)),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api = Api::<SelfSubjectAccessReview>::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await;
        let answer = answer
            .map_err(|error| ApiFailure::new("ask for your permissions", &self.server, error))?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// Whether a `ServiceAccount` in the operator's namespace may do this, in one namespace or in all, to the object
    /// with this name or to any.
    pub async fn operator_may(
        &self,
        service_account: &str,
        permission: Permission,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Result<bool, ApiFailure> {
        let home = &self.operator_namespace;
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{home}"),
            "system:authenticated".to_owned(),
        ];
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(format!("system:serviceaccount:{home}:{service_account}")),
                groups: Some(groups.into()),
                resource_attributes: Some(permission.attributes(namespace, name)),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await;
        let answer = answer.map_err(|error| {
            let action = "create subjectaccessreviews.authorization.k8s.io";
            ApiFailure::new(action, &self.server, error)
        })?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    fn api(&self, kind: &ApiResource, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, kind),
            None => Api::all_with(self.client.clone(), kind),
        }
    }

    /// The metadata of objects of a kind, for watches.
    pub fn metadata(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
    ) -> Api<PartialObjectMeta<DynamicObject>> {
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, kind),
            None => Api::all_with(self.client.clone(), kind),
        }
    }

    fn value(&self, object: DynamicObject) -> Result<Value, ApiFailure> {
        serde_json::to_value(object)
            .map_err(|error| ApiFailure::new("read", &self.server, kube::Error::SerdeError(error)))
    }

    fn failure(
        &self,
        verb: &str,
        kind: &ApiResource,
        namespace: Option<&str>,
        error: kube::Error,
    ) -> ApiFailure {
        let scope = namespace.map_or_else(
            || " in all namespaces".to_owned(),
            |it| format!(" in namespace {it}"),
        );
        let dot = if kind.group.is_empty() { "" } else { "." };
        let (plural, group) = (&kind.plural, &kind.group);
        ApiFailure::new(
            &format!("{verb} {plural}{dot}{group}{scope}"),
            &self.server,
            error,
        )
    }

    /// Why an object is not found: its namespace does not exist, or it is in another one. If the user may see neither,
    /// names other namespaces.
    async fn not_found(
        &self,
        word: &str,
        kind: &ApiResource,
        name: &str,
        others: &[Value],
    ) -> Failure {
        let namespace = &self.namespace;
        if let Some(missing) = self.missing_namespace().await {
            return missing;
        }
        if let Ok([found, ..]) = self.namespaces_with(kind, name).await.as_deref() {
            return Failure::new(format!(
                "no {word} {name} in namespace {namespace}; it is in {found}: pass -n {found}"
            ));
        }
        let names: Vec<&str> = others
            .iter()
            .filter_map(|it| it["metadata"]["name"].as_str())
            .take(5)
            .collect();
        let advice = if names.is_empty() {
            "choose another namespace with -n".to_owned()
        } else {
            format!(
                "there are {}; choose one of them, or another namespace with -n",
                names.join(", ")
            )
        };
        Failure::new(format!(
            "no {word} {name} in namespace {namespace}; {advice}"
        ))
    }

    /// The failure if the chosen namespace does not exist; `None` if it does, or cannot be read.
    pub async fn missing_namespace(&self) -> Option<Failure> {
        let namespace = &self.namespace;
        let found = self.get(&resource::<Namespace>(), None, namespace).await;
        matches!(found, Ok(None)).then(|| {
            Failure::new(format!(
                "namespace {namespace} does not exist; choose another with -n"
            ))
        })
    }

    /// Namespaces with an object of this kind and name.
    pub async fn namespaces_with(
        &self,
        kind: &ApiResource,
        name: &str,
    ) -> Result<Vec<String>, ApiFailure> {
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let found = self.list_with(kind, None, params).await?;
        let namespaces = found
            .iter()
            .filter_map(|it| it["metadata"]["namespace"].as_str());
        Ok(namespaces.map(str::to_owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    /// docs/cli.md: an error says what is wrong. Without the CRD, the API server responds with 404, as for a missing
    /// actor.
    #[tokio::test]
    async fn missing_actor_is_told_from_a_cluster_without_actors() {
        let missing = r#"{"status": "Failure", "reason": "NotFound", "code": 404, "message": "\"embed\" not found"}"#;
        for (answer_without_actor, expected) in [
            (
                missing,
                "no AsyncActor embed in namespace models; choose another namespace with -n",
            ),
            (
                "404 page not found",
                "cannot get asyncactors.asya.sh in namespace models: AsyncActors are not installed in this cluster; \
                 install the operator's chart, or choose another --context",
            ),
        ] {
            let answer = move |request: Request<Body>| {
                let (code, body) = match request.uri().path().rsplit('/').next() {
                    Some("asyncactors") => (200, r#"{"metadata": {}, "items": []}"#),
                    Some("models") => (200, r#"{"metadata": {"name": "models"}}"#),
                    _ => (404, answer_without_actor),
                };
                let body = Body::from(body.as_bytes().to_vec());
                let response = Response::builder().status(code).body(body);
                async move { response.map_err(tower::BoxError::from) }
            };
            let cluster = Cluster::of(Client::new(tower::service_fn(answer), "models"));
            let failure = cluster.actor("embed").await.unwrap_err();
            assert_eq!(failure.to_string(), expected);
        }
    }
}
