//! OPENDIR, READDIR, READDIRPLUS, RELEASEDIR, FSYNCDIR.

use rustix::io::Errno;

use super::bytes::{self, Bytes, op};
use super::harness::{Dirent, Mount, dirents, mount};
use super::names::NO_NODES;
use crate::nodes::{ROOT_INO, ROOT_NODEID};
use crate::options::MountOptions;

/// `struct fuse_entry_out`.
const ENTRY: usize = 128;

fn page(mount: &Mount, number: u32, dir: u64, from: u64, size: u32) -> Vec<Dirent> {
    let page = mount.ask(number, dir, bytes::read(0, from, size)).ok();
    assert!(page.len() <= size as usize);
    dirents(&page, if number == op::READDIRPLUS { ENTRY } else { 0 })
}

/// All names, in pages of `size` bytes.
fn all(mount: &Mount, number: u32, dir: u64, size: u32) -> Vec<Dirent> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let page = page(mount, number, dir, from, size);
        let Some(last) = page.last() else { return all };
        from = last.off;
        all.extend(page);
    }
}

#[test]
fn every_name_is_listed_once_in_pages_of_any_size() {
    let Some(mount) = mount() else { return };
    let dir = mount.dir("dir");
    let mut wanted: Vec<_> = (0..100).map(|at| format!("{:x<1$}", at, at + 2)).collect();
    for name in &wanted {
        mount
            .ask(op::MKNOD, dir, bytes::mknod(0o100_644, 0, name))
            .ok();
    }
    wanted.extend([".".to_owned(), "..".to_owned()]);
    wanted.sort();
    for number in [op::READDIR, op::READDIRPLUS] {
        for size in [300, 4096, 65_536] {
            let listed = all(&mount, number, dir, size);
            let mut names: Vec<_> = listed.iter().map(|entry| entry.name.clone()).collect();
            names.sort();
            assert_eq!(names, wanted);
        }
    }
}

#[test]
fn a_listing_has_inode_numbers_and_types() {
    let Some(mount) = mount() else { return };
    mount.ask_root(op::RMDIR, bytes::named("lost+found")).done();
    let kinds = [
        ("fifo", 0o010_600, 1),
        ("char", 0o020_600, 2),
        ("block", 0o060_600, 6),
        ("file", 0o100_600, 8),
        ("socket", 0o140_600, 12),
    ];
    for (name, mode, _) in kinds {
        mount
            .ask_root(op::MKNOD, bytes::mknod(mode, 0x0101, name))
            .ok();
    }
    mount
        .ask_root(op::SYMLINK, bytes::symlink("link", "target"))
        .ok();
    let dir = mount.dir("dir");
    let listed = all(&mount, op::READDIR, ROOT_NODEID, 4096);
    let more = [("link", 0, 10), ("dir", 0, 4), (".", 0, 4), ("..", 0, 4)];
    assert_eq!(listed.len(), kinds.len() + more.len());
    for (name, _, kind) in kinds.into_iter().chain(more) {
        let entry = listed
            .iter()
            .find(|entry| entry.name == name)
            .expect("listed");
        assert_eq!(entry.kind, kind, "{name}");
        let ino = match name {
            "." | ".." => ROOT_INO,
            name => mount.find(name),
        };
        assert_eq!(entry.ino, ino, "{name}");
    }
    let above = all(&mount, op::READDIR, dir, 4096);
    let inos: Vec<_> = above
        .iter()
        .map(|entry| (entry.name.as_str(), entry.ino))
        .collect();
    assert_eq!(inos, [(".", dir), ("..", ROOT_INO)]);
}

#[test]
fn a_listing_with_attributes_counts_a_look_up_for_each_name() {
    let Some(mount) = mount() else { return };
    let dir = mount.dir("dir");
    let mut nodes = Vec::new();
    for at in 0..20 {
        let made = mount.ask(op::MKNOD, dir, bytes::mknod(0o100_644, 0, &format!("{at}")));
        nodes.push(made.ok().nodeid());
    }
    for node in &nodes {
        mount.send_unanswered(op::FORGET, *node, Bytes::new().u64(1));
    }
    assert_eq!(mount.known(), 1);
    // Two pages of four names each. Two of the names are `.` and `..`, which are not counted.
    let mut from = 0;
    let mut seen = 0;
    for _ in 0..2 {
        let page = page(&mount, op::READDIRPLUS, dir, from, 4 * 160 + 100);
        assert_eq!(page.len(), 4);
        for entry in &page {
            let dot = entry.name.starts_with('.');
            assert_eq!(entry.entry.u64(0) == 0, dot);
            if !dot {
                seen += 1;
                assert_eq!(entry.entry.u64(0), entry.ino);
                assert_eq!(entry.entry.attr(), mount.attr(entry.ino));
            }
        }
        from = page.last().expect("a name").off;
        assert_eq!(mount.known(), 1 + seen);
    }
    assert_eq!(seen, 6);
    for node in &nodes {
        mount.send_unanswered(op::FORGET, *node, Bytes::new().u64(1));
    }
    assert_eq!(mount.known(), 1, "each was counted once");
}

