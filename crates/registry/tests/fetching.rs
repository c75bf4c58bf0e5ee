//! Images of a registry that behaves, and of one that does not: the right bytes or a clear error, in bounded
//! time.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Asked, Content, MANIFEST, Reply, Server, expected, fetch, fetch_with};
use throughline_archive::Limits;
use throughline_registry::{CredentialFiles, Kind, Options};

fn nobody() -> CredentialFiles {
    CredentialFiles::default()
}

/// A server of the content, in which `change` has its way.
fn server(change: impl Fn(&Asked, Reply) -> Reply + Send + Sync + 'static) -> (Server, Content) {
    let content = Content::new();
    let own = content.clone();
    let server = Server::new(move |asked| change(asked, own.answer(asked)));
    (server, content)
}

#[track_caller]
fn is_fetched(server: &Server, content: &Content) {
    let found = fetch(&format!("{}/x", server.host), &nobody());
    assert!(found.unwrap() == expected(content));
}

#[track_caller]
fn fails(server: &Server, kind: Kind, says: &str) {
    let (found, text) = fetch(&format!("{}/x", server.host), &nobody()).unwrap_err();
    assert_eq!(found, Some(kind), "{text}");
    assert!(text.contains(says), "{text}");
}

/// By tag, by digest, and from an index: only the layers of the platform are fetched.
#[test]
fn an_image_is_what_its_layers_are() {
    let (server, content) = server(|_, reply| reply);
    let expected = expected(&content);
    for name in [
        "x",
        "x:latest",
        "x:many",
        &format!("x@{}", content.manifest),
    ] {
        let found = fetch(&format!("{}/{name}", server.host), &nobody());
        assert!(found.unwrap() == expected, "{name}");
    }
    let none = format!("{}/x:none", server.host);
    let (kind, text) = fetch(&none, &nobody()).unwrap_err();
    assert_eq!(kind, Some(Kind::NotFound));
    assert!(text.contains("manifest unknown"), "{text}");
    let digests = server
        .asked()
        .into_iter()
        .filter(|asked| asked.path.contains("manifests/"));
    assert!(
        digests
            .clone()
            .all(|asked| asked.header("accept").unwrap().contains(MANIFEST))
    );
    assert!(
        server
            .asked()
            .iter()
            .all(|asked| asked.header("authorization").is_none())
    );
}

fn keep(text: &str) -> (tempfile::TempDir, CredentialFiles) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("auth.json");
    std::fs::write(&file, text).unwrap();
    (dir, CredentialFiles::new([file]))
}

/// "user:word", in base64.
const BOTH: &str = "dXNlcjp3b3Jk";

#[test]
fn a_user_and_a_password_are_sent_when_they_are_asked_for() {
    let (server, content) = server(|asked, reply| match asked.header("authorization") {
        Some(basic) if basic == format!("Basic {BOTH}") => reply,
        _ => Reply::new(401, "").with("WWW-Authenticate", "Basic realm=\"x\""),
    });
    let name = format!("{}/x", server.host);
    let (_dir, files) = keep(&format!(
        r#"{{"auths": {{"{}": {{"auth": "{BOTH}"}}}}}}"#,
        server.host
    ));
    assert!(fetch(&name, &files).unwrap() == expected(&content));
    fails(
        &server,
        Kind::Unauthorized,
        "asks for a user and a password",
    );
    let (_dir, files) = keep(&format!(
        r#"{{"auths": {{"{}": {{"auth": "dXNlcjpvdGhlcg=="}}}}}}"#,
        server.host
    ));
    let (kind, text) = fetch(&name, &files).unwrap_err();
    assert_eq!(kind, Some(Kind::Unauthorized), "{text}");
}

