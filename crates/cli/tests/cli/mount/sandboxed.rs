//! The sandbox of the mount's server, and mounts of untrusted images. What the sandbox refuses is judged by
//! `crates/sandbox/tests/planted.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;

use nix::libc::{SYS_landlock_create_ruleset, SYS_seccomp};
use rustix::fs::{XattrFlags, getxattr, listxattr, setxattr};
use rustix::io::Errno;
use rustix::process::Signal;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use serde_json::json;
use throughline_testkit::program::has;

use super::*;

/// One line of the status of each thread of a process.
fn of_threads(pid: i32, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let comm = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        // Threads of the kernel act for those that submitted their work.
        if comm.starts_with("iou-") {
            continue;
        }
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        found.extend(line.map(|line| line.trim().to_owned()));
    }
    assert!(!found.is_empty());
    found
}

#[test]
fn the_server_gives_up_its_rights() {
    if skipped() {
        return;
    }
    let image = image();
    let point = mounted(&image, "");
    fs::write(point.path("file"), vec![3; 3 << 20]).unwrap();
    let state = point.status()["sandbox"].clone();
    let (abi, kept) = (&state["landlock_abi"], &state["capabilities"]);
    assert!((1..=6).contains(&abi.as_u64().unwrap()), "{state}");
    let on = json!({
        "state": "on", "landlock_abi": abi, "system_calls": true, "io_uring": true, "network": "closed",
        "capabilities": kept, "missing": [],
    });
    if state["state"] != "on" {
        throughline_testkit::left_out!("this kernel lacks a part of the sandbox: {state}");
        return;
    }
    assert_eq!(state, on);
    let text = ok(["status", point.str()]);
    let line = format!("Sandbox:       on; network closed; landlock ABI {abi}\n");
    assert!(text.text().contains(&line), "{}", text.text());
    let none = "0000000000000000";
    // Without CAP_SYS_RESOURCE, limits cannot take its place.
    let nice = match kept.as_str().unwrap() {
        "sys_nice" => "0000000000800000",
        "none" => none,
        other => panic!("{other}"),
    };
    for (line, value) in [
        ("NoNewPrivs:", "1"),
        ("Seccomp:", "2"),
        ("CapPrm:", nice),
        ("CapEff:", nice),
        ("CapInh:", none),
    ] {
        for seen in of_threads(point.pid(), line) {
            assert_eq!(seen, value, "{line}");
        }
    }
    assert_eq!(fs::read(point.path("file")).unwrap(), vec![3; 3 << 20]);
    ok(["umount", point.str()]);
    image.assert_clean();
}

#[test]
fn a_server_in_the_sandbox_ends_by_a_signal_although_the_mount_is_in_use() {
    if skipped() {
        return;
    }
    let image = image();
    let point = mounted(&image, "");
    let pid = point.pid();
    let file = File::create(point.path("file")).unwrap();
    signal(pid, Signal::TERM);
    wait_gone(pid);
    point.wait_mounted(false);
    drop(file);
    image.assert_clean();
}

/// The mode is in the memory of the caller, which the keeper reads for the server.
#[test]
fn a_shutdown_loses_what_it_is_asked_to_lose() {
    if skipped() || !has(&["xfs_io"]) {
        return;
    }
    for (command, is_kept) in [("shutdown", false), ("shutdown -f", true)] {
        let image = image();
        let point = mounted(&image, "");
        let mut file = File::create(point.path("file")).unwrap();
        file.write_all(b"text").unwrap();
        drop(file);
        let ran = program(Command::new("xfs_io").args(["-x", "-c", command, point.str()]));
        assert_eq!((ran.code, &*ran.stderr), (Some(0), ""));
        point.unmount();
        wait("no process uses the image", || {
            users_of(&image.path()).is_empty()
        });
        let listed = ok(["ls", &image.at("/")]);
        assert_eq!(
            listed.text().contains("file"),
            is_kept,
            "{command}: {}",
            listed.text()
        );
    }
}

#[test]
fn the_sandbox_can_be_left_out() {
    if skipped() {
        return;
    }
    let image = image();
    let path = image.path();
    let path = path.to_str().unwrap();
    let point = Point::new(&image, "mnt");
    let words: [&[&str]; 2] = [&["--no-sandbox"], &["-o", "nosandbox"]];
    for word in words {
        ok([&["mount", path, point.str()], word].concat());
        let state = point.status()["sandbox"].clone();
        assert_eq!(
            (&state["state"], &state["network"]),
            (&json!("off"), &json!("open"))
        );
        for seen in of_threads(point.pid(), "Seccomp:") {
            assert_eq!(seen, "0");
        }
        ok(["umount", point.str()]);
    }
    image.assert_clean();
}

