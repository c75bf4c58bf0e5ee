//! Mounts that succeed.

use std::fs;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use throughline_testing::program::{kill_group, wait as wait_child};
use throughline_testing::transport;

use super::*;
use crate::common::{assert_clean, noise, qemu, qemu_is_missing};

/// `./dev test --all` runs these tests on both transports.
#[test]
fn the_chosen_transport_serves() {
    if skipped() {
        return;
    }
    let over_rings = match transport::chosen().as_deref() {
        Some(transport::DEV_FUSE) => false,
        _ => transport::io_uring_is_on(),
    };
    let image = image();
    let point = mounted(&image, "");
    let kind = &point.status()["transport"]["kind"];
    assert_eq!(kind == "io_uring", over_rings, "{kind}");
}

#[test]
fn a_start_that_ends_well_has_left_a_mount() {
    if skipped() {
        return;
    }
    let image = image();
    let point = mounted(&image, "");
    assert!(point.path("lost+found").is_dir());
    let data = noise(3_000_001, 1);
    fs::write(point.path("file"), &data).unwrap();
    assert_eq!(fs::read(point.path("file")).unwrap(), data);
    ok(["umount", point.str()]);
    assert!(!point.is_mounted());
    // The image is closed when `umount` returns.
    image.assert_clean();
    assert_eq!(image.contents("/file"), data);
    assert!(point.path("").read_dir().unwrap().next().is_none());
}

#[test]
fn a_mount_can_grow_its_image_to_the_length_of_the_file() {
    if skipped() {
        return;
    }
    let image = image();
    let before = image.path().metadata().unwrap().len();
    let file = fs::File::options().write(true).open(image.path()).unwrap();
    file.set_len(before + (64 << 20)).unwrap();
    drop(file);
    let point = mounted(&image, "resize");
    let statistics = rustix::fs::statvfs(point.path("")).unwrap();
    assert!(statistics.f_blocks * statistics.f_frsize > before);
    ok(["umount", point.str()]);
    image.assert_clean();
}

/// The list of mounts shows the image and the type.
#[test]
fn the_mount_is_shown_as_ours() {
    if skipped() {
        return;
    }
    let image = image();
    let point = mounted(&image, "noexec");
    let all = mounts();
    let line = all.iter().find(|line| line.contains(point.str())).unwrap();
    let path = image.path();
    assert!(
        line.contains(&format!(" - fuse.throughline {} rw", path.display())),
        "{line}"
    );
    assert!(line.contains("nosuid,nodev,noexec"), "{line}");
    assert!(line.contains("default_permissions"), "{line}");
    ok(["umount", point.str()]);
    let named = Point::new(&image, "named");
    ok([
        "mount",
        "-v",
        "-r",
        path.to_str().unwrap(),
        named.str(),
        "-o",
        r"fsname=a\,b,subtype=x",
    ]);
    let all = mounts();
    let line = all.iter().find(|line| line.contains(named.str())).unwrap();
    assert!(line.contains(" - fuse.x a,b ro"), "{line}");
    ok(["umount", named.str()]);
}

#[test]
fn a_signal_ends_a_mount_in_the_foreground_cleanly() {
    if skipped() {
        return;
    }
    for (number, ending) in [Signal::INT, Signal::TERM, Signal::HUP]
        .into_iter()
        .enumerate()
    {
        let image = image();
        let point = Point::new(&image, "mnt");
        let path = image.path();
        let mut server = throughline()
            .args(on_transport([
                "mount",
                "-f",
                path.to_str().unwrap(),
                point.str(),
            ]))
            .spawn()
            .unwrap();
        point.wait_mounted(true);
        let data = noise(200_000, number as u64);
        fs::write(point.path("file"), &data).unwrap();
        assert_eq!(point.pid(), i32::try_from(server.id()).unwrap());
        signal(point.pid(), ending);
        let status = wait_child(&mut server, LIMIT);
        if status.is_none() {
            kill_group(&mut server);
        }
        assert_eq!(status.unwrap().code(), Some(0), "{ending:?}");
        assert!(!point.is_mounted());
        image.assert_clean();
        assert_eq!(image.contents("/file"), data);
    }
}

