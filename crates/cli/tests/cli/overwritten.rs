//! An image is not overwritten if the user forgets `:/`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use throughline_testkit::kernel::Loop;

use crate::common::{
    Image, assert_clean, fails, noise, ok, run, run_with_input, str, throughline, tools_are_missing,
};

const MEANT: &str = "to copy into the image, write";

/// An image with a file, and a file on the host beside it.
fn image_and_file() -> (Image, PathBuf) {
    let image = Image::new("16M", &["-t", "ext4"]);
    let file = image.sibling("file");
    fs::write(&file, b"small").unwrap();
    let ran = run_with_input(["cp", "-", &image.at("/dear")], b"dear");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    (image, file)
}

/// Runs a copy, which must leave the image unchanged and suggest the probable intention.
#[track_caller]
fn refused(image: &Image, arguments: &[&str]) {
    let before = fs::read(image.path()).unwrap();
    let ran = run_with_input(arguments, b"from a stream");
    assert!(
        fs::read(image.path()).unwrap() == before,
        "{arguments:?} changed the image"
    );
    assert_eq!(ran.code, Some(1), "{arguments:?}: {}", ran.stderr);
    let root = format!("{}:/'", image.path().display());
    for part in ["not writing to", "ext volume", MEANT, &root] {
        assert!(ran.stderr.contains(part), "no {part:?} in {}", ran.stderr);
    }
}

#[test]
fn a_copy_onto_an_image_is_refused() {
    if tools_are_missing() {
        return;
    }
    let (image, file) = image_and_file();
    let (whole, file) = (image.path(), str(&file).to_owned());
    let whole = str(&whole);
    let link = image.sibling("link");
    symlink("image", &link).unwrap();
    let dear = image.at("/dear");
    for arguments in [
        vec!["cp", &file, whole],
        vec!["cp", "-f", &file, whole],
        vec!["cp", "-T", &file, whole],
        vec!["cp", "-a", &file, whole],
        vec!["cp", "-", whole],
        vec!["cp", "-q", "-", whole],
        vec!["cp", &file, &file, whole],
        vec!["cp", "-r", str(image.path().parent().unwrap()), whole],
        vec!["cp", &dear, whole],
    ] {
        refused(&image, &arguments);
    }
    // A link to the image is followed.
    let before = fs::read(whole).unwrap();
    fails(["cp", &file, str(&link)], 1, "ext volume");
    assert!(fs::read(whole).unwrap() == before);
    // If nothing would be written, nothing is refused.
    assert_eq!(run(["cp", "-n", &file, whole]).code, Some(0));
    assert!(fs::read(whole).unwrap() == before);
    fails(
        ["cp", &file, &format!("{whole}/")],
        1,
        &format!("'{whole}:/'"),
    );
    fails(
        ["cp", &file, &format!("{whole}/etc/motd")],
        1,
        &format!("{whole}:/etc/motd"),
    );
    ok(["cp", "--overwrite-image", "-q", &file, whole]);
    assert_eq!(fs::read(whole).unwrap(), b"small");
}

#[test]
fn images_in_a_directory_that_is_copied_onto_are_kept() {
    if tools_are_missing() {
        return;
    }
    let (image, _) = image_and_file();
    let (from, to) = (image.sibling("from"), image.sibling("to"));
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::create_dir_all(to.join("sub")).unwrap();
    for name in ["sub/disk.img", "sub/link.img", "sub/other"] {
        fs::write(from.join(name), b"new").unwrap();
    }
    let kept = to.join("sub/disk.img");
    fs::copy(image.path(), &kept).unwrap();
    symlink("disk.img", to.join("sub/link.img")).unwrap();
    fs::write(to.join("sub/other"), b"old").unwrap();
    let into = format!("{}/.", str(&from));
    let ran = fails(["cp", "-r", &into, str(&to)], 1, MEANT);
    assert!(ran.stderr.contains("sub/disk.img"), "{}", ran.stderr);
    assert!(fs::read(&kept).unwrap() == fs::read(image.path()).unwrap());
    // Files that are not images were copied.
    assert_eq!(fs::read(to.join("sub/other")).unwrap(), b"new");
    // With -f, a link below the target is replaced, and the image that it refers to is kept. The image itself
    // is kept too.
    fails(["cp", "-rf", &into, str(&to)], 1, MEANT);
    assert!(fs::read(&kept).unwrap() == fs::read(image.path()).unwrap());
    let one = from.join("sub/disk.img");
    fails(["cp", "-a", str(&one), str(&to.join("sub"))], 1, MEANT);
    assert_clean(&kept);
}