#[test]
fn a_name_that_does_not_fit_is_in_the_next_page() {
    let Some(mount) = mount() else { return };
    for (number, room) in [(op::READDIR, 0), (op::READDIR, 24), (op::READDIRPLUS, 150)] {
        assert_eq!(page(&mount, number, ROOT_NODEID, 0, room), []);
    }
    assert_eq!(mount.known(), 0);
    let one = page(&mount, op::READDIR, ROOT_NODEID, 0, 32);
    assert_eq!(one.len(), 1);
}

#[test]
fn a_listing_continues_while_names_are_made_and_removed() {
    let Some(mount) = mount() else { return };
    let dir = mount.dir("dir");
    let make = |name: &str| {
        let made = mount.ask(op::MKNOD, dir, bytes::mknod(0o100_644, 0, name));
        made.ok().nodeid()
    };
    let kept: Vec<_> = (0..50).map(|at| format!("kept {at}")).collect();
    let gone: Vec<_> = (0..50).map(|at| format!("gone {at}")).collect();
    for name in kept.iter().chain(&gone) {
        make(name);
    }
    let first = page(&mount, op::READDIR, dir, 0, 1000);
    for name in &gone {
        mount.ask(op::UNLINK, dir, bytes::named(name)).done();
    }
    for at in 0..50 {
        make(&format!("new {at}"));
    }
    let mut names: Vec<_> = first.iter().map(|entry| entry.name.clone()).collect();
    let mut from = first.last().expect("a name").off;
    loop {
        let page = page(&mount, op::READDIR, dir, from, 1000);
        let Some(last) = page.last() else { break };
        from = last.off;
        names.extend(page.into_iter().map(|entry| entry.name));
    }
    for name in &kept {
        assert_eq!(
            names.iter().filter(|listed| *listed == name).count(),
            1,
            "{name}"
        );
    }
}

#[test]
fn only_an_existing_directory_is_listed() {
    let Some(mount) = mount() else { return };
    let file = mount.file("file");
    let ask = || bytes::read(0, 0, 4096);
    for number in [op::READDIR, op::READDIRPLUS] {
        mount.ask(number, file, ask()).fails(Errno::NOTDIR);
        for nodeid in NO_NODES {
            mount.ask(number, *nodeid, ask()).fails(Errno::NOENT);
        }
    }
    let sync = |node| mount.ask(op::FSYNCDIR, node, bytes::fsync(0, 0));
    for nodeid in NO_NODES {
        sync(*nodeid).fails(Errno::NOENT);
    }
    assert_eq!(mount.known(), 1);
}

#[test]
fn a_listing_succeeds_again_after_a_device_error() {
    for number in [op::READDIR, op::READDIRPLUS] {
        let Some(mount) = mount() else { return };
        let dir = mount.dir("dir");
        mount.ask(op::MKDIR, dir, bytes::mkdir(0o755, "inner")).ok();
        let mount = mount.again(&MountOptions::default());
        let dir = mount.find("dir");
        mount.device.fail_reads(true);
        let ask = || bytes::read(0, 0, 4096);
        mount.ask(number, dir, ask()).fails(Errno::IO);
        assert_eq!(mount.known(), 1);
        mount.device.fail_reads(false);
        assert_eq!(page(&mount, number, dir, 0, 4096).len(), 3);
    }
}

#[test]
fn the_kernel_learns_that_directories_need_not_be_opened() {
    let Some(mount) = mount() else { return };
    mount
        .ask_root(op::OPENDIR, bytes::open(0))
        .fails(Errno::NOSYS);
    mount.ask_root(op::RELEASEDIR, bytes::release(0)).done();
}

#[test]
fn the_names_in_a_synced_directory_survive_a_crash() {
    let Some(mount) = mount() else { return };
    for (name, data_only) in [("one", 0), ("two", 1)] {
        mount.file(name);
        mount
            .ask_root(op::FSYNCDIR, bytes::fsync(0, data_only))
            .done();
        let image = throughline::Memory::from(mount.device.to_vec());
        let mut options = throughline::OpenOptions::new();
        let volume = options.write(true).allow_unclean(true).open_device(image);
        let volume = volume.expect("a volume");
        assert!(volume.metadata(format!("/{name}")).is_ok());
    }
    mount.file("three");
    mount.device.fail_writes(true);
    // The failed commit has stopped the volume.
    mount
        .ask_root(op::FSYNCDIR, bytes::fsync(0, 0))
        .fails(Errno::IO);
    mount
        .ask_root(op::FSYNCDIR, bytes::fsync(0, 0))
        .fails(Errno::ROFS);
}
