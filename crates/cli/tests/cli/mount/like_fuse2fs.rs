//! The program under the name `fuse2fs`, compared with fuse2fs of e2fsprogs if that is installed.

use std::fs;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal};
use throughline_testing::program::{find, kill_group, wait as wait_child};

use super::*;
use crate::common::noise;

/// The binary under that name, in a directory of its own.
pub(super) struct Fuse2fs {
    dir: tempfile::TempDir,
}

impl Fuse2fs {
    pub(super) fn new() -> Fuse2fs {
        let dir = tempfile::tempdir().unwrap();
        ok(["-q", "install-fuse2fs", dir.path().to_str().unwrap()]);
        Fuse2fs { dir }
    }

    pub(super) fn command(&self) -> Command {
        Command::new(self.dir.path().join("fuse2fs"))
    }
}

/// The output of a program on both streams.
fn output_of(ran: &Ran) -> String {
    format!("{}{}", ran.text(), ran.stderr)
}

/// Output and exit codes are the same, except that we fail where fuse2fs exits with 0 although it did not
/// mount.
#[test]
fn it_ends_as_the_real_one_ends() {
    if skipped() {
        return;
    }
    let Some(real) = find("fuse2fs") else {
        throughline_testkit::missing!("fuse2fs is not installed");
        return;
    };
    let image = image();
    let point = Point::new(&image, "mnt");
    let text = image.sibling("text");
    fs::write(&text, "no image").unwrap();
    let (path, dir) = (image.path(), point.dir.clone());
    let (path, dir) = (path.to_str().unwrap(), dir.to_str().unwrap());
    let (none, text) = (image.sibling("none"), text.to_str().unwrap());
    let none = none.to_str().unwrap();
    let ours = Fuse2fs::new();
    // Arguments, common output, and our exit code where fuse2fs returns libfuse's meaningless 0.
    let cases: &[(&[&str], &str, Option<i32>)] = &[
        (&[], "Missing ext4 device/image", None),
        (&["-V"], "fuse2fs 1.47.0", None),
        (&["--version"], "fuse2fs 1.47.0", None),
        (&["-h"], "device/image mountpoint [options]", None),
        (&["--helpfull"], "allow_other", None),
        (&[none, dir], "No such file or directory.\n", None),
        (&[text, dir], text, None),
        (&[dir, dir], "Is a directory.\n", None),
        (&[path, dir, "-o", "offset=4096"], path, None),
        (&[path], "fuse: missing mountpoint parameter", Some(1)),
        (&[path, none], "No such file or directory", Some(1)),
        (
            &[path, dir, "-o", "bogus"],
            "fuse: unknown option `bogus'",
            Some(1),
        ),
        (&[path, dir, "-Z"], "fuse: unknown option `-Z'", Some(1)),
        (
            &[path, dir, "extra"],
            "fuse: invalid argument `extra'",
            Some(1),
        ),
    ];
    for (arguments, text, ours_alone) in cases {
        let mine = program(ours.command().args(*arguments));
        assert!(
            output_of(&mine).contains(text),
            "{arguments:?}: {}",
            output_of(&mine)
        );
        let its = program(Command::new(&real).args(*arguments));
        // Other versions may have other messages, and corrected exit codes.
        if !its.stderr.contains("1.47.0") && !version_of(&real).contains("fuse2fs 1.47.0 ") {
            continue;
        }
        assert!(
            output_of(&its).contains(text),
            "{arguments:?}: {}",
            output_of(&its)
        );
        match ours_alone {
            None => assert_eq!(mine.code, its.code, "{arguments:?}: {}", output_of(&mine)),
            Some(code) => {
                assert_eq!(its.code, Some(0), "{arguments:?}");
                assert_eq!(mine.code, Some(*code), "{arguments:?}");
            }
        }
        assert!(!point.is_mounted());
    }
}

fn version_of(program_file: &Path) -> String {
    output_of(&program(Command::new(program_file).arg("-V")))
}

