//! Secrets of URLs: a password and a signature are seen nowhere, whoever looks and however they were given;
//! and they reach the server that they are for, and no other. Redirects are tested further in the crate
//! `remote`.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use throughline_testkit::objects::{Fault, Server};

use crate::common::{Image, Ran, good, ok, throughline, tools_are_missing};
use crate::objects::{Stored, stored};

mod mounts;

/// In the password and in the signature.
const SECRET: &str = "concealed-word";
/// The user `somebody` and the password, as the server is told them.
const BASIC: &str = "Basic c29tZWJvZHk6Y29uY2VhbGVkLXdvcmQ=";

/// The whole URL of the object, which alone is served.
fn whole(stored: &Stored) -> String {
    whole_with(stored, SECRET, BASIC)
}

fn whole_with(stored: &Stored, secret: &str, basic: &str) -> String {
    stored.server.require(&format!("?sig={secret}&more=1"));
    stored.server.require_authorization(basic);
    let url = stored.server.url();
    let url = url.replace("//", &format!("//somebody:{secret}@"));
    format!("{url}?sig={secret}&more=1")
}

#[track_caller]
fn assert_none(what: &str, bytes: &[u8]) {
    for secret in [SECRET, BASIC, mounts::SECRET, mounts::BASIC] {
        let mut windows = bytes.windows(secret.len());
        let found = windows.any(|window| window == secret.as_bytes());
        assert!(!found, "{what}: {}", String::from_utf8_lossy(bytes));
    }
}

/// While it runs, too: in its list of arguments and in its environment.
#[test]
fn a_command_that_runs_shows_no_secret() {
    if tools_are_missing() {
        return;
    }
    let stored = stored();
    let url = whole(&stored);
    stored.server.fail_always(Some(Fault::Silent));
    let place = format!("{url}:/etc");
    let mut running = stored.command(&["ls", &place]);
    running.stdout(Stdio::null()).stderr(Stdio::null());
    let mut running = running.spawn().unwrap();
    // At its first request, it has executed itself anew, and still runs.
    let until = Instant::now() + Duration::from_secs(60);
    while stored.server.asked_count() == 0 {
        assert!(Instant::now() < until, "nothing is asked for");
        std::thread::sleep(Duration::from_millis(1));
    }
    let of = |name: &str| fs::read(format!("/proc/{}/{name}", running.id())).unwrap();
    let line = String::from_utf8(of("cmdline")).unwrap();
    assert_none("its arguments", line.as_bytes());
    assert!(
        line.contains("ls\0") && line.contains("/folder/disk.img"),
        "{line:?}"
    );
    assert_none("its environment", &of("environ"));
    stored.server.fail_always(Some(Fault::Closed));
    running.wait().unwrap();
}

