//! Volumes that we only read, and volumes that we refuse: the error gives the reason, and no byte of the
//! image changes.

use std::path::Path;

use throughline::{Error, FileType, Volume};

use crate::matrix::expected::Expected;
use crate::matrix::fs::{FileSystem, Step, compare};
use crate::matrix::kernel::{self, Mount};
use crate::matrix::life::close;
use crate::matrix::tool::{self, Image};

/// Creates a tree on the host for `mke2fs -d`; returns the same tree in memory.
fn host_tree(dir: &Path) -> Expected {
    let owner = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let mut expected = Expected::new(256, owner);
    let mut steps = vec![
        Step::Dir("/dir".into()),
        Step::Dir("/dir/Mixed Case".into()),
    ];
    for (name, len) in [
        ("/empty", 0),
        ("/dir/small", 100),
        ("/dir/Mixed Case/File", 5000),
        ("/large", 700_000),
    ] {
        steps.push(Step::File(name.into()));
        steps.push(Step::Write {
            path: name.into(),
            offset: 0,
            seed: len as u64,
            len,
        });
    }
    for index in 0..300 {
        steps.push(Step::File(format!("/dir/entry{index}{}", "x".repeat(30))));
    }
    steps.push(Step::Symlink {
        target: "dir/small".into(),
        link: "/link".into(),
    });
    steps.push(Step::Symlink {
        target: "long/".repeat(40),
        link: "/long link".into(),
    });
    let mut host = kernel::HostDir(dir.to_owned());
    for step in &steps {
        host.apply(step);
        expected.apply(step);
    }
    for (index, path) in expected.without_time().into_iter().enumerate() {
        let step = Step::Modified(path, (1_600_000_000 + index as i64, 0));
        host.apply(&step);
        expected.apply(&step);
    }
    expected
}

fn unsupported(result: throughline::Result<Volume>, words: &str) {
    match result.map(drop) {
        Err(Error::Unsupported(why)) => {
            assert!(why.contains(words), "\"{why}\" does not name {words}")
        }
        other => panic!("{words}: not refused as unsupported, but {other:?}"),
    }
}

fn reads_only(image: &Image, expected: &mut Expected, feature: &str) {
    let before = image.digest();
    unsupported(image.open_writable(), feature);
    let mut volume = image
        .open_read_only()
        .unwrap_or_else(|e| panic!("{feature}: it does not open for reading: {e}"));
    assert!(volume.is_read_only());
    assert!(
        volume.create_dir("/new").is_err(),
        "{feature}: a directory was made"
    );
    compare(feature, expected, &mut volume);
    close(volume, feature);
    assert_eq!(
        image.digest(),
        before,
        "{feature}: reading changed the image"
    );
}

#[test]
fn unknown_read_only_compatible_feature_is_read() {
    if !tool::has_tools() {
        return;
    }
    let tree = tempfile::tempdir().expect("a place for temporary files");
    let mut expected = host_tree(tree.path());
    let image = Image::make(
        &["-t", "ext4", "-d", tree.path().to_str().expect("UTF-8")],
        "64M",
    )
    .expect("ext4");
    image.debugfs(true, "feature FEATURE_R31\n");
    reads_only(&image, &mut expected, "FEATURE_R31");
}

/// A volume that is refused for reading too.
fn refused(args: &[&str], request: Option<&str>, words: &str) {
    if !tool::has_tools() {
        return;
    }
    let Some(image) = Image::make(args, "16M") else {
        return;
    };
    if let Some(request) = request {
        image.debugfs(true, request);
    }
    let before = image.digest();
    unsupported(image.open_read_only(), words);
    unsupported(image.open_writable(), words);
    assert_eq!(
        image.digest(),
        before,
        "{words}: refusing changed the image"
    );
}

#[test]
fn unknown_incompatible_features_are_refused() {
    refused(
        &["-t", "ext4"],
        Some("feature FEATURE_I31\n"),
        "FEATURE_I31",
    );
    refused(
        &["-t", "ext2", "-b", "1024"],
        Some("feature FEATURE_I31\n"),
        "FEATURE_I31",
    );
    refused(
        &["-t", "ext2", "-b", "1024"],
        Some("feature compression\n"),
        "compression",
    );
    refused(&["-t", "ext4"], Some("feature dirdata\n"), "dirdata");
}

#[test]
fn external_journals_are_refused() {
    refused(&["-O", "journal_dev", "-b", "1024"], None, "journal_dev");
    refused(&["-O", "journal_dev", "-b", "4096"], None, "journal_dev");
}

/// A volume whose journal needs recovery: reading shows what `e2fsck -fy` of a copy leaves, without
/// changing the image; then as [`recovers`].
fn needs_recovery(image: &Image, must_exist: &[&str]) {
    let repaired = image.copy();
    repaired.repair();
    let mut want = repaired.open_read_only().expect("the repaired copy opens");
    let mut found = image
        .open_read_only()
        .expect("it opens over the replayed journal");
    let count = compare("replayed by us, by e2fsck", &mut want, &mut found);
    assert!(count >= must_exist.len(), "nothing was compared");
    if kernel::may_mount() {
        let mut mount = Mount::new(&repaired, false).expect("the kernel mounts the repaired copy");
        compare(
            "replayed by us, repaired and read by the kernel",
            &mut mount,
            &mut found,
        );
    }
    close(found, "what was replayed");
    recovers(image, must_exist);
}

