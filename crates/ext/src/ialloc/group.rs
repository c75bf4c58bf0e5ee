//! One group's inode bitmap: allocating and freeing, together with the descriptor.

use throughline_extfmt::bitmap;
use throughline_extfmt::group_desc::GroupFlags;
use throughline_extfmt::{Corrupt, FsBlock, GroupDesc, GroupNumber, InodeNumber};

use crate::alloc::Alloc;
use crate::error::{Error, Result};
use crate::groups::check_csum;
use crate::handle::Handle;

impl Alloc {
    /// Allocates the lowest free inode of a group; `None` if there is none.
    pub(super) fn take_inode_in(
        &self,
        h: &mut Handle<'_>,
        group: GroupNumber,
        is_dir: bool,
    ) -> Result<Option<InodeNumber>> {
        let mut groups = self.ialloc.lock(group);
        let hints = groups.entry(group.0).or_default();
        hints.release_durable(self.journal.committed());
        let desc = self.group_desc(group)?;
        if desc.free_inodes() == 0 || hints.is_damaged {
            return Ok(None);
        }
        let bits = match inode_bits(self, group, &desc) {
            // The damage is recorded, and the group is skipped from now on.
            Err(Error::Corrupt(_)) if self.stopped().is_none() => {
                hints.is_damaged = true;
                return Ok(None);
            }
            bits => bits?,
        };
        let mut from = hints.first_free.max(first_usable(self, group));
        let found = loop {
            match bitmap::find_clear(&bits, from..self.geo.inodes_per_group) {
                Some(index) if hints.is_waiting(index) => from = index.saturating_add(1),
                found => break found,
            }
        };
        let Some(index) = found else {
            if !hints.waiting.is_empty() {
                return Ok(None);
            }
            return Err(bad_inode_bitmap(
                group,
                &desc,
                "its descriptor says that an inode is free",
            ));
        };
        use_index(self, h, (group, index), (&desc, bits), is_dir)?;
        hints.first_free = index.saturating_add(1);
        Ok(Some(self.geo.inode_at(group, index)))
    }

    /// Allocates a specific inode of a group, which must be free.
    pub(super) fn take_this_inode(
        &self,
        h: &mut Handle<'_>,
        (group, index): (GroupNumber, u32),
        is_dir: bool,
    ) -> Result<()> {
        let _hints = self.ialloc.lock(group);
        let desc = self.group_desc(group)?;
        let bits = inode_bits(self, group, &desc)?;
        if bitmap::is_set(&bits, index) || desc.free_inodes() == 0 {
            return Err(bad_inode_bitmap(
                group,
                &desc,
                "an inode to be allocated is already in use",
            ));
        }
        use_index(self, h, (group, index), (&desc, bits), is_dir)
    }

    /// Frees an inode.
    pub(super) fn put_inode_in(
        &self,
        h: &mut Handle<'_>,
        group: GroupNumber,
        index: u32,
        is_dir: bool,
    ) -> Result<()> {
        let mut groups = self.ialloc.lock(group);
        let desc = self.group_desc(group)?;
        let bits = inode_bits(self, group, &desc)?;
        if !bitmap::is_set(&bits, index) {
            return Err(bad_inode_bitmap(
                group,
                &desc,
                "an inode to be freed is free already",
            ));
        }
        let csum = change_inode_bits(self, h, &desc, bits, |bits| bitmap::clear(bits, index))?;
        self.change_group_desc(h, group, |desc| {
            seal_inode_bitmap(self, desc, csum);
            desc.set_free_inodes(desc.free_inodes().saturating_add(1));
            if is_dir {
                desc.set_used_dirs(desc.used_dirs().saturating_sub(1));
            }
        })?;
        let hints = groups.entry(group.0).or_default();
        if self.journal.has_log() {
            hints.first_free = hints.first_free.min(index);
        } else {
            hints.waiting.push_back((h.tid(), index));
            *self.ialloc.last_freed.lock() = Some(h.tid());
        }
        Ok(())
    }

