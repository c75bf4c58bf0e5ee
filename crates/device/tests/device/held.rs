//! Files and devices that the kernel uses are not opened for writing: files attached to loop devices, devices
//! that are mounted or part of others, swap. Needs root; prints a message if skipped.

use crate::common;

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use common::loops::{Loop, run};
use throughline_device::{
    BlockDevice, HeldByKernel, KernelHolder, LockMode, OpenOptions, kernel_holder,
};
use throughline_testkit::program;

/// Opens for writing, with an exclusive lock.
fn open(path: impl AsRef<Path>) -> io::Result<Arc<dyn BlockDevice>> {
    OpenOptions::new()
        .write(true)
        .lock(LockMode::Exclusive)
        .open(path)
}

/// Checks that opening for writing is refused with [`HeldByKernel`] and these texts, that [`kernel_holder`]
/// has the same texts, and that opening for reading succeeds.
#[track_caller]
fn is_held(path: impl AsRef<Path>, texts: &[&str]) {
    let path = path.as_ref();
    let refused = open(path).err().expect("the kernel uses it");
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    let who = refused
        .get_ref()
        .and_then(|why| why.downcast_ref::<HeldByKernel>());
    let who = who.unwrap_or_else(|| panic!("{refused}"));
    let reported = kernel_holder(path)
        .expect("the same, for a reader")
        .to_string();
    for text in texts {
        assert!(who.to_string().contains(text), "no {text:?}: {who}");
        assert!(reported.contains(text), "no {text:?}: {reported}");
    }
    drop(
        OpenOptions::new()
            .lock(LockMode::Shared)
            .open(path)
            .unwrap(),
    );
}

#[track_caller]
fn is_free(path: impl AsRef<Path>) {
    assert_eq!(kernel_holder(path.as_ref()), None);
    drop(open(path).unwrap());
}

fn done(program: &str, arguments: &[&str]) -> bool {
    run(program, arguments).is_ok_and(|output| output.status.success())
}

/// A mount, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(disk: &Loop, node: &str) -> Option<Mounted> {
        let point = disk.folder.path().join("mounted");
        fs::create_dir(&point).unwrap();
        let made = done("mke2fs", &["-q", node]) && done("mount", &[node, point.to_str().unwrap()]);
        if !made {
            throughline_testkit::missing!("cannot make or mount a file system");
        }
        made.then_some(Mounted(point))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        assert!(done("umount", &[self.0.to_str().unwrap()]) || std::thread::panicking());
    }
}

#[test]
fn a_file_behind_a_loop_device_is_held() {
    let Some(disk) = Loop::new(512) else { return };
    let (node, image) = (disk.node.clone(), disk.image());
    is_held(&image, &[&format!("attached to {node}")]);
    // Under other names too, also after the name that the loop device reports was removed.
    let [link, hard] = ["link", "hard"].map(|name| disk.folder.path().join(name));
    std::os::unix::fs::symlink("image", &link).unwrap();
    fs::hard_link(&image, &hard).unwrap();
    for name in [&link, &hard] {
        is_held(name, &[&node]);
    }
    let kept = fs::File::open(&hard).unwrap();
    fs::remove_file(&image).unwrap();
    is_held(&hard, &[&node]);
    // A different file with that name and length is free.
    fs::copy(&hard, &image).unwrap();
    is_free(&image);
    is_held(&hard, &[&node]);
    drop(disk.detach());
    drop(kept);
}

#[test]
fn the_mount_point_is_reported() {
    let Some(disk) = Loop::new(512) else { return };
    let Some(mounted) = Mounted::new(&disk, &disk.node) else {
        return;
    };
    let point = mounted.0.to_str().unwrap().to_owned();
    is_held(disk.image(), &[&disk.node, &format!("mounted at {point}")]);
    is_held(&disk.node, &[&format!("mounted at {point}")]);
    drop(mounted);
    disk.wait_unmounted();
    is_held(disk.image(), &[&format!("attached to {}", disk.node)]);
    // The loop device itself is free, although its file is not.
    drop(open(&disk.node).unwrap());
    assert_eq!(kernel_holder(Path::new(&disk.node)), None);
}

