//! The values of single options: as given, else of the configuration, else the default; and their bounds.

use throughline_extfmt::features::Incompat;
use throughline_extfmt::superblock::OnError;

use super::Resolver;
use crate::error::{Error, Result};
use crate::features::Features;
use crate::request::{InodeCount, JournalRequest};
use crate::words::{self, Amount};

const DEFAULT_INODE_BYTES: i64 = 256;
const DEFAULT_BYTES_PER_INODE: i64 = 8192;
const DEFAULT_RESERVED_PERCENT: f64 = 5.0;
const DEFAULT_GROUPS_PER_FLEX: i64 = 16;
const DEFAULT_MOUNT_OPTIONS: &str = "acl,user_xattr";
const DEFAULT_BACKUPS: u32 = 2;
/// Bytes per inode: below the first, there would be inodes for blocks that do not exist.
const BYTES_PER_INODE: std::ops::RangeInclusive<u64> = 1024..=64 << 20;
/// Bits of `s_default_mount_opts`.
const MOUNT_OPTIONS: &[(&str, u32)] = &[
    ("debug", 0x1),
    ("bsdgroups", 0x2),
    ("user_xattr", 0x4),
    ("acl", 0x8),
    ("uid16", 0x10),
    ("journal_data", 0x20),
    ("journal_data_ordered", 0x40),
    ("journal_data_writeback", 0x60),
    ("nobarrier", 0x100),
    ("block_validity", 0x200),
    ("discard", 0x400),
    ("nodelalloc", 0x800),
];

