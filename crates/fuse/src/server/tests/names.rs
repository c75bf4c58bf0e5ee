//! LOOKUP, and the requests that create: MKNOD, MKDIR, SYMLINK, CREATE, LINK, TMPFILE.

use rustix::io::Errno;
use throughline::{Attributes, NewNode};

use super::bytes::{self, Bytes, op};
use super::device::Kind;
use super::harness::{Mount, mount, mount_of, mount_with};
use crate::nodes::{ROOT_INO, ROOT_NODEID};
use crate::options::{Choices, MountOptions};

/// Invalid node ids: never given to the kernel, reserved inodes, out of range.
pub(super) const NO_NODES: &[u64] = &[0, ROOT_INO, 3, 7, 8, 500, 1 << 31, 1 << 32, u64::MAX];
const O_EXCL: u32 = 0o200;
const O_RDWR: u32 = 2;

#[test]
fn a_name_is_found_with_its_attributes() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", b"data");
    let entry = mount.ask_root(op::LOOKUP, bytes::named("file")).ok();
    assert_eq!(entry.len(), 128);
    assert_eq!(entry.nodeid(), node);
    let attr = entry.attr();
    assert_eq!((attr.ino, attr.size, attr.nlink), (node, 4, 1));
    assert_eq!((attr.mode, attr.blksize), (0o100_644, 1024));
    assert_eq!(entry.attr(), mount.attr(node));
    assert_eq!(mount.find(".."), ROOT_NODEID);
    assert_eq!(mount.known(), 1);
}

#[test]
fn options_decide_how_long_names_and_missing_names_are_cached() {
    for kept in [true, false] {
        let options = MountOptions {
            choices: Choices {
                entry_cache: kept,
                ..Choices::default()
            },
            ..MountOptions::default()
        };
        let Some(mount) = mount_with(Kind::Ext4, &options) else {
            return;
        };
        let found = mount.ask_root(op::LOOKUP, bytes::named("lost+found")).ok();
        let missing = mount.ask_root(op::LOOKUP, bytes::named("missing")).ok();
        assert_eq!(missing.u64(0), 0, "no node");
        for entry in [&found, &missing] {
            assert_eq!(entry.u64(16) > 1000, kept, "entry_valid");
        }
        assert_eq!(found.u64(24) > 1000, kept, "attr_valid");
        assert_eq!(mount.known(), 1);
    }
}

#[test]
fn a_look_up_needs_a_directory_and_a_valid_name() {
    let Some(mount) = mount() else { return };
    let file = mount.file("file");
    for nodeid in NO_NODES {
        let reply = mount.ask(op::LOOKUP, *nodeid, bytes::named("file"));
        reply.fails(Errno::NOENT);
    }
    let below = mount.ask(op::LOOKUP, file, bytes::named("a"));
    below.fails(Errno::NOTDIR);
    let long = bytes::named(&"n".repeat(256));
    mount.ask_root(op::LOOKUP, long).fails(Errno::NAMETOOLONG);
    assert_eq!(mount.known(), 1);
}

/// The kernel sends this for `open_by_handle_at`. The number may be stale.
#[test]
fn a_look_up_of_dot_finds_the_node_itself_if_it_is_in_use() {
    let Some(mount) = mount() else { return };
    let file = mount.file("file");
    let gone = mount.file("gone");
    mount.ask_root(op::UNLINK, bytes::named("gone")).done();
    let found = mount.ask(op::LOOKUP, file, bytes::named(".")).ok();
    assert_eq!(found.nodeid(), file);
    let root = mount.ask_root(op::LOOKUP, bytes::named(".")).ok();
    assert_eq!(root.nodeid(), ROOT_NODEID);
    // Its last name is removed, but the kernel still references it.
    let reply = mount.ask(op::LOOKUP, gone, bytes::named("."));
    reply.fails(Errno::NOENT);
    for nodeid in NO_NODES {
        let reply = mount.ask(op::LOOKUP, *nodeid, bytes::named("."));
        reply.fails(Errno::NOENT);
    }
}

