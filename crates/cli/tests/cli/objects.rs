//! Images in object storage, as every command that reads takes them: from a server on loopback, and from a
//! real S3 server (versitygw) where there is one. What servers do wrong is in the tests of the crate
//! `remote`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use throughline_testkit::objects::{Fault, Server};
use throughline_testkit::{missing, program};

use crate::common::{Image, Ran, good, throughline, tools_are_missing};
use crate::s3::S3;

/// An image of 10 GiB with some files, its server, and a cache.
pub(crate) struct Stored {
    pub(crate) image: Image,
    pub(crate) server: Server,
    pub(crate) cache: tempfile::TempDir,
}

/// Bytes of a file: the same for each number.
fn contents(number: u32, len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8 ^ number as u8)
        .collect()
}

pub(crate) fn stored() -> Stored {
    let image = Image::new("10G", &["-t", "ext4"]);
    let host = image.sibling("host");
    fs::create_dir_all(host.join("etc")).unwrap();
    fs::write(host.join("etc/motd"), "hello\n").unwrap();
    fs::write(host.join("large"), contents(7, 9 << 20)).unwrap();
    let host = host.to_str().unwrap().to_owned();
    good(throughline().args([
        "cp",
        "-r",
        &format!("{host}/etc"),
        &format!("{host}/large"),
        &image.at("/"),
    ]));
    let server = Server::of(File::open(image.path()).unwrap());
    Stored {
        image,
        server,
        cache: tempfile::tempdir().unwrap(),
    }
}

impl Stored {
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = throughline();
        command
            .args(arguments)
            .env("THROUGHLINE_CACHE", self.cache.path());
        command.env("THROUGHLINE_OBJECT_TIMEOUT", "2");
        command
    }

    /// Removes what is cached on disk. A chunk may be added meanwhile.
    pub(crate) fn forget(&self) {
        let objects = self.cache.path().join("objects");
        while fs::remove_dir_all(&objects).is_err() && objects.exists() {}
    }

    fn at(&self, path: &str) -> String {
        format!("{}:{path}", self.server.url())
    }

    #[track_caller]
    pub(crate) fn good(&self, arguments: &[&str]) -> Ran {
        good(&mut self.command(arguments))
    }

    /// The error of a command that fails.
    #[track_caller]
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let ran = Ran::from(self.command(arguments).output().unwrap());
        assert_ne!(ran.code, Some(0), "{arguments:?}: {}", ran.text());
        ran.stderr
    }
}

#[test]
fn a_large_image_is_listed_within_12_requests_and_not_fetched_again() {
    if tools_are_missing() {
        return;
    }
    let stored = stored();
    let ran = stored.good(&["ls", &stored.at("/etc")]);
    assert_eq!(ran.text(), "motd\n");
    let requests = stored.server.take_requests();
    assert!(requests.len() <= 12, "{requests:?}");
    assert_eq!(stored.good(&["ls", &stored.at("/etc")]).text(), "motd\n");
    let again = stored.server.take_requests();
    assert_eq!(again.len(), 1, "only the one that pins it: {again:?}");
    assert_eq!(again[0].0, "HEAD");
}

#[test]
fn every_command_that_reads_takes_an_object() {
    if tools_are_missing() {
        return;
    }
    let stored = stored();
    let url = stored.server.url();
    let copy = stored.image.sibling("copy");
    assert_eq!(
        stored.good(&["cat", &stored.at("/etc/motd")]).text(),
        "hello\n"
    );
    stored.good(&["cp", &stored.at("/large"), copy.to_str().unwrap()]);
    assert_eq!(fs::read(&copy).unwrap(), contents(7, 9 << 20));
    for (arguments, word) in [
        (vec!["info", &url], url.as_str()),
        (vec!["stat", &stored.at("/large")], "9437184"),
        (vec!["find", &stored.at("/"), "-name", "motd"], "/etc/motd"),
        (vec!["du", "-h", &stored.at("/large")], "9.0M"),
        (vec!["df", &url], &url),
        (vec!["tree", &stored.at("/")], "motd"),
    ] {
        let ran = stored.good(&arguments);
        assert!(ran.text().contains(word), "{arguments:?}: {}", ran.text());
    }
    assert!(stored.good(&["tar", &stored.at("/")]).stdout.len() > 9 << 20);
}

#[test]
fn what_writes_says_what_to_do_instead() {
    if tools_are_missing() {
        return;
    }
    let stored = stored();
    let url = stored.server.url();
    for arguments in [
        vec!["mkdir", &stored.at("/new")],
        vec!["rm", &stored.at("/etc/motd")],
        vec!["cp", "/etc/hostname", &stored.at("/etc")],
        vec!["label", &url, "new"],
        vec!["resize", &url, "20G"],
        vec!["replay", &url],
        vec!["mkfs", &url, "1G"],
        vec!["pack", "/etc", "-o", &url],
    ] {
        let error = stored.fails(&arguments);
        assert!(
            error.contains("only read") && error.contains("upload"),
            "{arguments:?}: {error}"
        );
    }
    let methods = stored.server.take_requests();
    assert!(
        methods
            .iter()
            .all(|(method, _)| method == "HEAD" || method == "GET")
    );
}

