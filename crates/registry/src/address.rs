//! Addresses of the web, as far as registries need them.

use std::net::IpAddr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Scheme, and host with port: what credentials are for.
pub(crate) fn origin(url: &str) -> (&str, String) {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let authority = authority.rsplit('@').next().unwrap_or(authority);
    let usual = match scheme {
        "https" => ":443",
        _ => ":80",
    };
    let authority = authority.to_ascii_lowercase();
    let authority = authority.strip_suffix(usual).unwrap_or(&authority);
    (scheme, authority.to_owned())
}

/// Whether a URL is one of the web that can be asked for.
pub(crate) fn is_url(url: &str) -> bool {
    let (scheme, authority) = origin(url);
    matches!(scheme, "http" | "https")
        && !authority.is_empty()
        && url.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A host without its port and brackets.
pub(crate) fn host_of(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => authority.split(':').next().unwrap_or(authority),
    }
}

/// Whether a host, perhaps with a port, is this machine.
pub(crate) fn is_loopback(authority: &str) -> bool {
    let host = host_of(authority);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Where a redirect leads.
pub(crate) fn resolve(base: &str, location: &str) -> Option<String> {
    let (scheme, rest) = base.split_once("://")?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let location = location.split('#').next().unwrap_or(location);
    let before = location.find([':', '/', '?']);
    let url = if before.is_some_and(|at| location[at..].starts_with(':')) {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        let path = rest[end..].split(['?', '#']).next().unwrap_or("/");
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        format!("{scheme}://{authority}{directory}/{location}")
    };
    is_url(&url).then_some(url)
}

/// A value in the query of a URL.
pub(crate) fn encoded(text: &str) -> String {
    const CODED: &AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    utf8_percent_encode(text, CODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_are_resolved() {
        let base = "https://a.io/v2/x/blobs/y?z=1";
        for (location, expected) in [
            ("https://b.io/q?x=1#f", Some("https://b.io/q?x=1")),
            ("/q", Some("https://a.io/q")),
            ("//b.io/q", Some("https://b.io/q")),
            ("q?u=http://c", Some("https://a.io/v2/x/blobs/q?u=http://c")),
            ("ftp://b.io/q", None),
            ("file:///etc/passwd", None),
            ("https:///q", None),
            ("https://b.io/a b", None),
        ] {
            assert_eq!(resolve(base, location).as_deref(), expected, "{location}");
        }
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        assert_eq!(origin("https://A.io:443/x"), ("https", "a.io".to_owned()));
        assert_eq!(
            origin("http://u:p@a.io:81?x"),
            ("http", "a.io:81".to_owned())
        );
        assert!(origin("http://a:1/") != origin("http://a:2/"));
        for (authority, expected) in [
            ("localhost:5000", true),
            ("127.8.9.1", true),
            ("[::1]:80", true),
            ("localhost.evil.io", false),
            ("127.0.0.1.evil.io", false),
            ("10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(authority), expected, "{authority}");
        }
        assert_eq!(encoded("a:b/c d~"), "a%3Ab%2Fc%20d~");
    }
}