/// All requests that make `name`, in their simplest form.
pub(super) fn making(mount: &Mount, name: &str) -> Vec<(u32, Bytes)> {
    let linked = match mount.ask_root(op::LOOKUP, bytes::named("linked")).ok() {
        entry if entry.u64(0) != 0 => entry.u64(0),
        _ => mount.file("linked"),
    };
    vec![
        (op::MKNOD, bytes::mknod(0o100_644, 0, name)),
        (op::MKDIR, bytes::mkdir(0o755, name)),
        (op::SYMLINK, bytes::symlink(name, "target")),
        (op::CREATE, bytes::create(O_RDWR, 0o100_644, name)),
        (op::LINK, bytes::link(linked, name)),
    ]
}

#[test]
fn each_request_that_makes_a_name_makes_it() {
    let Some(mount) = mount() else { return };
    for (index, (number, body)) in making(&mount, "0").into_iter().enumerate() {
        let made = mount.ask_root(number, body).ok();
        let name = format!("{index} is it");
        let body = bytes::rename("0", ROOT_NODEID, &name);
        mount.ask_root(op::RENAME, body).done();
        assert_eq!(mount.find(&name), made.nodeid());
    }
    let kinds = ["0", "1", "2", "3", "4"].map(|at| mount.attr(mount.find(&format!("{at} is it"))));
    let types = kinds.map(|attr| attr.mode >> 12);
    assert_eq!(types, [0o10, 0o4, 0o12, 0o10, 0o10]);
    assert_eq!(kinds.map(|attr| attr.nlink), [1, 2, 1, 1, 2]);
    assert_eq!(mount.handles(), 1, "CREATE opens");
}

#[test]
fn creation_needs_a_directory_and_a_free_valid_name() {
    let Some(mount) = mount() else { return };
    let file = mount.file("file");
    let removed = mount.dir("removed");
    mount.ask_root(op::RMDIR, bytes::named("removed")).done();
    let long = "n".repeat(256);
    let (names, known) = (mount.names(), mount.known());
    let cases = [
        (ROOT_NODEID, "file", Errno::EXIST),
        (ROOT_NODEID, ".", Errno::EXIST),
        (ROOT_NODEID, "..", Errno::EXIST),
        (ROOT_NODEID, "", Errno::INVAL),
        (ROOT_NODEID, "a/b", Errno::INVAL),
        (ROOT_NODEID, &long, Errno::NAMETOOLONG),
        (file, "a", Errno::NOTDIR),
        (removed, "a", Errno::NOENT),
    ];
    let nowhere = NO_NODES.iter().map(|nodeid| (*nodeid, "a", Errno::NOENT));
    for (dir, name, errno) in cases.into_iter().chain(nowhere) {
        for (number, body) in making(&mount, name) {
            let reply = mount.ask(number, dir, body);
            assert!(
                reply.is_errno(errno),
                "{reply:?} to {number} of {name:?} in {dir}, not {errno}"
            );
        }
    }
    mount.ask_root(op::UNLINK, bytes::named("linked")).done();
    assert_eq!(mount.names(), names);
    // Only "linked" is known in addition.
    assert_eq!(mount.known(), known + 1);
    assert_eq!(mount.handles(), 0);
}

#[test]
fn no_name_is_made_in_an_immutable_directory() {
    let Some(mount) = mount() else { return };
    let dir = mount.dir("dir");
    mount.set_flags(dir, 0x10);
    for (number, body) in making(&mount, "a") {
        mount.ask(number, dir, body).fails(Errno::PERM);
    }
    let tmpfile = mount.ask(op::TMPFILE, dir, bytes::create(2, 0o644, ""));
    tmpfile.fails(Errno::PERM);
    assert_eq!(mount.handles(), 0);
}

