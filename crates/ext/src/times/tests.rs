//! Which reads update an access time, and that the update reaches the disk.

use std::sync::Arc;

use throughline_extfmt::InodeImage;
use throughline_extfmt::inode::{FileType, Time};
use throughline_extfmt::time::Timestamp;

use super::{AccessTimes, Times};
use crate::testing::Image;
use crate::{Attributes, Fs, Inode, InodeFlags, NewInode, NewKind, OpenOptions};

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    umask: 0,
};
const OLD: Timestamp = Timestamp {
    seconds: 1_000_000,
    nanoseconds: 0,
};

fn options(access_times: AccessTimes) -> OpenOptions {
    OpenOptions {
        write: true,
        access_times,
        ..OpenOptions::default()
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds)
}

/// Whether the access time must be set at `now` if the other times are 1000.
fn due(when: AccessTimes, accessed: i64, now: i64) -> bool {
    let mut raw = InodeImage::new(256, 32);
    raw.set_mode(FileType::Regular.mode_bits());
    raw.set_time(Time::Modify, at(1000));
    raw.set_time(Time::Change, at(1000));
    raw.set_time(Time::Access, at(accessed));
    let times = Times::new(&options(when));
    times.next_due(&raw, at(now)).is_none()
}

#[test]
fn the_access_time_is_due_by_its_rules() {
    let day = super::DAY_S;
    for (accessed, now, relative, strict) in [
        (999, 2000, true, true),
        (1000, 2000, true, true),
        (1001, 2000, false, true),
        (1001, 1000 + day, false, true),
        (1001, 1001 + day, true, true),
        (5000, 5000, false, false),
        (5000, 4000, false, true),
    ] {
        assert_eq!(due(AccessTimes::Relative, accessed, now), relative);
        assert_eq!(due(AccessTimes::Strict, accessed, now), strict);
        assert!(!due(AccessTimes::Never, accessed, now));
    }
}

fn accessed(fs: &Fs, inode: &Inode) -> Timestamp {
    fs.metadata(inode).expect("attributes").accessed
}

/// Sets its access time far in the past.
fn age(fs: &Fs, inode: &Inode) {
    let set = Attributes {
        accessed: Some(OLD.into()),
        ..Attributes::default()
    };
    fs.set_attributes(inode, &set).expect("set");
}

#[test]
fn reads_set_it_in_memory_and_a_sync_stores_it() {
    let Some(image) = Image::make("16M", &["-t", "ext4"]) else {
        return;
    };
    let fs = image
        .try_open(&options(AccessTimes::Relative))
        .expect("it opens");
    let root = fs.root().expect("a root");
    let make = |name: &[u8], kind| fs.create(&root, name, kind, OWNER).expect("made");
    let dir = make(b"dir", NewKind::Dir);
    let link = make(b"link", NewKind::Symlink(b"dir"));
    let still = make(b"still", NewKind::Dir);
    fs.set_flags(&still, fs.flags(&still) | InodeFlags::NOATIME)
        .expect("set");
    for inode in [&dir, &link, &still] {
        age(&fs, inode);
    }
    fs.sync().expect("synced");
    let before = fs.journal.committed();
    fs.list_dir(&dir, 0).expect("listed");
    fs.read_link(&link).expect("a target");
    fs.list_dir(&still, 0).expect("listed");
    assert!(accessed(&fs, &dir) > OLD && accessed(&fs, &link) > OLD);
    assert_eq!(accessed(&fs, &still), OLD);
    let seen = accessed(&fs, &dir);
    fs.list_dir(&dir, 0).expect("listed");
    assert_eq!(
        accessed(&fs, &dir),
        seen,
        "it is later than the last change"
    );
    fs.journal.sync().expect("synced");
    assert_eq!(fs.journal.committed(), before, "nothing was to be written");
    fs.close().expect("closed");

    let fs = image.open();
    let root = fs.root().expect("a root");
    let dir = fs.lookup(&root, b"dir").expect("found");
    assert_eq!(accessed(&fs, &dir), seen);
    fs.list_dir(&dir, 0).expect("listed");
    assert_eq!(accessed(&fs, &dir), seen, "reading is not seen by itself");
    fs.close().expect("closed");
    image.check("after it");
}

#[test]
fn pending_times_are_bounded_and_survive_eviction() {
    let Some(image) = Image::make("32M", &["-t", "ext4", "-b", "1024", "-N", "8192"]) else {
        return;
    };
    let fs = image
        .try_open(&options(AccessTimes::Strict))
        .expect("it opens");
    let root = fs.root().expect("a root");
    let count = super::MAX_PENDING + 500;
    let name = |number: usize| format!("l{number}").into_bytes();
    for number in 0..count {
        let link = fs
            .create(&root, &name(number), NewKind::Symlink(b"x"), OWNER)
            .expect("made");
        age(&fs, &link);
    }
    for number in 0..count {
        let link: Arc<Inode> = fs.lookup(&root, &name(number)).expect("found");
        fs.read_link(&link).expect("a target");
    }
    assert!(fs.times.kept.lock().inodes.len() < super::MAX_PENDING);
    for number in 0..count {
        let link = fs.lookup(&root, &name(number)).expect("found");
        assert!(accessed(&fs, &link) > OLD, "link {number}");
    }
    for number in 0..count {
        fs.unlink(&root, &name(number)).expect("gone");
    }
    fs.close().expect("closed");
    image.check("after it");
}

#[test]
fn lazy_times_of_writes_wait_for_a_sync_of_the_file() {
    let Some(image) = Image::make("16M", &["-t", "ext4"]) else {
        return;
    };
    let options = OpenOptions {
        write: true,
        lazy_times: true,
        ..OpenOptions::default()
    };
    let fs = image.try_open(&options).expect("it opens");
    let root = fs.root().expect("a root");
    let file = fs
        .create(&root, b"file", NewKind::File, OWNER)
        .expect("made");
    let bytes = [std::io::IoSlice::new(&[7; 4096])];
    fs.write_at(&file, 0, &bytes).expect("written");
    let set = Attributes {
        modified: Some(OLD.into()),
        ..Attributes::default()
    };
    fs.set_attributes(&file, &set).expect("set");
    fs.sync().expect("synced");
    let before = fs.journal.committed();
    fs.write_at(&file, 0, &bytes).expect("written");
    assert!(fs.metadata(&file).expect("attributes").modified > OLD);
    fs.sync_data(&file).expect("synced");
    assert_eq!(fs.journal.committed(), before, "the time is in memory");
    fs.sync_file(&file).expect("synced");
    assert!(fs.journal.committed().is_after(before));
    fs.close().expect("closed");
    image.check("after it");
}
