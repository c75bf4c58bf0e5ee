//! [`PackInto`]: trees from code over a directory of a volume.

use std::time::{Duration, UNIX_EPOCH};

use throughline::archive::{Error, Limits, Memory, Merge, Meta, Time};
use throughline::{MkfsOptions, PackInto, Volume, VolumeSize};

/// A volume in memory that can be written.
fn volume(name: &str) -> (tempfile::TempDir, Volume) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    let mut options = MkfsOptions::new();
    options
        .size(VolumeSize::Bytes(8 << 20))
        .make(&path)
        .expect("a volume");
    let image = std::fs::read(path).expect("it is read");
    (folder, Volume::in_memory(image).expect("it opens"))
}

/// Adds two files and a directory to what a merge begins with.
fn add(merge: &mut Merge) {
    let mut memory = Memory::new();
    let (first, second) = (memory.add(b"first\n"), memory.add(&[7; 300_000]));
    let id = merge.sources_mut().add(Box::new(memory));
    let tree = merge.tree_mut();
    tree.begin_layer();
    let meta = Meta {
        uid: 3,
        mtime: Time::from_seconds(2_000_000_000),
        ..Meta::new(0o4755)
    };
    tree.add_file(b"motd", &meta, &first.of(id))
        .expect("a file");
    tree.add_file(b"deep/er/large", &meta, &second.of(id))
        .expect("a file");
    tree.link(b"again", b"kept").expect("it is there");
    tree.whiteout(b"gone");
}

#[test]
fn a_tree_from_code_is_laid_over_a_directory() {
    let (_folder, volume) = volume("image");
    let srv = volume.create_dir("/srv").expect("a directory");
    for (name, text) in [("kept", "kept\n"), ("gone", "gone\n"), ("motd", "old\n")] {
        srv.write(name, text).expect("a file");
    }
    let (mut into, mut merge) = PackInto::begin(&srv, Limits::default()).expect("it is read");
    into.epoch(UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    add(&mut merge);
    let (tree, sources) = merge.finish();
    let mut last = (0, 0);
    let done = into.apply(&tree, &sources, &mut |done, all| {
        last = (done, all);
        true
    });
    let done = done.expect("it is applied");
    assert_eq!(last, (300_006, 300_006));
    assert_eq!((done.files, done.directories, done.hard_links), (2, 2, 1));
    assert_eq!((done.removed, done.data_bytes), (2, 300_006));
    assert_eq!(srv.read_to_string("motd").expect("a file"), "first\n");
    assert_eq!(srv.read("deep/er/large").expect("a file"), [7; 300_000]);
    assert_eq!(srv.read_to_string("again").expect("a file"), "kept\n");
    assert!(!srv.exists("gone").expect("it is looked up"));
    let found = srv.metadata("motd").expect("it is there");
    assert_eq!((found.mode(), found.uid()), (0o4755, 3));
    assert_eq!(
        found.modified(),
        UNIX_EPOCH + Duration::from_secs(1_700_000_000)
    );
    assert_eq!(srv.metadata("kept").expect("it is there").nlink(), 2);
    drop((srv, into));
    volume.close().expect("it closes");
}

#[test]
fn a_run_that_is_stopped_is_completed_by_another() {
    let (_folder, volume) = volume("image");
    volume.write("/kept", "kept\n").expect("a file");
    let run = |go_on: bool| {
        let (into, mut merge) = PackInto::begin(&volume, Limits::default()).expect("it is read");
        add(&mut merge);
        let (tree, sources) = merge.finish();
        into.apply(&tree, &sources, &mut |done, _| go_on || done == 0)
    };
    assert!(matches!(run(false), Err(Error::Stopped)));
    run(true).expect("it is applied");
    assert_eq!(volume.read("/deep/er/large").expect("a file"), [7; 300_000]);
    assert_eq!(volume.read_to_string("/again").expect("a file"), "kept\n");
    volume.close().expect("it closes");
}