#[test]
fn errors_name_the_reason_and_no_credentials() {
    if tools_are_missing() {
        return;
    }
    let stored = stored();
    let secret = format!(
        "{}?sig=hidden-word",
        stored.server.url().replace("//", "//user:hidden-word@")
    );
    let place = format!("{secret}:/etc");
    assert_eq!(stored.good(&["ls", &place]).text(), "motd\n");
    for (fault, word) in [
        (Fault::Status(403), "denies access"),
        (Fault::Status(503), "no good answer within 2 s"),
        (Fault::Silent, "no good answer within 2 s"),
        (Fault::Whole, "does not serve parts"),
    ] {
        stored.forget();
        stored.server.fail_always(Some(fault));
        let error = stored.fails(&["ls", &place]);
        assert!(error.contains(word), "{fault:?}: {error}");
        assert!(!error.contains("hidden-word"), "{error}");
        stored.server.fail_always(None);
        assert_eq!(stored.good(&["ls", &place]).text(), "motd\n");
    }
    let error = stored.fails(&["ls", "s3://:/"]);
    assert!(!error.is_empty());
}

/// The judge of what has to be fetched is `debugfs`.
#[test]
fn what_is_not_read_is_not_fetched() {
    if tools_are_missing() {
        return;
    }
    const MIB: u64 = 1 << 20;
    let mut stored = stored();
    stored.image = Image::new("2G", &["-t", "ext4"]);
    let host = stored.image.sibling("host");
    fs::create_dir(&host).unwrap();
    for number in 0..40 {
        fs::write(
            host.join(format!("f{number:02}")),
            contents(number, 2 << 20),
        )
        .unwrap();
    }
    good(
        throughline()
            .arg("cp")
            .arg("-r")
            .arg(host)
            .arg(stored.image.at("/")),
    );
    stored.server.replace(
        File::open(stored.image.path()).unwrap(),
        Some("\"3\""),
        None,
    );
    stored.server.take_requests();
    // Every second file: 40 MiB of 2 GiB.
    let mut needed = BTreeSet::new();
    let mut arguments = vec!["cat".to_owned()];
    for number in (0..40).step_by(2) {
        let blocks = stored.image.debugfs(&format!("blocks /host/f{number:02}"));
        let blocks = blocks
            .split_whitespace()
            .filter_map(|block| block.parse::<u64>().ok());
        needed.extend(blocks.map(|block| block * 4096 / MIB));
        arguments.push(stored.at(&format!("/host/f{number:02}")));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let expected: Vec<u8> = (0..40)
        .step_by(2)
        .flat_map(|number| contents(number, 2 << 20))
        .collect();
    assert!(needed.len() >= 40 && stored.good(&arguments).stdout == expected);
    let ranges = stored
        .server
        .take_requests()
        .into_iter()
        .filter_map(|(_, range)| range);
    let fetched: u64 = ranges
        .map(|range| (range.end - range.start).div_ceil(MIB))
        .sum();
    let needed = needed.len() as u64;
    assert!(
        fetched * 10 <= needed * 13,
        "{fetched} chunks, {needed} hold the bytes"
    );
}

/// Also by a name of a partition.
#[test]
fn a_partition_in_an_object() {
    if tools_are_missing() {
        return;
    }
    if !program::has(&["sfdisk"]) {
        missing!("sfdisk is not installed");
        return;
    }
    let mut stored = stored();
    stored.image = Image::new("16M", &["-t", "ext4", "-L", "inner"]);
    let disk = stored.image.sibling("disk");
    stored.image.debugfs_write("mkdir here");
    let file = File::create(&disk).unwrap();
    file.set_len(64 << 20).unwrap();
    let script = stored.image.sibling("script");
    fs::write(
        &script,
        "label: gpt\nstart=2048,size=8192\nstart=16384,size=32768,name=system\n",
    )
    .unwrap();
    let mut sfdisk = program::command("sfdisk");
    sfdisk
        .arg("-q")
        .arg(&disk)
        .stdin(File::open(&script).unwrap());
    assert!(sfdisk.status().unwrap().success());
    file.write_all_at(&fs::read(stored.image.path()).unwrap(), 16384 * 512)
        .unwrap();
    stored
        .server
        .replace(File::open(&disk).unwrap(), Some("\"4\""), None);
    let url = stored.server.url();
    for name in [
        &url,
        &format!("{url}@2"),
        &format!("{url}@system"),
        &format!("{url}@inner"),
    ] {
        let ran = stored.good(&["ls", &format!("{name}:/")]);
        assert!(ran.text().contains("here"), "{name}: {}", ran.text());
    }
    assert!(
        stored
            .fails(&["ls", &format!("{url}@1:/")])
            .contains("no ext file system")
    );
    assert!(stored.good(&["info", &url]).text().contains("system"));
}

/// What is asked for is there or an error, at any time; and the mount does not end.
#[test]
fn a_mount_stays_alive_and_recovers_with_its_server() {
    if crate::mount::skipped() {
        return;
    }
    let stored = stored();
    let point = stored.image.sibling("point");
    fs::create_dir(&point).unwrap();
    let dir = point.to_str().unwrap();
    let url = stored.server.url();
    stored.good(&["mount", &url, dir]);
    let seen = (|| -> io::Result<()> {
        assert_eq!(fs::read(point.join("etc/motd"))?, b"hello\n");
        let refused = fs::write(point.join("new"), "").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
        for fault in [
            Fault::Status(503),
            Fault::Silent,
            Fault::Cut,
            Fault::Status(403),
        ] {
            stored.forget();
            stored.server.fail_always(Some(fault));
            let error = fs::read(point.join("large")).unwrap_err();
            assert_eq!(
                error.raw_os_error(),
                Some(rustix::io::Errno::IO.raw_os_error())
            );
            assert_eq!(fs::read(point.join("etc/motd"))?, b"hello\n");
            stored.server.fail_always(None);
        }
        assert_eq!(fs::read(point.join("large"))?, contents(7, 9 << 20));
        Ok(())
    })();
    stored.good(&["umount", dir]);
    seen.unwrap();
    for is_again in [false, true] {
        stored.server.take_requests();
        stored.good(&["mount", &url, dir]);
        let read = fs::read(point.join("large"));
        stored.good(&["umount", dir]);
        assert_eq!(read.unwrap(), contents(7, 9 << 20));
        let requests = stored.server.take_requests();
        let is_fetched = requests.iter().any(|(method, _)| method == "GET");
        assert!(!is_again || !is_fetched, "{requests:?}");
    }
}

/// Copies an image with its holes.
pub(crate) fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    let done = Command::new("cp")
        .arg("--sparse=always")
        .arg(from)
        .arg(to)
        .status()?;
    assert!(done.success());
    Ok(())
}

