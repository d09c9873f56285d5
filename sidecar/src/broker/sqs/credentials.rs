//! Credential sources and renewal (SC-35).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_config::Region;
use aws_config::ecs::EcsCredentialsProvider;
use aws_config::environment::EnvironmentVariableCredentialsProvider;
use aws_config::imds::credentials::ImdsCredentialsProvider;
use aws_config::meta::credentials::CredentialsProviderChain;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_credential_types::Credentials;
use aws_credential_types::provider::future::ProvideCredentials as Provided;
use aws_credential_types::provider::{ProvideCredentials, Result};
use tokio::sync::{Mutex, OnceCell};

/// How long before their expiry credentials are renewed.
const RENEWED_BEFORE: Duration = Duration::from_mins(5);

/// A provider that caches credentials. The SDK's own cache keeps them until they expire, even when AWS has rejected
/// them as expired, so it is switched off.
#[derive(Clone)]
pub(super) struct CachedCredentials(Arc<Cache>);

struct Cache {
    source: Box<dyn ProvideCredentials>,
    current: Mutex<Option<Credentials>>,
}

impl CachedCredentials {
    pub(super) fn new(source: impl ProvideCredentials + 'static) -> Self {
        Self(Arc::new(Cache {
            source: Box::new(source),
            current: Mutex::default(),
        }))
    }

    /// Drops the cached credentials, so that the next request obtains new ones.
    pub(super) async fn invalidate(&self) {
        self.0.current.lock().await.take();
    }

    async fn get(&self) -> Result {
        // Held while new credentials are obtained, so that concurrent requests obtain them once.
        let mut current = self.0.current.lock().await;
        let now = SystemTime::now();
        if let Some(credentials) = &*current
            && expires_after(credentials, now + RENEWED_BEFORE)
        {
            return Ok(credentials.clone());
        }
        match self.0.source.provide_credentials().await {
            Ok(credentials) => Ok(current.insert(credentials).clone()),
            // Keep using valid credentials while their source is unavailable.
            Err(error) => match &*current {
                Some(credentials) if expires_after(credentials, now) => Ok(credentials.clone()),
                _ => Err(error),
            },
        }
    }
}

fn expires_after(credentials: &Credentials, time: SystemTime) -> bool {
    credentials.expiry().is_none_or(|expiry| expiry > time)
}

impl ProvideCredentials for CachedCredentials {
    fn provide_credentials<'a>(&'a self) -> Provided<'a>
    where
        Self: 'a,
    {
        Provided::new(self.get())
    }
}

impl fmt::Debug for CachedCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CachedCredentials")
    }
}

/// The environment, web identity (IRSA), containers (EKS Pod Identity, ECS) and instances; no profiles, single sign-on
/// or processes. The providers are built at the first request, since some of them make requests themselves.
#[derive(Debug)]
pub(super) struct DefaultSources {
    region: Region,
    chain: OnceCell<CredentialsProviderChain>,
}

impl DefaultSources {
    pub(super) fn new(region: Region) -> Self {
        Self {
            region,
            chain: OnceCell::new(),
        }
    }

    async fn chain(&self) -> &CredentialsProviderChain {
        self.chain
            .get_or_init(|| async {
                let provider = aws_config::provider_config::ProviderConfig::default()
                    .with_region(Some(self.region.clone()));
                let web_identity = WebIdentityTokenCredentialsProvider::builder()
                    .configure(&provider)
                    .build();
                let container = EcsCredentialsProvider::builder()
                    .configure(&provider)
                    .build();
                let instance = ImdsCredentialsProvider::builder()
                    .configure(&provider)
                    .build();
                CredentialsProviderChain::first_try(
                    "Environment",
                    EnvironmentVariableCredentialsProvider::new(),
                )
                .or_else("WebIdentityToken", web_identity)
                .or_else("Container", container)
                .or_else("Instance", instance)
            })
            .await
    }
}

impl ProvideCredentials for DefaultSources {
    fn provide_credentials<'a>(&'a self) -> Provided<'a>
    where
        Self: 'a,
    {
        Provided::new(async { self.chain().await.provide_credentials().await })
    }
}