/// A token for anyone, for a user, and for an identity token; one that is no longer valid is renewed.
#[test]
fn tokens_are_got_from_the_server_that_is_named() {
    let tokens = Server::new(|asked| {
        let is_user = asked.header("authorization") == Some(&format!("Basic {BOTH}"));
        let who = match asked.method.as_str() {
            "POST" if asked.body.contains("refresh_token=identity") => "known",
            _ if asked.header("authorization").is_none() => "anyone",
            _ if is_user => "user",
            _ => return Reply::new(401, r#"{"details": "incorrect username or password"}"#),
        };
        let what = asked.path.clone() + &asked.body;
        assert!(what.contains("scope=repository%3Ax%3Apull"), "{what}");
        assert!(
            what.contains("service=a%20b") || what.contains("service=a+b"),
            "{what}"
        );
        Reply::new(200, format!(r#"{{"token": "for-{who}"}}"#))
    });
    for (entry, who) in [
        ("{}".to_owned(), "anyone"),
        (format!(r#"{{"auth": "{BOTH}"}}"#), "user"),
        (r#"{"identitytoken": "identity"}"#.to_owned(), "known"),
    ] {
        let realm = format!("http://{}/token", tokens.host);
        let good = format!("Bearer for-{who}");
        let count = AtomicUsize::new(0);
        let (server, content) = server(move |asked, reply| {
            let nth = count.fetch_add(1, Ordering::Relaxed);
            let is_good = asked.header("authorization") == Some(&good);
            // The fourth is not accepted, as if it were too late.
            if is_good && nth != 3 || asked.path == "/v2/" {
                return reply;
            }
            let scope = "repository:x:pull";
            let header = format!(r#"Bearer realm="{realm}",service="a b",scope="{scope}""#);
            Reply::new(401, "").with("WWW-Authenticate", header)
        });
        let (_dir, files) = keep(&format!(r#"{{"auths": {{"{}": {entry}}}}}"#, server.host));
        let found = fetch(&format!("{}/x", server.host), &files);
        assert!(found.unwrap() == expected(&content), "{who}");
    }
    assert!(tokens.count("token") >= 6, "each was renewed once");
}

#[test]
fn a_token_server_may_be_wrong_too() {
    for (reply, kind, says) in [
        (Reply::new(200, "{}"), Kind::Damaged, "is no token"),
        (
            Reply::new(200, r#"{"token": "a\nb"}"#),
            Kind::Damaged,
            "is no token",
        ),
        (
            Reply::new(403, r#"{"details": "go away"}"#),
            Kind::Unauthorized,
            "go away",
        ),
        (
            Reply {
                is_endless: true,
                ..Reply::new(200, "")
            },
            Kind::Limit,
            "a token",
        ),
    ] {
        let tokens = Server::new(move |_| reply.clone());
        let realm = format!("Bearer realm=\"http://{}/\"", tokens.host);
        let (server, _) = server(move |asked, reply| match asked.path.as_str() {
            "/v2/" => reply,
            _ => Reply::new(401, "").with("WWW-Authenticate", realm.clone()),
        });
        fails(&server, kind, says);
    }
    let odd = [
        (
            "Bearer realm=\"file:///etc/passwd\"",
            Kind::Damaged,
            "where to get it",
        ),
        (
            "Bearer realm=\"http://token.example/\"",
            Kind::Plain,
            "without TLS",
        ),
        ("Negotiate", Kind::Unsupported, "kind of login"),
    ];
    for (header, kind, says) in odd {
        let (server, _) = server(move |asked, reply| match asked.path.as_str() {
            "/v2/" => reply,
            _ => Reply::new(401, "").with("WWW-Authenticate", header),
        });
        fails(&server, kind, says);
    }
}

/// Another port is another server.
#[test]
fn credentials_do_not_follow_a_redirect() {
    let content = Content::new();
    let own = content.clone();
    let other = Server::new(move |asked| own.answer(asked));
    let to = other.host.clone();
    let (server, _) = server(move |asked, reply| match asked.header("authorization") {
        None => Reply::new(401, "").with("WWW-Authenticate", "Basic realm=x"),
        Some(_) if asked.path.starts_with("/v2/x/blobs/") => {
            Reply::new(307, "").with("Location", format!("http://{to}{}", asked.path))
        }
        // On the same server they go along.
        Some(_) if asked.path.ends_with("/latest") => {
            Reply::new(302, "").with("Location", asked.path.replace("latest", "many"))
        }
        Some(_) => reply,
    });
    let (_dir, files) = keep(&format!(
        r#"{{"auths": {{"{}": {{"auth": "{BOTH}"}}}}}}"#,
        server.host
    ));
    let found = fetch(&format!("{}/x", server.host), &files);
    assert!(found.unwrap() == expected(&content));
    assert_eq!(other.count("blobs/"), 3);
    let secret = |asked: &Asked| asked.headers.values().any(|value| value.contains(BOTH));
    assert!(!other.asked().iter().any(secret));
}

#[test]
fn redirects_end_and_stay_where_they_may_go() {
    for (to, kind, says) in [
        (
            "/v2/x/manifests/latest",
            Kind::Damaged,
            "redirects more than",
        ),
        ("http://192.0.2.1/", Kind::Plain, "without TLS"),
        ("file:///etc/passwd", Kind::Damaged, "redirects to nowhere"),
    ] {
        let (server, _) = server(move |asked, reply| match asked.path.as_str() {
            "/v2/" => reply,
            _ => Reply::new(302, "").with("Location", to),
        });
        fails(&server, kind, says);
    }
}

/// Each path is refused the first time, one way or the other.
#[test]
fn a_busy_registry_is_asked_again() {
    let seen = Arc::new(AtomicUsize::new(0));
    let (server, content) = server(move |asked, reply| {
        let nth = seen.fetch_add(1, Ordering::Relaxed);
        match nth % 2 {
            0 if asked.path != "/v2/" => {
                let status = [429, 503, 502][nth / 2 % 3];
                Reply::new(status, "").with("Retry-After", "0")
            }
            _ => reply,
        }
    });
    is_fetched(&server, &content);
}

#[test]
fn a_registry_that_stays_busy_is_left() {
    let (server, _) = server(|asked, reply| match asked.path.as_str() {
        "/v2/" => reply,
        _ => Reply::new(503, "").with("Retry-After", "0"),
    });
    fails(&server, Kind::Busy, "status 503 (tried 5 times)");
    assert_eq!(server.count("manifests"), 5);
    let (server, _) = self::server(|asked, reply| match asked.path.as_str() {
        "/v2/" => reply,
        _ => Reply::new(429, "").with("Retry-After", "3600"),
    });
    fails(&server, Kind::Busy, "asks to wait for 3600 s");
    assert_eq!(server.count("manifests"), 1);
}

/// After a break, the next request is for the missing range. A registry without ranges sends all of the layer
/// again.
#[test]
fn a_broken_connection_is_continued() {
    for has_ranges in [true, false] {
        let (server, content) = server(move |asked, reply| {
            let mut reply = reply;
            if !has_ranges && asked.header("range").is_some() {
                return Content::new().answer(&Asked {
                    path: asked.path.clone(),
                    ..Asked::default()
                });
            }
            if asked.path.contains("blobs/") && reply.body.len() > 200_000 {
                reply.cut = Some(150_000);
            }
            reply
        });
        is_fetched(&server, &content);
        let ranges = server
            .asked()
            .into_iter()
            .filter(|asked| asked.header("range").is_some());
        assert!(ranges.count() >= 2);
    }
}

/// One that is silent counts as broken.
#[test]
fn a_silent_connection_is_continued() {
    let (server, content) = server(|asked, mut reply| {
        let is_first = asked.header("range").is_none();
        if asked.path.contains("blobs/") && reply.body.len() > 200_000 && is_first {
            (reply.cut, reply.is_silent) = (Some(150_000), true);
        }
        reply
    });
    let mut options = Options::new();
    options
        .credentials(nobody())
        .silence(Duration::from_secs(2));
    let found = fetch_with(&format!("{}/x", server.host), &options, Limits::default());
    assert!(found.unwrap() == expected(&content));
}

#[test]
fn a_connection_that_always_breaks_is_left() {
    if throughline_testkit::tier::is_too_long("waits between attempts") {
        return;
    }
    for cut in [0, 1] {
        let (server, _) = server(move |asked, mut reply| {
            if asked.path.contains("blobs/") {
                reply.cut = Some(cut);
            }
            reply
        });
        fails(&server, Kind::Unreachable, "(tried 5 times)");
    }
    let (server, _) = server(|asked, mut reply| {
        if asked.path.contains("manifests/") {
            reply.cut = Some(20);
        }
        reply
    });
    fails(&server, Kind::Unreachable, "the manifest");
}

#[test]
fn what_has_another_digest_is_refused() {
    let (server, content) = server(|asked, mut reply| {
        if asked.path.contains("blobs/") && reply.body.len() > 5000 {
            reply.body[700] ^= 1;
        }
        reply
    });
    fails(&server, Kind::Damaged, "its content is damaged");
    let by_digest = |server: &Server| {
        let name = format!("{}/x@{}", server.host, content.manifest);
        fetch(&name, &nobody()).unwrap_err()
    };
    let (server, _) = self::server(|asked, mut reply| {
        if asked.path.contains("manifests/") {
            reply.body.push(b' ');
        }
        reply
    });
    assert_eq!(by_digest(&server).0, Some(Kind::Damaged));
    let (server, _) = self::server(|asked, reply| match asked.path.contains("manifests/") {
        true => reply.with(
            "Docker-Content-Digest",
            format!("sha256:{}", "0".repeat(64)),
        ),
        false => reply,
    });
    fails(&server, Kind::Damaged, "the digest that is said");
}

#[test]
fn what_never_ends_is_cut_off() {
    let endless = |part: &'static str, least: usize| {
        server(move |asked, reply| Reply {
            is_endless: asked.path.contains(part) && reply.body.len() > least,
            ..reply
        })
    };
    let (server, _) = endless("manifests/", 0);
    fails(&server, Kind::Limit, "the manifest: more than");
    let (server, _) = endless("blobs/", 0);
    fails(&server, Kind::Limit, "the configuration: more than");
    // The bytes that the manifest says are the right ones, whatever follows them.
    let (server, content) = endless("blobs/", 1000);
    is_fetched(&server, &content);
    let (server, _) = self::server(|asked, mut reply| {
        if asked.path.contains("blobs/") && reply.body.len() > 1000 {
            reply.body.push(0);
        }
        reply
    });
    fails(&server, Kind::Damaged, "it is longer than");
    let limits = Limits {
        spool_bytes: 100_000,
        ..Limits::default()
    };
    let (server, _) = self::server(|_, reply| reply);
    let name = format!("{}/x", server.host);
    let mut options = Options::new();
    options.credentials(nobody());
    let (kind, _) = fetch_with(&name, &options, limits).unwrap_err();
    // The configuration alone was asked for.
    assert_eq!((kind, server.count("blobs/")), (Some(Kind::Limit), 1));
}

#[test]
fn what_is_not_read_is_named() {
    let (server, _) = server(|_, reply| Reply {
        headers: vec![(
            "Content-Type",
            "application/vnd.docker.distribution.manifest.v1+prettyjws".to_owned(),
        )],
        ..reply
    });
    fails(&server, Kind::Unsupported, "manifest.v1+prettyjws");
    let (server, _) = self::server(|_, mut reply| {
        reply.body = b"<html>".to_vec();
        reply
    });
    fails(&server, Kind::Damaged, "not what it should be");
}

#[test]
fn the_caller_can_stop() {
    let (server, _) = server(|_, reply| reply);
    let mut options = Options::new();
    options
        .credentials(nobody())
        .progress(|done, _| done < 100_000);
    let name = format!("{}/x", server.host);
    let (kind, _) = fetch_with(&name, &options, Limits::default()).unwrap_err();
    assert_eq!(kind, Some(Kind::Stopped));
}