/// A volume whose journal needs recovery: reading does not change it, and opening it for writing recovers
/// the same tree, with nothing left for `e2fsck` to repair.
fn recovers(image: &Image, must_exist: &[&str]) {
    let before = image.digest();
    let mut shown = image
        .open_read_only()
        .expect("it opens over the replayed journal");
    for path in must_exist {
        shown.stat(path);
    }
    let recovered = image.copy();
    let volume = recovered.open_writable().expect("it is recovered");
    close(volume, "what was recovered");
    recovered.check("recovered by us");
    let mut again = recovered
        .open_read_only()
        .expect("the recovered copy opens");
    compare("shown as recovered, recovered", &mut shown, &mut again);
    close(again, "what was recovered");
    close(shown, "what was replayed");
    assert_eq!(image.digest(), before, "reading changed the image");
}

/// A journal with a transaction written by `debugfs`, which replaces the data of a file.
#[test]
fn a_journal_by_debugfs() {
    for args in [
        ["-O", "metadata_csum,64bit"],
        ["-O", "^metadata_csum,^64bit"],
        ["-O", "^extent,^64bit"],
    ] {
        if !tool::has_tools() {
            return;
        }
        let tree = tempfile::tempdir().expect("a place for temporary files");
        host_tree(tree.path());
        let mut all = vec![
            "-t",
            "ext4",
            "-b",
            "1024",
            "-d",
            tree.path().to_str().expect("UTF-8"),
        ];
        all.extend(args);
        let Some(image) = Image::make(&all, "32M") else {
            return;
        };
        // The block of a file's data, which the transaction in the journal replaces.
        let output = image.debugfs(false, "blocks /dir/small\n");
        let block = output
            .split_whitespace()
            .last()
            .expect("debugfs prints the block of a file")
            .to_owned();
        let content = image.sibling("content");
        std::fs::write(&content, vec![b'j'; 1024]).expect("a file");
        image.debugfs(
            true,
            &format!("jo\njw -b {block} {}\njc\n", content.display()),
        );
        let mut volume = image
            .open_read_only()
            .expect("it opens over the replayed journal");
        let mut read = [0; 100];
        assert_eq!(
            FileSystem::read(&mut volume, "/dir/small", 0, &mut read),
            100
        );
        assert_eq!(
            read, [b'j'; 100],
            "{args:?}: the journal's block is not seen"
        );
        close(volume, "what was replayed");
        needs_recovery(&image, &["/dir/small", "/large"]);
    }
}

/// A copy of a volume that the kernel has mounted and is writing to.
fn copied_while_busy(args: &[&str]) {
    if !tool::has_tools() || !kernel::may_mount() {
        return;
    }
    let Some(image) = Image::make(args, "64M") else {
        return;
    };
    let mut mount = Mount::new(&image, true).expect("the kernel mounts it");
    mount.apply(&Step::Dir("/dir".into()));
    for index in 0..500 {
        let path = format!("/dir/file{index}");
        mount.apply(&Step::File(path.clone()));
        mount.apply(&Step::Write {
            path,
            offset: 0,
            seed: index,
            len: 2000,
        });
    }
    let sync = |mount: &Mount, path: &str| {
        std::fs::File::open(mount.host(path))
            .and_then(|file| file.sync_all())
            .expect("the kernel's fsync");
    };
    sync(&mount, "/dir/file499");
    for index in (0..500).step_by(3) {
        mount.apply(&Step::Unlink(format!("/dir/file{index}")));
    }
    mount.apply(&Step::Rename(
        "/dir/file1".into(),
        "/dir/file2".into(),
        throughline::RenameMode::Replace,
    ));
    mount.apply(&Step::Node("/dir/fifo".into(), FileType::Fifo, (0, 0)));
    mount.apply(&Step::File("/dir/last".into()));
    sync(&mount, "/dir/last");
    sync(&mount, "/dir");
    let busy = image.copy();
    mount.close();
    needs_recovery(&busy, &["/dir/file2", "/dir/fifo", "/dir/last"]);
}

#[test]
fn a_journal_of_the_kernel() {
    copied_while_busy(&["-t", "ext4", "-b", "1024"]);
    copied_while_busy(&["-t", "ext4", "-b", "4096"]);
    copied_while_busy(&["-t", "ext3", "-b", "1024"]);
    copied_while_busy(&[
        "-t",
        "ext4",
        "-b",
        "4096",
        "-O",
        "^metadata_csum,^64bit,orphan_file",
    ]);
}

/// The kernel writes fsyncs of new files as fast commits, which are replayed.
#[test]
fn fast_commits_of_the_kernel() {
    if !tool::has_tools() || !kernel::may_mount() {
        return;
    }
    let Some(image) = Image::make(&["-t", "ext4", "-O", "fast_commit"], "64M") else {
        return;
    };
    let mut mount = Mount::new(&image, true).expect("the kernel mounts it");
    mount.apply(&Step::Dir("/dir".into()));
    let open = |path: &str| std::fs::File::open(mount.host(path)).expect("it is there");
    rustix::fs::syncfs(open("/dir")).expect("the kernel's syncfs");
    for index in 0..5 {
        let path = format!("/dir/file{index}");
        std::fs::write(mount.host(&path), "fast").expect("the kernel's write");
        std::fs::File::open(mount.host(&path))
            .and_then(|file| file.sync_all())
            .expect("the kernel's fsync");
    }
    let busy = image.copy();
    mount.close();
    // (`kernel_crashes` compares the tree with the kernel's own replay. e2fsck leaves older times on the
    // directory.)
    recovers(&busy, &["/dir/file0", "/dir/file4"]);
    let mut volume = busy.open_read_only().expect("it opens");
    for index in 0..5 {
        let mut read = [0; 5];
        let len = FileSystem::read(&mut volume, &format!("/dir/file{index}"), 0, &mut read);
        assert_eq!(&read[..len], b"fast");
    }
    close(volume, "what was replayed");
}
