//! Images of the format qcow2: read, written and made, beside qemu-img. The judges are `qemu-img check`,
//! `qemu-img compare`, `e2fsck -fn` and debugfs.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use throughline_testkit::program::{self, has};

use crate::common::{noise, ok, qemu, qemu_is_missing, run, tools_are_missing};

/// A directory for images; `None` if a tool is missing.
fn place() -> Option<TempDir> {
    if tools_are_missing() {
        return None;
    }
    if qemu_is_missing() {
        return None;
    }
    Some(tempfile::tempdir().unwrap())
}

/// What it says when it fails.
fn fails<'a>(arguments: impl IntoIterator<Item = &'a str>, code: i32) -> String {
    crate::common::fails(arguments, code, "throughline: ").stderr
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Makes an image with a file system.
fn made(path: &Path, options: &str, size: &str) {
    qemu(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "-o",
        options,
        text(path),
        size,
    ]);
    ok(["mkfs", "-q", text(path)]);
}

/// `qemu-img check`, and e2fsck of the disk in the image.
fn check(path: &Path) -> PathBuf {
    qemu(&["check", "-q", text(path)]);
    let raw = path.with_extension("as_raw");
    qemu(&["convert", "-O", "raw", text(path), text(&raw)]);
    let ran = program::command("e2fsck")
        .arg("-fn")
        .arg(&raw)
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    raw
}

fn at(image: &Path, path: &str) -> String {
    format!("{}:{path}", image.display())
}

