//! The three feature words of the superblock, with the names `dumpe2fs` prints.

use std::fmt;

/// Defines a feature word: flags, their printed names, and the word's letter for unknown bits.
macro_rules! features {
    ($(#[$($meta:tt)*])* $word:ident, $letter:literal,
     $($(#[$($flag_meta:tt)*])* $flag:ident = $bit:literal, $name:literal;)+) => {
        bitflags::bitflags! {
            $(#[$($meta)*])*
            #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
            pub struct $word: u32 {
                $($(#[$($flag_meta)*])* const $flag = 1 << $bit;)+
                const _ = !0;
            }
        }

        impl $word {
            /// Every bit that has a name.
            pub const KNOWN: Self = Self::from_bits_retain($((1 << $bit))|+);

            /// Name of one bit (0..32) as `e2fsprogs` prints it; `FEATURE_X31` for a bit without a name.
            pub fn bit_name(bit: u32) -> String {
                match bit {
                    $($bit => $name.to_owned(),)+
                    _ => format!(concat!("FEATURE_", $letter, "{}"), bit),
                }
            }

            /// Names of the bits that are set, lowest first.
            pub fn names(self) -> Vec<String> {
                (0..32)
                    .filter(|bit| self.bits() >> bit & 1 == 1)
                    .map(Self::bit_name)
                    .collect()
            }
        }

        impl fmt::Display for $word {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.names().join(" "))
            }
        }
    };
}

features! {
    /// `s_feature_compat`: a driver may ignore unknown bits.
    Compat, "C",
    /// Directory preallocation (never used by Linux).
    DIR_PREALLOC = 0, "dir_prealloc";
    /// AFS server inodes.
    IMAGIC_INODES = 1, "imagic_inodes";
    /// A jbd2 journal.
    HAS_JOURNAL = 2, "has_journal";
    /// Extended attributes.
    EXT_ATTR = 3, "ext_attr";
    /// Blocks reserved for descriptors, owned by inode 7.
    RESIZE_INODE = 4, "resize_inode";
    /// Hashed directories.
    DIR_INDEX = 5, "dir_index";
    /// Lazy block groups (never in mainline).
    LAZY_BG = 6, "lazy_bg";
    /// Snapshot exclude bitmap (never in mainline).
    EXCLUDE_BITMAP = 8, "snapshot_bitmap";
    /// At most two backup superblocks, in the groups of `s_backup_bgs`.
    SPARSE_SUPER2 = 9, "sparse_super2";
    /// The journal has an area for fast commits.
    FAST_COMMIT = 10, "fast_commit";
    /// Inode numbers and the uuid must not change.
    STABLE_INODES = 11, "stable_inodes";
    /// Orphans are listed in a file.
    ORPHAN_FILE = 12, "orphan_file";
}

features! {
    /// `s_feature_incompat`: a driver must refuse the volume if it does not know a bit.
    Incompat, "I",
    /// Compression (never in mainline).
    COMPRESSION = 0, "compression";
    /// Directory entries hold the type of the inode.
    FILETYPE = 1, "filetype";
    /// The journal must be replayed.
    RECOVER = 2, "needs_recovery";
    /// The volume is itself a journal.
    JOURNAL_DEV = 3, "journal_dev";
    /// Descriptors of a meta group live in the group.
    META_BG = 4, "meta_bg";
    /// Files may be mapped by extents.
    EXTENTS = 6, "extent";
    /// 64-bit block numbers.
    BIT64 = 7, "64bit";
    /// Multiple-mount protection.
    MMP = 8, "mmp";
    /// Bitmaps and inode tables may live outside their group.
    FLEX_BG = 9, "flex_bg";
    /// Values of extended attributes in separate inodes.
    EA_INODE = 10, "ea_inode";
    /// Data in directory entries (Lustre).
    DIRDATA = 12, "dirdata";
    /// The seed of checksums is in the superblock.
    CSUM_SEED = 13, "metadata_csum_seed";
    /// Hash trees of three levels, and directories over 2 GiB.
    LARGE_DIR = 14, "large_dir";
    /// Small files live in their inode.
    INLINE_DATA = 15, "inline_data";
    /// Encrypted files.
    ENCRYPT = 16, "encrypt";
    /// Directories that ignore case.
    CASEFOLD = 17, "casefold";
}

features! {
    /// `s_feature_ro_compat`: a driver that does not know a bit may only read the volume.
    RoCompat, "R",
    /// Backup superblocks in group 1 and powers of 3, 5, 7 only.
    SPARSE_SUPER = 0, "sparse_super";
    /// Files of 2 GiB and more.
    LARGE_FILE = 1, "large_file";
    /// `i_blocks` of 48 bits, in file-system blocks if the inode has `HUGE_FILE`.
    HUGE_FILE = 3, "huge_file";
    /// Group descriptors with crc16 checksums and lazily initialised groups (`GDT_CSUM`).
    GDT_CSUM = 4, "uninit_bg";
    /// More than 65000 subdirectories: the link count becomes 1.
    DIR_NLINK = 5, "dir_nlink";
    /// Inodes hold fields beyond 128 bytes.
    EXTRA_ISIZE = 6, "extra_isize";
    /// Quota files are part of the volume.
    QUOTA = 8, "quota";
    /// Blocks are allocated in clusters.
    BIGALLOC = 9, "bigalloc";
    /// crc32c checksums on all metadata.
    METADATA_CSUM = 10, "metadata_csum";
    /// Replicas (never in mainline).
    REPLICA = 11, "replica";
    /// Must not be written.
    READONLY = 12, "read-only";
    /// Project ids and their quota.
    PROJECT = 13, "project";
    /// Blocks shared between files (Android images).
    SHARED_BLOCKS = 14, "shared_blocks";
    /// fs-verity files.
    VERITY = 15, "verity";
    /// The orphan file may hold entries.
    ORPHAN_PRESENT = 16, "orphan_present";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_kept_and_named() {
        let word = Compat::from_bits_retain(1 << 31 | 1 << 2);
        assert_eq!(word.names(), ["has_journal", "FEATURE_C31"]);
        assert_eq!(word.to_string(), "has_journal FEATURE_C31");
        assert_eq!((word - Compat::KNOWN).names(), ["FEATURE_C31"]);
        assert_eq!(Incompat::bit_name(5), "FEATURE_I5");
        assert_eq!(RoCompat::bit_name(31), "FEATURE_R31");
    }
}
