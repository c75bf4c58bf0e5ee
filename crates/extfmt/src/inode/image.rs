//! The bytes of one inode, with getters and setters for the common fields, and the area of its extended
//! attributes.

use zerocopy::FromBytes;

use super::{BASE_BYTES, EXTRA_ISIZE, FULL_BYTES, FileType, InodeBase, InodeExtra, InodeFlags};
use crate::error::ensure;
use crate::features::{Incompat, RoCompat};
use crate::units::FsBlock;
use crate::{Corrupt, Geometry, Result};

/// The bytes of one inode, owned.
///
/// Invariant: at least 128 bytes, and `i_extra_isize`, where it exists, lies within them; so
/// [`Self::extra`] and the fields it says are present can be read without further checks.
#[derive(Clone, PartialEq, Eq)]
pub struct InodeImage {
    bytes: Box<[u8]>,
}

impl InodeImage {
    /// Copies an inode's bytes, exactly `inode_bytes` of them, and checks
    /// `i_extra_isize`. [`Self::verify_checksum`] checks the checksum.
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
        // It is 0 in a free inode, and in one written before the volume's inodes were enlarged.
        ensure!(
            extra % 4 == 0 && extra <= len.saturating_sub(BASE_BYTES),
            "i_extra_isize is {extra} in an inode of {len} bytes"
        );
        Ok(image)
    }

    /// A zeroed inode of this volume with the `i_extra_isize` of a new inode
    /// (`want` is `s_want_extra_isize`, clamped to its bounds).
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

    /// The bytes to write.
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

    /// The bytes after the first 128 as fields; `None` in inodes of 128 bytes. Bytes past
    /// [`Self::extra_isize`] are not fields but part of the extended attributes.
    pub fn extra(&self) -> Option<&InodeExtra> {
        Some(
            InodeExtra::ref_from_prefix(self.bytes.get(BASE_BYTES..)?)
                .ok()?
                .0,
        )
    }

    /// As [`Self::extra`], mutable.
    pub(super) fn extra_mut(&mut self) -> Option<&mut InodeExtra> {
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
    pub(super) fn reaches(&self, end: usize) -> bool {
        usize::from(self.extra_isize()) >= end
    }

    /// The area of extended attributes in the inode: the byte range of the image after the
    /// fields; `None` if there is no room.
    pub fn xattr_range(&self) -> Option<std::ops::Range<usize>> {
        let extra = self.extra_isize();
        if extra == 0 {
            return None;
        }
        let start = BASE_BYTES.checked_add(usize::from(extra))?;
        (start.checked_add(4)? <= self.bytes.len()).then_some(start..self.bytes.len())
    }

    /// The area of extended attributes, see [`Self::xattr_range`]; empty if there is none.
    pub fn xattr_area(&self) -> &[u8] {
        self.xattr_range()
            .and_then(|range| self.bytes.get(range))
            .unwrap_or_default()
    }

    /// As [`Self::xattr_area`], mutable.
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

    /// The type of the inode; an error for a mode without a valid type.
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

    /// Size in bytes: 64 bits for regular files, and for directories
    /// with `large_dir`; 32 bits for all others (the high word of old directories was an ACL).
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

    /// Sets the size; the high word only if the inode has one (see [`Self::size_bytes`]) or the
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
        self.base_mut().i_blocks_lo.set(value as u32);
        if huge {
            self.base_mut().l_i_blocks_high.set((value >> 32) as u16);
        }
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

    /// Sets `i_generation`. This changes the seed of the inode's checksums.
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
