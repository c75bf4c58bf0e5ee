//! The 60 bytes of `i_block`: pointers of the indirect map, a short symbolic link, or a device number.

use super::{FAST_SYMLINK_MAX, FileType, I_BLOCK_BYTES, InodeBase, InodeFlags};

impl InodeBase {
    /// The 60 bytes of the block map, extent root, fast symlink, device number or inline data.
    pub fn i_block(&self) -> &[u8; I_BLOCK_BYTES] {
        &self.i_block
    }

    /// As [`Self::i_block`], mutable.
    pub fn i_block_mut(&mut self) -> &mut [u8; I_BLOCK_BYTES] {
        &mut self.i_block
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

    /// Whether the target of this symbolic link is in `i_block`: it is short, without
    /// extents and inline data. (`i_blocks` is no criterion: extended attributes may own a
    /// block.)
    pub fn is_fast_symlink(&self) -> bool {
        FileType::from_mode(self.mode()) == Some(FileType::Symlink)
            && !self
                .flags()
                .intersects(InodeFlags::EXTENTS | InodeFlags::INLINE_DATA)
            && self.i_size_lo.get() as usize <= FAST_SYMLINK_MAX
    }

    /// Target of a fast symbolic link; `None` for any other inode.
    pub fn fast_symlink_target(&self) -> Option<&[u8]> {
        let len = self.i_size_lo.get() as usize;
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
}
