//! Flags for the webhook's certificates.

use std::time::Duration;

use asya_certs::issuer::Settings;
use clap::{ArgAction, Args};

use super::CertificateConfig;
use crate::flags::interval;

/// Names of the webhook, and how the controller manages its certificates (CERT-1).
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "a flag is named as its field")]
pub struct CertificateFlags {
    /// Name of the webhook's Service, in the operator's namespace; without it, the controller manages no certificates.
    #[arg(long)]
    pub webhook_service: Option<String>,

    /// Name of the Secret with the webhook's certificates (default: the Service's name and -tls).
    #[arg(long)]
    pub webhook_secret: Option<String>,

    /// Additional DNS names and IP addresses of the webhook's certificate, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub webhook_names: Vec<String>,

    /// Leaves the webhook's certificates to cert-manager; the operator issues none.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub webhook_cert_manager: bool,

    /// Lifetime of the webhook's CA, which is renewed after two thirds of it.
    #[arg(long, default_value = "8760h", value_parser = interval)]
    pub webhook_ca_life: Duration,

    /// Lifetime of the webhook's certificate, which is renewed after two thirds of it.
    #[arg(long, default_value = "720h", value_parser = interval)]
    pub webhook_certificate_life: Duration,

    /// Time for every API server to read a changed caBundle before the webhook serves a certificate that needs it.
    #[arg(long, default_value = "30s", value_parser = interval)]
    pub webhook_ca_spread: Duration,

    /// Maximum time that the webhook's next CA waits for an API server that reaches the webhook.
    #[arg(long, default_value = "10m", value_parser = interval)]
    pub webhook_ca_patience: Duration,

    /// Interval at which the controller checks whether certificates are due for renewal.
    #[arg(long, default_value = "1m", value_parser = interval)]
    pub webhook_certificate_check: Duration,
}

/// A lifetime that is shorter than what must fit into it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{flag} must be at least {min:?}")]
pub struct TooShort {
    flag: &'static str,
    min: Duration,
}

impl CertificateFlags {
    /// Returns the configuration of the certificates, if the webhook is installed.
    ///
    /// # Errors
    /// If a lifetime is shorter than what must fit into it.
    pub fn config(&self, namespace: &str) -> Result<Option<CertificateConfig>, TooShort> {
        let Some(service) = self.webhook_service.as_deref().filter(|it| !it.is_empty()) else {
            return Ok(None);
        };
        let second = Duration::from_secs(1);
        for (flag, value, min) in [
            (
                "webhook-certificate-check",
                self.webhook_certificate_check,
                second / 10,
            ),
            (
                "webhook-certificate-life",
                self.webhook_certificate_life,
                3 * second,
            ),
            // An old CA stays trusted for the lifetime of a certificate, and its successor must be trusted before that
            // ends.
            (
                "webhook-ca-life",
                self.webhook_ca_life,
                3 * self.webhook_certificate_life,
            ),
        ] {
            if value < min {
                return Err(TooShort { flag, min });
            }
        }
        let full = format!("{service}.{namespace}.svc");
        let own = [full.clone(), format!("{full}.cluster.local")];
        let names = own.into_iter().chain(self.webhook_names.iter().cloned());
        let secret = self.webhook_secret.clone().filter(|name| !name.is_empty());
        Ok(Some(CertificateConfig {
            namespace: namespace.to_owned(),
            secret: secret.unwrap_or_else(|| format!("{service}-tls")),
            settings: Settings {
                ca_lifetime: self.webhook_ca_life,
                leaf_lifetime: self.webhook_certificate_life,
                propagation_delay: self.webhook_ca_spread,
                ..Settings::with_defaults(names.filter(|name| !name.is_empty()).collect())
            },
            by_cert_manager: self.webhook_cert_manager,
            reachability_deadline: self.webhook_ca_patience,
            check_interval: self.webhook_certificate_check,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use asya_certs::issuer::Settings;
    use clap::Parser;

    use super::TooShort;
    use crate::app::args::Args;
    use crate::certificates::CertificateConfig;

    fn config(flags: &[&str]) -> Result<Option<CertificateConfig>, TooShort> {
        let args = Args::try_parse_from([&["asya-controller"], flags].concat()).unwrap();
        args.certificates.config("system")
    }

    /// CERT-1
    #[test]
    fn plan_follows_the_documented_defaults() {
        assert!(config(&[]).unwrap().is_none());
        assert!(config(&["--webhook-service="]).unwrap().is_none());
        let flags = [
            "--webhook-service=hook",
            "--webhook-names=a.example,10.0.0.1",
        ];
        let config = config(&flags).unwrap().unwrap();
        assert_eq!(
            (&*config.namespace, &*config.secret),
            ("system", "hook-tls")
        );
        assert_eq!(config.check_interval, Duration::from_mins(1));
        assert!(!config.by_cert_manager);
        let names = [
            "hook.system.svc",
            "hook.system.svc.cluster.local",
            "a.example",
            "10.0.0.1",
        ];
        assert_eq!(
            config.settings,
            Settings::with_defaults(names.map(str::to_owned).into())
        );
    }

    #[test]
    fn too_short_lifetimes_are_rejected() {
        for (flag, valid, invalid) in [
            ("webhook-certificate-check", "100ms", "99ms"),
            ("webhook-certificate-life", "3s", "2s"),
            ("webhook-ca-life", "2160h", "2159h"),
        ] {
            let config_with =
                |value| config(&["--webhook-service=hook", &format!("--{flag}={value}")]);
            assert!(config_with(valid).is_ok(), "{flag}");
            let error = config_with(invalid).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
    }
}
