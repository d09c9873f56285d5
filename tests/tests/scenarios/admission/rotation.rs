//! A rotation of the webhook's CA, forced from outside.

use asya_certs::data::CA_KEY;
use asya_certs::parsed_secret::ParsedSecret;
use asya_certs::secret::TlsSecret;
use asya_certs::store::ca_secret_name;
use asya_tests::Result;
use asya_tests::eventually::{check, eventually};
use asya_tests::operator::Operator;
use kube::Api;
use kube::api::PostParams;

use super::WAIT;

const SECRET: &str = "asya-operator-webhook-tls";

/// Forces a new CA, and waits until it has signed the serving certificate.
pub(super) async fn of(operator: &Operator) -> Result<()> {
    let secrets: Api<TlsSecret> =
        Api::namespaced(operator.cluster().client(), operator.namespace());
    let read = async || -> Result<TlsSecret, kube::Error> {
        let mut secret = secrets.get(SECRET).await?;
        let keys = secrets.get_opt(&ca_secret_name(SECRET)).await?;
        if let Some(keys) = keys {
            secret.data = secret.data.with_ca_keys(&keys.data);
        }
        Ok(secret)
    };
    let secret = read().await?;
    let current_ca = |secret: &ParsedSecret| {
        secret
            .current_ca
            .as_ref()
            .map(|it| it.certificate.fingerprint)
            .ok()
    };
    let before = current_ca(&secret.parsed());
    // A CA without its key cannot sign, so it is replaced. The operator may write at the same time.
    eventually("the key is lost", WAIT, async || {
        let mut secret = read().await?;
        secret.data.set(CA_KEY, "lost");
        let params = PostParams::default();
        secrets.replace(SECRET, &params, &secret).await?;
        Ok(())
    })
    .await?;
    eventually("a new CA signs", WAIT, async || {
        let parsed = read().await?.parsed();
        let issuer = parsed.leaf.as_ref().ok().and_then(|it| it.issuer.as_ref());
        let now = current_ca(&parsed);
        let done = now.is_some() && now != before && issuer.map(|it| it.fingerprint) == now;
        check(done && parsed.next.is_none(), format_args!("{now:?}"))
    })
    .await
}