    /// Whether an inode is in use according to its bitmap. Under the group's lock, because a bitmap that is
    /// loaded is checked against its descriptor, and another thread may have changed only one of the two.
    pub(super) fn is_bit_set(&self, group: GroupNumber, index: u32) -> Result<bool> {
        let _hints = self.ialloc.lock(group);
        let desc = self.group_desc(group)?;
        Ok(bitmap::is_set(&inode_bits(self, group, &desc)?, index))
    }

    /// Checks that an inode is in use according to its bitmap; `false` if the bitmap is damaged.
    pub(crate) fn check_inode_used(&self, group: GroupNumber, index: u32) -> Result<bool> {
        match self.change_around_damage(self.is_bit_set(group, index))? {
            None => return Ok(false),
            Some(true) => return Ok(true),
            Some(false) => {}
        }
        let desc = self.group_desc(group)?;
        Err(bad_inode_bitmap(
            group,
            &desc,
            "an inode to be freed is free already",
        ))
    }

    /// The inode bitmap of a group, as it is on disk or would be written.
    ///
    /// # Errors
    /// Errors of reading it; `Corrupt`.
    pub(crate) fn used_inodes(&self, group: GroupNumber) -> Result<Vec<u8>> {
        let _hints = self.ialloc.lock(group);
        let desc = self.group_desc(group)?;
        Ok(inode_bits(self, group, &desc)?.to_vec())
    }

    /// Free inodes according to the bitmap, and according to the descriptor.
    pub(crate) fn count_free_inodes(&self, group: GroupNumber) -> Result<(u32, u32)> {
        let _hints = self.ialloc.lock(group);
        let desc = self.group_desc(group)?;
        let bits = inode_bits(self, group, &desc)?;
        let free = bitmap::count_clear(&bits, 0..self.geo.inodes_per_group);
        Ok((free, desc.free_inodes()))
    }
}

/// Marks a free inode as used. The group's lock is held.
fn use_index(
    fs: &Alloc,
    h: &mut Handle<'_>,
    (group, index): (GroupNumber, u32),
    (desc, bits): (&GroupDesc, InodeBits),
    is_dir: bool,
) -> Result<()> {
    let fresh_block = table_block_never_used(fs, desc, &bits, index)?;
    if fresh_block.is_none() {
        // Read before anything is changed: an unreadable table must not leave the operation half done.
        fs.read(inode_block(fs, desc, index))?;
    }
    let csum = change_inode_bits(fs, h, desc, bits, |bits| bitmap::set(bits, index))?;
    if let Some(block) = fresh_block {
        h.create(block, |_| ())?;
    }
    let behind = fs
        .geo
        .inodes_per_group
        .saturating_sub(index)
        .saturating_sub(1);
    fs.change_group_desc(h, group, |desc| {
        seal_inode_bitmap(fs, desc, csum);
        desc.set_free_inodes(desc.free_inodes().saturating_sub(1));
        if is_dir {
            desc.set_used_dirs(desc.used_dirs().saturating_add(1));
        }
        if fs.geo.has_group_csum() {
            desc.set_itable_unused(desc.itable_unused().min(behind));
        }
    })
}

/// The current inode bitmap; generated if it was never written. The group's lock is held.
fn inode_bits(fs: &Alloc, group: GroupNumber, desc: &GroupDesc) -> Result<InodeBits> {
    if inode_uninit(fs, desc) {
        let mut bits = vec![0; fs.geo.block_bytes as usize];
        fs.geo.init_inode_bitmap(&mut bits);
        return Ok(InodeBits::Made(bits));
    }
    let bits = fs.read_checked(desc.inode_bitmap(), |bytes| {
        check_inode_bitmap(fs, group, bytes)
    })?;
    Ok(InodeBits::Read(bits))
}