/// Runs a function for which a system call fails as on a kernel that does not have it, and so do the programs
/// that it starts.
fn without_call(call: i64, errno: Errno, run: impl FnOnce() + Send) {
    let filter = SeccompFilter::new(
        BTreeMap::from([(call, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(errno.raw_os_error().unsigned_abs()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let filter: BpfProgram = filter.unwrap().try_into().unwrap();
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            apply_filter(&filter).unwrap();
            run();
        });
        thread.join().unwrap();
    });
}

/// The other tests are skipped on a kernel that lacks a part of the sandbox. Here, a filter takes it away.
#[test]
fn an_untrusted_image_needs_the_whole_sandbox_and_others_say_what_is_missing() {
    if skipped() {
        return;
    }
    let image = image();
    let path = image.path();
    let point = Point::new(&image, "mnt");
    let mount = ["mount", path.to_str().unwrap(), point.str()];
    let parts = [
        ("landlock", SYS_landlock_create_ruleset, Errno::NOSYS),
        ("landlock", SYS_landlock_create_ruleset, Errno::OPNOTSUPP),
        ("seccomp", SYS_seccomp, Errno::INVAL),
    ];
    for (part, call, errno) in parts {
        without_call(call, errno, || {
            let why = [
                "cannot mount with 'untrusted'",
                "sandbox is incomplete",
                part,
            ];
            fails([&mount[..], &["-o", "untrusted"]].concat(), 2, &why);
            wait("no process uses the image", || {
                users_of(&image.path()).is_empty()
            });
            assert!(!point.is_mounted());
            let ran = run(mount);
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
            assert!(
                ran.stderr.contains("sandbox") && ran.stderr.contains(part),
                "{}",
                ran.stderr
            );
            let state = point.status()["sandbox"].clone();
            assert_eq!(state["state"], "partial", "{state}");
            assert_eq!(state["landlock_abi"] == 0, part == "landlock", "{state}");
            ok(["umount", point.str()]);
            let quiet = ok([&["--quiet"], &mount[..]].concat());
            assert_eq!(quiet.stderr, "");
            ok(["umount", point.str()]);
        });
    }
    image.assert_clean();
}

/// As `throughline mount`, and as fuse2fs.
#[test]
fn an_untrusted_image_is_only_read_and_shows_no_privileged_attributes() {
    if skipped() {
        return;
    }
    let image = image();
    let point = mounted(&image, "");
    fs::write(point.path("file"), "text").unwrap();
    let names = ["user.a", "trusted.b", "security.c"];
    for name in names {
        setxattr(point.path("file"), name, b"value", XattrFlags::empty()).unwrap();
    }
    ok(["umount", point.str()]);
    let before = fs::read(image.path()).unwrap();
    let fuse2fs = image.sibling("fuse2fs");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_throughline"), &fuse2fs).unwrap();
    let path = image.path();
    let words = [path.to_str().unwrap(), point.str(), "-o", "untrusted"];
    for by_fuse2fs in [false, true] {
        if by_fuse2fs {
            let ran = program(Command::new(&fuse2fs).args(words));
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        } else {
            ok([&["mount"][..], &words].concat());
        }
        let all = mounts();
        let line = all.iter().find(|line| line.contains(point.str())).unwrap();
        let options = line.split(' ').nth(5).unwrap();
        for option in ["ro", "nosuid", "nodev"] {
            assert!(options.split(',').any(|one| one == option), "{line}");
        }
        let file = point.path("file");
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        let refused = fs::write(&file, "other").unwrap_err();
        assert_eq!(Errno::from_io_error(&refused), Some(Errno::ROFS));
        let mut list = [0; 256];
        let len = listxattr(&file, &mut list[..]).unwrap();
        assert_eq!(&list[..len], b"user.a\0");
        let mut value = [0; 16];
        assert_eq!(getxattr(&file, "user.a", &mut value[..]).unwrap(), 5);
        for name in &names[1..] {
            let refused = getxattr(&file, *name, &mut value[..]).unwrap_err();
            assert_eq!(refused, Errno::OPNOTSUPP, "{name}");
        }
        let limits = fs::read_to_string(format!("/proc/{}/limits", point.pid())).unwrap();
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max data size"))
            .unwrap();
        assert!(!line.contains("unlimited"), "{line}");
        assert!(point.status()["cache"]["budget_bytes"].as_u64().unwrap() <= 64 << 20);
        ok(["umount", point.str()]);
    }
    assert!(
        before == fs::read(image.path()).unwrap(),
        "the image changed"
    );
}

#[test]
fn what_an_untrusted_image_may_not_have_is_refused() {
    if skipped() {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    let path = image.path();
    for option in [
        "untrusted,rw",
        "untrusted,suid",
        "untrusted,dev",
        "untrusted,kernel",
    ] {
        let words = ["mount", path.to_str().unwrap(), point.str(), "-o", option];
        fails(words, 1, &["'untrusted' implies ro, nosuid and nodev"]);
    }
    let words = [
        "mount",
        path.to_str().unwrap(),
        point.str(),
        "-o",
        "untrusted",
    ];
    for extra in [&["-o", "nosandbox"][..], &["--no-sandbox"]] {
        let words = [&words[..], extra].concat();
        fails(words, 1, &["'untrusted' needs the sandbox"]);
    }
}