#[test]
fn a_disk_with_a_volume_in_a_partition_is_kept() {
    if tools_are_missing() {
        return;
    }
    let (image, file) = image_and_file();
    let disk = image.sibling("disk");
    let mut bytes = vec![0; 1 << 20];
    // One partition, starting at sector 2048.
    bytes[446 + 4] = 0x83;
    bytes[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    bytes[446 + 12..446 + 16].copy_from_slice(&32768u32.to_le_bytes());
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    bytes.extend(fs::read(image.path()).unwrap());
    fs::write(&disk, &bytes).unwrap();
    fails(["cp", str(&file), str(&disk)], 1, "in a partition");
    // Without a table, the volume is found only with --offset.
    bytes[..512].fill(0);
    fs::write(&disk, &bytes).unwrap();
    fails(
        ["cp", "--offset=1M", str(&file), str(&disk)],
        1,
        "at --offset",
    );
    assert!(fs::read(&disk).unwrap() == bytes);
}

#[test]
fn a_locked_file_is_not_overwritten() {
    if tools_are_missing() {
        return;
    }
    let (image, file) = image_and_file();
    let raw = image.sibling("raw");
    let bytes = noise(100_000, 4);
    fs::write(&raw, &bytes).unwrap();
    let held = fs::File::options()
        .read(true)
        .write(true)
        .open(&raw)
        .unwrap();
    rustix::fs::fcntl_lock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let ran = fails(["cp", str(&file), str(&raw)], 1, "is in use by process");
    let this = std::process::id().to_string();
    assert!(ran.stderr.contains(&this), "{}", ran.stderr);
    assert!(fs::read(&raw).unwrap() == bytes);
    drop(held);
    ok(["cp", "-q", str(&file), str(&raw)]);
}

/// The kernel uses the file. Only the list of loop devices shows that: it holds no ext volume and is not
/// locked.
#[test]
fn a_file_of_a_loop_device_is_not_overwritten() {
    if tools_are_missing() || !throughline_testkit::tier::as_root() {
        return;
    }
    let (image, file) = image_and_file();
    let raw = image.sibling("raw");
    let bytes = noise(1 << 20, 4);
    fs::write(&raw, &bytes).unwrap();
    let Some(device) = Loop::new(&raw, &[]) else {
        return;
    };
    let node = device.node().to_owned();
    let ran = run(["cp", str(&file), str(&raw)]);
    let unchanged = fs::read(&raw).unwrap() == bytes;
    device.detach();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains(&node), "{}", ran.stderr);
    assert!(unchanged);
}

#[test]
fn a_copy_without_an_image_prints_a_note() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("disk.img"));
    fs::write(&from, b"x").unwrap();
    let ran = run(["cp", str(&from), str(&to)]);
    assert_eq!((ran.code, ran.stderr.lines().count()), (Some(0), 1));
    assert!(
        ran.stderr.contains("no image is involved"),
        "{}",
        ran.stderr
    );
    let ran = run_with_input(["cp", "-", str(&to)], b"y");
    assert!(
        ran.stderr.contains("no image is involved"),
        "{}",
        ran.stderr
    );
    assert_eq!(fs::read(&to).unwrap(), b"y");
    ok(["cp", "-q", str(&from), str(&to)]);
    // A stream cannot be overwritten.
    assert_eq!(ok(["cp", str(&from), "-"]), "x");
}

/// Explanations and logs.
#[test]
fn explanations_and_logs_are_not_written_to_an_image() {
    if tools_are_missing() {
        return;
    }
    let (image, _) = image_and_file();
    let before = fs::read(image.path()).unwrap();
    let whole = image.path();
    let whole = str(&whole);
    let place = image.at("/");
    for arguments in [
        vec!["explain", "--to", whole, "ls", &place],
        vec!["explain", "--out", whole, "ls", &place],
        vec!["ls", "--log", "debug", "--log-file", whole, &place],
    ] {
        let ran = run(&arguments);
        assert!(
            ran.stderr.contains("not writing to"),
            "{arguments:?}: {}",
            ran.stderr
        );
        assert_ne!(ran.code, Some(0), "{arguments:?}");
        assert!(fs::read(whole).unwrap() == before, "{arguments:?}");
    }
    assert!(
        throughline()
            .args(["ls", &place])
            .status()
            .unwrap()
            .success()
    );
}
