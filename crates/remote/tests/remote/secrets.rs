//! Secrets of URLs: a user and a password are sent as the server asks for them, and nothing of a URL goes to
//! another server that a redirect names.

use std::io::Write;
use std::time::Duration;

use throughline_image::ReadAt;
use throughline_remote::{Object, Options};
use throughline_testkit::objects::{Asked, Server};

const SECRET: &str = "hidden-word";
/// `u@x` and `hidden-word`.
const BASIC: &str = "Basic dUB4OmhpZGRlbi13b3Jk";

fn served() -> Server {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&vec![7; 300_000]).unwrap();
    Server::of(file)
}

fn open(url: &str) -> std::io::Result<Object> {
    let mut options = Options::default();
    options.patience = Duration::from_secs(2);
    Object::open(&url.parse().unwrap(), &options)
}

/// Opens and reads an object.
fn read(url: &str) -> std::io::Result<u8> {
    let object = open(url)?;
    let mut byte = [0];
    object.read_exact_at(&mut byte, 299_999)?;
    Ok(byte[0])
}

/// The URL with `u@x` and the secret as the password, and a signature.
fn signed(url: &str) -> String {
    let url = url.replace("//", &format!("//u%40x:{SECRET}@"));
    format!("{url}?X-Amz-Signature={SECRET}")
}

fn authorized(asked: &[Asked]) -> Vec<bool> {
    let of = |asked: &Asked| asked.header("authorization") == Some(BASIC);
    asked.iter().map(of).collect()
}

#[test]
fn a_user_and_a_password_are_sent() {
    let server = served();
    server.require_authorization(BASIC);
    assert_eq!(read(&signed(&server.url())).unwrap(), 7);
    let asked = server.take_asked();
    assert!(authorized(&asked).into_iter().all(|is| is), "{asked:?}");
    let error = read(&server.url()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    let other = signed(&server.url()).replace("hidden-", "other-");
    let error = read(&other).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert!(!error.to_string().contains("other-word"), "{error}");
}

#[test]
fn the_same_server_is_still_told_after_a_redirect() {
    let server = served();
    server.require_authorization(BASIC);
    server.redirect("folder", "/elsewhere/disk.img");
    assert_eq!(read(&signed(&server.url())).unwrap(), 7);
    let asked = server.take_asked();
    assert!(asked.iter().any(|it| it.path == "/elsewhere/disk.img"));
    assert!(authorized(&asked).into_iter().all(|is| is), "{asked:?}");
}

/// On another port of this machine; it asks for the headers of another server, too.
#[test]
fn another_server_is_told_nothing_after_a_redirect() {
    let (first, second, third) = (served(), served(), served());
    for (from, to) in [(&first, &second), (&second, &third)] {
        from.redirect("folder", &to.url().replace("//", "//given:away@"));
    }
    assert_eq!(read(&signed(&first.url())).unwrap(), 7);
    assert!(authorized(&first.take_asked()).into_iter().all(|is| is));
    for server in [second, third] {
        let asked = server.take_asked();
        assert!(asked.len() >= 2, "{asked:?}");
        for it in &asked {
            assert!(!format!("{it:?}").contains(SECRET), "{it:?}");
            let kept = [
                "host",
                "range",
                "if-match",
                "user-agent",
                "accept",
                "content-length",
            ];
            let names = it.headers.iter().map(|(name, _)| name);
            let more: Vec<_> = names.filter(|name| !kept.contains(&&***name)).collect();
            assert!(more.is_empty(), "{more:?}");
        }
    }
}

/// Back from another server, nothing is sent either: that server chose where to.
#[test]
fn nothing_is_told_again_on_the_way_back() {
    let (first, second) = (served(), served());
    first.redirect("folder", &second.url());
    second.redirect("folder", &first.url_of("back"));
    assert_eq!(read(&signed(&first.url())).unwrap(), 7);
    let asked = first.take_asked();
    let back = asked.iter().filter(|it| it.path.contains("back"));
    let told: Vec<_> = back.map(|it| it.header("authorization")).collect();
    assert!(
        !told.is_empty() && told.iter().all(Option::is_none),
        "{told:?}"
    );
}

#[test]
fn a_circle_of_redirects_ends() {
    let server = served();
    server.redirect("disk.img", &server.url());
    let error = read(&signed(&server.url())).unwrap_err().to_string();
    assert!(error.contains("redirects too often"), "{error}");
    assert!(!error.contains(SECRET), "{error}");
}
