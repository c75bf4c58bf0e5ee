//! Damaged volumes, and a device with a block that cannot be read.

use rustix::io::Errno;

use super::bytes::{self, op};
use super::device::{Faulty, Kind};
use super::harness::{DATA_BYTES, Mount, dirents, mount, mount_of};
use crate::nodes::ROOT_NODEID;
use crate::options::MountOptions;

/// `struct fuse_entry_out`.
const ENTRY: usize = 128;

/// A new server of the image with these bytes.
fn of(image: Vec<u8>) -> Mount {
    Mount::on(Faulty::of(image), &MountOptions::default())
}

/// The image of a closed volume.
fn closed(mount: Mount) -> Vec<u8> {
    let device = mount.device.clone();
    mount.close();
    device.to_vec()
}

/// The offsets of these bytes in the image: their own place, and copies in the journal.
fn places(image: &[u8], bytes: &[u8]) -> Vec<usize> {
    let windows = image.windows(bytes.len()).enumerate();
    let found = windows.filter(|(_, window)| *window == bytes);
    let places: Vec<_> = found.map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    places
}

/// Changes the first byte of each occurrence of these bytes.
fn damage(image: &mut [u8], bytes: &[u8]) {
    for at in places(image, bytes) {
        image[at] ^= 0xff;
    }
}

fn damaged_places(mount: &Mount) -> u64 {
    let ask = bytes::getxattr(crate::STATUS_ATTRIBUTE, 60_000);
    let text = mount.ask_root(op::GETXATTR, ask).ok();
    let status: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    status["damaged_places"].as_u64().expect("a number")
}

#[test]
fn a_damaged_directory_is_reported_and_counted() {
    let Some(mount) = mount() else { return };
    let dir = mount.dir("dir");
    let inner = bytes::mkdir(0o755, "a name of its own");
    mount.ask(op::MKDIR, dir, inner).ok();
    let mut image = closed(mount);
    damage(&mut image, b"a name of its own");
    let mount = of(image);
    assert_eq!(damaged_places(&mount), 0);
    let reply = mount.ask(op::LOOKUP, dir, bytes::named("other"));
    reply.fails(Errno::UCLEAN);
    assert_eq!(damaged_places(&mount), 1);
    // A listing returns what can be read.
    let page = mount.ask(op::READDIR, dir, bytes::read(0, 0, 4096));
    assert_eq!(dirents(&page.ok(), 0)[1].name, "..");
}

#[test]
fn a_name_whose_inode_is_damaged_is_listed_without_attributes() {
    let Some(mount) = mount() else { return };
    let made = mount.ask_root(op::SYMLINK, bytes::symlink("bad", "a target of its own"));
    let bad = made.ok().nodeid();
    mount.file("good");
    let mut image = closed(mount);
    // A short target is stored in the inode.
    damage(&mut image, b"a target of its own");
    let mount = of(image);
    let page = mount.ask_root(op::READDIRPLUS, bytes::read(0, 0, DATA_BYTES as u32));
    let page = dirents(&page.ok(), ENTRY);
    let entry = |name| {
        page.iter()
            .find(|entry| entry.name == name)
            .expect("listed")
    };
    assert_eq!((entry("bad").ino, entry("bad").entry.u64(0)), (bad, 0));
    assert_eq!(entry("good").entry.u64(0), entry("good").ino);
    // `good` and `lost+found`.
    assert_eq!(mount.known(), 2);
    assert_eq!(damaged_places(&mount), 1);
    for (number, node, body) in [
        (op::LOOKUP, ROOT_NODEID, bytes::named("bad")),
        (op::LOOKUP, bad, bytes::named(".")),
        (op::GETATTR, bad, bytes::getattr(None)),
        (op::STATX, bad, bytes::statx(None)),
        (op::READLINK, bad, bytes::Bytes::new()),
        (op::UNLINK, ROOT_NODEID, bytes::named("bad")),
        (op::LINK, ROOT_NODEID, bytes::link(bad, "other")),
    ] {
        let reply = mount.ask(number, node, body);
        assert!(reply.is_errno(Errno::UCLEAN), "{number}: {reply:?}");
    }
    assert_eq!(mount.known(), 2);
}

/// The names already in the page are sent, because their look-ups are counted; the next request fails.
#[test]
fn a_listing_that_fails_half_way_sends_the_names_before_the_error() {
    // Not hashed: of a hashed directory, the whole index is checked first.
    let Some(mount) = mount_of(Kind::Ext2) else {
        return;
    };
    let dir = mount.dir("dir");
    let name = |at: u32| format!("{at:03} {}", "x".repeat(200));
    for at in 0..400 {
        mount
            .ask(op::MKNOD, dir, bytes::mknod(0o100_644, 0, &name(at)))
            .ok();
    }
    let image = closed(mount);
    let listed = |mount: &Mount, from| {
        let size = DATA_BYTES as u32;
        mount.ask(op::READDIRPLUS, dir, bytes::read(0, from, size))
    };
    let last = dirents(&listed(&of(image.clone()), 0).ok(), ENTRY);
    let last = last.last().expect("a name").name.clone();
    let mount = of(image.clone());
    mount.device.fail_reads_of(places(&image, last.as_bytes()));
    let mut count = 0;
    let mut from = 0;
    let failed = loop {
        let reply = listed(&mount, from);
        if !reply.is_ok() {
            break reply;
        }
        let page = dirents(&reply.ok(), ENTRY);
        from = page.last().expect("not the end").off;
        count += page.iter().filter(|entry| entry.entry.u64(0) != 0).count();
    };
    failed.fails(Errno::IO);
    assert!((1..400).contains(&count), "{count} names");
    assert_eq!(mount.known(), count);
}
