//! Which transactions `fsync` and `fdatasync` wait for.

use std::io::IoSlice;

use super::*;
use crate::testing::Image;
use crate::{Attributes, NewInode, NewKind};

#[test]
fn attributes_are_for_fsync_alone_and_nothing_goes_back() {
    let changes = Changes::unknown(Tid(u32::MAX));
    changes.note(Tid(1));
    changes.note_attributes(Tid(3));
    assert_eq!((changes.last(false), changes.last(true)), (Tid(3), Tid(1)));
    changes.note(Tid(2));
    assert_eq!((changes.last(false), changes.last(true)), (Tid(3), Tid(2)));
}

#[test]
fn a_sync_commits_what_it_has_to_and_no_more() {
    let Some(image) = Image::make("16M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("the root");
    let owner = NewInode {
        permissions: 0o644,
        uid: 0,
        gid: 0,
        umask: 0,
    };
    let new = |name: &[u8]| fs.create(&root, name, NewKind::File, owner).expect("made");
    let committed = || fs.journal.committed();
    // Syncing the file also makes its name durable.
    let (file, other) = (new(b"file"), new(b"other"));
    let made = file.changes.last(false);
    assert!(made.is_after(committed()));
    fs.sync_data(&file).expect("synced");
    assert!(!made.is_after(committed()));
    // The file did not change, so nothing is committed, whatever other files changed.
    fs.write_at(&other, 0, &[IoSlice::new(b"other")])
        .expect("written");
    let before = committed();
    fs.sync_file(&file).expect("synced");
    assert_eq!(committed(), before);
    // Attributes matter only to fsync.
    let attributes = Attributes {
        permissions: Some(0o600),
        ..Attributes::default()
    };
    fs.set_attributes(&file, &attributes).expect("set");
    fs.sync_data(&file).expect("synced");
    assert_eq!(committed(), before);
    fs.sync_file(&file).expect("synced");
    assert!(committed().is_after(before));
    // Size and blocks matter to both.
    let before = committed();
    fs.write_at(&file, 0, &[IoSlice::new(&[7; 3000])])
        .expect("written");
    fs.sync_data(&file).expect("synced");
    assert!(committed().is_after(before));
    // A directory is synced for its names.
    let before = committed();
    fs.unlink(&root, b"other").expect("unlinked");
    fs.sync_file(&root).expect("synced");
    assert!(committed().is_after(before));
    fs.close().expect("closed");
    image.check("synced");
}
