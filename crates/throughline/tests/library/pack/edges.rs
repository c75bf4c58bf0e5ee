//! Limits, failures, and what a check names.

use std::path::Path;

use throughline::MkfsError;
use throughline::archive::{Error as SourceError, Limits, Merge};
use throughline::pack::{PackOptions, PackSize};

use crate::pack::trees::{Given, Maker, bytes, meta, options, tree, with_xattrs};

/// A block less than the smallest volume does not hold the files.
#[test]
fn the_smallest_has_no_block_to_spare() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    for at in 0..40 {
        let directory = source.join(format!("directory {at}"));
        std::fs::create_dir_all(&directory).unwrap();
        for file in 0..30 {
            std::fs::write(
                directory.join(format!("file {file}")),
                bytes(at * file * 40, 1),
            )
            .unwrap();
        }
    }
    let mut merge = Merge::new(Limits::default());
    merge.add(&source).unwrap();
    let (tree, sources) = merge.finish();
    for words in [
        &["-t", "ext4", "-b", "4096"][..],
        &["-t", "ext2", "-b", "1024"],
    ] {
        let image = folder.path().join("image");
        let mut pack = PackOptions::new();
        pack.mkfs(options(words)).overwrite(true);
        let packed = pack.pack(&tree, &sources, &image).unwrap();
        let block = u64::from(packed.made.block_bytes);
        let less = pack
            .size(PackSize::Exact(packed.bytes - block))
            .pack(&tree, &sources, &image);
        assert!(
            matches!(less, Err(MkfsError::Invalid(_))),
            "{words:?}: {less:?}"
        );
    }
}

#[test]
fn failures_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let source = folder.path().join("source");
    let host = source.join("host");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(&host, bytes(5000, 1)).unwrap();
    let names = || std::fs::read_dir(folder.path()).unwrap().count();
    let mut merge = Merge::new(Limits::default());
    merge.add(&source).unwrap();
    let (changed, of_changed) = merge.finish();
    std::fs::write(&host, bytes(4000, 1)).unwrap();
    let pack = |pack: &PackOptions| pack.pack(&changed, &of_changed, &image).unwrap_err();
    let error = pack(&PackOptions::new());
    let text = error.to_string();
    assert!(
        text.ends_with(
            "source/host: changed while it was read; run again when it no longer changes"
        )
    );
    assert!(matches!(error, MkfsError::Source(SourceError::Changed(_))));
    std::fs::remove_file(&host).unwrap();
    let error = pack(&PackOptions::new());
    assert!(
        matches!(error, MkfsError::Source(SourceError::Changed(_))),
        "{error}"
    );
    assert_eq!(names(), 1);
    let (large, sources) = tree(10, false);
    let error = PackOptions::new()
        .size(PackSize::Exact(5 << 20))
        .pack(&large, &sources, &image)
        .unwrap_err();
    assert!(error.to_string().contains("too few"), "{error}");
    assert_eq!(names(), 1);
    std::fs::write(&image, "something").unwrap();
    let error = PackOptions::new()
        .pack(&large, &sources, &image)
        .unwrap_err();
    assert!(matches!(error, MkfsError::Occupied(_)), "{error}");
    assert_eq!(std::fs::read(&image).unwrap(), b"something");
}

#[test]
fn what_no_volume_holds_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let refused = |maker: Maker, what: &str| {
        let (tree, sources) = maker.finish();
        let error = PackOptions::new()
            .pack(&tree, &sources, &image)
            .unwrap_err()
            .to_string();
        assert!(error.contains(what), "{error}");
        assert!(!Path::new(&image).exists());
    };
    let huge = [1; 20_000];
    let attributes: [(Given<'_>, &str); 2] = [
        (
            &[("user.huge", &huge)],
            "/f: has more extended attributes than fit",
        ),
        (
            &[("os2.name", &huge[..9])],
            "/f: ext file systems have no attribute \"os2.name\"",
        ),
    ];
    for (attributes, what) in attributes {
        let mut maker = Maker::new();
        maker.file("f", &with_xattrs(0o644, attributes), b"");
        refused(maker, what);
    }
    let mut maker = Maker::new();
    maker
        .tree
        .symlink(b"lost+found", b"/etc", &meta(0o777))
        .unwrap();
    refused(maker, "lost+found");
}

/// UUID and hash seed follow from the sources, and are part of every inode: they hide no other difference.
#[test]
fn a_check_names_the_file_that_differs() {
    let tree = |len, seed| {
        let mut maker = Maker::new();
        for at in 0..300 {
            let content = match at {
                7 => bytes(len, seed),
                _ => bytes(5000, 0),
            };
            maker.file(&format!("file {at}"), &meta(0o644), &content);
        }
        maker.finish()
    };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let pack = PackOptions::new();
    let (packed, sources) = tree(5000, 0);
    pack.pack(&packed, &sources, &image).unwrap();
    for (len, seed) in [(5000, 1), (5002, 0)] {
        let (other, sources) = tree(len, seed);
        let found = pack.check(&other, &sources, &image).unwrap();
        let what: Vec<_> = found.iter().map(|it| it.what.as_str()).collect();
        assert!(what.len() <= 6, "{what:?}");
        assert!(what[0].contains("UUID"), "{what:?}");
        assert!(
            what.iter().skip(1).all(|it| it.contains("file 7")),
            "{what:?}"
        );
        assert!(what.contains(&"data of /file 7"), "{what:?}");
    }
}
