//! The bytes of one inode, with every field of it by value.

use std::mem::{offset_of, size_of};

use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

use super::{
    BASE_BYTES, EXTRA_ISIZE, FAST_SYMLINK_MAX, FULL_BYTES, FileType, I_BLOCK_BYTES, InodeBase,
    InodeExtra, InodeFlags,
};
use crate::checksum::crc32c;
use crate::error::ensure;
use crate::features::{Incompat, RoCompat};
use crate::time::Timestamp;
use crate::units::{FsBlock, InodeNumber};
use crate::{Corrupt, Geometry, Result};

/// One of the inode's four times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Last access.
    Access,
    /// Last change of the inode.
    Change,
    /// Last change of the data.
    Modify,
    /// Birth; exists only with its extra field.
    Create,
}

/// The bytes of one inode, owned.
///
/// Invariant: at least 128 bytes, and `i_extra_isize`, where it exists, lies within them; so
/// [`Self::extra`] and the fields it says are present can be read without further checks.
#[derive(Clone, PartialEq, Eq)]
pub struct InodeImage {
    bytes: Box<[u8]>,
}

impl InodeImage {
    /// Takes a copy of an inode's bytes, exactly `inode_bytes` of them, and checks
    /// `i_extra_isize`. The checksum is [`Self::verify_checksum`]'s matter.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let len = bytes.len();
        ensure!(
            len == BASE_BYTES || len >= FULL_BYTES,
            "inode of {len} bytes"
        );
        let image = Self {
            bytes: bytes.into(),
        };
        let extra = usize::from(image.extra_isize());
        // An inode written before the volume grew its inodes, or a free one, says 0.
        ensure!(
            extra % 4 == 0 && extra <= len.saturating_sub(BASE_BYTES),
            "i_extra_isize is {extra} in an inode of {len} bytes"
        );
        Ok(image)
    }

    /// A zeroed inode of this volume with `i_extra_isize` set as a new inode has it
    /// (`want` is `s_want_extra_isize`, brought into its bounds).
    pub fn new(inode_bytes: u16, want: u16) -> Self {
        let len = usize::from(inode_bytes).max(BASE_BYTES);
        let mut image = Self {
            bytes: vec![0; len].into(),
        };
        let room = (len as u16).saturating_sub(BASE_BYTES as u16);
        if let Some(extra) = image.extra_mut() {
            extra
                .i_extra_isize
                .set(want.max(EXTRA_ISIZE).min(room) & !3);
        }
        image
    }

    /// The bytes, as they are to be written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The fields every inode has.
    pub fn base(&self) -> &InodeBase {
        InodeBase::ref_from_prefix(&self.bytes)
            .expect("an image has 128 bytes")
            .0
    }

    /// The fields every inode has.
    pub fn base_mut(&mut self) -> &mut InodeBase {
        InodeBase::mut_from_prefix(&mut self.bytes)
            .expect("an image has 128 bytes")
            .0
    }

    /// The bytes behind the first 128 as fields; `None` in inodes of 128 bytes. Those past
    /// [`Self::extra_isize`] are not fields, but part of the extended attributes.
    pub fn extra(&self) -> Option<&InodeExtra> {
        Some(
            InodeExtra::ref_from_prefix(self.bytes.get(BASE_BYTES..)?)
                .ok()?
                .0,
        )
    }

    /// As [`Self::extra`], to change.
    fn extra_mut(&mut self) -> Option<&mut InodeExtra> {
        Some(
            InodeExtra::mut_from_prefix(self.bytes.get_mut(BASE_BYTES..)?)
                .ok()?
                .0,
        )
    }

    /// `i_extra_isize`; 0 in inodes of 128 bytes.
    pub fn extra_isize(&self) -> u16 {
        self.extra().map_or(0, |extra| extra.i_extra_isize.get())
    }

    /// Whether the extra field that ends at `end` (offset in [`InodeExtra`]) is present.
    fn reaches(&self, end: usize) -> bool {
        usize::from(self.extra_isize()) >= end
    }

    /// The place of extended attributes in the inode: byte range of the image behind the
    /// fields; `None` where there is no room.
    pub fn xattr_range(&self) -> Option<std::ops::Range<usize>> {
        let extra = self.extra_isize();
        if extra == 0 {
            return None;
        }
        let start = BASE_BYTES.checked_add(usize::from(extra))?;
        (start.checked_add(4)? <= self.bytes.len()).then_some(start..self.bytes.len())
    }

    /// The extended attributes' place, see [`Self::xattr_range`]; empty where there is none.
    pub fn xattr_area(&self) -> &[u8] {
        self.xattr_range()
            .and_then(|range| self.bytes.get(range))
            .unwrap_or_default()
    }

    /// As [`Self::xattr_area`], to change.
    pub fn xattr_area_mut(&mut self) -> &mut [u8] {
        match self.xattr_range() {
            Some(range) => self.bytes.get_mut(range).unwrap_or_default(),
            None => &mut [],
        }
    }

    /// `i_mode`: type and permissions.
    pub fn mode(&self) -> u16 {
        self.base().i_mode.get()
    }

    /// Sets `i_mode`.
    pub fn set_mode(&mut self, mode: u16) {
        self.base_mut().i_mode.set(mode);
    }

    /// The type of the inode; an error for a mode that has none.
    pub fn file_type(&self) -> Result<FileType> {
        FileType::from_mode(self.mode())
            .ok_or_else(|| Corrupt::new(format!("mode {:#o} has no file type", self.mode())))
    }

    /// Owner, 32 bits.
    pub fn uid(&self) -> u32 {
        u32::from(self.base().l_i_uid_high.get()) << 16 | u32::from(self.base().i_uid.get())
    }

    /// Sets the owner.
    pub fn set_uid(&mut self, uid: u32) {
        self.base_mut().i_uid.set(uid as u16);
        self.base_mut().l_i_uid_high.set((uid >> 16) as u16);
    }

    /// Group, 32 bits.
    pub fn gid(&self) -> u32 {
        u32::from(self.base().l_i_gid_high.get()) << 16 | u32::from(self.base().i_gid.get())
    }

    /// Sets the group.
    pub fn set_gid(&mut self, gid: u32) {
        self.base_mut().i_gid.set(gid as u16);
        self.base_mut().l_i_gid_high.set((gid >> 16) as u16);
    }

    /// Size in bytes as the format says it: 64 bits for regular files, and for directories
    /// with `large_dir`; 32 for all else (the high word of old directories was an ACL).
    /// An error above 2^63 - 1.
    pub fn size_bytes(&self, geometry: &Geometry) -> Result<u64> {
        let wide = match FileType::from_mode(self.mode()) {
            Some(FileType::Regular) => true,
            Some(FileType::Directory) => geometry.incompat.contains(Incompat::LARGE_DIR),
            _ => false,
        };
        let high = if wide {
            self.base().i_size_high.get()
        } else {
            0
        };
        let size = u64::from(high) << 32 | u64::from(self.base().i_size_lo.get());
        ensure!(i64::try_from(size).is_ok(), "size {size} is over 2^63");
        Ok(size)
    }

    /// Sets the size; the high word only where it is one (see [`Self::size_bytes`]) or the
    /// size needs it.
    pub fn set_size_bytes(&mut self, size: u64) {
        let high = (size >> 32) as u32;
        let regular = FileType::from_mode(self.mode()) == Some(FileType::Regular);
        let base = self.base_mut();
        base.i_size_lo.set(size as u32);
        if regular || high != 0 {
            base.i_size_high.set(high);
        }
    }

    /// Names that point to the inode. For directories with `dir_nlink`, 1 means "many".
    pub fn links_count(&self) -> u16 {
        self.base().i_links_count.get()
    }

    /// Sets the number of links.
    pub fn set_links_count(&mut self, count: u16) {
        self.base_mut().i_links_count.set(count);
    }

    /// `i_flags`.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.base().i_flags.get())
    }

    /// Sets `i_flags`.
    pub fn set_flags(&mut self, flags: InodeFlags) {
        self.base_mut().i_flags.set(flags.bits());
    }

    /// Space the inode owns, in units of 512 bytes.
    pub fn blocks_512(&self, geometry: &Geometry) -> u64 {
        let lo = u64::from(self.base().i_blocks_lo.get());
        if !geometry.ro_compat.contains(RoCompat::HUGE_FILE) {
            return lo;
        }
        let count = u64::from(self.base().l_i_blocks_high.get()) << 32 | lo;
        if self.flags().contains(InodeFlags::HUGE_FILE) {
            count << geometry.block_log.saturating_sub(9)
        } else {
            count
        }
    }

    /// Sets the space the inode owns (units of 512 bytes; a multiple of the block where it
    /// does not fit 48 bits). `false`, and nothing changed, if the format cannot say it.
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
        self.base_mut().i_blocks_lo.set(value as u32);
        if huge {
            self.base_mut().l_i_blocks_high.set((value >> 32) as u16);
        }
        true
    }

    /// The 60 bytes of the block map, extent root, fast symlink, device number or inline data.
    pub fn i_block(&self) -> &[u8; I_BLOCK_BYTES] {
        &self.base().i_block
    }

    /// As [`Self::i_block`], to change.
    pub fn i_block_mut(&mut self) -> &mut [u8; I_BLOCK_BYTES] {
        &mut self.base_mut().i_block
    }

    /// Pointer `index` (0..15) of the indirect map; 0 is a hole.
    pub fn block_pointer(&self, index: usize) -> u32 {
        let pointers = self.i_block().as_chunks::<4>().0;
        pointers
            .get(index)
            .map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }

    /// Sets pointer `index` (0..15) of the indirect map.
    pub fn set_block_pointer(&mut self, index: usize, block: u32) {
        if let Some(bytes) = self.i_block_mut().as_chunks_mut::<4>().0.get_mut(index) {
            *bytes = block.to_le_bytes();
        }
    }

    /// Whether the target of this symbolic link is in `i_block`: it is short, and there are no
    /// extents and no inline data. (Extended attributes may own a block, so `i_blocks` does
    /// not tell.)
    pub fn is_fast_symlink(&self) -> bool {
        FileType::from_mode(self.mode()) == Some(FileType::Symlink)
            && !self
                .flags()
                .intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
            && self.base().i_size_lo.get() as usize <= FAST_SYMLINK_MAX
    }

    /// Target of a fast symbolic link; `None` if it is not one.
    pub fn fast_symlink_target(&self) -> Option<&[u8]> {
        let len = self.base().i_size_lo.get() as usize;
        self.is_fast_symlink().then(|| self.i_block().get(..len))?
    }

    /// Major and minor number of a device inode: the old 8+8 bits in the first word, or the
    /// new 12+20 bits in the second.
    pub fn device_number(&self) -> (u32, u32) {
        let (old, new) = (self.block_pointer(0), self.block_pointer(1));
        if old != 0 {
            (old >> 8 & 0xFF, old & 0xFF)
        } else {
            (new >> 8 & 0xFFF, new & 0xFF | new >> 12 & 0xFFF00)
        }
    }

    /// Sets the device number, in the old form if it fits. `false` if it is over 12+20 bits.
    #[must_use]
    pub fn set_device_number(&mut self, major: u32, minor: u32) -> bool {
        if major >= 1 << 12 || minor >= 1 << 20 {
            return false;
        }
        let (old, new) = if major < 256 && minor < 256 {
            (major << 8 | minor, 0)
        } else {
            (0, minor & 0xFF | major << 8 | (minor & !0xFF) << 12)
        };
        self.set_block_pointer(0, old);
        self.set_block_pointer(1, new);
        true
    }

    /// Block of extended attributes; 0 if none. 48 bits with `64bit`, else 32.
    pub fn file_acl(&self, geometry: &Geometry) -> FsBlock {
        let lo = u64::from(self.base().i_file_acl_lo.get());
        if geometry.incompat.contains(Incompat::BIT64) {
            FsBlock(u64::from(self.base().l_i_file_acl_high.get()) << 32 | lo)
        } else {
            FsBlock(lo)
        }
    }

    /// Sets the block of extended attributes (below 2^48).
    pub fn set_file_acl(&mut self, geometry: &Geometry, block: FsBlock) {
        self.base_mut().i_file_acl_lo.set(block.0 as u32);
        if geometry.incompat.contains(Incompat::BIT64) {
            self.base_mut()
                .l_i_file_acl_high
                .set((block.0 >> 32) as u16);
        }
    }

    /// `i_generation`.
    pub fn generation(&self) -> u32 {
        self.base().i_generation.get()
    }

    /// Sets `i_generation`. The seed of the inode's checksums changes with it.
    pub fn set_generation(&mut self, generation: u32) {
        self.base_mut().i_generation.set(generation);
    }

    /// Time of deletion, or the next entry of the orphan list.
    pub fn dtime(&self) -> u32 {
        self.base().i_dtime.get()
    }

    /// Sets the time of deletion.
    pub fn set_dtime(&mut self, dtime: u32) {
        self.base_mut().i_dtime.set(dtime);
    }

    /// A time; `None` for the birth of an inode that has no room for it.
    pub fn time(&self, which: Time) -> Option<Timestamp> {
        let (base, extra) = (self.base(), self.extra());
        let (word, extra_word) = match which {
            Time::Access => (base.i_atime, extra.map(|e| e.i_atime_extra)),
            Time::Change => (base.i_ctime, extra.map(|e| e.i_ctime_extra)),
            Time::Modify => (base.i_mtime, extra.map(|e| e.i_mtime_extra)),
            Time::Create => {
                let extra = extra.filter(|_| self.has_time(Time::Create))?;
                (extra.i_crtime, Some(extra.i_crtime_extra))
            }
        };
        let extra_word = extra_word.filter(|_| self.has_time(which));
        Some(Timestamp::decode(word.get(), extra_word.map(U32::get)))
    }

    /// Whether the time has its extra word (and for the birth, whether it exists).
    fn has_time(&self, which: Time) -> bool {
        self.reaches(match which {
            Time::Change => offset_of!(InodeExtra, i_mtime_extra),
            Time::Modify => offset_of!(InodeExtra, i_atime_extra),
            Time::Access => offset_of!(InodeExtra, i_crtime),
            Time::Create => offset_of!(InodeExtra, i_version_hi),
        })
    }

    /// Sets a time, to the precision that there is room for; no birth without room.
    pub fn set_time(&mut self, which: Time, time: Timestamp) {
        let long = self.has_time(which);
        let (word, extra_word) = if long {
            time.encode()
        } else {
            (time.encode_short(), 0)
        };
        match which {
            Time::Access => self.base_mut().i_atime.set(word),
            Time::Change => self.base_mut().i_ctime.set(word),
            Time::Modify => self.base_mut().i_mtime.set(word),
            Time::Create => {}
        }
        let Some(extra) = self.extra_mut().filter(|_| long) else {
            return;
        };
        match which {
            Time::Access => extra.i_atime_extra.set(extra_word),
            Time::Change => extra.i_ctime_extra.set(extra_word),
            Time::Modify => extra.i_mtime_extra.set(extra_word),
            Time::Create => {
                extra.i_crtime.set(word);
                extra.i_crtime_extra.set(extra_word);
            }
        }
    }

    /// `i_version`: 64 bits where there is room, else 32.
    pub fn version(&self) -> u64 {
        let high = self
            .extra()
            .filter(|_| self.reaches(offset_of!(InodeExtra, i_projid)));
        let high = high.map_or(0, |extra| extra.i_version_hi.get());
        u64::from(high) << 32 | u64::from(self.base().l_i_version.get())
    }

    /// Sets `i_version`, as much of it as there is room for.
    pub fn set_version(&mut self, version: u64) {
        self.base_mut().l_i_version.set(version as u32);
        if self.reaches(offset_of!(InodeExtra, i_projid))
            && let Some(extra) = self.extra_mut()
        {
            extra.i_version_hi.set((version >> 32) as u32);
        }
    }

    /// Project; 0 where there is no room for it.
    pub fn projid(&self) -> u32 {
        let present = self.reaches(size_of::<InodeExtra>());
        self.extra()
            .filter(|_| present)
            .map_or(0, |extra| extra.i_projid.get())
    }

    /// Sets the project. `false` if there is no room for it.
    #[must_use]
    pub fn set_projid(&mut self, projid: u32) -> bool {
        let present = self.reaches(size_of::<InodeExtra>());
        match self.extra_mut().filter(|_| present) {
            Some(extra) => extra.i_projid.set(projid),
            None => return false,
        }
        true
    }

    /// Whether the upper half of the checksum is present.
    fn has_checksum_hi(&self) -> bool {
        self.reaches(offset_of!(InodeExtra, i_ctime_extra))
    }

    /// The checksum the inode should carry: 32 bits, or the lower 16 where there is no room.
    /// `fs_seed` is [`Geometry::csum_seed`].
    pub fn checksum(&self, fs_seed: u32, inode: InodeNumber) -> u32 {
        const LO: usize = offset_of!(InodeBase, l_i_checksum_lo);
        const HI: usize = BASE_BYTES + offset_of!(InodeExtra, i_checksum_hi);
        let mut bytes = self.bytes.clone();
        bytes[LO..LO + 2].fill(0);
        let wide = self.has_checksum_hi();
        if wide {
            bytes[HI..HI + 2].fill(0);
        }
        let seed = crate::checksum::inode_seed(fs_seed, inode, self.generation());
        let crc = crc32c(seed, &bytes);
        if wide { crc } else { crc & 0xFFFF }
    }

    /// Checks the checksum, where the volume has one. A free inode of all zeroes has none and
    /// is accepted (`mke2fs` leaves such tables).
    pub fn verify_checksum(&self, geometry: &Geometry, inode: InodeNumber) -> Result<()> {
        let Some(seed) = geometry.csum_seed else {
            return Ok(());
        };
        let lo = u32::from(self.base().l_i_checksum_lo.get());
        let hi = self.extra().filter(|_| self.has_checksum_hi());
        let found = hi.map_or(0, |extra| u32::from(extra.i_checksum_hi.get())) << 16 | lo;
        let right = self.checksum(seed, inode);
        if found == right || self.bytes.iter().all(|&byte| byte == 0) {
            return Ok(());
        }
        Err(Corrupt::new(format!(
            "inode checksum is {found:#010x}, should be {right:#010x}"
        )))
    }

    /// Recomputes the checksum, where the volume has one; call before writing.
    pub fn update_checksum(&mut self, geometry: &Geometry, inode: InodeNumber) {
        let Some(seed) = geometry.csum_seed else {
            return;
        };
        let crc = self.checksum(seed, inode);
        let wide = self.has_checksum_hi();
        self.base_mut().l_i_checksum_lo.set(crc as u16);
        if let Some(extra) = self.extra_mut().filter(|_| wide) {
            extra.i_checksum_hi.set((crc >> 16) as u16);
        }
    }
}

impl std::fmt::Debug for InodeImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InodeImage")
            .field("mode", &format_args!("{:#o}", self.mode()))
            .field("links", &self.links_count())
            .field("size_lo", &self.base().i_size_lo.get())
            .field("flags", &self.flags())
            .finish_non_exhaustive()
    }
}