/// The same mounts look the same, in the list of mounts and to programs.
#[test]
fn its_mounts_look_like_the_real_ones() {
    if skipped() {
        return;
    }
    let Some(real) = find("fuse2fs") else {
        throughline_testkit::missing!("fuse2fs is not installed");
        return;
    };
    let ours = Fuse2fs::new();
    for (options, texts) in [
        ("", &["fuse.ext4", "nosuid,nodev"][..]),
        ("ro", &["fuse.ext4"]),
        ("allow_other", &["allow_other"]),
        ("fakeroot", &["fuse.ext4"]),
        ("norecovery", &["fuse.ext4"]),
        ("noexec", &["noexec"]),
    ] {
        let mut seen = Vec::new();
        for mut command in [Command::new(&real), ours.command()] {
            let image = image();
            let point = Point::new(&image, "mnt");
            let mut command = command.arg(image.path()).arg(&point.dir);
            if !options.is_empty() {
                command = command.args(["-o", options]);
            }
            let ran = program(command);
            assert_eq!(ran.code, Some(0), "{options}: {}", output_of(&ran));
            point.wait_mounted(true);
            let all = mounts();
            let line = all.iter().find(|line| line.contains(point.str())).unwrap();
            for text in texts {
                assert!(line.contains(text), "{options}: {line}");
            }
            let path = image.path();
            assert!(line.contains(path.to_str().unwrap()), "{line}");
            let wrote = fs::write(point.path("file"), "x").is_ok();
            seen.push((wrote, point.path("lost+found").is_dir()));
            point.unmount();
            // Both servers keep running briefly after that.
            wait("no process uses the image", || {
                users_of(&image.path()).is_empty()
            });
        }
        assert_eq!(seen[0], seen[1], "{options}");
    }
}

fn start(ours: &Fuse2fs, image: &Image, point: &Point, options: &str) -> Child {
    let child = ours
        .command()
        .args(["-f", "-o", options])
        .args([&image.path(), &point.dir])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    point.wait_mounted(true);
    child
}

#[track_caller]
fn ends(mut child: Child, code: Option<i32>) {
    let status = wait_child(&mut child, LIMIT);
    if status.is_none() {
        kill_group(&mut child);
    }
    assert_eq!(status.unwrap().code(), code);
}

/// As Apptainer runs it: `-f`, an `-o` even without options, and an unmount by another process.
#[test]
fn in_the_foreground_it_ends_with_the_mount() {
    if skipped() {
        return;
    }
    let image = image();
    let ours = Fuse2fs::new();
    for options in ["", "fakeroot", "ro,fakeroot"] {
        let point = Point::new(&image, &format!("mnt{}", options.len()));
        let child = start(&ours, &image, &point, options);
        assert!(point.path("lost+found").is_dir());
        point.unmount();
        ends(child, Some(0));
        image.assert_clean();
    }
    for ending in [Signal::TERM, Signal::INT] {
        let point = Point::new(&image, &format!("mnt{ending:?}"));
        let child = start(&ours, &image, &point, "");
        fs::write(point.path("file"), "x").unwrap();
        rustix::process::kill_process(Pid::from_child(&child), ending).unwrap();
        ends(child, Some(0));
        assert!(!point.is_mounted());
        image.assert_clean();
    }
}

/// Apptainer kills it half a second after the unmount.
#[test]
fn killed_in_the_foreground_it_closes_the_image_all_the_same() {
    if skipped() {
        return;
    }
    let image = Image::new("128M", &["-t", "ext4"]);
    let ours = Fuse2fs::new();
    let point = Point::new(&image, "mnt");
    let mut child = start(&ours, &image, &point, "");
    let data = noise(30 << 20, 2);
    fs::write(point.path("file"), &data).unwrap();
    let server = point.pid();
    assert_ne!(server, i32::try_from(child.id()).unwrap());
    child.kill().unwrap();
    child.wait().unwrap();
    wait_gone(server);
    assert!(!point.is_mounted());
    image.assert_clean();
    assert!(image.contents("/file") == data);
}

/// This replaces the library that Apptainer preloads.
#[test]
fn an_offset_can_come_by_apptainers_environment() {
    if skipped() {
        return;
    }
    let image = image();
    let disk = image.sibling("disk");
    let mut bytes = vec![0; 1 << 20];
    bytes.extend(fs::read(image.path()).unwrap());
    fs::write(&disk, &bytes).unwrap();
    let point = Point::new(&image, "mnt");
    let ours = Fuse2fs::new();
    let ran = program(
        ours.command()
            .args([&disk, &point.dir])
            .env("OFFSETPRELOAD_FILE", &disk)
            .env("OFFSETPRELOAD_OFFSET", "1048576"),
    );
    assert_eq!(ran.code, Some(0), "{}", output_of(&ran));
    assert!(point.path("lost+found").is_dir());
    ok(["umount", point.str()]);
}