#[test]
fn images_of_all_shapes_are_written() {
    let Some(folder) = place() else { return };
    let source = folder.path().join("source");
    let bytes = noise(5_000_003, 1);
    fs::write(&source, &bytes).unwrap();
    let shapes = [
        "cluster_size=4096",
        "cluster_size=64k",
        "cluster_size=2M",
        "cluster_size=64k,preallocation=metadata",
        "compat=0.10",
        "refcount_bits=1",
        "lazy_refcounts=on",
    ];
    for shape in shapes {
        let image = folder.path().join("disk.qcow2");
        made(&image, shape, "64M");
        ok(["cp", text(&source), &at(&image, "/kept")]);
        ok(["cp", text(&source), &at(&image, "/gone")]);
        ok(["rm", &at(&image, "/gone")]);
        ok(["mkdir", "-p", &at(&image, "/a/b")]);
        ok(["mv", &at(&image, "/kept"), &at(&image, "/a/b/moved")]);
        let raw = check(&image);
        let back = folder.path().join("back");
        ok(["cp", &at(&image, "/a/b/moved"), text(&back)]);
        assert!(fs::read(&back).unwrap() == bytes, "{shape}");
        // And by the other's hands.
        ok(["cp", &at(&raw, "/a/b/moved"), text(&back)]);
        assert!(fs::read(&back).unwrap() == bytes, "{shape}");
        let info = &run(["info", "--json", text(&image)]).json()[0];
        assert_eq!(info["image_format"], "qcow2");
        assert!(ok(["info", text(&image)]).contains("(qcow2)"));
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn compressed_clusters_and_snapshots_stay() {
    let Some(folder) = place() else { return };
    let image = folder.path().join("disk.qcow2");
    let packed = folder.path().join("packed.qcow2");
    made(&image, "cluster_size=64k", "64M");
    let source = folder.path().join("source");
    fs::write(&source, vec![0x41; 3_000_000]).unwrap();
    ok(["cp", text(&source), &at(&image, "/old")]);
    qemu(&["convert", "-c", "-O", "qcow2", text(&image), text(&packed)]);
    assert!(ok(["cat", &at(&packed, "/old")]).len() == 3_000_000);
    qemu(&["snapshot", "-c", "before", text(&packed)]);
    let before = folder.path().join("before.raw");
    let snapshot = |to: &Path| {
        qemu(&[
            "convert",
            "-l",
            "before",
            "-O",
            "raw",
            text(&packed),
            text(to),
        ]);
    };
    snapshot(&before);
    fs::write(&source, noise(3_000_000, 2)).unwrap();
    ok(["cp", text(&source), &at(&packed, "/old")]);
    ok(["cp", text(&source), &at(&packed, "/new")]);
    ok(["rm", &at(&packed, "/new")]);
    check(&packed);
    let after = folder.path().join("after.raw");
    snapshot(&after);
    assert!(fs::read(&before).unwrap() == fs::read(&after).unwrap());
    assert_eq!(ok(["cat", &at(&before, "/old")]), "A".repeat(3_000_000));
}

#[test]
fn backing_files_are_read_if_they_are_allowed_and_never_written() {
    let Some(folder) = place() else { return };
    let names = ["base.raw", "middle.qcow2", "top.qcow2"];
    let [base, middle, top] = names.map(|name| folder.path().join(name));
    ok(["mkfs", "-q", text(&base), "64M"]);
    let source = folder.path().join("source");
    fs::write(&source, "from the base").unwrap();
    ok(["cp", text(&source), &at(&base, "/base")]);
    let over = |below: &Path, format, image: &Path| {
        let name = below.file_name().unwrap().to_str().unwrap();
        qemu(&[
            "create",
            "-q",
            "-f",
            "qcow2",
            "-b",
            name,
            "-F",
            format,
            text(image),
        ]);
    };
    over(&base, "raw", &middle);
    let allow = text(folder.path());
    ok([
        "cp",
        "--backing",
        allow,
        text(&source),
        &at(&middle, "/middle"),
    ]);
    over(&middle, "qcow2", &top);
    let kept = [&base, &middle].map(|path| fs::read(path).unwrap());

    for more in [
        &[][..],
        &["--backing", text(&middle)],
        &["--backing", "/none"],
    ] {
        let refused = {
            let listed = at(&top, "/");
            fails(["ls", &listed].into_iter().chain(more.iter().copied()), 1)
        };
        assert!(refused.contains("which is not allowed"), "{refused}");
        assert!(refused.contains("--backing"), "{refused}");
    }
    let two = ["--backing", text(&middle), "--backing", text(&base)];
    let root = at(&top, "/");
    let listed = ok(["ls", &root].into_iter().chain(two));
    assert!(
        listed.contains("base") && listed.contains("middle"),
        "{listed}"
    );
    fs::write(&source, "on top").unwrap();
    ok(["cp", "--backing", allow, text(&source), &at(&top, "/base")]);
    assert_eq!(
        ok(["cat", "--backing", allow, &at(&top, "/base")]),
        "on top"
    );
    assert_eq!(ok(["cat", &at(&base, "/base")]), "from the base");
    check(&top);
    assert!(kept == [&base, &middle].map(|path| fs::read(path).unwrap()));

    // An image that is its own backing file, and one whose backing file is gone.
    qemu(&["rebase", "-u", "-b", "top.qcow2", "-F", "qcow2", text(&top)]);
    fails(["ls", "--backing", allow, &at(&top, "/")], 1);
    qemu(&["rebase", "-u", "-b", "gone", "-F", "raw", text(&top)]);
    let gone = fails(["ls", "--backing", allow, &at(&top, "/")], 1);
    assert!(gone.contains("No such file"), "{gone}");
}

#[test]
fn a_raw_disk_that_begins_like_another_format_is_not_guessed() {
    let Some(folder) = place() else { return };
    let raw = folder.path().join("disk.img");
    ok(["mkfs", "-q", text(&raw), "16M"]);
    let secret = folder.path().join("secret");
    fs::write(&secret, vec![b's'; 1 << 20]).unwrap();
    // As a guest would do it: a header of qcow2 with a backing file in the first bytes of its disk.
    let header = folder.path().join("header");
    qemu(&[
        "create",
        "-q",
        "-f",
        "qcow2",
        "-b",
        "secret",
        "-F",
        "raw",
        text(&header),
    ]);
    let mut bytes = fs::read(&raw).unwrap();
    bytes[..1024].copy_from_slice(&fs::read(&header).unwrap()[..1024]);
    fs::write(&raw, &bytes).unwrap();
    let refused = fails(["ls", &at(&raw, "/")], 1);
    assert!(refused.contains("--image-format raw"), "{refused}");
    assert!(ok(["ls", "--image-format", "raw", &at(&raw, "/")]).contains("lost+found"));
    // Without a volume, it is what it says; but the file that it names is not opened.
    bytes[1024..4096].fill(0);
    fs::write(&raw, &bytes).unwrap();
    let refused = fails(["ls", &at(&raw, "/")], 1);
    assert!(
        refused.contains("secret, which is not allowed"),
        "{refused}"
    );
    crate::common::fails(
        ["ls", "--image-format", "qcow", &at(&raw, "/")],
        2,
        "no such format",
    );
}

#[test]
fn what_cannot_be_right_is_refused() {
    let Some(folder) = place() else { return };
    let image = folder.path().join("disk.qcow2");
    let source = folder.path().join("source");
    fs::write(&source, "x").unwrap();
    let flagged = |flags: u8| {
        made(&image, "compat=1.1", "32M");
        let mut bytes = fs::read(&image).unwrap();
        bytes[79] = flags;
        fs::write(&image, bytes).unwrap();
    };
    for (flags, why) in [(4, "another file"), (64, "unknown")] {
        flagged(flags);
        let refused = fails(["ls", &at(&image, "/")], 1);
        assert!(refused.contains(why), "{refused}");
    }
    // What is marked as corrupt can be read.
    flagged(2);
    ok(["ls", &at(&image, "/")]);
    let refused = fails(["mkdir", &at(&image, "/x")], 1);
    assert!(refused.contains("qemu-img check -r all"), "{refused}");
    // It is not overwritten by mistake.
    let refused = fails(["cp", text(&source), text(&image)], 1);
    assert!(refused.contains("image of a disk"), "{refused}");
    flagged(0);
    let refused = fails(["mkfs", text(&image)], 1);
    assert!(refused.contains("-F"), "{refused}");
    ok(["mkfs", "-q", "-F", "-L", "anew", text(&image)]);
    assert_eq!(ok(["label", text(&image)]).trim(), "anew");
    assert!(ok(["mkfs", "-n", "-F", text(&image)]).contains("8192"));
    check(&image);
    let refused = fails(["resize", text(&image), "64M"], 1);
    assert!(refused.contains("qemu-img resize"), "{refused}");
    qemu(&["resize", "-q", text(&image), "64M"]);
    ok(["resize", text(&image), "max"]);
    check(&image);
    ok(["resize", text(&image), "24M"]);
    check(&image);
}

#[test]
fn partitions_in_an_image_are_found() {
    let Some(folder) = place() else { return };
    if !has(&["sfdisk"]) {
        throughline_testkit::missing!("sfdisk is not installed");
        return;
    }
    let [raw, image] = ["disk.raw", "disk.qcow2"].map(|name| folder.path().join(name));
    fs::File::create(&raw).unwrap().set_len(64 << 20).unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "label: gpt\nsize=16M\nname=data\n").unwrap();
    let made = program::command("sfdisk")
        .args(["-q", text(&raw)])
        .stdin(fs::File::open(&script).unwrap())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    qemu(&["convert", "-O", "qcow2", text(&raw), text(&image)]);
    let second = format!("{}@2", image.display());
    let refused = fails(["mkfs", text(&image)], 1);
    assert!(refused.contains("partitions"), "{refused}");
    ok(["mkfs", "-q", &second]);
    ok(["mkdir", &format!("{second}:/here")]);
    assert!(ok(["ls", &at(&image, "/")]).contains("here"));
    assert!(ok(["info", text(&image)]).contains("data"));
    qemu(&["check", "-q", text(&image)]);
}

#[test]
fn a_new_image_is_made() {
    let Some(folder) = place() else { return };
    let image = folder.path().join("new.qcow2");
    let make = ["mkfs", "-q", "--image-format", "qcow2", text(&image)];
    let refused = crate::common::fails(make, 2, "size");
    assert!(!image.exists(), "{refused:?}");
    ok(make.into_iter().chain(["1G"]));
    assert!(fs::metadata(&image).unwrap().len() < 64 << 20);
    assert!(qemu(&["info", text(&image)]).contains("1 GiB"));
    check(&image);
    ok(["mkdir", &at(&image, "/x")]);
    check(&image);
}

#[test]
fn an_image_that_qemu_has_open_is_not_written() {
    let Some(folder) = place() else { return };
    let image = folder.path().join("disk.qcow2");
    made(&image, "cluster_size=64k", "32M");
    let holder = fs::File::options()
        .read(true)
        .write(true)
        .open(&image)
        .unwrap();
    rustix::fs::fcntl_lock(&holder, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let refused = fails(["mkdir", &at(&image, "/x")], 1);
    assert!(refused.contains("in use"), "{refused}");
}

/// Kills a copy at some moment. What was copied before is there, and the image is as sound as a raw one.
#[test]
fn a_killed_copy_leaves_a_sound_image() {
    let Some(folder) = place() else { return };
    let [base, image] = ["base.raw", "disk.qcow2"].map(|name| folder.path().join(name));
    ok(["mkfs", "-q", text(&base), "64M"]);
    // Small clusters have many tables.
    let shape = ["cluster_size=512", "cluster_size=4096", "cluster_size=64k"];
    for (shape, kills) in shape.into_iter().zip([8, 8, 4]) {
        let _ = fs::remove_file(&image);
        qemu(&[
            "create",
            "-q",
            "-f",
            "qcow2",
            "-o",
            shape,
            "-b",
            "base.raw",
            "-F",
            "raw",
            text(&image),
        ]);
        kill_copies(
            &image,
            folder.path(),
            throughline_testkit::tier::pick(kills / 4, kills, kills),
        );
    }
}

fn kill_copies(image: &Path, folder: &Path, kills: u64) {
    let allow = text(folder);
    let source = folder.join("source");
    fs::create_dir_all(&source).unwrap();
    for number in 0..200 {
        let len = 1 + number * 397 % 30_000;
        fs::write(source.join(number.to_string()), noise(len, number as u64)).unwrap();
    }
    for kill in 0..kills {
        let target = at(image, &format!("/kept{kill}"));
        let file = source.join("7");
        ok(["cp", "--backing", allow, text(&file), &target]);
        let mut copy = crate::common::throughline()
            .args(["cp", "-r", "--backing", allow, text(&source)])
            .arg(at(image, &format!("/copy{kill}")))
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(kill * 40));
        copy.kill().unwrap();
        copy.wait().unwrap();
        // Both mend what the killed one left.
        match kill % 2 {
            0 => ok(["replay", "--backing", allow, text(image)]),
            _ => ok([
                "-q",
                "mkdir",
                "-p",
                "--backing",
                allow,
                &at(image, "/mends"),
            ]),
        };
        // 3: clusters are leaked, which a killed writer may do.
        let checked = program::command("qemu-img")
            .args(["check", "-q", text(image)])
            .output();
        let code = checked.unwrap().status.code();
        assert!(matches!(code, Some(0 | 3)), "kill {kill}: {code:?}");
        let raw = image.with_extension("as_raw");
        qemu(&["convert", "-O", "raw", text(image), text(&raw)]);
        let ran = program::command("e2fsck")
            .arg("-fn")
            .arg(&raw)
            .output()
            .unwrap();
        assert!(ran.status.success(), "kill {kill}: {ran:?}");
        let kept = ok(["ls", &at(&raw, "/")]);
        for earlier in 0..=kill {
            assert!(
                kept.contains(&format!("kept{earlier}")),
                "kill {kill}: {kept}"
            );
        }
        ok([
            "rm",
            "-rf",
            "--backing",
            allow,
            &at(image, &format!("/copy{kill}")),
        ]);
    }
}
