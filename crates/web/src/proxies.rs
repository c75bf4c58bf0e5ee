//! [`Proxies`]: over which server another one is reached.

use std::env;
use std::net::IpAddr;

use ureq::Proxy;

/// The proxies of the environment, or of settings.
#[derive(Clone, Debug, Default)]
pub struct Proxies {
    http: Option<Proxy>,
    https: Option<Proxy>,
    /// Hosts that are reached without.
    without: Vec<String>,
}

impl Proxies {
    /// As `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` say, or those names in upper case. What is
    /// no address of a proxy is ignored.
    pub fn of_env() -> Proxies {
        let value = |name: &str| {
            let values = [name.to_ascii_uppercase(), name.to_owned()];
            let mut values = values.iter().filter_map(|name| env::var(name).ok());
            values.find(|value| !value.is_empty())
        };
        let proxy = |name: &str| value(name).and_then(|url| Proxy::new(&url).ok());
        let all = proxy("all_proxy");
        // A program behind a web server gets the header `Proxy` of anybody by this name.
        let is_cgi = env::var_os("REQUEST_METHOD").is_some();
        let http = proxy("http_proxy").filter(|_| !is_cgi);
        Proxies {
            http: http.or_else(|| all.clone()),
            https: proxy("https_proxy").or(all),
            without: value("no_proxy")
                .map(|list| hosts(&list))
                .unwrap_or_default(),
        }
    }

    /// One for all, but for a list of hosts as `no_proxy` has it.
    pub fn one(proxy: Proxy, without: &str) -> Proxies {
        Proxies {
            http: Some(proxy.clone()),
            https: Some(proxy),
            without: hosts(without),
        }
    }

    /// The proxy for a server.
    pub fn of(&self, scheme: &str, host: &str) -> Option<Proxy> {
        let proxy = match scheme {
            "https" => &self.https,
            _ => &self.http,
        };
        let is_without = || self.without.iter().any(|entry| names(entry, host));
        proxy.clone().filter(|_| !is_without())
    }
}

fn hosts(list: &str) -> Vec<String> {
    let entries = list.split(',').map(str::trim);
    let entries = entries.filter(|entry| !entry.is_empty());
    entries.map(str::to_ascii_lowercase).collect()
}

/// Whether an entry names a host: `*` all, an address or a network itself, a domain also what is below it.
fn names(entry: &str, host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if entry == "*" {
        return true;
    }
    match host.parse::<IpAddr>() {
        Ok(address) => holds(entry, address),
        Err(_) => {
            let host = host.to_ascii_lowercase();
            let domain = entry.trim_start_matches('.');
            let below = host.strip_suffix(domain);
            !domain.is_empty() && below.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        }
    }
}

/// Whether `ADDRESS` or `ADDRESS/BITS` holds an address.
fn holds(entry: &str, address: IpAddr) -> bool {
    let (network, bits) = match entry.split_once('/') {
        Some((network, bits)) => (network, bits.parse::<u32>().ok()),
        None => (entry, Some(128)),
    };
    let (Ok(network), Some(bits)) = (network.parse::<IpAddr>(), bits) else {
        return false;
    };
    // The bits at the top of a number of 128.
    let (network, address) = match (network, address) {
        (IpAddr::V4(network), IpAddr::V4(address)) => {
            let top = |one: std::net::Ipv4Addr| u128::from(one.to_bits()) << 96;
            (top(network), top(address))
        }
        (IpAddr::V6(network), IpAddr::V6(address)) => (network.to_bits(), address.to_bits()),
        _ => return false,
    };
    let differing = (network ^ address).leading_zeros();
    differing >= bits.min(128)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_reached_without_a_proxy() {
        for (entry, host, expected) in [
            ("*", "a.io", true),
            ("a.io", "a.io", true),
            ("a.io", "A.IO", true),
            (".a.io", "a.io", true),
            ("a.io", "b.a.io", true),
            (".a.io", "b.a.io", true),
            ("a.io", "ba.io", false),
            ("b.a.io", "a.io", false),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/8", "11.1.2.3", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "127.0.0.2", false),
            ("0.0.0.1", "127.0.0.1", false),
            ("fd00::/8", "[fd12::1]", true),
            ("fd00::/8", "[fe80::1]", false),
            ("::1", "[::1]", true),
            ("10.0.0.0/x", "10.0.0.0", false),
            ("a.io", "10.0.0.1", false),
            (".", "a.io", false),
        ] {
            assert_eq!(names(entry, host), expected, "{entry} {host}");
        }
    }

    #[test]
    fn one_proxy_for_all_but_some() {
        let proxy = Proxy::new("http://proxy:3128").unwrap();
        let proxies = Proxies::one(proxy, "a.io, , 10.0.0.0/8");
        for (scheme, host, is_over) in [
            ("https", "b.io", true),
            ("http", "b.io", true),
            ("https", "a.io", false),
            ("http", "10.9.9.9", false),
        ] {
            assert_eq!(proxies.of(scheme, host).is_some(), is_over, "{host}");
        }
        assert!(Proxies::default().of("https", "b.io").is_none());
    }
}
