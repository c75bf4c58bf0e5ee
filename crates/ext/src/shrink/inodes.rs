//! Gives inodes beyond the limit other numbers: the image moves, and everything that names it follows.
//!
//! The checksums of an inode's blocks start from a seed of its number and its generation. The seed is a CRC
//! of both, one after the other, so for any other number there is one generation that gives the same seed:
//!
//! ```text
//! seed = crc(crc(fs, number), generation)    crc(s, word) = T(s ^ word), T is linear and can be inverted
//!      → generation' = generation ^ crc(fs, number) ^ crc(fs, number')
//! ```
//!
//! With it, no block of the inode changes. The names of an inode, its image and the old one change in one
//! transaction. The `..` of subdirectories follows in others: `e2fsck` corrects one that is left behind, and
//! so does a second run, which takes the parent from the name.
//!
//! Only a volume with a journal can do that at once. Without one, a power cut in between would leave a
//! directory without its name, or two inodes with the same blocks, of which `e2fsck` may delete one. So
//! inodes do not move there. Nor do they where `stable_inodes` says that numbers must not change.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_extfmt::checksum::crc32c;
use throughline_extfmt::features::Compat;
use throughline_extfmt::inode::{FileType, InodeFlags};
use throughline_extfmt::{GroupNumber, InodeNumber, bitmap};

use super::Limit;
use super::attributes::{self, ValueUser};
use crate::dir;
use crate::error::{Error, Reason, Result};
use crate::fs::Fs;
use crate::handle::Handle;
use crate::inode::Inode;

/// Taking a number, storing the image, freeing the old number, and `.` in a directory.
const FIXED_CREDITS: u32 = 3 + 1 + 3 + 1;
/// Changing a name: its block, and the inode of an inline directory.
const NAME_CREDITS: u32 = 2;
/// Entries `..` of one transaction.
const TOGETHER: usize = 64;

/// A name of an inode that moves.
struct Name {
    dir: InodeNumber,
    name: Vec<u8>,
    file_type: Option<FileType>,
}

/// Everything that names inodes that move.
#[derive(Default)]
struct Names {
    names: HashMap<InodeNumber, Vec<Name>>,
    values: HashMap<InodeNumber, Vec<ValueUser>>,
    /// Directories whose `..` is beyond the limit.
    children: Vec<(InodeNumber, InodeNumber)>,
}

impl Names {
    fn of(&self, ino: InodeNumber) -> (&[Name], &[ValueUser]) {
        (
            self.names.get(&ino).map_or(&[], Vec::as_slice),
            self.values.get(&ino).map_or(&[], Vec::as_slice),
        )
    }
}

/// What is to be done so that all of some inodes move.
pub(super) struct Plan<'d> {
    doomed: &'d [InodeNumber],
    names: Names,
}

/// Finds everything that names `doomed`, ascending.
///
/// # Errors
/// `Unsupported` for an inode with more names than a transaction can change, or of the volume itself;
/// `Corrupt`.
pub(super) fn plan<'d>(fs: &Fs, doomed: &'d [InodeNumber], limit: Limit) -> Result<Plan<'d>> {
    let mut names = Names::default();
    // Also without such inodes: an interrupted run may have left a `..` behind.
    find_names(fs, limit, &mut names)?;
    find_values(fs, doomed, &mut names)?;
    check(fs, doomed, &names)?;
    Ok(Plan { doomed, names })
}

/// Moves the inodes.
///
/// # Errors
/// `NoSpace` if too few numbers are free; `Corrupt`; journal errors. What was moved remains so.
pub(super) fn move_out(fs: &Fs, plan: &Plan<'_>, limit: Limit) -> Result<()> {
    let names = &plan.names;
    let mut moved = HashMap::new();
    for ino in plan.doomed {
        fs.transact(credits(names, *ino), |h| {
            let (old, new) = make(fs, h, *ino, limit)?;
            moved.insert(*ino, new.ino);
            rename(fs, h, (&old, &new), names, &moved)?;
            retire(fs, h, &old)
        })?;
    }
    set_parents(fs, &names.children, &moved)
}

fn credits(names: &Names, ino: InodeNumber) -> u32 {
    let (names, values) = names.of(ino);
    let all = (names.len() as u32).saturating_mul(NAME_CREDITS);
    all.saturating_add(values.len() as u32)
        .saturating_add(FIXED_CREDITS)
}

