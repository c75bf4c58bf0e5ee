//! The words of `-E`.

use throughline_extfmt::casefold;

use crate::error::Result;
use crate::words::{self, Amount};

const OPTION: &str = "-E";

/// The words, for messages.
const ALL: &str = "the words are assume_storage_prezeroed[=0|1], discard, encoding=utf8, \
                   encoding_flags=strict|nostrict, hash_seed=UUID, \
                   lazy_itable_init[=0|1], lazy_journal_init[=0|1], mmp_update_interval=SECONDS, \
                   no_copy_xattrs, nodiscard, num_backup_sb=0|1|2, offset=BYTES, orphan_file_size=BLOCKS, \
                   packed_meta_blocks[=0|1], quotatype=TYPE[:TYPE]..., resize=BLOCKS, root_owner[=UID:GID], stride=BLOCKS, \
                   stripe_width=BLOCKS, test_fs";

/// What `-E` says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extended {
    pub(crate) stride: Option<u32>,
    pub(crate) stripe_width: Option<u32>,
    pub(crate) resize: Option<Amount>,
    pub(crate) offset: Option<u64>,
    pub(crate) lazy_itable: Option<bool>,
    pub(crate) lazy_journal: Option<bool>,
    pub(crate) prezeroed: Option<bool>,
    pub(crate) packed_meta_blocks: Option<bool>,
    pub(crate) backups: Option<u32>,
    pub(crate) root_owner: Option<(u32, u32)>,
    pub(crate) orphan_file: Option<Amount>,
    pub(crate) quota_kinds: Option<[bool; 3]>,
    pub(crate) hash_seed: Option<[u8; 16]>,
    pub(crate) mmp_interval: Option<u16>,
    /// `s_encoding`.
    pub(crate) encoding: Option<u16>,
    /// `s_encoding_flags`.
    pub(crate) encoding_flags: Option<u16>,
    pub(crate) test_fs: bool,
    pub(crate) discard: Option<bool>,
}

impl Extended {
    /// These words, replaced by those that `later` has.
    pub(crate) fn merged(&self, later: &Extended) -> Extended {
        Extended {
            stride: later.stride.or(self.stride),
            stripe_width: later.stripe_width.or(self.stripe_width),
            resize: later.resize.or(self.resize),
            offset: later.offset.or(self.offset),
            lazy_itable: later.lazy_itable.or(self.lazy_itable),
            lazy_journal: later.lazy_journal.or(self.lazy_journal),
            prezeroed: later.prezeroed.or(self.prezeroed),
            packed_meta_blocks: later.packed_meta_blocks.or(self.packed_meta_blocks),
            backups: later.backups.or(self.backups),
            root_owner: later.root_owner.or(self.root_owner),
            orphan_file: later.orphan_file.or(self.orphan_file),
            quota_kinds: later.quota_kinds.or(self.quota_kinds),
            hash_seed: later.hash_seed.or(self.hash_seed),
            mmp_interval: later.mmp_interval.or(self.mmp_interval),
            encoding: later.encoding.or(self.encoding),
            encoding_flags: later.encoding_flags.or(self.encoding_flags),
            test_fs: later.test_fs || self.test_fs,
            discard: later.discard.or(self.discard),
        }
    }

    /// Reads words such as `stride=16,nodiscard`. Later words replace earlier ones.
    ///
    /// # Errors
    /// A word that is not understood, or not supported.
    pub(crate) fn read(&mut self, text: &str) -> Result<()> {
        for (name, value) in words::split(text) {
            let number = |least, most| words::number(OPTION, name, value, least, most);
            let flag = || words::flag(OPTION, name, value);
            match name {
                "stride" => self.stride = Some(number(1, u64::from(u16::MAX))? as u32),
                "stripe_width" | "stripe-width" => {
                    self.stripe_width = Some(number(1, u64::from(u32::MAX))? as u32);
                }
                "resize" => self.resize = Some(words::amount(OPTION, name, value)?),
                "offset" => self.offset = Some(number(0, i64::MAX as u64)?),
                "lazy_itable_init" => self.lazy_itable = Some(flag()?),
                "lazy_journal_init" => self.lazy_journal = Some(flag()?),
                "assume_storage_prezeroed" => self.prezeroed = Some(flag()?),
                "packed_meta_blocks" => self.packed_meta_blocks = Some(flag()?),
                "num_backup_sb" => self.backups = Some(number(0, 2)? as u32),
                "root_owner" => self.root_owner = Some(owner(value)?),
                "orphan_file_size" => self.orphan_file = Some(words::amount(OPTION, name, value)?),
                "hash_seed" => self.hash_seed = Some(seed(value)?),
                "mmp_update_interval" => self.mmp_interval = Some(number(0, 300)? as u16),
                "test_fs" => self.test_fs = true,
                "discard" => self.discard = Some(true),
                "nodiscard" => self.discard = Some(false),
                // About -d, which copies.
                "no_copy_xattrs" => {}
                "encoding" => self.encoding = Some(encoding(value)?),
                "encoding_flags" => self.encoding_flags = Some(encoding_flags(value)?),
                "quotatype" => self.quota_kinds = Some(quota_kinds(value)?),
                _ => return Err(words::wrong(OPTION, name, ALL)),
            }
        }
        Ok(())
    }
}

/// `UID:GID`; without a value, the user who runs this.
fn owner(value: Option<&str>) -> Result<(u32, u32)> {
    let Some(text) = value else {
        return Ok((
            rustix::process::getuid().as_raw(),
            rustix::process::getgid().as_raw(),
        ));
    };
    text.split_once(':')
        .and_then(|(uid, gid)| Some((uid.parse().ok()?, gid.parse().ok()?)))
        .ok_or_else(|| {
            words::wrong(
                OPTION,
                &format!("root_owner={text}"),
                "UID:GID is needed, as numbers",
            )
        })
}

/// Kinds of quotas: `usrquota`, `grpquota` and `prjquota`, joined by colons.
fn quota_kinds(value: Option<&str>) -> Result<[bool; 3]> {
    let text = value.unwrap_or_default();
    let mut kinds = [false; 3];
    for word in text.split(':') {
        let names = ["usrquota", "grpquota", "prjquota"];
        match names.iter().position(|name| *name == word) {
            Some(kind) => kinds[kind] = true,
            None => {
                return Err(words::wrong(
                    OPTION,
                    &format!("quotatype={text}"),
                    "usrquota, grpquota and prjquota are the types, joined by colons",
                ));
            }
        }
    }
    Ok(kinds)
}

fn encoding(value: Option<&str>) -> Result<u16> {
    match value {
        Some("utf8" | "utf8-12.1") => Ok(casefold::UTF8_12_1),
        _ => {
            let text = value.unwrap_or_default();
            Err(words::wrong(
                OPTION,
                &format!("encoding={text}"),
                "the encodings are utf8 and utf8-12.1",
            ))
        }
    }
}

fn encoding_flags(value: Option<&str>) -> Result<u16> {
    match value {
        Some("strict") => Ok(casefold::STRICT),
        Some("nostrict") => Ok(0),
        _ => {
            let text = value.unwrap_or_default();
            Err(words::wrong(
                OPTION,
                &format!("encoding_flags={text}"),
                "the flags are strict and nostrict",
            ))
        }
    }
}

fn seed(value: Option<&str>) -> Result<[u8; 16]> {
    let text = value.unwrap_or_default();
    match uuid::Uuid::try_parse(text) {
        Ok(seed) => Ok(seed.into_bytes()),
        Err(_) => Err(words::wrong(
            OPTION,
            &format!("hash_seed={text}"),
            "a UUID is needed",
        )),
    }
}
