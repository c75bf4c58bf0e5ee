//! The words of `-E`.

use throughline_extfmt::casefold;

use crate::error::Result;
use crate::words::{self, Amount};

const OPTION: &str = "-E";

/// The words, for messages.
const ALL: &str = "the words are assume_storage_prezeroed[=0|1], desc_size=64, discard, encoding=utf8, \
                   encoding_flags=strict|nostrict, hash_seed=UUID, \
                   lazy_itable_init[=0|1], lazy_journal_init[=0|1], mmp_update_interval=SECONDS, \
                   no_copy_xattrs, nodiscard, num_backup_sb=0|1|2, offset=BYTES, orphan_file_size=BLOCKS, \
                   packed_meta_blocks[=0|1], quotatype=TYPE[:TYPE]..., resize=BLOCKS, root_owner[=UID:GID], stride=BLOCKS, \
                   stripe_width=BLOCKS, test_fs";

/// What `-E` says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extended {
    /// All words that were read.
    pub(crate) words: Vec<String>,
    pub(crate) stride: Option<u32>,
    pub(crate) stripe_width: Option<u32>,
    pub(crate) resize: Option<Amount>,
    /// `desc_size=64`, the only size that the feature `64bit` has here.
    pub(crate) has_descriptor_bytes: bool,
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
    /// Reads words such as `stride=16,nodiscard`. Later words replace earlier ones.
    ///
    /// # Errors
    /// A word that is not understood, or not supported.
    pub(crate) fn read(&mut self, text: &str) -> Result<()> {
        self.words.push(text.to_owned());
        for (name, value) in words::split(text) {
            let number = |least, most| words::number(OPTION, name, value, least, most);
            let flag = || words::flag(OPTION, name, value);
            match name {
                "stride" => self.stride = Some(number(1, u64::from(u16::MAX))? as u32),
                "stripe_width" | "stripe-width" => {
                    self.stripe_width = Some(number(1, u64::from(u32::MAX))? as u32);
                }
                "resize" => self.resize = Some(words::amount(OPTION, name, value)?),
                "desc_size" => self.has_descriptor_bytes = number(64, 64)? == 64,
                "offset" => self.offset = Some(number(0, i64::MAX as u64)?),
                "lazy_itable_init" => self.lazy_itable = Some(flag()?),
                "lazy_journal_init" => self.lazy_journal = Some(flag()?),
                "assume_storage_prezeroed" => self.prezeroed = Some(flag()?),
                "packed_meta_blocks" => self.packed_meta_blocks = Some(flag()?),
                "num_backup_sb" => self.backups = Some(number(0, 2)? as u32),
                "root_owner" => {
                    self.root_owner = Some(words::value(
                        OPTION,
                        name,
                        value,
                        "UID:GID is needed, as numbers",
                        owner,
                    )?)
                }
                "orphan_file_size" => self.orphan_file = Some(words::amount(OPTION, name, value)?),
                "hash_seed" => {
                    self.hash_seed =
                        Some(words::value(OPTION, name, value, "a UUID is needed", seed)?)
                }
                "mmp_update_interval" => self.mmp_interval = Some(number(0, 300)? as u16),
                "test_fs" => self.test_fs = true,
                "discard" => self.discard = Some(true),
                "nodiscard" => self.discard = Some(false),
                // About -d, which copies.
                "no_copy_xattrs" => {}
                "encoding" => {
                    let known = |text: Option<&str>| {
                        matches!(text, Some("utf8" | "utf8-12.1")).then_some(casefold::UTF8_12_1)
                    };
                    let allowed = "the encodings are utf8 and utf8-12.1";
                    self.encoding = Some(words::value(OPTION, name, value, allowed, known)?);
                }
                "encoding_flags" => {
                    let known = |text: Option<&str>| match text {
                        Some("strict") => Some(casefold::STRICT),
                        Some("nostrict") => Some(0),
                        _ => None,
                    };
                    let allowed = "the flags are strict and nostrict";
                    self.encoding_flags = Some(words::value(OPTION, name, value, allowed, known)?);
                }
                "quotatype" => {
                    let allowed = "usrquota, grpquota and prjquota are the types, joined by colons";
                    self.quota_kinds =
                        Some(words::value(OPTION, name, value, allowed, quota_kinds)?);
                }
                _ => return Err(words::wrong(OPTION, name, ALL)),
            }
        }
        Ok(())
    }
}

/// `UID:GID`; without a value, the user who runs this.
fn owner(value: Option<&str>) -> Option<(u32, u32)> {
    let Some(text) = value else {
        let user = rustix::process::getuid().as_raw();
        return Some((user, rustix::process::getgid().as_raw()));
    };
    let (uid, gid) = text.split_once(':')?;
    Some((uid.parse().ok()?, gid.parse().ok()?))
}

/// Kinds of quotas: `usrquota`, `grpquota` and `prjquota`, joined by colons.
fn quota_kinds(value: Option<&str>) -> Option<[bool; 3]> {
    let mut kinds = [false; 3];
    for word in value?.split(':') {
        let names = ["usrquota", "grpquota", "prjquota"];
        kinds[names.iter().position(|name| *name == word)?] = true;
    }
    Some(kinds)
}

fn seed(value: Option<&str>) -> Option<[u8; 16]> {
    Some(uuid::Uuid::try_parse(value?).ok()?.into_bytes())
}
