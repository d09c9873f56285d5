//! Flags of the webhook configurations.

use std::time::Duration;

use asya_shared::admission::Endpoint;
use clap::Args;

use super::WebhookConfigSettings;

/// How the API server reaches the webhook, apart from the name of its Service.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "each is the name of a flag")]
pub struct WebhookConfigFlags {
    /// Name prefix of the webhook configurations and of the `ClusterRole` that owns them; without it, the controller
    /// manages no webhook configurations.
    #[arg(long)]
    pub webhook_rules: Option<String>,

    /// Port of the webhook's Service.
    #[arg(long, default_value_t = 443)]
    pub webhook_port: u16,

    /// https://host:port of the webhook, for API servers that cannot reach its Service.
    #[arg(long)]
    pub webhook_url: Option<String>,

    /// Configured number of webhook replicas, for warnings to users.
    #[arg(long)]
    pub webhook_replicas: Option<u32>,
}

impl WebhookConfigFlags {
    /// Returns the settings of the webhook behind `service`; `None` if the webhook is not installed.
    pub fn settings(
        &self,
        service: Option<&str>,
        namespace: &str,
        propagation_delay: Duration,
    ) -> Option<WebhookConfigSettings> {
        let is_set = |text: &&str| !text.is_empty();
        let service = service.filter(is_set)?;
        let release = self.webhook_rules.as_deref().filter(is_set)?;
        let url = self.webhook_url.clone().filter(|url| !url.is_empty());
        let by_service = || Endpoint::Service {
            name: service.to_owned(),
            port: self.webhook_port,
        };
        Some(WebhookConfigSettings {
            release: release.to_owned(),
            namespace: namespace.to_owned(),
            endpoint: url.map_or_else(by_service, Endpoint::Url),
            replicas: self.webhook_replicas,
            propagation_delay,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use asya_shared::admission::Endpoint;
    use clap::Parser;

    use crate::admission::WebhookConfigSettings;
    use crate::app::args::Args;

    fn settings(flags: &[&str]) -> Option<WebhookConfigSettings> {
        let args = Args::try_parse_from([&["asya-controller"], flags].concat()).unwrap();
        let service = args.certificates.webhook_service.as_deref();
        args.webhook_configs
            .settings(service, "system", Duration::ZERO)
    }

    /// CFG-4
    #[test]
    fn webhook_is_reached_by_its_service_or_by_a_url() {
        assert_eq!(settings(&[]), None);
        assert_eq!(
            settings(&["--webhook-service=", "--webhook-rules=mine"]),
            None
        );
        assert_eq!(settings(&["--webhook-service=hook"]), None);
        let by_service = settings(&["--webhook-service=hook", "--webhook-rules=mine"]).unwrap();
        assert_eq!(
            (&*by_service.release, &*by_service.namespace),
            ("mine", "system")
        );
        let service = Endpoint::Service {
            name: "hook".to_owned(),
            port: 443,
        };
        assert_eq!(by_service.endpoint, service);
        assert_eq!(by_service.replicas, None);
        let flags = [
            "--webhook-replicas=1",
            "--webhook-service=hook",
            "--webhook-rules=mine",
            "--webhook-url=https://h:1",
        ];
        let by_url = settings(&flags).unwrap();
        assert_eq!(by_url.endpoint, Endpoint::Url("https://h:1".to_owned()));
        assert_eq!(by_url.replicas, Some(1));
    }
}
