//! Rename: moves a name, and replaces, keeps or exchanges an existing target.
//!
//! If two directories change, they are locked in ascending order. A directory that moves to another parent
//! could become its own ancestor. So such renames are serialized by the volume's rename lock, which keeps the
//! chain of `..` stable while it is followed to the root.

use std::sync::Arc;

use throughline_extfmt::InodeNumber;
use throughline_extfmt::inode::Time;

use super::link::UNLINK_CREDITS;
use super::{leads_to, lock_directories, may_add, may_remove, need_dir};
use crate::error::{Error, Reason, Result};
use crate::handle::Handle;
use crate::inode::{Inode, Watch};
use crate::names::Names;
use crate::orphan::ORPHAN_CREDITS;
use crate::{dir, namei};

/// Blocks that one rename may change: a new name, two changed or removed names, a `..` for each, four inodes,
/// the orphan record.
const CREDITS: u32 = dir::INSERT_CREDITS + 4 + 4 + ORPHAN_CREDITS;

/// What a rename does if the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it: a file by a file, an empty directory by a directory.
    Replace,
    /// Fails.
    NoReplace,
    /// Exchanges the two names; both must exist.
    Exchange,
    /// Replaces it or fails, and leaves a whiteout at the old name: the character device 0, 0 with this
    /// owner.
    Whiteout {
        /// Replace an existing target.
        replace: bool,
        /// Owner of the whiteout.
        uid: u32,
        /// Its group; overridden by a directory with the setgid bit.
        gid: u32,
    },
}

impl RenameMode {
    /// Whether an existing target is refused.
    fn refuses(self) -> bool {
        matches!(
            self,
            Self::NoReplace | Self::Whiteout { replace: false, .. }
        )
    }
}

/// A name in a directory.
#[derive(Clone, Copy)]
struct Entry<'a> {
    dir: &'a Arc<Inode>,
    name: &'a [u8],
}

/// The inodes of the two names, looked up without keeping locks.
struct Seen {
    source: Arc<Inode>,
    target: Option<Arc<Inode>>,
}