#[test]
fn a_partition_in_use_holds_the_disk() {
    let Some(disk) = Loop::partitioned() else {
        return;
    };
    let part = format!("{}p1", disk.node);
    if !Path::new(&part).exists() {
        return throughline_testkit::left_out!("no {part}: loop devices have no partitions here");
    }
    let Some(mounted) = Mounted::new(&disk, &part) else {
        return;
    };
    let point = format!("mounted at {}", mounted.0.display());
    for path in [&disk.image(), Path::new(&disk.node), Path::new(&part)] {
        is_held(path, &[&point]);
    }
}

#[test]
fn a_stacked_device_is_reported() {
    if !program::has(&["dmsetup"]) {
        return;
    }
    let Some(disk) = Loop::new(512) else { return };
    let name = format!("throughline-{}", std::process::id());
    let table = format!("0 2048 linear {} 0", disk.node);
    if !done("dmsetup", &["create", &name, "--table", &table]) {
        return throughline_testkit::left_out!("dmsetup cannot make a device");
    }
    let texts = [format!("part of /dev/mapper/{name}")];
    let texts = texts.each_ref().map(String::as_str);
    let checked = std::panic::catch_unwind(|| {
        is_held(disk.image(), &texts);
        is_held(&disk.node, &texts);
    });
    assert!(done("dmsetup", &["remove", "--retry", &name]));
    checked.unwrap();
}

#[test]
fn swap_is_reported() {
    if !program::has(&["mkswap", "swapon", "swapoff"]) {
        return;
    }
    let folder = tempfile::tempdir_in(".").unwrap();
    let file = folder.path().join("a swap");
    fs::write(&file, vec![0; 1 << 20]).unwrap();
    let path = file.to_str().unwrap();
    let _ = done("chmod", &["600", path]);
    if !done("mkswap", &[path]) || !done("swapon", &[path]) {
        return throughline_testkit::left_out!("cannot swap to a file");
    }
    let checked = std::panic::catch_unwind(|| is_held(&file, &["in use as swap"]));
    assert!(done("swapoff", &[path]));
    checked.unwrap();
    is_free(&file);
}

/// A loop device and its backing file are not opened for writing at the same time.
#[test]
fn a_loop_device_whose_file_we_have_is_refused() {
    let Some(disk) = Loop::new(512) else { return };
    // The file is free before it is attached.
    let node = disk.node.clone();
    let image = disk.image();
    let folder = disk.detach();
    let ours = open(&image).unwrap();
    let Some(disk) = Loop::over(folder, 512) else {
        return;
    };
    let refused = open(&disk.node).err().expect("its file is locked");
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    let us = format!("in use by this process ({})", std::process::id());
    assert!(refused.to_string().contains(&us), "{refused} ({node})");
    let reader = OpenOptions::new().lock(LockMode::Shared).open(&disk.node);
    assert_eq!(reader.err().unwrap().kind(), ErrorKind::ResourceBusy);
    drop(ours);
    drop(open(&disk.node).unwrap());
}

/// A second loop device over the same file, for [`Loop`] `disk`, with options of losetup.
fn second(disk: &Loop, options: &[&str]) -> Second {
    let image = disk.image();
    let mut arguments = vec!["--find", "--show"];
    arguments.extend(options);
    arguments.push(image.to_str().unwrap());
    let made = run("losetup", &arguments).unwrap();
    assert!(made.status.success());
    Second(String::from_utf8(made.stdout).unwrap().trim().to_owned())
}

struct Second(String);

impl Drop for Second {
    fn drop(&mut self) {
        let _ = run("losetup", &["--detach", &self.0]);
    }
}

#[track_caller]
fn is_refused(path: &str, texts: &[&str]) {
    let refused = open(path).err().expect("its file is in use");
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy, "{refused}");
    for text in texts {
        assert!(refused.to_string().contains(text), "no {text:?}: {refused}");
    }
}