impl Resolver<'_> {
    pub(super) fn revision_0(&self) -> Result<bool> {
        match self.options.revision {
            None | Some(1) => Ok(false),
            Some(0) => {
                let mut asked = Features::NONE;
                let mut lists = self.options.features.iter();
                lists.try_for_each(|list| asked.edit(list))?;
                match (asked == Features::NONE, self.extended.resize) {
                    (true, None) => Ok(true),
                    _ => Err(Error::invalid(
                        "revision 0 (-r) has no features (-O), and does not grow while mounted (-E resize=)",
                    )),
                }
            }
            Some(other) => Err(Error::invalid(format!(
                "revision {other} (-r): 0 or 1 is allowed"
            ))),
        }
    }

    pub(super) fn inode_bytes(&self, revision_0: bool) -> Result<u16> {
        if revision_0 {
            return Ok(128);
        }
        let bytes = match self.options.inode_bytes {
            Some(bytes) => i64::from(bytes),
            None => {
                let configured = self.config.number(&self.types, "inode_size")?;
                configured.unwrap_or(DEFAULT_INODE_BYTES)
            }
        };
        let is_good = u32::try_from(bytes).is_ok_and(|bytes| {
            bytes.is_power_of_two() && (128..=self.block_bytes).contains(&bytes)
        });
        match is_good {
            true => Ok(u16::try_from(bytes).unwrap_or(1 << 15)),
            false => Err(Error::invalid(format!(
                "inodes of {bytes} bytes (-I): a power of two from 128 to the block size, {}, is allowed",
                self.block_bytes
            ))),
        }
    }

    pub(super) fn inodes(&self, inode_bytes: u16) -> Result<InodeCount> {
        if let Some(count) = self.options.inodes {
            let most =
                self.blocks.saturating_mul(u64::from(self.block_bytes)) / u64::from(inode_bytes);
            let most = most.min(u64::from(u32::MAX));
            if count >= most {
                return Err(Error::invalid(format!(
                    "{count} inodes (-N): from 1 to less than {most} are allowed for {} blocks of {} bytes",
                    self.blocks, self.block_bytes
                )));
            }
            return Ok(InodeCount::AtLeast(count));
        }
        let bytes = match self.options.bytes_per_inode {
            Some(bytes) if BYTES_PER_INODE.contains(&bytes) => bytes,
            Some(bytes) => {
                return Err(Error::invalid(format!(
                    "{bytes} bytes per inode (-i): from {} to {} is allowed",
                    BYTES_PER_INODE.start(),
                    BYTES_PER_INODE.end()
                )));
            }
            None => {
                let configured = self.config.number(&self.types, "inode_ratio")?;
                let bytes = configured.unwrap_or(DEFAULT_BYTES_PER_INODE);
                // Fewer bytes than a block would make inodes for which there are no blocks.
                bytes.max(i64::from(self.block_bytes)) as u64
            }
        };
        Ok(InodeCount::BytesPer(bytes))
    }

    pub(super) fn groups_per_flex(&self, features: &Features) -> Result<u32> {
        let has = features.incompat.contains(Incompat::FLEX_BG);
        let groups = match self.options.groups_per_flex {
            Some(_) if !has => {
                return Err(Error::invalid(
                    "groups per flex group (-G) need the feature flex_bg: -O flex_bg",
                ));
            }
            Some(groups) => i64::from(groups),
            None => {
                let configured = self.config.number(&self.types, "flex_bg_size")?;
                configured.unwrap_or(DEFAULT_GROUPS_PER_FLEX)
            }
        };
        match u32::try_from(groups) {
            Ok(groups) if groups.is_power_of_two() => Ok(groups),
            _ => Err(Error::invalid(format!(
                "{groups} groups per flex group (-G): a power of two is needed"
            ))),
        }
    }

    pub(super) fn reserved_percent(&self) -> Result<f64> {
        let percent = match self.options.reserved_percent {
            Some(percent) => percent,
            None => match self.config.value(&self.types, "reserved_ratio") {
                None => DEFAULT_RESERVED_PERCENT,
                Some(text) => text.parse().map_err(|_| {
                    Error::invalid(format!(
                        "mke2fs.conf: reserved_ratio = {text} is not a number"
                    ))
                })?,
            },
        };
        match (0.0..=50.0).contains(&percent) {
            true => Ok(percent),
            false => Err(Error::invalid(format!(
                "{percent} percent for root (-m): from 0 to 50 is allowed"
            ))),
        }
    }

    pub(super) fn journal(&self) -> Result<JournalRequest> {
        let words = &self.options.journal;
        let location = match (
            words.location,
            self.config.value(&self.types, "journal_location"),
        ) {
            (Some(given), _) => Some(given),
            (None, Some(text)) => Some(words::amount(
                "mke2fs.conf:",
                "journal_location",
                Some(text),
            )?),
            (None, None) => None,
        };
        let location = location.map(|amount| amount.blocks(self.block_bytes));
        if let Some(block) = location.filter(|block| *block >= self.blocks) {
            return Err(Error::invalid(format!(
                "-J location={block}: the volume has {} blocks",
                self.blocks
            )));
        }
        Ok(JournalRequest {
            size_mib: words.size_mib,
            fast_commit_kib: words.fast_commit_kib,
            location,
        })
    }

    /// The number of blocks of `resize=`.
    pub(super) fn growth(&self, amount: Amount) -> Result<u64> {
        let blocks = amount.blocks(self.block_bytes);
        if blocks <= self.blocks {
            return Err(Error::invalid(format!(
                "-E resize={blocks}: more than the {} blocks of the volume are needed",
                self.blocks
            )));
        }
        Ok(blocks.min(u64::from(u32::MAX)))
    }

    pub(super) fn backups(&self) -> Result<u32> {
        match (
            self.extended.backups,
            self.config.number(&self.types, "num_backup_sb")?,
        ) {
            (Some(count), _) => Ok(count),
            (None, None) => Ok(DEFAULT_BACKUPS),
            (None, Some(count @ 0..=2)) => Ok(count as u32),
            (None, Some(count)) => Err(Error::invalid(format!(
                "mke2fs.conf: num_backup_sb = {count}: 0, 1 or 2 is allowed"
            ))),
        }
    }

    pub(super) fn hash_version(&self) -> Result<u8> {
        match self.config.value(&self.types, "hash_alg") {
            Some("legacy") => Ok(0),
            None | Some("half_md4") => Ok(1),
            Some("tea") => Ok(2),
            Some(other) => Err(Error::invalid(format!(
                "mke2fs.conf: hash_alg = {other}: legacy, half_md4 or tea is allowed"
            ))),
        }
    }

    pub(super) fn on_error(&self) -> Result<OnError> {
        match (
            self.options.on_error,
            self.config.value(&self.types, "errors"),
        ) {
            (Some(given), _) => Ok(given),
            (None, None) => Ok(OnError::Continue),
            (None, Some(name)) => parse_on_error(name),
        }
    }

    pub(super) fn mount_options(&self) -> Result<u32> {
        let configured = self.config.value(&self.types, "default_mntopts");
        let list = configured.unwrap_or(DEFAULT_MOUNT_OPTIONS);
        let mut bits = 0;
        for name in list.split([',', ' ']).filter(|name| !name.is_empty()) {
            let (name, on) = match name.strip_prefix('^') {
                Some(name) => (name, false),
                None => (name, true),
            };
            let row = MOUNT_OPTIONS.iter().find(|(known, _)| *known == name);
            let (_, bit) = row.ok_or_else(|| {
                Error::invalid(format!(
                    "mke2fs.conf: default_mntopts: there is no option {name}"
                ))
            })?;
            bits = if on { bits | bit } else { bits & !bit };
        }
        Ok(bits)
    }
}

/// The behaviour on damage, by the name of `-e`.
///
/// # Errors
/// Another name.
pub fn parse_on_error(name: &str) -> Result<OnError> {
    let known = OnError::NAMES.iter().find(|(_, known)| *known == name);
    known.map(|(found, _)| *found).ok_or_else(|| {
        Error::invalid(format!(
            "behaviour on errors {name} (-e): continue, remount-ro or panic is allowed"
        ))
    })
}

/// The number of an operating system.
pub(crate) fn creator_os(name: &str) -> Result<u32> {
    const NAMES: [&str; 5] = ["linux", "hurd", "masix", "freebsd", "lites"];
    let known = (0..)
        .zip(NAMES)
        .find(|(_, known)| name.eq_ignore_ascii_case(known));
    match (known, name.parse()) {
        (Some((number, _)), _) | (None, Ok(number)) => Ok(number),
        _ => Err(Error::invalid(format!(
            "operating system {name} (-o): {} or a number is allowed",
            NAMES.join(", ")
        ))),
    }
}