/// Checks what can be checked before anything is changed.
fn check(fs: &Fs, doomed: &[InodeNumber], names: &Names) -> Result<()> {
    if let Some(ino) = doomed.first() {
        let stable = fs.geo.compat.contains(Compat::STABLE_INODES);
        let why = match (fs.has_log(), stable) {
            (true, false) => None,
            (false, _) => Some("without a journal"),
            (_, true) => Some("with the feature stable_inodes"),
        };
        if let Some(why) = why {
            let why = format!("moving inode {ino} on a volume {why}");
            return Err(Error::Unsupported(why));
        }
    }
    for ino in doomed {
        if fs.is_system_inode(*ino) {
            let why = format!("moving inode {ino}, which belongs to the volume itself");
            return Err(Error::Unsupported(why));
        }
        if !fs.is_read_only() && credits(names, *ino) > fs.max_credits() {
            let (names, values) = names.of(*ino);
            let why = format!(
                "moving inode {ino}, which has {} names: they do not fit one transaction of the journal",
                names.len() + values.len()
            );
            return Err(Error::Unsupported(why));
        }
    }
    Ok(())
}

/// Takes a number below the limit, and stores the image of `ino` there.
fn make(
    fs: &Fs,
    h: &mut Handle<'_>,
    ino: InodeNumber,
    limit: Limit,
) -> Result<(Arc<Inode>, Arc<Inode>)> {
    let old = fs.inode(ino)?;
    let place = fs.take_inode_below(h, limit.groups, old.is_dir())?;
    let mut image = old.image();
    if let Some(seed) = fs.geo.csum_seed {
        let part = |ino: InodeNumber| crc32c(seed, &ino.0.to_le_bytes());
        let generation = image.generation() ^ part(ino) ^ part(place);
        image.set_generation(generation);
    }
    let new = fs.insert_inode(h, place, image)?;
    debug_assert_eq!(new.csum_seed, old.csum_seed, "the seed stays the same");
    fs.store(h, &new)?;
    Ok((old, new))
}

/// Points all names to the new number.
fn rename(
    fs: &Fs,
    h: &mut Handle<'_>,
    (old, new): (&Arc<Inode>, &Arc<Inode>),
    names: &Names,
    moved: &HashMap<InodeNumber, InodeNumber>,
) -> Result<()> {
    let (names, values) = names.of(old.ino);
    for name in names {
        let dir = fs.inode(current(moved, name.dir))?;
        let found = dir::lookup_to_change(fs, &dir, &name.name)?;
        let found = found.filter(|found| found.ino == old.ino).ok_or_else(|| {
            Error::corrupt("a directory has a name twice, or its index does not lead to it")
                .in_inode(dir.ino)
        })?;
        dir::replace(fs, h, &dir, &found, new.ino, name.file_type)?;
        if dir.raw.read().flags().contains(InodeFlags::INLINE_DATA) {
            fs.store(h, &dir)?;
        }
    }
    for user in values {
        attributes::set_value(fs, h, user, (old.ino, new.ino), |ino| current(moved, ino))?;
    }
    if new.is_dir() {
        dir::set_own(fs, h, new)?;
    }
    Ok(())
}

/// Frees the old number, without its blocks.
fn retire(fs: &Fs, h: &mut Handle<'_>, old: &Arc<Inode>) -> Result<()> {
    let was_dir = old.is_dir();
    {
        let mut raw = old.raw.write();
        raw.set_links_count(0);
        raw.set_size_bytes(0);
        raw.set_flags(InodeFlags::empty());
        *raw.i_block_mut() = [0; 60];
        let _ = raw.set_blocks_512(&fs.geo, 0);
        raw.set_file_acl(&fs.geo, throughline_extfmt::FsBlock(0));
        raw.set_dtime(fs.now().seconds as u32);
    }
    fs.retire_inode(h, old)?;
    fs.give_number(h, old.ino, was_dir)
}

fn current(moved: &HashMap<InodeNumber, InodeNumber>, ino: InodeNumber) -> InodeNumber {
    moved.get(&ino).copied().unwrap_or(ino)
}

