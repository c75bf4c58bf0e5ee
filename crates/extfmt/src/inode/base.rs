//! The fields that every inode has: type and owner, size and space, flags, links.

use super::{FileType, InodeBase, InodeFlags};
use crate::error::ensure;
use crate::features::{Incompat, RoCompat};
use crate::units::FsBlock;
use crate::{Corrupt, Geometry, Result};

impl InodeBase {
    /// `i_mode`: type and permissions.
    pub fn mode(&self) -> u16 {
        self.i_mode.get()
    }

    /// Sets `i_mode`.
    pub fn set_mode(&mut self, mode: u16) {
        self.i_mode.set(mode);
    }

    /// The type of the inode; an error for a mode without a valid type.
    pub fn file_type(&self) -> Result<FileType> {
        FileType::from_mode(self.mode())
            .ok_or_else(|| Corrupt::new(format!("mode {:#o} has no file type", self.mode())))
    }

    /// Owner, 32 bits.
    pub fn uid(&self) -> u32 {
        u32::from(self.l_i_uid_high.get()) << 16 | u32::from(self.i_uid.get())
    }

    /// Sets the owner.
    pub fn set_uid(&mut self, uid: u32) {
        self.i_uid.set(uid as u16);
        self.l_i_uid_high.set((uid >> 16) as u16);
    }

    /// Group, 32 bits.
    pub fn gid(&self) -> u32 {
        u32::from(self.l_i_gid_high.get()) << 16 | u32::from(self.i_gid.get())
    }

    /// Sets the group.
    pub fn set_gid(&mut self, gid: u32) {
        self.i_gid.set(gid as u16);
        self.l_i_gid_high.set((gid >> 16) as u16);
    }

    /// Size in bytes: 64 bits for regular files, and for directories
    /// with `large_dir`; 32 bits for all others (the high word of old directories was an ACL).
    /// An error above 2^63 - 1.
    pub fn size_bytes(&self, geometry: &Geometry) -> Result<u64> {
        let wide = match FileType::from_mode(self.mode()) {
            Some(FileType::Regular) => true,
            Some(FileType::Directory) => geometry.incompat.contains(Incompat::LARGE_DIR),
            _ => false,
        };
        let high = if wide { self.i_size_high.get() } else { 0 };
        let size = u64::from(high) << 32 | u64::from(self.i_size_lo.get());
        ensure!(i64::try_from(size).is_ok(), "size {size} is over 2^63");
        Ok(size)
    }

    /// Sets the size; the high word only if the inode has one (see [`Self::size_bytes`]) or the
    /// size needs it.
    pub fn set_size_bytes(&mut self, size: u64) {
        let high = (size >> 32) as u32;
        let regular = FileType::from_mode(self.mode()) == Some(FileType::Regular);
        self.i_size_lo.set(size as u32);
        if regular || high != 0 {
            self.i_size_high.set(high);
        }
    }

    /// Names that point to the inode. For directories with `dir_nlink`, 1 means "many".
    pub fn links_count(&self) -> u16 {
        self.i_links_count.get()
    }

    /// Sets the number of links.
    pub fn set_links_count(&mut self, count: u16) {
        self.i_links_count.set(count);
    }

    /// `i_flags`.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.i_flags.get())
    }

    /// Sets `i_flags`.
    pub fn set_flags(&mut self, flags: InodeFlags) {
        self.i_flags.set(flags.bits());
    }

    /// Space the inode owns, in units of 512 bytes.
    pub fn blocks_512(&self, geometry: &Geometry) -> u64 {
        let lo = u64::from(self.i_blocks_lo.get());
        if !geometry.ro_compat.contains(RoCompat::HUGE_FILE) {
            return lo;
        }
        let count = u64::from(self.l_i_blocks_high.get()) << 32 | lo;
        if self.flags().contains(InodeFlags::HUGE_FILE) {
            count << geometry.block_log.saturating_sub(9)
        } else {
            count
        }
    }

    /// Sets the space the inode owns (units of 512 bytes; a multiple of the block size if it
    /// does not fit 48 bits). `false`, with nothing changed, if the format cannot express it.
    #[must_use]
    pub fn set_blocks_512(&mut self, geometry: &Geometry, count: u64) -> bool {
        let huge = geometry.ro_compat.contains(RoCompat::HUGE_FILE);
        let mut flags = self.flags();
        let value = if count
            <= if huge {
                (1 << 48) - 1
            } else {
                u64::from(u32::MAX)
            } {
            flags.remove(InodeFlags::HUGE_FILE);
            count
        } else if huge && count >> geometry.block_log.saturating_sub(9) < 1 << 48 {
            flags.insert(InodeFlags::HUGE_FILE);
            count >> geometry.block_log.saturating_sub(9)
        } else {
            return false;
        };
        self.set_flags(flags);
        self.i_blocks_lo.set(value as u32);
        if huge {
            self.l_i_blocks_high.set((value >> 32) as u16);
        }
        true
    }

    /// Block of extended attributes; 0 if none. 48 bits with `64bit`, else 32.
    pub fn file_acl(&self, geometry: &Geometry) -> FsBlock {
        let lo = u64::from(self.i_file_acl_lo.get());
        if geometry.incompat.contains(Incompat::BIT64) {
            FsBlock(u64::from(self.l_i_file_acl_high.get()) << 32 | lo)
        } else {
            FsBlock(lo)
        }
    }

    /// Sets the block of extended attributes (below 2^48).
    pub fn set_file_acl(&mut self, geometry: &Geometry, block: FsBlock) {
        self.i_file_acl_lo.set(block.0 as u32);
        if geometry.incompat.contains(Incompat::BIT64) {
            self.l_i_file_acl_high.set((block.0 >> 32) as u16);
        }
    }

    /// `i_generation`.
    pub fn generation(&self) -> u32 {
        self.i_generation.get()
    }

    /// Sets `i_generation`. This changes the seed of the inode's checksums.
    pub fn set_generation(&mut self, generation: u32) {
        self.i_generation.set(generation);
    }

    /// Time of deletion, or the next entry of the orphan list.
    pub fn dtime(&self) -> u32 {
        self.i_dtime.get()
    }

    /// Sets the time of deletion.
    pub fn set_dtime(&mut self, dtime: u32) {
        self.i_dtime.set(dtime);
    }
}