/// One of two loop devices over one file is written at a time: whether a process or the kernel has the other,
/// or a partition of it.
#[test]
fn two_loop_devices_of_one_file_are_not_written_together() {
    let Some(disk) = Loop::partitioned() else {
        return;
    };
    let other = second(&disk, &["--partscan"]);
    // While nobody uses the other one, each may be used.
    drop(open(&disk.node).unwrap());
    let ours = open(&other.0).unwrap();
    let image = disk.image().display().to_string();
    let us = format!("this process ({})", std::process::id());
    is_refused(&disk.node, &[&image, &other.0, &us]);
    let part = format!("{}p1", disk.node);
    let parts = Path::new(&part).exists();
    if parts {
        is_refused(&part, &[&image, &other.0, &us]);
    }
    drop(ours);
    if parts {
        let ours = open(&part).unwrap();
        is_refused(&other.0, &[&image, &disk.node, &us]);
        // What is beside the partition is free.
        let before = second(&disk, &["--sizelimit", "1M"]);
        drop(open(&before.0).unwrap());
        drop(ours);
    }
    let Some(mounted) = Mounted::new(&disk, &disk.node) else {
        return;
    };
    let point = format!("mounted at {}", mounted.0.display());
    is_refused(&other.0, &[&image, &disk.node, &point]);
    drop(mounted);
    disk.wait_unmounted();
    drop(open(&other.0).unwrap());
    // A loop device over a loop device, and the one below it.
    let above = Command::new("losetup")
        .args(["--find", "--show", &other.0])
        .output()
        .unwrap();
    let above = Second(String::from_utf8(above.stdout).unwrap().trim().to_owned());
    is_refused(&other.0, &["attached to", &above.0]);
    drop(above);
}

/// A child process with a mount in its own namespace. Dropping it ends the child and the mount.
struct Apart(Child);

impl Drop for Apart {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn a_mount_in_another_namespace_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let (image, point) = (folder.path().join("image"), folder.path().join("point"));
    fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
    fs::create_dir(&point).unwrap();
    if !done("mke2fs", &["-q", image.to_str().unwrap()]) {
        return throughline_testkit::missing!("no mke2fs");
    }
    let script = "mount -t tmpfs none \"$2\" && mkdir \"$2/seen\" \
        && mount -o loop \"$1\" \"$2/seen\" && echo there && read end";
    let child = Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .args([&image, &point])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        return throughline_testkit::missing!("no unshare");
    };
    let mut line = String::new();
    let stdout = child.stdout.take().unwrap();
    io::BufRead::read_line(&mut io::BufReader::new(stdout), &mut line).unwrap();
    let apart = Apart(child);
    if line != "there\n" {
        return throughline_testkit::missing!("cannot mount in a namespace");
    }
    let place = format!(
        "mounted at {}, in the mount namespace of process",
        point.join("seen").display()
    );
    is_held(&image, &["/dev/loop", &place]);
    drop(apart);
    // The kernel removes such a mount, and its loop device, asynchronously.
    while kernel_holder(&image).is_some() {
        std::thread::yield_now();
    }
    is_free(&image);
}

/// A loop device that is detached with its mount is waited for.
#[test]
fn an_image_that_was_just_unmounted_is_free() {
    let folder = tempfile::tempdir().unwrap();
    let (image, point) = (folder.path().join("image"), folder.path().join("point"));
    fs::File::create(&image).unwrap().set_len(8 << 20).unwrap();
    fs::create_dir(&point).unwrap();
    let (image, point) = (image.to_str().unwrap(), point.to_str().unwrap());
    if !done("mke2fs", &["-q", image]) || !done("mount", &["-o", "loop", image, point]) {
        return throughline_testkit::missing!("cannot mount");
    }
    for _ in 0..5 {
        assert!(done("umount", &[point]));
        // A concurrent test may have created a mount namespace, with a copy of every mount.
        let is_elsewhere =
            |holder: KernelHolder| holder.to_string().contains(", in the mount namespace");
        while kernel_holder(image.as_ref()).is_some_and(is_elsewhere) {
            std::thread::yield_now();
        }
        drop(open(image).unwrap());
        assert!(done("mount", &["-o", "loop", image, point]));
    }
    assert!(done("umount", &[point]));
}
