//! Volumes that need more than `mke2fs` and the common tree; and tests of the comparison itself.

use throughline_testkit::{e2fs, program};

use crate::matrix::life::Load::{Full, Small};
use crate::matrix::{debugfs, expected, fs, kernel, life, tool};

/// Hash trees with one of the hash versions.
fn hashed(algorithm: &str) {
    let make = || {
        let image = tool::Image::make(&["-t", "ext4", "-b", "1024", "-N", "8192"], "64M")?;
        let mut tune = e2fs::tool("tune2fs");
        tune.args(["-E", &format!("hash_alg={algorithm}"), image.name()]);
        program::run(&mut tune, e2fs::LIMIT).good("tune2fs");
        Some(image)
    };
    life::run_made(make, Full);
}

#[test]
fn hash_legacy() {
    hashed("legacy");
}

#[test]
fn hash_half_md4() {
    hashed("half_md4");
}

#[test]
fn hash_tea() {
    hashed("tea");
}

/// The list of bad blocks belongs to a reserved inode, which must not change.
#[test]
fn bad_blocks() {
    let list = tempfile::NamedTempFile::new().expect("a place for temporary files");
    std::fs::write(list.path(), "3000\n3001\n12345\n20000\n").expect("the list");
    let path = list.path().to_str().expect("UTF-8");
    life::run(
        &["-t", "ext4", "-b", "1024", "-l", path, "-N", "8192"],
        "64M",
        Small,
    );
}

/// Checks the comparison: a changed byte, time or name must be found.
#[test]
fn differences_are_found() {
    use fs::{FileSystem, Step};
    if !tool::has_tools() {
        return;
    }
    let changes = [
        ("sif /file mtime 20200101000000", "a time"),
        ("sif /file mode 0100600", "a mode"),
        ("rm /other", "a missing name"),
        ("ln /file /third", "a surplus name"),
        ("sif /file size 4999", "a size"),
        ("sif /file block[2] 0", "a hole instead of data"),
    ];
    for (request, what) in changes {
        let Some(image) = tool::Image::make(&["-t", "ext2", "-b", "1024"], "4M") else {
            return;
        };
        let owner = (
            rustix::process::geteuid().as_raw(),
            rustix::process::getegid().as_raw(),
        );
        let mut expected = expected::Expected::new(256, owner);
        let mut volume = image
            .open_writable()
            .expect("the new volume opens for writing");
        for (index, path) in ["/file", "/other"].into_iter().enumerate() {
            let steps = [
                Step::File(path.into()),
                Step::Write {
                    path: path.into(),
                    offset: 0,
                    seed: 1,
                    len: 5000,
                },
                Step::Modified(path.into(), (1_000_000_000 + index as i64, 7)),
            ];
            for step in &steps {
                volume.apply(step);
                expected.apply(step);
            }
        }
        assert_eq!(fs::compare("as it was made", &mut expected, &mut volume), 2);
        life::close(volume, "as it was made");
        debugfs::compare("as it was made", &image, &mut expected);
        image.debugfs(true, request);
        let mut volume = image.open_read_only().expect("it opens for reading");
        let mut judge = expected.clone();
        let by_us = std::panic::AssertUnwindSafe(|| fs::compare(what, &mut judge, &mut volume));
        assert!(
            std::panic::catch_unwind(by_us).is_err(),
            "{what} is not found"
        );
        let by_debugfs =
            std::panic::AssertUnwindSafe(|| debugfs::compare(what, &image, &mut expected));
        assert!(
            std::panic::catch_unwind(by_debugfs).is_err(),
            "{what} is not found by debugfs"
        );
    }
}

/// A directory with more subdirectories than its link count can hold.
#[test]
fn more_subdirectories_than_links() {
    if !tool::soak() || !tool::has_tools() {
        throughline_testkit::left_out!("65,100 subdirectories (THROUGHLINE_SOAK=1 makes them)");
        return;
    }
    let Some(image) = tool::Image::make(&["-t", "ext4", "-b", "1024", "-N", "70000"], "256M")
    else {
        return;
    };
    let volume = image
        .open_writable()
        .expect("the new volume opens for writing");
    let many = volume.create_dir("/many").expect("a directory");
    for index in 0..65_100 {
        many.create_dir(format!("{index}"))
            .unwrap_or_else(|e| panic!("directory {index}: {e}"));
    }
    assert_eq!(many.metadata(".").expect("its metadata").nlink(), 1);
    drop(many);
    life::close(volume, "with many directories");
    image.check("with many directories");
    let volume = image.open_writable().expect("it opens again");
    let many = volume.open_dir("/many").expect("the directory");
    for index in 0..65_100 {
        many.remove_dir(format!("{index}"))
            .unwrap_or_else(|e| panic!("removing directory {index}: {e}"));
    }
    drop(many);
    volume.remove_dir("/many").expect("the directory is empty");
    life::close(volume, "without them");
    image.check("without them");
}

/// A hash tree of three levels (`large_dir`), built by us; the kernel finds every name.
#[test]
fn three_levels() {
    if !tool::soak() || !tool::has_tools() {
        throughline_testkit::left_out!("a hash tree of three levels (THROUGHLINE_SOAK=1 makes it)");
        return;
    }
    let args = ["-t", "ext4", "-b", "1024", "-O", "large_dir", "-N", "4096"];
    let Some(image) = tool::Image::make(&args, "256M") else {
        return;
    };
    let volume = image
        .open_writable()
        .expect("the new volume opens for writing");
    let many = volume.create_dir("/many").expect("a directory");
    let name = |index: usize| format!("{index:06}{}", "n".repeat(244));
    many.create_new(name(0)).expect("a file");
    let node = many.node(name(0)).expect("it is there");
    const NAMES: usize = 60_000;
    for index in 1..NAMES {
        many.link_node(&node, name(index))
            .unwrap_or_else(|e| panic!("name {index}: {e}"));
    }
    drop((many, node));
    life::close(volume, "with many names");
    image.check("with many names");
    let tree = image.debugfs(false, "htree_dump /many\n");
    assert!(
        tree.contains("Indirect levels: 2"),
        "the tree has fewer levels: {}",
        tree.lines().take(12).collect::<String>()
    );
    if kernel::may_mount() {
        let mount = kernel::Mount::new(&image, false).expect("the kernel mounts it");
        for index in 0..NAMES {
            let found = mount
                .host(&format!("/many/{}", name(index)))
                .symlink_metadata();
            assert!(found.is_ok(), "the kernel does not find name {index}");
        }
    }
    let volume = image.open_writable().expect("it opens again");
    for index in (0..NAMES).step_by(2) {
        volume
            .remove_file(format!("/many/{}", name(index)))
            .unwrap_or_else(|e| panic!("removing name {index}: {e}"));
    }
    life::close(volume, "with half of the names removed");
    image.check("with half of the names removed");
}