/// Points `..` of the subdirectories of what was moved to the new number.
fn set_parents(
    fs: &Fs,
    children: &[(InodeNumber, InodeNumber)],
    moved: &HashMap<InodeNumber, InodeNumber>,
) -> Result<()> {
    // Left behind by a run that was interrupted: the parent is where the name is.
    let is_stale = |parent: &InodeNumber| !moved.contains_key(parent);
    let stale = children.iter().any(|(_, parent)| is_stale(parent));
    let named = if stale { parents(fs)? } else { HashMap::new() };
    for some in children.chunks(TOGETHER) {
        fs.transact(TOGETHER as u32 * NAME_CREDITS, |h| {
            for (child, parent) in some {
                let child = fs.inode(current(moved, *child))?;
                let parent = match moved.get(parent) {
                    Some(parent) => Some(*parent),
                    None => named.get(&child.ino).copied(),
                };
                let parent = parent.ok_or_else(|| {
                    Error::corrupt("a directory without a name").in_inode(child.ino)
                })?;
                dir::set_parent(fs, h, &child, parent)?;
                if child.raw.read().flags().contains(InodeFlags::INLINE_DATA) {
                    fs.store(h, &child)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Calls `visit` for all inodes in use.
fn each_inode(fs: &Fs, mut visit: impl FnMut(&Arc<Inode>) -> Result<()>) -> Result<()> {
    for group in (0..fs.geo.groups).map(GroupNumber) {
        fs.read_descriptors_ahead(group);
        let bits = fs.used_inodes(group)?;
        let mut at = 0;
        while let Some(index) = bitmap::find_set(&bits, at..fs.geo.inodes_per_group) {
            at = index.saturating_add(1);
            match fs.inode(fs.geo.inode_at(group, index)) {
                Err(Error::Caller(Reason::NotFound)) => {}
                inode => visit(&inode?)?,
            }
        }
    }
    Ok(())
}

/// Calls `visit` for every entry of a directory, `.` and `..` included.
fn each_name(fs: &Fs, dir: &Inode, mut visit: impl FnMut(dir::DirEntry)) -> Result<()> {
    let _held = dir.dir_shared();
    let mut from = 0;
    loop {
        let names = dir::list(fs, dir, from)?.all()?;
        let Some(last) = names.last() else {
            return Ok(());
        };
        // Positions ascend, so this ends.
        from = last.next.max(from.saturating_add(1));
        names.into_iter().for_each(&mut visit);
    }
}

fn find_names(fs: &Fs, limit: Limit, found: &mut Names) -> Result<()> {
    each_inode(fs, |dir| {
        if !dir.is_dir() {
            return Ok(());
        }
        each_name(fs, dir, |entry| {
            if entry.ino <= limit.last || entry.name == b"." {
                return;
            }
            if entry.name == b".." {
                found.children.push((dir.ino, entry.ino));
                return;
            }
            found.names.entry(entry.ino).or_default().push(Name {
                dir: dir.ino,
                name: entry.name,
                file_type: entry.file_type,
            });
        })
    })
}

/// The parent of each directory: the directory that has a name for it.
fn parents(fs: &Fs) -> Result<HashMap<InodeNumber, InodeNumber>> {
    let mut found = HashMap::new();
    each_inode(fs, |dir| {
        if !dir.is_dir() {
            return Ok(());
        }
        each_name(fs, dir, |entry| {
            let is_own = matches!(entry.name.as_slice(), b"." | b"..");
            let may_be_dir = entry
                .file_type
                .is_none_or(|kind| kind == FileType::Directory);
            if !is_own && may_be_dir {
                found.insert(entry.ino, dir.ino);
            }
        })
    })?;
    Ok(found)
}

/// The attributes whose values are in inodes that move.
fn find_values(fs: &Fs, doomed: &[InodeNumber], found: &mut Names) -> Result<()> {
    let mut any = false;
    for ino in doomed {
        any |= fs
            .inode(*ino)?
            .raw
            .read()
            .flags()
            .contains(InodeFlags::EA_INODE);
    }
    if !any {
        return Ok(());
    }
    let mut blocks = std::collections::HashSet::new();
    each_inode(fs, |inode| {
        for (ino, user) in attributes::values(fs, inode, &mut blocks)? {
            if doomed.binary_search(&ino).is_ok() {
                found.values.entry(ino).or_default().push(user);
            }
        }
        Ok(())
    })
}
