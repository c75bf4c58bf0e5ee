//! What the clients of HTTP have in common: TLS, proxies, and agents of `ureq` that do nothing on their own.
//!
//! Invariants:
//! - There is one library of TLS and one of cryptography, whoever asks.
//! - An agent follows no redirect: only its user knows what another server may be told.
#![forbid(unsafe_code)]

mod proxies;

use std::sync::Arc;

use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;

pub use proxies::Proxies;

/// Which servers are believed to be who they say.
#[derive(Clone, Debug)]
pub struct Trust {
    /// Whether certificates are verified at all.
    pub verify: bool,
    /// Whether the system's authorities count.
    pub system: bool,
    /// More authorities.
    pub more: Vec<Certificate<'static>>,
}

impl Default for Trust {
    fn default() -> Trust {
        Trust {
            verify: true,
            system: true,
            more: Vec::new(),
        }
    }
}

impl Trust {
    fn tls(self) -> TlsConfig {
        // Certificates that cannot be read are as if they were not there.
        let found = match self.verify && self.system {
            true => rustls_native_certs::load_native_certs().certs,
            false => Vec::new(),
        };
        let found = found.iter();
        let system = found.map(|der| Certificate::from_der(der).to_owned());
        TlsConfig::builder()
            .root_certs(RootCerts::from(system.chain(self.more)))
            .disable_verification(!self.verify)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build()
    }
}

/// Settings of an agent, without time limits and without a proxy: a request has the one of [`Proxies::of`].
/// Statuses are no errors. The certificates of the system are read now.
pub fn agent(trust: Trust) -> ConfigBuilder<AgentScope> {
    ureq::Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .proxy(None)
        .user_agent(concat!("throughline/", env!("CARGO_PKG_VERSION")))
        .tls_config(trust.tls())
}