#[test]
fn nodes_of_every_type_are_made_and_shown() {
    let Some(mount) = mount() else { return };
    let rdev = 0x0012_3456;
    for (mode, rdev) in [
        (0o100_600, 0),
        (0o010_600, 0),
        (0o140_600, 0),
        (0o020_600, rdev),
        (0o060_600, rdev),
    ] {
        let name = format!("{mode:o}");
        let made = mount.ask_root(op::MKNOD, bytes::mknod(mode, rdev, &name));
        let attr = made.ok().attr();
        assert_eq!((attr.mode, attr.rdev), (mode, rdev));
        assert_eq!(mount.attr(mount.find(&name)), attr);
    }
    // A directory, a symbolic link, no type, an unknown type.
    for mode in [0o040_755, 0o120_777, 0o644, 0o170_000] {
        let reply = mount.ask_root(op::MKNOD, bytes::mknod(mode, 0, "a"));
        reply.fails(Errno::INVAL);
    }
}

#[test]
fn a_created_file_is_open() {
    let Some(mount) = mount() else { return };
    let made = mount.ask_root(op::CREATE, bytes::create(O_RDWR, 0o100_600, "file"));
    let made = made.ok();
    assert_eq!(made.len(), 144);
    let (node, fh) = (made.nodeid(), made.u64(128));
    assert_eq!(made.attr().mode, 0o100_600);
    mount
        .ask(op::WRITE, node, bytes::write(fh, 0, b"data"))
        .ok();
    assert_eq!(mount.contents(mount.find("file")), b"data");
    mount.ask(op::RELEASE, node, bytes::release(fh)).done();
}

#[test]
fn only_symbolic_links_have_targets() {
    let Some(mount) = mount() else { return };
    let long = "t".repeat(900);
    for (name, target) in [("short", "over/there"), ("long", &long)] {
        let made = mount.ask_root(op::SYMLINK, bytes::symlink(name, target));
        let node = made.ok().nodeid();
        let read = mount.ask(op::READLINK, node, []).ok();
        assert_eq!(*read, *target.as_bytes());
        assert_eq!(mount.attr(node).size, target.len() as u64);
    }
    let file = mount.file("file");
    mount.ask(op::READLINK, file, []).fails(Errno::INVAL);
    mount.ask_root(op::READLINK, []).fails(Errno::INVAL);
    mount.ask(op::READLINK, 999, []).fails(Errno::NOENT);
    let empty = mount.ask_root(op::SYMLINK, bytes::symlink("a", ""));
    empty.fails(Errno::NOENT);
    let too_long = bytes::symlink("a", &"t".repeat(1024));
    mount
        .ask_root(op::SYMLINK, too_long)
        .fails(Errno::NAMETOOLONG);
}

#[test]
fn a_link_needs_an_inode_that_may_have_another_name() {
    let Some(mount) = mount() else { return };
    let dir = mount.dir("dir");
    for nodeid in NO_NODES {
        let reply = mount.ask_root(op::LINK, bytes::link(*nodeid, "a"));
        reply.fails(Errno::NOENT);
    }
    mount
        .ask_root(op::LINK, bytes::link(dir, "a"))
        .fails(Errno::PERM);
    let root = bytes::link(ROOT_NODEID, "a");
    mount.ask_root(op::LINK, root).fails(Errno::PERM);
    let gone = mount.file("gone");
    mount.ask_root(op::UNLINK, bytes::named("gone")).done();
    mount
        .ask_root(op::LINK, bytes::link(gone, "a"))
        .fails(Errno::NOENT);
    let fixed = mount.file("fixed");
    mount.set_flags(fixed, 0x10);
    mount
        .ask_root(op::LINK, bytes::link(fixed, "a"))
        .fails(Errno::PERM);
}

