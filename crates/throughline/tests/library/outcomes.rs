//! `throughline::ops`: which inodes an operation lists as changed, on success and on failure.

use crate::failing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use failing::volume_with;
use throughline::ops::{self, Outcome};
use throughline::{
    Attributes, Error, Fallocate, File, FileOptions, InodeFlags, NewNode, Node, Reason, RenameMode,
    Result, Volume, VolumeOptions, XattrMode,
};

fn volume() -> Option<(Volume, Arc<AtomicBool>)> {
    volume_with(&VolumeOptions::new())
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
    let root = volume.node("/")?;
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
    let (root, there) = (volume.node("/")?, other.node("/")?);
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
        let root = volume.node("/")?;
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

/// The files that were written, and those that refused it, each as its handle requires.
#[test]
fn files_written_together_are_checked_one_by_one() -> Result<()> {
    let (Some((volume, _)), Some((other, _))) = (volume(), volume()) else {
        return Ok(());
    };
    let root = volume.node("/")?;
    let nodes = [b"one", b"two", b"six"].map(|name| file(&root, name));
    let open = |node: &Node| node.open(&FileOptions::new());
    let files = [open(&nodes[0])?, open(&nodes[1])?, open(&nodes[2])?];
    let whole = |files: &[File]| -> Vec<Result<()>> {
        let all: Vec<_> = files
            .iter()
            .map(|file| (file, b"whole".as_slice()))
            .collect();
        let changed: Vec<_> = nodes.iter().collect();
        listed(ops::write_new(&all), &changed).unwrap()
    };
    assert!(whole(&files).iter().all(Result::is_ok));
    let none = ops::write_new(&[(&files[0], b"")]);
    assert!(listed(none, &[])?.iter().all(Result::is_ok));
    assert!(listed(ops::write_new(&[]), &[])?.is_empty());

    // Handles that may not write, that append, and a file that may only grow.
    let reads = nodes[0].open(FileOptions::new().read(true))?;
    let appends = nodes[1].open(FileOptions::new().append(true))?;
    nodes[2].set_flags(nodes[2].flags() | InodeFlags::APPEND)?;
    let bytes = b"AB".as_slice();
    let all = [(&reads, bytes), (&appends, bytes), (&files[2], bytes)];
    let done = listed(ops::write_new(&all), &[&nodes[1]])?;
    let is_refused = |at: usize| matches!(&done[at], Err(Error::Caller(Reason::NotOpenedFor(_))));
    assert!(is_refused(0) && done[1].is_ok(), "{done:?}");
    assert!(
        matches!(&done[2], Err(Error::Caller(Reason::Permission))),
        "{done:?}"
    );
    for (name, content) in [("/one", "whole"), ("/two", "wholeAB"), ("/six", "whole")] {
        assert_eq!(volume.read_to_string(name)?, content);
    }

    let stranger = other.create_new("/stranger")?;
    let mixed = ops::write_new(&[(&stranger, bytes), (&files[0], bytes)]);
    let refused = listed(mixed, &[]);
    assert!(matches!(refused, Err(Error::Caller(Reason::CrossDevice))));
    Ok(())
}