/// Standard output and standard error of each command that names such an image.
#[test]
fn no_command_prints_a_secret() {
    if tools_are_missing() {
        return;
    }
    let stored = stored();
    let url = whole(&stored);
    let host = stored.image.sibling("copied");
    let host = host.to_str().unwrap();
    let over = stored.image.sibling("over.qcow2");
    let over = over.to_str().unwrap();
    let at = |path: &str| format!("{url}:{path}");
    let (root, motd, none) = (at("/"), at("/etc/motd"), at("/none"));
    let elsewhere = url.replace("folder", "nowhere").replace("disk", "else");
    let part = format!("{url}@7:/");
    let mut wrong = Vec::new();
    for (arguments, works) in [
        (vec!["info", &url], true),
        (vec!["info", "--json", &url], true),
        (vec!["ls", "-l", &root], true),
        (vec!["ls", &none], false),
        (vec!["ls", &part], false),
        (vec!["ls", &url], false),
        (vec!["ls", "--no-such-option", &root], false),
        (vec!["ls", "--cache", &url, &root], false),
        (vec!["stat", &motd], true),
        (vec!["stat", "--json", &motd], true),
        (vec!["cat", &none], false),
        (vec!["find", &root, "-name", "motd"], true),
        (vec!["tree", &root], true),
        (vec!["du", &root], true),
        (vec!["df", &url], true),
        (vec!["df", "--json", &url], true),
        (vec!["tar", &at("/etc"), "-o", host], true),
        (vec!["cp", "-v", &motd, host], true),
        (vec!["getfattr", "-d", &motd], true),
        (vec!["getfacl", &motd], true),
        (vec!["lsattr", &motd], true),
        (vec!["readlink", &motd], false),
        (vec!["label", &url], true),
        (vec!["uuid", &url], true),
        (vec!["tune", &url], true),
        (vec!["explain", "cat", &motd], true),
        (vec!["explain", "--json", "cat", &motd], true),
        (vec!["rm", "-v", &motd], false),
        (vec!["label", &url, "new"], false),
        (vec!["resize", &url, "max"], false),
        (vec!["replay", &url], false),
        (vec!["mkfs", &url, "8M"], false),
        (vec!["pack", "/etc/passwd", "-o", &url], false),
        (vec!["pack", &url, "-o", host], false),
        (vec!["shell", &url, "-c", "ls /none"], false),
        (vec!["mount", &url], false),
        (vec!["mount", &url, host], false),
        (vec!["mount", &url, "/", "-o", "no_such_option"], false),
        (
            vec!["cp", "-v", "--overlay", over, "/etc/passwd", &motd],
            true,
        ),
        (vec!["overlay", "diff", "--backing", &url, over], true),
        (
            vec!["overlay", "diff", "--backing", &elsewhere, over],
            false,
        ),
        (vec!["overlay", "diff", over], false),
        (vec!["overlay", "upload", over, &url], false),
        (
            vec!["overlay", "commit", "--backing", &url, over, &url],
            false,
        ),
        (vec!["overlay", "rebase", over, &elsewhere], false),
    ] {
        let _ = fs::remove_file(host);
        let arguments = [&["--log", "trace"][..], &arguments].concat();
        let ran = Ran::from(stored.command(&arguments).output().unwrap());
        let said = [ran.stdout, ran.stderr.into_bytes()].concat();
        let text = String::from_utf8_lossy(&said);
        let is_said = [SECRET, BASIC].iter().any(|secret| text.contains(secret));
        if is_said || (ran.code == Some(0)) != works {
            wrong.push(format!("{arguments:?}: {:?}: {text}", ran.code));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert_none("the overlay", &fs::read(over).unwrap());
}

/// Words that look like URLs with secrets and are none of images come through as they are.
#[test]
fn other_words_are_not_changed() {
    if tools_are_missing() {
        return;
    }
    let image = Image::ext4();
    let word = format!("https://somebody:{SECRET}@host/a?b=c,d 'e'");
    ok(["ln", "-s", &word, &image.at("/link")]);
    assert_eq!(ok(["readlink", &image.at("/link")]), format!("{word}\n"));
    let odd = OsStr::from_bytes(b"https://u:p@h/\xff?\xfe");
    good(
        throughline()
            .args(["ln", "-s"])
            .arg(odd)
            .arg(image.at("/odd")),
    );
    let read = good(throughline().args(["readlink", &image.at("/odd")]));
    assert_eq!(read.stdout, [odd.as_bytes(), b"\n"].concat());
    // What another program was handed over is not taken for the words of this one.
    let mut command = throughline();
    command.args(["readlink", &image.at("/link")]);
    command.env("THROUGHLINE_ARGUMENTS_FD", "0");
    assert_eq!(good(&mut command).text(), format!("{word}\n"));
}

/// An overlay keeps no secret, and is opened again with one from anywhere.
#[test]
fn an_overlay_is_opened_again_with_a_secret_of_the_environment() {
    if tools_are_missing() {
        return;
    }
    let stored = stored();
    let (url, bare) = (whole(&stored), stored.server.url());
    let [over, new] = ["over.qcow2", "new"].map(|name| stored.image.sibling(name));
    let (over, new) = (over.to_str().unwrap(), new.to_str().unwrap());
    fs::write(new, "new\n").unwrap();
    let at = format!("{bare}:/etc/new");
    let known = |arguments: &[&str]| {
        let mut command = stored.command(arguments);
        Ran::from(command.env("THROUGHLINE_URLS", &url).output().unwrap())
    };
    let made = known(&["cp", "--overlay", over, new, &at]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    assert_none("the overlay", &fs::read(over).unwrap());
    let inside = format!("{over}:/etc/new");
    for arguments in [
        vec!["cat", "--overlay", over, &at],
        vec!["cat", "--backing", &bare, &inside],
    ] {
        let ran = known(&arguments);
        assert_eq!(ran.text(), "new\n", "{}", ran.stderr);
    }
    assert_eq!(
        stored.good(&["cat", "--backing", &url, &inside]).text(),
        "new\n"
    );
    // It knows that the URL was another one: nothing is asked for without that.
    stored.server.take_requests();
    let said = stored.fails(&["cat", "--backing", &bare, &inside]);
    assert!(said.contains("THROUGHLINE_URLS"), "{said}");
    assert_eq!(stored.server.asked_count(), 0);
}

/// What is wrong with the secrets is said without them.
#[test]
fn secrets_that_are_not_in_order_are_refused() {
    if tools_are_missing() {
        return;
    }
    let stored = stored();
    let file = stored.image.sibling("urls");
    fs::write(&file, format!("\n{SECRET}\n")).unwrap();
    let none = stored.image.sibling("none");
    let (file, none) = (file.to_str().unwrap(), none.to_str().unwrap());
    for (variable, value, says) in [
        ("THROUGHLINE_URLS", SECRET, "word 1 is no URL"),
        ("THROUGHLINE_URLS_FILE", file, "line 2 is no URL"),
        ("THROUGHLINE_URLS_FILE", none, "No such file"),
    ] {
        let place = format!("{}:/", stored.server.url());
        let mut command = stored.command(&["ls", &place]);
        let ran = Ran::from(command.env(variable, value).output().unwrap());
        assert_eq!(ran.code, Some(1), "{variable}");
        assert!(
            ran.stderr.contains(says) && ran.stderr.contains(variable),
            "{}",
            ran.stderr
        );
        assert_none(variable, ran.stderr.as_bytes());
    }
}

/// Nor are the tokens that sign a request of S3 sent on, in whichever header they are.
#[test]
fn a_token_of_s3_is_not_sent_to_another_server() {
    if tools_are_missing() {
        return;
    }
    let stored = stored();
    let first = Server::of(fs::File::open(stored.image.path()).unwrap());
    first.redirect("disk.img", &stored.server.url());
    let endpoint = first.url().replace("/folder/disk.img", "");
    let mut command = stored.command(&["cat", "s3://bucket/disk.img:/etc/motd"]);
    command
        .env("AWS_ENDPOINT_URL", endpoint)
        .env("AWS_ALLOW_HTTP", "true")
        .env("AWS_REGION", "us-east-1")
        .env("AWS_ACCESS_KEY_ID", "tests")
        .env("AWS_SECRET_ACCESS_KEY", "password-of-tests")
        .env("AWS_SESSION_TOKEN", SECRET);
    assert_eq!(good(&mut command).text(), "hello\n");
    let of_first = first.take_asked();
    let token = |name: &str| of_first.iter().all(|it| it.header(name).is_some());
    assert!(token("x-amz-security-token") && token("authorization"));
    let of_second = stored.server.take_asked();
    assert!(!of_second.is_empty());
    for it in of_second {
        let names: Vec<_> = it.headers.iter().map(|(name, _)| name.as_str()).collect();
        let is_told = names
            .iter()
            .any(|name| name.starts_with("x-amz") || *name == "authorization");
        assert!(!is_told, "{names:?}");
        assert_none("a header", format!("{it:?}").as_bytes());
    }
}
