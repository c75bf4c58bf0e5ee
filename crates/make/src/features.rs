//! The features of a new volume: how they are named, which of them this version makes, and which go together.

use throughline_extfmt::features::{Compat, Incompat, RoCompat};

use crate::error::{Error, Result};
use crate::request::Request;

/// The three feature words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// `s_feature_compat`.
    pub compat: Compat,
    /// `s_feature_incompat`.
    pub incompat: Incompat,
    /// `s_feature_ro_compat`.
    pub ro_compat: RoCompat,
}

/// Features that this version makes and writes.
const MADE: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::EXT_ATTR)
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::BIT64)
        .union(Incompat::JOURNAL_DEV)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGE_DIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD),
    ro_compat: RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::QUOTA)
        .union(RoCompat::PROJECT)
        .union(RoCompat::VERITY),
};

/// Other names of features.
const ALIASES: &[(&str, &str)] = &[
    ("extents", "extent"),
    ("gdt_csum", "uninit_bg"),
    ("hash_index", "dir_index"),
    ("journal", "has_journal"),
];

/// One bit of one word.
#[derive(Clone, Copy)]
enum Bit {
    Compat(Compat),
    Incompat(Incompat),
    RoCompat(RoCompat),
}

impl Features {
    /// No feature.
    pub const NONE: Features = Features {
        compat: Compat::empty(),
        incompat: Incompat::empty(),
        ro_compat: RoCompat::empty(),
    };

    /// Changes the set by a list such as `extent,^resize_inode`; `none` clears it.
    ///
    /// # Errors
    /// A name that is not a feature, with the names that are; a feature that this version does not make.
    pub fn edit(&mut self, list: &str) -> Result<()> {
        let words = list.split([',', ' ', '\t']).filter(|word| !word.is_empty());
        for word in words {
            if word.eq_ignore_ascii_case("none") {
                *self = Features::NONE;
                continue;
            }
            let (name, on) = match word.strip_prefix(['^', '-']) {
                Some(name) => (name, false),
                None => (word.strip_prefix('+').unwrap_or(word), true),
            };
            self.set(find(name)?, on);
            if on {
                self.check_made()?;
            }
        }
        Ok(())
    }

    fn set(&mut self, bit: Bit, on: bool) {
        match bit {
            Bit::Compat(bit) => self.compat.set(bit, on),
            Bit::Incompat(bit) => self.incompat.set(bit, on),
            Bit::RoCompat(bit) => self.ro_compat.set(bit, on),
        }
    }

    /// The names of the features that this version makes.
    pub fn made() -> Vec<String> {
        MADE.names()
    }

    /// The names of the set.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.compat.names();
        names.extend(self.incompat.names());
        names.extend(self.ro_compat.names());
        names
    }

    fn check_made(&self) -> Result<()> {
        let beyond = Features {
            compat: self.compat - MADE.compat,
            incompat: self.incompat - MADE.incompat,
            ro_compat: self.ro_compat - MADE.ro_compat,
        };
        match beyond.names().first() {
            None => Ok(()),
            Some(name) => Err(Error::unsupported(format!(
                "the feature {name} is not written by this version, so no volume is made with it"
            ))),
        }
    }

    /// Whether there is a journal.
    pub fn has_journal(&self) -> bool {
        self.compat.contains(Compat::HAS_JOURNAL)
    }

    /// Whether group descriptors have a checksum, so that groups may be left uninitialised.
    pub fn has_group_csum(&self) -> bool {
        self.ro_compat
            .intersects(RoCompat::GDT_CSUM | RoCompat::METADATA_CSUM)
    }

    /// Removes the journal and what needs one: the volume is too small.
    pub(crate) fn drop_journal(&mut self) {
        self.compat
            .remove(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE);
    }

    /// Resolves features that exclude one another, and refuses contradictions.
    pub(crate) fn settle(&mut self, request: &Request) -> Result<()> {
        if request.revision_0 {
            *self = Features::NONE;
        }
        if self.ro_compat.contains(RoCompat::METADATA_CSUM) {
            // Both would claim the checksum field of the descriptors.
            self.ro_compat.remove(RoCompat::GDT_CSUM);
        }
        if self.ro_compat.contains(RoCompat::QUOTA) && request.quota_kinds.is_some_and(|it| it[2]) {
            self.ro_compat.insert(RoCompat::PROJECT);
        }
        let (compat, incompat, ro_compat) = (self.compat, self.incompat, self.ro_compat);
        let refuse = |wrong: bool, text: &str| match wrong {
            true => Err(Error::invalid(text)),
            false => Ok(()),
        };
        refuse(
            incompat.contains(Incompat::CSUM_SEED) && !ro_compat.contains(RoCompat::METADATA_CSUM),
            "the feature metadata_csum_seed needs the feature metadata_csum",
        )?;
        refuse(
            compat.contains(Compat::ORPHAN_FILE) && !compat.contains(Compat::HAS_JOURNAL),
            "the feature orphan_file needs a journal: the feature has_journal",
        )?;
        refuse(
            incompat.contains(Incompat::META_BG) && compat.contains(Compat::RESIZE_INODE),
            "the features resize_inode and meta_bg exclude one another: add ^resize_inode",
        )?;
        refuse(
            compat.contains(Compat::RESIZE_INODE) && !ro_compat.contains(RoCompat::SPARSE_SUPER),
            "the feature resize_inode needs the feature sparse_super: add sparse_super or ^resize_inode",
        )?;
        refuse(
            incompat.contains(Incompat::BIT64) && !incompat.contains(Incompat::EXTENTS),
            "the feature 64bit needs the feature extent: add extent or ^64bit",
        )?;
        let is_small = request.inode_bytes < 256;
        refuse(
            is_small && incompat.contains(Incompat::INLINE_DATA),
            "the feature inline_data needs inodes of 256 bytes or more (-I)",
        )?;
        refuse(
            is_small && ro_compat.contains(RoCompat::PROJECT),
            "the feature project needs inodes of 256 bytes or more (-I)",
        )
    }
}

/// The bit of a feature's name.
fn find(name: &str) -> Result<Bit> {
    let wanted = name.to_ascii_lowercase();
    let wanted = ALIASES
        .iter()
        .find(|(other, _)| *other == wanted)
        .map_or(wanted.as_str(), |(_, name)| name);
    for bit in 0..32 {
        let mask = 1 << bit;
        if Compat::KNOWN.bits() & mask != 0 && Compat::bit_name(bit) == wanted {
            return Ok(Bit::Compat(Compat::from_bits_retain(mask)));
        }
        if Incompat::KNOWN.bits() & mask != 0 && Incompat::bit_name(bit) == wanted {
            return Ok(Bit::Incompat(Incompat::from_bits_retain(mask)));
        }
        if RoCompat::KNOWN.bits() & mask != 0 && RoCompat::bit_name(bit) == wanted {
            return Ok(Bit::RoCompat(RoCompat::from_bits_retain(mask)));
        }
    }
    Err(Error::invalid(format!(
        "there is no feature {name:?}; the features are {}",
        Features::made().join(", ")
    )))
}
