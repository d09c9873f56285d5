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
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

/// Credentials are renewed this long before they expire.
const RENEWED_BEFORE: Duration = Duration::from_mins(5);
/// How long a renewal may take while the credentials are valid.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed renewal.
const RENEWAL_PAUSE: Duration = Duration::from_secs(10);

/// A provider that caches credentials. The SDK's own cache is switched off, since it keeps them until they expire, even
/// if AWS has rejected them as expired.
#[derive(Clone)]
pub(super) struct CachedCredentials(Arc<Cache>);

struct Cache {
    source: Box<dyn ProvideCredentials>,
    current: Mutex<Option<Credentials>>,
    /// When credentials may be renewed again. Locked during a renewal, so that concurrent requests share it.
    renewal: Arc<tokio::sync::Mutex<Instant>>,
}

impl CachedCredentials {
    pub(super) fn new(source: impl ProvideCredentials + 'static) -> Self {
        Self(Arc::new(Cache {
            source: Box::new(source),
            current: Mutex::default(),
            renewal: Arc::new(tokio::sync::Mutex::new(Instant::now())),
        }))
    }

    /// Drops the cached credentials, so that the next request obtains new ones.
    pub(super) fn invalidate(&self) {
        self.0.current.lock().take();
    }

    async fn get(&self) -> Result {
        if let Some(credentials) = self.0.valid() {
            if !expires_after(&credentials, SystemTime::now() + RENEWED_BEFORE) {
                self.renew();
            }
            return Ok(credentials);
        }
        let _renewal = self.0.renewal.lock().await;
        match self.0.valid() {
            Some(credentials) => Ok(credentials),
            None => self.0.obtain().await,
        }
    }

    /// Renews the credentials in the background, so that no request waits for their source while they are valid.
    fn renew(&self) {
        let Ok(mut renewal) = self.0.renewal.clone().try_lock_owned() else {
            return;
        };
        if Instant::now() < *renewal {
            return;
        }
        let cache = self.0.clone();
        tokio::spawn(async move {
            let renewed = timeout(RENEWAL_TIMEOUT, cache.obtain()).await;
            if !matches!(renewed, Ok(Ok(_))) {
                tracing::warn!(
                    "SQS: cannot renew the credentials; they are used until they expire"
                );
                *renewal = Instant::now() + RENEWAL_PAUSE;
            }
        });
    }
}

impl Cache {
    fn valid(&self) -> Option<Credentials> {
        let current = self.current.lock();
        let is_valid = |credentials: &&Credentials| expires_after(credentials, SystemTime::now());
        current.as_ref().filter(is_valid).cloned()
    }

    async fn obtain(&self) -> Result {
        let credentials = self.source.provide_credentials().await?;
        Ok(self.current.lock().insert(credentials).clone())
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
/// or processes. The providers are built at the first request, since some of them send requests when they are built.
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