/// Programs that still use the mount get errors. Their earlier writes are kept.
#[test]
fn a_signal_ends_a_mount_that_is_in_use() {
    if skipped() {
        return;
    }
    let image = image();
    let point = mounted(&image, "");
    let data = noise(300_000, 7);
    fs::write(point.path("file"), &data).unwrap();
    let held = fs::File::open(point.path("file")).unwrap();
    let pid = point.pid();
    signal(pid, Signal::TERM);
    wait_gone(pid);
    assert!(!point.is_mounted());
    drop(held);
    image.assert_clean();
    assert_eq!(image.contents("/file"), data);
}

/// As with Apptainer: the image is an open descriptor of the caller, and no path leads to the file.
#[test]
fn an_image_can_be_a_descriptor() {
    if skipped() {
        return;
    }
    // A standard stream, which the server replaces, works too.
    for (form, number) in [("/proc/self/fd/3", 3), ("/dev/fd/3", 3), ("/dev/stdin", 0)] {
        let image = image();
        let point = Point::new(&image, "mnt");
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(image.path())
            .unwrap();
        let hidden = image.sibling("hidden");
        fs::rename(image.path(), &hidden).unwrap();
        // The shell passes the descriptor on under that number.
        let script = format!(
            "exec {number}<>/proc/{}/fd/{}; exec \"$0\" mount {form} \"$1\"",
            std::process::id(),
            file.as_raw_fd()
        );
        let binary = env!("CARGO_BIN_EXE_throughline");
        let ran = program(Command::new("sh").args(["-c", &script, binary, point.str()]));
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        fs::write(point.path("file"), form).unwrap();
        ok(["umount", point.str()]);
        fs::rename(&hidden, image.path()).unwrap();
        image.assert_clean();
        assert_eq!(image.contents("/file"), form.as_bytes());
    }
}

