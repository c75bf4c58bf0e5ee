//! An image that the kernel uses is not written, and reading it prints a warning.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use throughline_testing::Mount;
use throughline_testing::program::has;
use throughline_testkit::kernel::Loop;

use crate::common::{Image, Ran, ok, run, str, throughline, tools_are_missing};

/// An image mounted by the kernel, with its journal in use.
fn mounted() -> Option<(Image, Mount)> {
    if tools_are_missing() || !throughline_testkit::tier::as_root() {
        return None;
    }
    let image = Image::ext4();
    let mount = Mount::or_skip(&image.path(), true)?;
    write(&mount, "first");
    Some((image, mount))
}

/// Writes a file through the kernel and syncs it, so that it is in the image or its journal.
fn write(mount: &Mount, name: &str) {
    let file = fs::File::create(mount.path(name)).unwrap();
    fs::write(mount.path(name), name).unwrap();
    file.sync_all().unwrap();
}

/// Asserts that the output names the user of the image and the next step.
#[track_caller]
fn assert_in_use(ran: &Ran, code: i32, mount: &Mount) {
    assert_eq!(ran.code, Some(code), "{}", ran.stderr);
    let point = mount.root().display();
    for text in [
        "in use: it is attached to /dev/loop",
        &format!("mounted at {point}"),
        &format!("umount {point}"),
    ] {
        assert!(ran.stderr.contains(text), "no {text:?}: {}", ran.stderr);
    }
}

#[test]
fn no_command_writes_what_the_kernel_has_mounted() {
    let Some((image, mount)) = mounted() else {
        return;
    };
    let file = image.sibling("file");
    fs::write(&file, "ours").unwrap();
    let (file, whole) = (str(&file).to_owned(), image.path());
    let (whole, place) = (str(&whole), image.at("/x"));
    let point = image.sibling("point");
    fs::create_dir(&point).unwrap();
    for (arguments, code) in [
        (vec!["cp", &file, &place], 1),
        (vec!["mkdir", &place], 1),
        (vec!["rm", &image.at("/first")], 1),
        (vec!["label", whole, "name"], 1),
        (vec!["mount", whole, str(&point)], 32),
        (vec!["mount", "-f", whole, str(&point)], 32),
    ] {
        assert_in_use(&run(&arguments), code, &mount);
    }
    // A journal in use is never replayed.
    let replayed = run(["replay", whole]);
    assert_eq!(replayed.code, Some(8), "{}", replayed.stderr);
    assert!(
        replayed
            .stderr
            .contains("in use: it is attached to /dev/loop"),
        "{}",
        replayed.stderr
    );
    write(&mount, "second");
    mount.close();
    image.assert_clean();
    for name in ["first", "second"] {
        assert_eq!(image.contents(&format!("/{name}")), name.as_bytes());
    }
    ok(["mkdir", &place]);
}

#[test]
fn reading_an_image_in_use_by_the_kernel_warns() {
    let Some((image, mount)) = mounted() else {
        return;
    };
    let before = fs::read(image.path()).unwrap();
    let whole = image.path();
    for arguments in [
        vec!["ls", &image.at("/")],
        vec!["info", str(&whole)],
        vec!["df", str(&whole)],
    ] {
        let ran = run(&arguments);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        assert!(
            ran.stderr.contains("in use: it is attached to /dev/loop"),
            "{}",
            ran.stderr
        );
        assert!(ran.stderr.contains("mounted at"), "{}", ran.stderr);
    }
    let quiet = run(["-q", "ls", &image.at("/")]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
    assert!(fs::read(image.path()).unwrap() == before);
    mount.close();
    image.assert_clean();
}

/// Detection needs only sysfs and procfs, which everyone can read.
#[test]
fn an_image_in_use_is_detected_without_root() {
    let Some((image, mount)) = mounted() else {
        return;
    };
    if !has(&["setpriv"]) {
        return;
    }
    fs::set_permissions(image.sibling(""), PermissionsExt::from_mode(0o755)).unwrap();
    std::os::unix::fs::chown(image.path(), Some(12345), Some(12345)).unwrap();
    // This user may have no access to the binary's directory, so the binary is passed as an open descriptor.
    let binary = fs::File::open(throughline().get_program()).unwrap();
    let ran: Ran = Command::new("setpriv")
        .args(["--reuid=12345", "--regid=12345", "--clear-groups"])
        .args(["sh", "-c", "exec /proc/self/fd/0 \"$@\"", "sh"])
        .args(["mkdir", &image.at("/x")])
        .stdin(binary)
        .output()
        .unwrap()
        .into();
    assert_in_use(&ran, 1, &mount);
    mount.close();
    image.assert_clean();
}

/// An image attached to a loop device is in use even if it is not mounted. The message says how to detach it.
#[test]
fn a_loop_device_alone_is_enough() {
    if tools_are_missing() || !throughline_testkit::tier::as_root() {
        return;
    }
    let image = Image::ext4();
    let Some(device) = Loop::new(&image.path(), &[]) else {
        return;
    };
    let node = device.node().to_owned();
    let refused = run(["mkdir", &image.at("/x")]);
    // Through the device, the image has no other user.
    let through = run(["mkdir", &format!("{node}:/through")]);
    device.detach();
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    for text in [
        &format!("attached to {node}"),
        &format!("losetup -d {node}"),
    ] {
        assert!(refused.stderr.contains(text), "{}", refused.stderr);
    }
    assert_eq!(through.code, Some(0), "{}", through.stderr);
    image.assert_clean();
    assert_eq!(ok(["ls", &image.at("/")]), "lost+found\nthrough\n");
}
