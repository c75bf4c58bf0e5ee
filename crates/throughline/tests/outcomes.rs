//! `throughline::ops`: which inodes an operation lists as changed, on success and on failure.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use throughline::ops::{self, Outcome};
use throughline::{
    Attributes, Device, Fallocate, FileOptions, InodeFlags, Memory, NewNode, Node, OpenOptions,
    RenameMode, Result, Volume, XattrMode,
};
use throughline_testkit::e2fs::mke2fs;

/// An image in memory that fails writes and flushes on demand.
#[derive(Clone)]
struct Failing {
    memory: Memory,
    fails: Arc<AtomicBool>,
}

impl Failing {
    fn done(&self, done: io::Result<()>) -> io::Result<()> {
        match self.fails.load(Ordering::SeqCst) {
            true => Err(io::Error::other("on demand")),
            false => done,
        }
    }
}

impl Device for Failing {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.done(self.memory.write_all_at(buf, offset))
    }

    fn flush(&self) -> io::Result<()> {
        self.done(self.memory.flush())
    }
}

/// A new volume, and the switch that makes its device fail; `None` where mke2fs cannot be run.
fn volume() -> Option<(Volume, Arc<AtomicBool>)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    if !mke2fs(&path, "16M", &["-t", "ext4"]) {
        return None;
    }
    let fails = Arc::new(AtomicBool::new(false));
    let device = Failing {
        memory: Memory::from(std::fs::read(path).unwrap()),
        fails: Arc::clone(&fails),
    };
    let volume = OpenOptions::new().write(true).open_device(device).unwrap();
    Some((volume, fails))
}

fn file(dir: &Node, name: &[u8]) -> Node {
    dir.create(name, NewNode::File, &Attributes::new()).unwrap()
}

/// Checks which inodes are listed, in any order, and returns the result.
#[track_caller]
fn listed<T>(outcome: Outcome<T>, nodes: &[&Node]) -> Result<T> {
    let mut found = outcome.changed().to_vec();
    let mut wanted: Vec<u64> = nodes.iter().map(|node| node.ino()).collect();
    found.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(found, wanted);
    outcome.into_result()
}

#[test]
fn a_success_lists_what_it_changed() -> Result<()> {
    let Some((volume, _)) = volume() else {
        return Ok(());
    };
    let root = volume.root_node()?;
    let plain = Attributes::new();
    let made = ops::create(&root, b"dir", NewNode::Directory, 0o755, &plain);
    let dir = listed(made, &[&root])?;
    let (one, other) = (file(&root, b"one"), file(&dir, b"other"));
    listed(ops::tmpfile(&root, &plain, true), &[])?;
    listed(ops::link(&dir, &one, b"link"), &[&dir, &one])?;
    let replace = RenameMode::Replace;
    listed(
        ops::rename((&root, b"one"), (&dir, b"other"), replace),
        &[&root, &dir, &one, &other],
    )?;
    listed(ops::unlink(&dir, b"link"), &[&dir, &one])?;
    listed(
        ops::set_attributes(&one, &plain.clone().mode(0o600)),
        &[&one],
    )?;
    listed(
        ops::set_flags(&one, one.flags() | InodeFlags::NODUMP),
        &[&one],
    )?;
    listed(
        ops::set_xattr(&one, b"user.a", b"value", XattrMode::Either),
        &[&one],
    )?;
    listed(ops::remove_xattr(&one, b"user.a"), &[&one])?;
    let data = one.open(&FileOptions::new())?;
    listed(ops::write(&data, b"some bytes", 0), &[&one])?;
    listed(ops::write(&data, b"", 0), &[])?;
    listed(ops::set_len(&one, 5), &[&one])?;
    listed(ops::allocate(&one, Fallocate::Allocate, 0, 9000), &[&one])?;
    listed(ops::unlink(&dir, b"other"), &[&dir, &one])?;
    listed(ops::rmdir(&root, b"dir"), &[&root, &dir])?;
    Ok(())
}

#[test]
fn a_refusal_lists_nothing() -> Result<()> {
    let (Some((volume, _)), Some((other, _))) = (volume(), volume()) else {
        return Ok(());
    };
    let (root, there) = (volume.root_node()?, other.root_node()?);
    let plain = Attributes::new();
    let one = file(&root, b"one");
    let again = ops::create(&root, b"one", NewNode::File, 0o644, &plain);
    assert!(listed(again, &[]).is_err());
    assert!(listed(ops::link(&root, &root, b"link"), &[]).is_err());
    assert!(listed(ops::link(&there, &one, b"link"), &[]).is_err());
    assert!(listed(ops::unlink(&root, b"none"), &[]).is_err());
    assert!(listed(ops::rmdir(&root, b"lost+found/"), &[]).is_err());
    let keep = ops::rename(
        (&root, b"one"),
        (&root, b"lost+found"),
        RenameMode::NoReplace,
    );
    assert!(listed(keep, &[]).is_err());
    assert!(listed(ops::remove_xattr(&one, b"user.none"), &[]).is_err());
    assert!(listed(ops::set_len(&root, 0), &[]).is_err());
    one.set_flags(one.flags() | InodeFlags::IMMUTABLE)?;
    assert!(listed(ops::set_attributes(&one, &plain.mode(0o600)), &[]).is_err());
    assert!(listed(ops::link(&root, &one, b"link"), &[]).is_err());
    assert!(listed(ops::unlink(&root, b"one"), &[]).is_err());
    one.set_flags(one.flags() - InodeFlags::IMMUTABLE)?;
    assert!(listed(ops::allocate(&one, Fallocate::Allocate, 0, 0), &[]).is_err());
    Ok(())
}

/// A name that must be durable is there when the device fails to make it so: the operation fails, and lists
/// the directory.
#[test]
fn a_failure_after_the_change_lists_it() -> Result<()> {
    for kind in 0..4 {
        let Some((volume, fails)) = volume() else {
            return Ok(());
        };
        let root = volume.root_node()?;
        let (one, other) = (file(&root, b"one"), file(&root, b"other"));
        root.set_flags(root.flags() | InodeFlags::DIRSYNC)?;
        volume.sync()?;
        fails.store(true, Ordering::SeqCst);
        let plain = Attributes::new();
        let (result, there) = match kind {
            0 => {
                let made = ops::create(&root, b"new", NewNode::File, 0o644, &plain);
                (listed(made, &[&root]).map(drop), b"new".as_slice())
            }
            1 => {
                let linked = ops::link(&root, &one, b"link");
                (listed(linked, &[&root, &one]), b"link".as_slice())
            }
            2 => {
                let gone = ops::unlink(&root, b"one");
                (listed(gone, &[&root, &one]), b"other".as_slice())
            }
            _ => {
                let swap = RenameMode::Replace;
                let moved = ops::rename((&root, b"one"), (&root, b"other"), swap);
                (listed(moved, &[&root, &one, &other]), b"other".as_slice())
            }
        };
        assert!(result.is_err(), "{kind}");
        assert!(root.lookup(there).is_ok(), "{kind}");
        assert_eq!(root.lookup(b"one").is_ok(), kind < 2, "{kind}");
    }
    Ok(())
}