#[test]
fn a_real_server_of_s3() {
    if tools_are_missing() {
        return;
    }
    let Some(server) = S3::new() else {
        return;
    };
    let stored = stored();
    copy_sparse(&stored.image.path(), &server.path("disk.img")).unwrap();
    let cache = stored.cache.path();
    let run = |arguments: &[&str]| good(&mut server.command(cache, arguments)).text();
    assert_eq!(run(&["ls", "s3://bucket/disk.img:/etc"]), "motd\n");
    let copy = stored.image.sibling("copy");
    run(&["cp", "s3://bucket/disk.img:/large", copy.to_str().unwrap()]);
    assert_eq!(fs::read(&copy).unwrap(), contents(7, 9 << 20));
    for (name, key, word) in [
        (
            "s3://bucket/none.img:/",
            "password-of-tests",
            "no such object",
        ),
        ("s3://bucket/disk.img:/", "another-key", "denies access"),
    ] {
        let mut command = server.command(cache, &["ls", name]);
        let ran = Ran::from(command.env("AWS_SECRET_ACCESS_KEY", key).output().unwrap());
        assert!(
            ran.code != Some(0) && ran.stderr.contains(word),
            "{name}: {}",
            ran.stderr
        );
        assert!(!ran.stderr.contains(key), "{}", ran.stderr);
    }
}

/// Changes of an object go to an overlay, which fits one version of it.
#[test]
fn an_overlay_takes_changes_of_an_object() {
    if tools_are_missing() {
        return;
    }
    let stored = stored();
    let url = stored.server.url();
    let [overlay, new] = ["over.qcow2", "new"].map(|name| stored.image.sibling(name));
    let (overlay, new) = (overlay.to_str().unwrap(), new.to_str().unwrap());
    fs::write(new, "new\n").unwrap();
    stored.good(&["cp", "--overlay", overlay, new, &stored.at("/etc/new")]);
    stored.good(&["cp", "--overlay", overlay, new, &stored.at("/etc/motd")]);
    let cat = |path| stored.good(&["cat", "--overlay", overlay, &stored.at(path)]);
    assert_eq!(cat("/etc/motd").text(), "new\n");
    assert_eq!(
        stored.good(&["cat", &stored.at("/etc/motd")]).text(),
        "hello\n"
    );
    assert_eq!(
        stored
            .good(&["overlay", "diff", "--backing", &url, overlay])
            .text(),
        "M /etc/motd\nA /etc/new\n"
    );
    let requests = stored.server.take_requests();
    assert!(
        requests
            .iter()
            .all(|(method, _)| method == "GET" || method == "HEAD"),
        "{requests:?}"
    );

    // Another object by the same name.
    let other = stored.image.sibling("other");
    copy_sparse(&stored.image.path(), &other).unwrap();
    let later = "Fri, 27 Nov 2026 00:00:00 GMT";
    stored
        .server
        .replace(File::open(&other).unwrap(), Some("\"other\""), Some(later));
    let said = stored.fails(&["cat", "--overlay", overlay, &stored.at("/etc/motd")]);
    assert!(said.contains("replaced"), "{said}");
    let said = stored.fails(&["rm", "--overlay", overlay, &stored.at("/etc/motd")]);
    assert!(said.contains("replaced"), "{said}");
}