#[test]
fn a_temporary_file_can_be_linked_unless_it_is_exclusive() {
    let Some(mount) = mount() else { return };
    for (flags, linked) in [(O_RDWR, true), (O_RDWR | O_EXCL, false)] {
        let made = mount.ask_root(op::TMPFILE, bytes::create(flags, 0o100_600, ""));
        let made = made.ok();
        let (node, fh) = (made.nodeid(), made.u64(128));
        assert_eq!(made.attr().nlink, 0);
        mount
            .ask(op::WRITE, node, bytes::write(fh, 0, b"data"))
            .ok();
        let reply = mount.ask_root(op::LINK, bytes::link(node, &format!("{linked}")));
        match linked {
            true => assert_eq!(reply.ok().attr().nlink, 1),
            false => drop(reply.fails(Errno::NOENT)),
        }
        mount.ask(op::RELEASE, node, bytes::release(fh)).done();
        mount.send_unanswered(op::FORGET, node, Bytes::new().u64(5));
    }
    assert_eq!(mount.contents(mount.find("true")), b"data");
}

#[test]
fn a_temporary_file_needs_a_directory() {
    let Some(mount) = mount() else { return };
    let file = mount.file("file");
    let removed = mount.dir("removed");
    mount.ask_root(op::RMDIR, bytes::named("removed")).done();
    let ask = |dir| mount.ask(op::TMPFILE, dir, bytes::create(2, 0o100_600, ""));
    // As the kernel's ext4.
    ask(removed).fails(Errno::PERM);
    ask(file).fails(Errno::NOTDIR);
    for nodeid in NO_NODES {
        ask(*nodeid).fails(Errno::NOENT);
    }
    assert_eq!(mount.handles(), 0);
}

#[test]
fn nothing_is_made_on_a_full_volume() {
    let Some(mount) = mount_of(Kind::Small) else {
        return;
    };
    let mut made = 0;
    loop {
        let reply = mount.ask_root(op::MKNOD, bytes::mknod(0o100_644, 0, &format!("{made}")));
        if !reply.is_ok() {
            reply.fails(Errno::NOSPC);
            break;
        }
        made += 1;
    }
    assert!((1..16).contains(&made), "{made} files");
    let (names, known) = (mount.names(), mount.known());
    for (number, body) in [
        (op::MKNOD, bytes::mknod(0o100_644, 0, "a")),
        (op::MKDIR, bytes::mkdir(0o755, "a")),
        (op::SYMLINK, bytes::symlink("a", "b")),
        (op::CREATE, bytes::create(2, 0o100_644, "a")),
        (op::TMPFILE, bytes::create(2, 0o100_644, "")),
    ] {
        mount.ask_root(number, body).fails(Errno::NOSPC);
    }
    assert_eq!((mount.names(), mount.known()), (names, known));
    assert_eq!(mount.handles(), 0);
    // The removed file is still known, so the request waits a little for the kernel to forget it.
    let kept = mount.find("2");
    mount.ask_root(op::UNLINK, bytes::named("2")).done();
    let late = mount.ask_root(op::MKNOD, bytes::mknod(0o100_644, 0, "a"));
    late.fails(Errno::NOSPC);
    assert_eq!(mount.attr(kept).nlink, 0);
    // A file that is removed and forgotten leaves room.
    let gone = mount.find("1");
    mount.ask_root(op::UNLINK, bytes::named("1")).done();
    mount.send_unanswered(op::FORGET, gone, Bytes::new().u64(2));
    mount.file("a");
}

/// CREATE makes only regular files, which can always be opened; so this calls the server directly.
#[test]
fn a_node_that_cannot_be_opened_after_creation_is_not_counted() {
    let Some(mount) = mount() else { return };
    let server = &mount.server;
    let creation = &server.families.creation;
    let root = server.volume.node("/").expect("the root");
    let make = |name: &[u8], kind| {
        let node = root.create(name, kind, &Attributes::new());
        node.expect("a node")
    };
    let file = creation.made_open(&root, make(b"file", NewNode::File), 0);
    assert!(file.is_ok());
    assert_eq!((mount.known(), mount.handles()), (1, 1));
    let refused = creation.made_open(&root, make(b"directory", NewNode::Directory), 0);
    assert!(refused.is_err());
    assert_eq!((mount.known(), mount.handles()), (1, 1));
}