/// Checks the checksum of a bitmap just read against its current descriptor.
fn check_inode_bitmap(
    fs: &Alloc,
    group: GroupNumber,
    bytes: &[u8],
) -> core::result::Result<(), Corrupt> {
    let Some(seed) = fs.geo.csum_seed else {
        return Ok(());
    };
    let desc = fs
        .group_desc(group)
        .map_err(|e| Corrupt::new(e.to_string()))?;
    let right = fs.kept_csum(bitmap::checksum(bytes, fs.geo.inodes_per_group, seed));
    check_csum("inode bitmap", group, desc.inode_bitmap_csum(), right)
}

/// Changes one bit of the bitmap on disk. Returns the bitmap's checksum, for the descriptor.
fn change_inode_bits(
    fs: &Alloc,
    h: &mut Handle<'_>,
    desc: &GroupDesc,
    bits: InodeBits,
    flip: impl FnOnce(&mut [u8]) -> bool,
) -> Result<u32> {
    let csum = |bytes: &[u8]| {
        fs.geo.csum_seed.map_or(0, |seed| {
            bitmap::checksum(bytes, fs.geo.inodes_per_group, seed)
        })
    };
    match bits {
        InodeBits::Read(bits) => {
            let _pin = bits.into_pin();
            h.modify(desc.inode_bitmap(), |bytes| {
                flip(bytes);
                csum(bytes)
            })
        }
        InodeBits::Made(made) => h.create(desc.inode_bitmap(), |bytes| {
            bytes.copy_from_slice(&made);
            flip(bytes);
            csum(bytes)
        }),
    }
}

/// Records in the descriptor that the bitmap is on disk, with this checksum.
fn seal_inode_bitmap(fs: &Alloc, desc: &mut GroupDesc, csum: u32) {
    desc.set_flags(desc.flags() - GroupFlags::INODE_UNINIT);
    if fs.geo.has_metadata_csum() {
        desc.set_inode_bitmap_csum(csum);
    }
}

/// The block of the inode table that holds an inode, if no inode in that block was ever used: its bytes on
/// disk are then undefined, and may never have been written.
fn table_block_never_used(
    fs: &Alloc,
    desc: &GroupDesc,
    bits: &[u8],
    index: u32,
) -> Result<Option<FsBlock>> {
    let per_block = fs.geo.block_bytes / u32::from(fs.geo.inode_bytes).max(1);
    let first = index - index % per_block.max(1);
    let used = fs.geo.inodes_per_group.saturating_sub(desc.itable_unused());
    if !fs.geo.has_group_csum() || used > first {
        return Ok(None);
    }
    if bitmap::find_set(
        bits,
        first..first.saturating_add(per_block).min(fs.geo.inodes_per_group),
    )
    .is_some()
    {
        return Err(
            Error::corrupt("an inode in use lies in the unused part of its table")
                .in_block(desc.inode_table()),
        );
    }
    Ok(Some(inode_block(fs, desc, first)))
}

/// The block of the inode table that holds an inode.
fn inode_block(fs: &Alloc, desc: &GroupDesc, index: u32) -> FsBlock {
    let (block, _) = fs.geo.inode_in_table(index);
    FsBlock(desc.inode_table().0.saturating_add(block.into()))
}

/// The lowest index of a group that is not a reserved inode.
fn first_usable(fs: &Alloc, group: GroupNumber) -> u32 {
    fs.geo
        .first_ino
        .0
        .saturating_sub(fs.geo.inode_at(group, 0).0)
}

fn inode_uninit(fs: &Alloc, desc: &GroupDesc) -> bool {
    fs.geo.has_group_csum() && desc.flags().contains(GroupFlags::INODE_UNINIT)
}

fn bad_inode_bitmap(group: GroupNumber, desc: &GroupDesc, what: &str) -> Error {
    Error::corrupt(format!("inode bitmap of group {group}: {what}")).in_block(desc.inode_bitmap())
}

/// An inode bitmap: read from disk, or generated.
enum InodeBits {
    Read(throughline_journal::Block),
    Made(Vec<u8>),
}

impl std::ops::Deref for InodeBits {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Self::Read(bits) => bits,
            Self::Made(bits) => bits,
        }
    }
}