impl Names {
    /// Moves the inode at `old_name` in `old_dir` to `new_name` in `new_dir`, atomically.
    ///
    /// If both names already refer to the same inode, nothing changes.
    ///
    /// # Errors
    /// `NotFound`, `NotDir`, `IsDir` (a file over a directory), `NotEmpty`, `Exists` (with
    /// [`RenameMode::NoReplace`]), `Invalid` (a directory into itself), `Busy` (the root, `.` or `..`),
    /// `TooManyLinks`, `NameTooLong`, `CrossDevice` (the directory passes on a different project),
    /// `Permission`, `NoKey` (an encrypted directory), `NoSpace`, `ReadOnly`.
    pub fn rename(
        &self,
        old_dir: &Arc<Inode>,
        old_name: &[u8],
        new_dir: &Arc<Inode>,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<()> {
        self.rename_watched(
            (old_dir, old_name),
            (new_dir, new_name),
            mode,
            &mut Watch::new(),
        )
    }

    /// As [`Names::rename`]; adds the inodes that it may change to `watch`.
    ///
    /// # Errors
    /// The same.
    pub fn rename_watched(
        &self,
        (old_dir, old_name): (&Arc<Inode>, &[u8]),
        (new_dir, new_name): (&Arc<Inode>, &[u8]),
        mode: RenameMode,
        watch: &mut Watch,
    ) -> Result<()> {
        watch.add(old_dir);
        watch.add(new_dir);
        let (old, new) = (
            Entry {
                dir: old_dir,
                name: old_name,
            },
            Entry {
                dir: new_dir,
                name: new_name,
            },
        );
        for entry in [old, new] {
            namei::check_name(entry.name)?;
            need_dir(entry.dir)?;
            if matches!(entry.name, b"." | b"..") {
                return Err(Reason::Busy("`.` and `..` cannot be renamed".into()).into());
            }
        }
        self.with_room(|| try_rename(self, old, new, mode, watch))?;
        self.names_changed(&[old_dir, new_dir])
    }
}

fn try_rename(
    fs: &Names,
    old: Entry<'_>,
    new: Entry<'_>,
    mode: RenameMode,
    watch: &mut Watch,
) -> Result<()> {
    loop {
        let seen = see(fs, old, new)?;
        watch.add(&seen.source);
        seen.target.iter().for_each(|target| watch.add(target));
        // This takes precedence over other errors.
        if mode.refuses() && seen.target.is_some() {
            return Err(Reason::Exists.into());
        }
        if mode == RenameMode::Exchange && seen.target.is_none() {
            return Err(Reason::NotFound.into());
        }
        data_before_rename(fs, &seen, mode)?;
        let has_dir =
            seen.source.is_dir() || seen.target.as_ref().is_some_and(|target| target.is_dir());
        if has_dir {
            fs.truncations_before_directory()?;
        }
        let moves_dir = has_dir && old.dir.ino != new.dir.ino;
        let alone = moves_dir.then(|| fs.lock_rename());
        if alone.is_some() {
            refuse_loops(fs, old, new, &seen, mode)?;
        }
        if rename_if_still(fs, old, new, &seen, mode)? {
            drop(alone);
            return after_rename(fs, &seen, mode);
        }
    }
}

/// Makes sure that a replacing file's contents reach the disk before its new name does, and that no new name
/// shows contents from before a truncation.
fn data_before_rename(fs: &Names, seen: &Seen, mode: RenameMode) -> Result<()> {
    let Some(target) = &seen.target else {
        return fs.truncation_before_name(&seen.source);
    };
    fs.data_before_name(&seen.source, true)?;
    match mode {
        RenameMode::Exchange => fs.data_before_name(target, true),
        _ => Ok(()),
    }
}

/// Whether a replaced file is released only after the new name is durable: without a journal nothing else
/// orders the two on disk.
fn replaces_in_steps(fs: &Names) -> bool {
    fs.emptied.is_on() && !fs.has_log()
}

/// Remaining work after the names have changed. No lock is held.
fn after_rename(fs: &Names, seen: &Seen, mode: RenameMode) -> Result<()> {
    let replaced = seen.target.as_ref();
    let Some(target) = replaced.filter(|target| target.ino != seen.source.ino) else {
        return Ok(());
    };
    let in_steps = replaces_in_steps(fs) && !target.is_dir();
    if in_steps {
        fs.sync_metadata()?;
    }
    if mode == RenameMode::Exchange {
        return Ok(());
    }
    if in_steps {
        fs.transact(UNLINK_CREDITS, |h| fs.drop_link(h, target))?;
    }
    fs.free_if_unused(target)
}

fn see(fs: &Names, old: Entry<'_>, new: Entry<'_>) -> Result<Seen> {
    let source = fs.lookup(old.dir, old.name)?;
    let target = match fs.lookup(new.dir, new.name) {
        Ok(target) => Some(target),
        Err(Error::Caller(Reason::NotFound)) => None,
        Err(error) => return Err(error),
    };
    if [Some(&source), target.as_ref()]
        .into_iter()
        .flatten()
        .any(|inode| inode.ino == InodeNumber::ROOT)
    {
        return Err(Reason::Busy("it is the root".into()).into());
    }
    Ok(Seen { source, target })
}

/// Fails if a directory would move below itself. The rename lock is held, directories are not locked.
fn refuse_loops(
    fs: &Names,
    old: Entry<'_>,
    new: Entry<'_>,
    seen: &Seen,
    mode: RenameMode,
) -> Result<()> {
    if seen.source.is_dir() && is_inside(fs, new.dir, seen.source.ino)? {
        return Err(Reason::Invalid("a directory cannot be moved into itself").into());
    }
    match &seen.target {
        Some(target) if target.is_dir() && is_inside(fs, old.dir, target.ino)? => Err(match mode {
            RenameMode::Exchange => {
                Reason::Invalid("a directory cannot be moved into itself").into()
            }
            _ => Reason::NotEmpty.into(),
        }),
        _ => Ok(()),
    }
}

/// Whether `dir` is `ancestor` or below it. Follows `..` to the root; a second pointer at half the speed
/// detects a cycle in a damaged chain.
fn is_inside(fs: &Names, dir: &Arc<Inode>, ancestor: InodeNumber) -> Result<bool> {
    let (mut at, mut slow) = (dir.clone(), dir.clone());
    let mut steps = 0u64;
    loop {
        if at.ino == ancestor {
            return Ok(true);
        }
        if at.ino == InodeNumber::ROOT {
            return Ok(false);
        }
        at = fs.parent(&at)?;
        steps += 1;
        if steps.is_multiple_of(2) {
            slow = fs.parent(&slow)?;
        }
        if at.ino == slow.ino && at.ino != ancestor && at.ino != InodeNumber::ROOT {
            return Err(Error::corrupt("the `..` entries form a cycle").in_inode(at.ino));
        }
    }
}

/// Renames if both names still refer to the same inodes; returns `false` if not.
fn rename_if_still(
    fs: &Names,
    old: Entry<'_>,
    new: Entry<'_>,
    seen: &Seen,
    mode: RenameMode,
) -> Result<bool> {
    let source_dir: &Inode = if seen.source.is_dir() {
        &seen.source
    } else {
        old.dir
    };
    let target_dir = seen
        .target
        .as_ref()
        .filter(|target| target.is_dir())
        .unwrap_or(new.dir);
    let _locks = lock_directories([old.dir, new.dir, source_dir, target_dir]);
    let source = dir::nokey::lookup_to_change(fs, old.dir, old.name)?.ok_or(Reason::NotFound)?;
    let target = dir::nokey::lookup_to_change(fs, new.dir, new.name)?;
    let is_same = leads_to(fs, old.dir, &source, &seen.source)?
        && match (&target, &seen.target) {
            (Some(target), Some(seen)) => leads_to(fs, new.dir, target, seen)?,
            (target, seen) => target.is_none() && seen.is_none(),
        };
    if !is_same {
        return Ok(false);
    }
    let changes = match &target {
        Some(target) => target.ino != source.ino && !mode.refuses(),
        None => mode != RenameMode::Exchange,
    };
    if changes && (fs.is_encrypted(old.dir) || fs.is_encrypted(new.dir)) {
        return Err(Reason::NoKey.into());
    }
    let Some((target, target_inode)) = target.zip(seen.target.as_ref()) else {
        if mode == RenameMode::Exchange {
            return Err(Reason::NotFound.into());
        }
        rename_free(fs, old, new, &seen.source, mode)?;
        return Ok(true);
    };
    if mode.refuses() {
        return Err(Reason::Exists.into());
    }
    if target.ino == source.ino {
        return Ok(true);
    }
    may_remove(old.dir, &seen.source)?;
    may_remove(new.dir, target_inode)?;
    let pair = Pair {
        old,
        new,
        source,
        target,
        from: &seen.source,
        onto: target_inode,
    };
    match mode {
        RenameMode::Exchange => exchange(fs, &pair)?,
        _ => replace(fs, &pair, mode)?,
    }
    Ok(true)
}

/// Renames to a name that does not exist.
fn rename_free(
    fs: &Names,
    old: Entry<'_>,
    new: Entry<'_>,
    inode: &Inode,
    mode: RenameMode,
) -> Result<()> {
    may_remove(old.dir, inode)?;
    may_add(new.dir)?;
    fs.check_project(new.dir, inode)?;
    namei::check_new_name(new.name)?;
    let across = old.dir.ino != new.dir.ino;
    let count = i32::from(across && inode.is_dir());
    if count == 1 {
        fs.may_add_subdirectory(new.dir)?;
    }
    let room = dir::room(fs, new.dir, new.name)?;
    fs.with_whiteout(CREDITS, old.dir, mode, |h, whiteout| {
        // The new name first: only this can fail for lack of space, and an extra name is less harmful than a
        // missing one.
        dir::insert(fs, h, new.dir, room, new.name, inode.ino, inode.file_type())?;
        remove_moved(fs, h, old, inode.ino, whiteout)?;
        moved(fs, h, inode, across.then_some(new.dir))?;
        fs.dir_changed(h, old.dir, -count)?;
        if across {
            fs.dir_changed(h, new.dir, count)
        } else {
            Ok(())
        }
    })
}

/// Removes the old name, which the insertion may have moved inside the directory.
fn remove_moved(
    fs: &Names,
    h: &mut Handle<'_>,
    old: Entry<'_>,
    ino: InodeNumber,
    whiteout: Option<&Inode>,
) -> Result<()> {
    match dir::lookup_to_change(fs, old.dir, old.name)? {
        Some(found) if found.ino == ino => leave(fs, h, old, &found, whiteout),
        _ => Err(Error::corrupt("a name disappeared while it was renamed").in_inode(old.dir.ino)),
    }
}

/// Removes the old name, or points it to the whiteout.
fn leave(
    fs: &Names,
    h: &mut Handle<'_>,
    old: Entry<'_>,
    found: &dir::Found,
    whiteout: Option<&Inode>,
) -> Result<()> {
    match whiteout {
        Some(inode) => dir::replace(fs, h, old.dir, found, inode.ino, inode.file_type()),
        None => dir::remove(fs, h, old.dir, found),
    }
}

/// Points the target's name to the source, and drops a link of the target.
fn replace(fs: &Names, pair: &Pair<'_>, mode: RenameMode) -> Result<()> {
    let Pair {
        old,
        new,
        source,
        target,
        from,
        onto,
    } = pair;
    match (from.is_dir(), onto.is_dir()) {
        (true, false) => return Err(Reason::NotDir.into()),
        (false, true) => return Err(Reason::IsDir.into()),
        _ => {}
    }
    fs.check_project(new.dir, from)?;
    if onto.is_dir() && !dir::is_empty(fs, onto)? {
        return Err(Reason::NotEmpty.into());
    }
    let across = old.dir.ino != new.dir.ino;
    fs.with_whiteout(CREDITS, old.dir, mode, |h, whiteout| {
        dir::replace(fs, h, new.dir, target, from.ino, from.file_type())?;
        leave(fs, h, *old, source, whiteout)?;
        moved(fs, h, from, across.then_some(new.dir))?;
        // For directories, the old parent loses one, and the new parent loses one and gains one; within one
        // parent that is a net loss of one.
        fs.dir_changed(h, old.dir, -i32::from(from.is_dir()))?;
        if across {
            fs.dir_changed(h, new.dir, 0)?;
        }
        if onto.is_dir() {
            fs.drop_dir(h, onto)
        } else if replaces_in_steps(fs) {
            Ok(())
        } else {
            fs.drop_link(h, onto)
        }
    })
}

/// Exchanges the inodes of both names.
fn exchange(fs: &Names, pair: &Pair<'_>) -> Result<()> {
    let Pair {
        old,
        new,
        source,
        target,
        from,
        onto,
    } = pair;
    fs.check_project(new.dir, from)?;
    fs.check_project(old.dir, onto)?;
    let across = old.dir.ino != new.dir.ino;
    let gains = if across {
        i32::from(from.is_dir()) - i32::from(onto.is_dir())
    } else {
        0
    };
    match gains {
        1 => fs.may_add_subdirectory(new.dir)?,
        -1 => fs.may_add_subdirectory(old.dir)?,
        _ => {}
    }
    fs.transact(CREDITS, |h| {
        dir::replace(fs, h, new.dir, target, from.ino, from.file_type())?;
        dir::replace(fs, h, old.dir, source, onto.ino, onto.file_type())?;
        moved(fs, h, from, across.then_some(new.dir))?;
        moved(fs, h, onto, across.then_some(old.dir))?;
        fs.dir_changed(h, old.dir, -gains)?;
        if across {
            fs.dir_changed(h, new.dir, gains)
        } else {
            Ok(())
        }
    })
}

/// Updates an inode after a move: its change time and, for a directory, its parent.
fn moved(fs: &Names, h: &mut Handle<'_>, inode: &Inode, parent: Option<&Arc<Inode>>) -> Result<()> {
    inode.raw.write().set_time(Time::Change, fs.now());
    if let Some(parent) = parent.filter(|_| inode.is_dir()) {
        dir::set_parent(fs, h, inode, parent.ino)?;
    }
    fs.store(h, inode)
}

/// Two existing names, looked up and locked.
struct Pair<'a> {
    old: Entry<'a>,
    new: Entry<'a>,
    source: dir::Found,
    target: dir::Found,
    from: &'a Arc<Inode>,
    onto: &'a Arc<Inode>,
}
