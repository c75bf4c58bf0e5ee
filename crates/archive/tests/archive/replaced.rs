//! A directory in which names are exchanged while it is read: at a given moment of the scan, or between the
//! scan and the reading of contents.

use crate::common;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Error, Limits, shell};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use throughline_archive::{Merge, Sources, Tree};

/// A tree, and what is outside of it. Names there are those of the tree. There are more directories than are
/// kept open.
const TREES: &str = "
    mkdir -p tree/a/d outside tree/a/other
    echo inside > tree/a/d/f; echo inside > tree/a/d/g; chmod 640 tree/a/d/?
    echo outside > outside/f; echo outside > outside/g; chmod 604 outside/?
    echo outside > tree/a/other/f; echo outside > tree/a/other/g
    mkdir -p tree/b{1..100}/c
    ln -s ../../outside tree/a/link
    ln -s ../../../outside/f tree/a/flink
    mkfifo tree/a/pipe
    touch tree/a/z";

fn exchange(dir: &Path, (a, b): (&str, &str)) {
    let (a, b) = (dir.join("tree").join(a), dir.join("tree").join(b));
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).expect("both are there");
}

/// Scans the tree, and exchanges two names just before a third is looked at.
fn scanned(
    dir: &Path,
    before: &'static str,
    names: (&'static str, &'static str),
) -> Result<(Tree, Sources), Error> {
    let mut merge = Merge::new(Limits::default());
    let (place, done) = (PathBuf::from(dir), AtomicBool::new(false));
    merge.set_exclude(move |path| {
        if path == before.as_bytes() && !done.swap(true, Ordering::Relaxed) {
            exchange(&place, names);
        }
        // That in it is not read anyway.
        path == b"a/other"
    });
    merge.add_directory(&dir.join("tree"))?;
    Ok(merge.finish())
}

/// Permissions of a file by its path in the tree.
fn permissions(tree: &Tree, path: &str) -> Option<u16> {
    Some(tree.node(tree.lookup(path.as_bytes())?).meta().permissions)
}

/// All bytes that are visited, and how that ended.
fn read(tree: &Tree, sources: &Sources) -> (String, Result<(), Error>) {
    let mut text = String::new();
    let ended = sources.for_each_data(tree, 1, &mut |_, _, bytes| {
        text.push_str(&String::from_utf8_lossy(bytes));
        Ok(())
    });
    (text, ended)
}

#[test]
fn a_directory_that_is_replaced_before_it_is_listed_is_refused() {
    for by in ["a/link", "a/other", "a/pipe"] {
        let dir = tempfile::tempdir().expect("a directory");
        shell(dir.path(), TREES);
        // All names of a directory are looked at before another one is listed.
        match scanned(dir.path(), "a/z", ("a/d", by)) {
            Err(Error::Changed(path)) => assert!(path.ends_with("tree/a/d"), "{by}: {path}"),
            Err(error) => panic!("{by}: {error}"),
            Ok(_) => panic!("{by}: it was read"),
        }
    }
}

#[test]
fn a_directory_that_is_replaced_while_it_is_looked_at_is_still_the_one() {
    for by in ["a/link", "a/other", "a/pipe"] {
        let dir = tempfile::tempdir().expect("a directory");
        shell(dir.path(), TREES);
        let (tree, sources) = scanned(dir.path(), "a/d/f", ("a/d", by)).expect("a scan");
        for name in ["/a/d/f", "/a/d/g"] {
            assert_eq!(permissions(&tree, name), Some(0o640), "{by}: {name}");
        }
        let (text, ended) = read(&tree, &sources);
        assert!(!text.contains("outside"), "{by}: {text}");
        assert!(matches!(ended, Err(Error::Changed(_))), "{by}: {ended:?}");
    }
}

#[test]
fn what_is_replaced_after_the_scan_is_not_read() {
    for names in [
        ("a/d", "a/link"),
        ("a/d", "a/other"),
        ("a/d", "a/pipe"),
        ("a/d/f", "a/other/f"),
        ("a/d/f", "a/flink"),
        ("a/d/f", "a/pipe"),
    ] {
        let dir = tempfile::tempdir().expect("a directory");
        shell(dir.path(), TREES);
        let mut merge = Merge::new(Limits::default());
        merge.set_exclude(|path| path == b"a/other");
        merge
            .add_directory(&dir.path().join("tree"))
            .expect("a scan");
        let (tree, sources) = merge.finish();
        exchange(dir.path(), names);
        let (text, ended) = read(&tree, &sources);
        assert!(
            text.chars().all(|byte| "inside\n".contains(byte)),
            "{names:?}: {text}"
        );
        assert!(
            matches!(ended, Err(Error::Changed(_))),
            "{names:?}: {ended:?}"
        );
    }
}
