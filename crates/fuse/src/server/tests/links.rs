//! UNLINK and RMDIR, and inodes without names.

use rustix::io::Errno;

use super::bytes::{self, Bytes, op};
use super::harness::mount;
use super::names::NO_NODES;

#[test]
fn a_removed_name_is_gone() {
    let Some(mount) = mount() else { return };
    mount.file("file");
    mount.dir("dir");
    mount.ask_root(op::UNLINK, bytes::named("file")).done();
    mount.ask_root(op::RMDIR, bytes::named("dir")).done();
    assert_eq!(mount.names(), ["lost+found"]);
    for name in ["file", "dir"] {
        let missing = mount.ask_root(op::LOOKUP, bytes::named(name)).ok();
        assert_eq!(missing.u64(0), 0);
    }
}

#[test]
fn a_name_that_cannot_be_removed_stays() {
    let Some(mount) = mount() else { return };
    let file = mount.file("file");
    let dir = mount.dir("dir");
    mount.ask(op::MKDIR, dir, bytes::mkdir(0o755, "inner")).ok();
    let long = "n".repeat(256);
    for (number, name, errno) in [
        (op::UNLINK, "missing", Errno::NOENT),
        (op::RMDIR, "missing", Errno::NOENT),
        (op::UNLINK, "dir", Errno::ISDIR),
        (op::RMDIR, "file", Errno::NOTDIR),
        (op::RMDIR, "dir", Errno::NOTEMPTY),
        (op::UNLINK, &long, Errno::NAMETOOLONG),
        (op::RMDIR, &long, Errno::NAMETOOLONG),
    ] {
        mount.ask_root(number, bytes::named(name)).fails(errno);
    }
    for number in [op::UNLINK, op::RMDIR] {
        for nodeid in NO_NODES {
            let reply = mount.ask(number, *nodeid, bytes::named("file"));
            reply.fails(Errno::NOENT);
        }
        let below = mount.ask(number, file, bytes::named("a"));
        below.fails(Errno::NOTDIR);
        for name in [".", ".."] {
            assert!(!mount.ask(number, dir, bytes::named(name)).is_ok());
        }
    }
    mount.set_flags(dir, 0x10);
    let inner = mount.ask(op::RMDIR, dir, bytes::named("inner"));
    inner.fails(Errno::PERM);
    assert_eq!(mount.names(), ["dir", "file", "lost+found"]);
}

#[test]
fn a_file_without_names_lives_until_it_is_forgotten() {
    let Some(mount) = mount() else { return };
    let free = || mount.ask_root(op::STATFS, []).ok().u64(32);
    let before = free();
    let node = mount.file_with("file", b"data");
    let fh = mount.open(node, 2);
    mount.ask_root(op::UNLINK, bytes::named("file")).done();
    assert_eq!(mount.attr(node).nlink, 0);
    mount
        .ask(op::WRITE, node, bytes::write(fh, 4, b"more"))
        .ok();
    assert_eq!(mount.contents(node), b"datamore");
    assert_eq!(free(), before - 1);
    mount.ask(op::RELEASE, node, bytes::release(fh)).done();
    assert_eq!(free(), before - 1, "the kernel still references it");
    mount.send_unanswered(op::FORGET, node, Bytes::new().u64(1));
    assert_eq!(free(), before);
    let attr = mount.ask(op::GETATTR, node, bytes::getattr(None));
    attr.fails(Errno::NOENT);
    mount
        .ask(op::OPEN, node, bytes::open(0))
        .fails(Errno::NOENT);
}

#[test]
fn a_file_that_is_forgotten_first_lives_until_its_last_handle_is_closed() {
    let Some(mount) = mount() else { return };
    let free = || mount.ask_root(op::STATFS, []).ok().u64(32);
    let before = free();
    let node = mount.file_with("file", b"data");
    let fh = mount.open(node, 0);
    mount.ask_root(op::UNLINK, bytes::named("file")).done();
    mount.send_unanswered(op::FORGET, node, Bytes::new().u64(1));
    let data = mount.ask(op::READ, node, bytes::read(fh, 0, 100)).ok();
    assert_eq!(*data, *b"data");
    assert_eq!(free(), before - 1);
    mount.ask(op::RELEASE, node, bytes::release(fh)).done();
    assert_eq!(free(), before);
}

#[test]
fn a_file_with_two_names_survives_the_removal_of_one() {
    let Some(mount) = mount() else { return };
    let node = mount.file("one");
    mount.ask_root(op::LINK, bytes::link(node, "two")).ok();
    assert_eq!(mount.known(), 1);
    mount.ask_root(op::UNLINK, bytes::named("one")).done();
    mount.send_unanswered(op::FORGET, node, Bytes::new().u64(2));
    assert_eq!(mount.known(), 0);
    assert_eq!(mount.find("two"), node);
    assert_eq!(mount.attr(node).nlink, 1);
}
