//! RENAME and RENAME2.

use rustix::io::Errno;

use super::bytes::{self, Bytes, op};
use super::harness::{Caller, Mount, mount};
use super::names::NO_NODES;
use crate::nodes::ROOT_NODEID;

const NOREPLACE: u32 = 1;
const EXCHANGE: u32 = 2;
const WHITEOUT: u32 = 4;

fn rename(mount: &Mount, flags: u32, from: &str, to: &str) -> super::harness::Reply {
    mount.ask_root(op::RENAME2, bytes::rename2(flags, from, ROOT_NODEID, to))
}

#[test]
fn a_renamed_file_keeps_its_node() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", b"data");
    let dir = mount.dir("dir");
    mount
        .ask_root(op::RENAME, bytes::rename("file", dir, "moved"))
        .done();
    let found = mount.ask(op::LOOKUP, dir, bytes::named("moved")).ok();
    assert_eq!(found.nodeid(), node);
    let back = bytes::rename2(0, "moved", ROOT_NODEID, "file");
    mount.ask(op::RENAME2, dir, back).done();
    assert_eq!(mount.names(), ["dir", "file", "lost+found"]);
    assert_eq!(mount.contents(node), b"data");
}

#[test]
fn a_replaced_file_lives_until_it_is_forgotten() {
    let Some(mount) = mount() else { return };
    let (new, old) = (
        mount.file_with("new", b"new"),
        mount.file_with("old", b"old"),
    );
    rename(&mount, 0, "new", "old").done();
    assert_eq!(mount.find("old"), new);
    assert_eq!(mount.attr(old).nlink, 0);
    assert_eq!(mount.contents(old), b"old");
    mount.send_unanswered(op::FORGET, old, Bytes::new().u64(1));
    let gone = mount.ask(op::GETATTR, old, bytes::getattr(None));
    gone.fails(Errno::NOENT);
}

#[test]
fn two_names_are_exchanged() {
    let Some(mount) = mount() else { return };
    let (file, dir) = (mount.file("file"), mount.dir("dir"));
    rename(&mount, EXCHANGE, "file", "dir").done();
    assert_eq!((mount.find("file"), mount.find("dir")), (dir, file));
    assert_eq!(mount.attr(file).nlink, 1);
}

#[test]
fn a_whiteout_gets_the_old_name() {
    let Some(mount) = mount() else { return };
    for (flags, to) in [(WHITEOUT, "old"), (WHITEOUT | NOREPLACE, "other")] {
        let node = mount.file("file");
        let old = mount.file_or_found("old");
        mount.by(Caller::user(42, 43));
        rename(&mount, flags, "file", to).done();
        mount.by(Caller::root());
        assert_eq!(mount.find(to), node);
        let attr = mount.attr(mount.find("file"));
        assert_eq!((attr.mode >> 12, attr.rdev), (0o2, 0));
        assert_eq!((attr.uid, attr.gid), (42, 43));
        mount.ask_root(op::UNLINK, bytes::named("file")).done();
        mount.send_unanswered(op::FORGET, old, Bytes::new().u64(9));
    }
}

#[test]
fn unknown_and_contradictory_flags_are_invalid() {
    let Some(mount) = mount() else { return };
    mount.file("file");
    mount.file("other");
    let wrong = [
        8,
        1 << 31,
        EXCHANGE | WHITEOUT,
        EXCHANGE | NOREPLACE,
        EXCHANGE | NOREPLACE | WHITEOUT,
    ];
    for flags in wrong {
        rename(&mount, flags, "file", "other").fails(Errno::INVAL);
    }
    assert_eq!(mount.names(), ["file", "lost+found", "other"]);
}

#[test]
fn an_impossible_rename_changes_nothing() {
    let Some(mount) = mount() else { return };
    mount.file("file");
    let dir = mount.dir("dir");
    let inner = mount.ask(op::MKDIR, dir, bytes::mkdir(0o755, "inner"));
    let inner = inner.ok().nodeid();
    mount.dir("empty");
    mount.dir("full");
    let full = mount.find("full");
    mount.ask(op::MKDIR, full, bytes::mkdir(0o755, "a")).ok();
    let long = "n".repeat(256);
    for (flags, from, to, errno) in [
        (0, "missing", "a", Errno::NOENT),
        (EXCHANGE, "file", "missing", Errno::NOENT),
        (WHITEOUT, "missing", "a", Errno::NOENT),
        (NOREPLACE, "file", "dir", Errno::EXIST),
        (0, "file", "dir", Errno::ISDIR),
        (0, "dir", "file", Errno::NOTDIR),
        (0, "dir", "full", Errno::NOTEMPTY),
        (0, &long, "a", Errno::NAMETOOLONG),
        (0, "file", &long, Errno::NAMETOOLONG),
        (0, "file", "", Errno::INVAL),
        (0, "file", "a/b", Errno::INVAL),
    ] {
        let reply = rename(&mount, flags, from, to);
        assert!(reply.is_errno(errno), "{reply:?}: {flags} {from} {to}");
    }
    // Into itself, and into a directory below it.
    for below in [dir, inner] {
        let into = bytes::rename("dir", below, "a");
        mount.ask_root(op::RENAME, into).fails(Errno::INVAL);
    }
    for nodeid in NO_NODES {
        let from = bytes::rename("file", ROOT_NODEID, "a");
        mount.ask(op::RENAME, *nodeid, from).fails(Errno::NOENT);
        let to = bytes::rename("file", *nodeid, "a");
        mount.ask_root(op::RENAME, to).fails(Errno::NOENT);
    }
    let file = mount.find("file");
    let into = bytes::rename("dir", file, "a");
    mount.ask_root(op::RENAME, into).fails(Errno::NOTDIR);
    let outof = bytes::rename("a", ROOT_NODEID, "b");
    mount.ask(op::RENAME, file, outof).fails(Errno::NOTDIR);
    assert_eq!(
        mount.names(),
        ["dir", "empty", "file", "full", "lost+found"]
    );
}
