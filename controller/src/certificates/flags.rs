//! Flags of the webhook's certificates.

use std::time::Duration;

use asya_certs::mint::Settings;
use clap::{ArgAction, Args};

use super::Plan;
use crate::flags::interval;

/// What the webhook is called, and how its certificates are kept (CERT-1).
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "a flag is named as its field")]
pub struct CertificateFlags {
    /// Service of the webhook in the operator's namespace; without one no certificates are kept.
    #[arg(long)]
    pub webhook_service: Option<String>,

    /// Secret with the webhook's certificates (default: the Service's name and -tls).
    #[arg(long)]
    pub webhook_secret: Option<String>,

    /// Names and IP addresses that the webhook's certificate has besides its Service's, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub webhook_names: Vec<String>,

    /// Whether cert-manager makes the webhook's certificates, and the operator none.
    #[arg(long, default_value_t = false, num_args = 0..=1, default_missing_value = "true", action = ArgAction::Set)]
    pub webhook_cert_manager: bool,

    /// How long the webhook's CA lives; after two thirds of it another follows.
    #[arg(long, default_value = "8760h", value_parser = interval)]
    pub webhook_ca_life: Duration,

    /// How long the webhook's certificate lives; after two thirds of it another follows.
    #[arg(long, default_value = "720h", value_parser = interval)]
    pub webhook_certificate_life: Duration,

    /// How long every API server gets to read a changed caBundle before a certificate needs it.
    #[arg(long, default_value = "30s", value_parser = interval)]
    pub webhook_ca_spread: Duration,

    /// How long the webhook's next CA waits at most for an API server that reaches the webhook.
    #[arg(long, default_value = "10m", value_parser = interval)]
    pub webhook_ca_patience: Duration,

    /// How often the clock is compared with the certificates.
    #[arg(long, default_value = "1m", value_parser = interval)]
    pub webhook_certificate_check: Duration,
}

/// Lives that leave no time for anything.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("--{flag} must be at least {least:?}")]
pub struct TooShort {
    flag: &'static str,
    least: Duration,
}

impl CertificateFlags {
    /// How certificates are to be kept, if the webhook is installed.
    ///
    /// # Errors
    /// When a life is shorter than what must fit into it.
    pub fn plan(&self, namespace: &str) -> Result<Option<Plan>, TooShort> {
        let Some(service) = self.webhook_service.as_deref().filter(|it| !it.is_empty()) else {
            return Ok(None);
        };
        let second = Duration::from_secs(1);
        for (flag, given, least) in [
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
            // An old CA stays for the life of a certificate, and must have been followed by then.
            (
                "webhook-ca-life",
                self.webhook_ca_life,
                3 * self.webhook_certificate_life,
            ),
        ] {
            if given < least {
                return Err(TooShort { flag, least });
            }
        }
        let full = format!("{service}.{namespace}.svc");
        let own = [full.clone(), format!("{full}.cluster.local")];
        let names = own.into_iter().chain(self.webhook_names.iter().cloned());
        let secret = self.webhook_secret.clone().filter(|name| !name.is_empty());
        Ok(Some(Plan {
            namespace: namespace.to_owned(),
            secret: secret.unwrap_or_else(|| format!("{service}-tls")),
            settings: Settings {
                authority_life: self.webhook_ca_life,
                leaf_life: self.webhook_certificate_life,
                spread: self.webhook_ca_spread,
                ..Settings::of(names.filter(|name| !name.is_empty()).collect())
            },
            by_cert_manager: self.webhook_cert_manager,
            reached_within: self.webhook_ca_patience,
            look: self.webhook_certificate_check,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use asya_certs::mint::Settings;
    use clap::Parser;

    use super::TooShort;
    use crate::args::Args;
    use crate::certificates::Plan;

    fn plan(flags: &[&str]) -> Result<Option<Plan>, TooShort> {
        let args = Args::try_parse_from([&["asya-controller"], flags].concat()).unwrap();
        args.certificates.plan("system")
    }

    /// CERT-1
    #[test]
    fn certificates_are_kept_as_the_documents_say() {
        assert!(plan(&[]).unwrap().is_none());
        assert!(plan(&["--webhook-service="]).unwrap().is_none());
        let flags = [
            "--webhook-service=hook",
            "--webhook-names=a.example,10.0.0.1",
        ];
        let plan = plan(&flags).unwrap().unwrap();
        assert_eq!((&*plan.namespace, &*plan.secret), ("system", "hook-tls"));
        assert_eq!(plan.look, Duration::from_mins(1));
        assert!(!plan.by_cert_manager);
        let names = [
            "hook.system.svc",
            "hook.system.svc.cluster.local",
            "a.example",
            "10.0.0.1",
        ];
        assert_eq!(plan.settings, Settings::of(names.map(str::to_owned).into()));
    }

    #[test]
    fn lives_that_cannot_be_kept_are_refused() {
        for (flag, good, bad) in [
            ("webhook-certificate-check", "100ms", "99ms"),
            ("webhook-certificate-life", "3s", "2s"),
            ("webhook-ca-life", "2160h", "2159h"),
        ] {
            let given = |value| plan(&["--webhook-service=hook", &format!("--{flag}={value}")]);
            assert!(given(good).is_ok(), "{flag}");
            let error = given(bad).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
    }
}