/// The same if the file was removed.
#[test]
fn a_descriptor_without_a_name_is_an_image_too() {
    if skipped() {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    let script = "exec 3<>\"$1\"; rm \"$1\"; exec \"$0\" mount /proc/self/fd/3 \"$2\"";
    let binary = env!("CARGO_BIN_EXE_throughline");
    let path = image.path();
    let ran = program(Command::new("sh").args([
        "-c",
        script,
        binary,
        path.to_str().unwrap(),
        point.str(),
    ]));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    fs::write(point.path("file"), "x").unwrap();
    let pid = point.pid();
    ok(["umount", point.str()]);
    wait_gone(pid);
}

#[test]
fn a_volume_inside_a_disk_is_mounted_at_its_offset() {
    if skipped() {
        return;
    }
    let image = image();
    let disk = image.sibling("disk");
    let mut bytes = noise(1 << 20, 3);
    bytes.extend(fs::read(image.path()).unwrap());
    fs::write(&disk, &bytes).unwrap();
    let disk = disk.to_str().unwrap();
    let point = Point::new(&image, "mnt");
    for way in [
        &["mount", "-o", "offset=2048s", disk, point.str()][..],
        &["mount", "-o", "offset=1048576", disk, point.str()],
        &["--offset", "1M", "mount", disk, point.str()],
    ] {
        ok(way);
        fs::write(point.path("file"), "inside").unwrap();
        ok(["umount", point.str()]);
    }
    fails(
        ["mount", disk, point.str()],
        32,
        &["cannot open", "-o offset=2048s"],
    );
    let after = fs::read(disk).unwrap();
    assert!(
        after[..1 << 20] == bytes[..1 << 20],
        "the bytes before the volume are unchanged"
    );
    fs::write(image.path(), &after[1 << 20..]).unwrap();
    image.assert_clean();
    assert_eq!(image.contents("/file"), b"inside");
}

/// No byte changes, and writing fails.
#[test]
fn a_mount_for_reading_changes_nothing() {
    if skipped() {
        return;
    }
    let image = image();
    let before = fs::read(image.path()).unwrap();
    for options in ["ro", "ro,noload", "norecovery"] {
        let point = Point::new(&image, options);
        let path = image.path();
        ok(["mount", "-o", options, path.to_str().unwrap(), point.str()]);
        assert!(point.path("lost+found").is_dir());
        let error = fs::write(point.path("file"), "x").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(point.status()["read_only"], true);
        ok(["umount", point.str()]);
        assert!(fs::read(&path).unwrap() == before, "{options}");
    }
    assert_clean(&image.path());
}

#[test]
fn the_log_goes_to_the_given_file() {
    if skipped() {
        return;
    }
    let image = image();
    let (a, b) = (image.sibling("a.log"), image.sibling("b.log"));
    let point = Point::new(&image, "mnt");
    let path = image.path();
    ok([
        "--log",
        "info",
        "--log-file",
        a.to_str().unwrap(),
        "mount",
        path.to_str().unwrap(),
        point.str(),
    ]);
    assert_eq!(point.status()["log"], a.to_str().unwrap());
    ok(["umount", point.str()]);
    ok([
        "mount",
        "-o",
        &format!("log=info,log_file={}", b.display()),
        path.to_str().unwrap(),
        point.str(),
    ]);
    ok(["umount", point.str()]);
    for log in [a, b] {
        let text = fs::read_to_string(&log).unwrap();
        assert!(
            text.contains("mounted") && text.contains("unmounted"),
            "{text}"
        );
    }
    fails(
        [
            "mount",
            "-o",
            "log_file=/no/such/dir/log",
            path.to_str().unwrap(),
            point.str(),
        ],
        1,
        &["cannot open the log"],
    );
}

/// Scripts read the output of the start to its end, so the server must not keep it open.
#[test]
fn the_server_does_not_hold_the_output_of_the_start() {
    if skipped() {
        return;
    }
    let image = image();
    let point = Point::new(&image, "mnt");
    let path = image.path();
    let mut start = throughline()
        .args(on_transport([
            "mount",
            "-v",
            path.to_str().unwrap(),
            point.str(),
        ]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Both streams end although the server is still running.
    let (mut out, mut err) = (String::new(), String::new());
    std::io::Read::read_to_string(&mut start.stdout.take().unwrap(), &mut out).unwrap();
    std::io::Read::read_to_string(&mut start.stderr.take().unwrap(), &mut err).unwrap();
    assert_eq!(start.wait().unwrap().code(), Some(0), "{err}");
    assert_eq!(err, "");
    assert!(out.contains("mounted on"), "{out}");
    let pid = point.pid();
    let root = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert_eq!(root, Path::new("/"));
    for fd in 0..3 {
        let stream = fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
        assert_eq!(stream, Path::new("/dev/null"), "{fd}");
    }
    ok(["umount", point.str()]);
}

#[test]
fn an_image_in_another_format_is_mounted_with_its_backing_file() {
    if skipped() {
        return;
    }
    if qemu_is_missing() {
        return;
    }
    let base = image();
    let top = base.sibling("top.qcow2");
    let name = top.to_str().unwrap();
    qemu(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "-b",
        base.str(),
        "-F",
        "raw",
        name,
    ]);
    let before = fs::read(base.path()).unwrap();
    let point = Point::new(&base, "point");
    let refused = run(["mount", name, point.str()]);
    assert!(
        refused.stderr.contains("which is not allowed"),
        "{}",
        refused.stderr
    );
    let options = format!("format=qcow2,backing={}", base.str());
    ok(["mount", "-o", &options, name, point.str()]);
    let bytes = noise(3 << 20, 4);
    fs::write(point.path("new"), &bytes).unwrap();
    assert!(fs::read(point.path("new")).unwrap() == bytes);
    // umount(1) looks whether the image was closed cleanly, by the same format and backing file.
    ok(["umount", point.str()]);
    qemu(&["check", "-q", name]);
    assert!(fs::read(base.path()).unwrap() == before);
    ok(["mount", "--backing", base.str(), name, point.str()]);
    assert!(fs::read(point.path("new")).unwrap() == bytes);
    ok(["umount", point.str()]);
}

/// What is written through a mount goes to the overlay.
#[test]
fn a_mount_writes_to_an_overlay() {
    if skipped() {
        return;
    }
    if qemu_is_missing() {
        return;
    }
    let base = image();
    let top = base.sibling("top.qcow2");
    let name = top.to_str().unwrap();
    let before = fs::read(base.path()).unwrap();
    let point = Point::new(&base, "point");
    let bytes = noise(3 << 20, 4);
    ok(["mount", "--overlay", name, base.str(), point.str()]);
    fs::write(point.path("new"), &bytes).unwrap();
    assert!(fs::read(point.path("new")).unwrap() == bytes);
    ok(["umount", point.str()]);
    qemu(&["check", "-q", name]);
    let options = format!("overlay={name}");
    ok(["mount", "-o", &options, base.str(), point.str()]);
    assert!(fs::read(point.path("new")).unwrap() == bytes);
    fs::remove_file(point.path("new")).unwrap();
    ok(["umount", point.str()]);
    qemu(&["check", "-q", name]);
    assert!(
        fs::read(base.path()).unwrap() == before,
        "the base has changed"
    );
}
