//! Environment variables and volumes of a bound pod.

pub(super) use asya_wire::env::METRICS_ADDR;

use crate::names::{
    BOUND_SOCKET_VOLUME, BOUND_TMP_VOLUME, BROKER_CA_VOLUME, NO_TOKEN_VOLUME, ROLE_TOKEN_VOLUME,
    RUNTIME_CONFIG_MAP,
};

pub(super) const TARGET_URL: &str = "ASYA_TARGET_URL";
pub(super) const HANDLER: &str = "ASYA_HANDLER";

/// Every volume name that a plan may use.
pub(super) fn volume_names() -> impl Iterator<Item = &'static str> {
    [
        BOUND_SOCKET_VOLUME,
        BOUND_TMP_VOLUME,
        RUNTIME_CONFIG_MAP,
        NO_TOKEN_VOLUME,
        ROLE_TOKEN_VOLUME,
        BROKER_CA_VOLUME,
    ]
    .into_iter()
}
