//! The arguments of `mkfs`: those of mke2fs, under their names.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use throughline::internal::parse_on_error;
use throughline::{MkfsError, MkfsOptions, OnError, VolumeSize};

use crate::commands::label::NewUuid;
use crate::commands::pack::DiskArgs;
use crate::output::note;
use crate::problem::Failure;
use crate::text::{parse_size, quote};

/// Options of the volume, whatever it is made from.
#[derive(Args, Debug)]
pub(crate) struct VolumeArgs {
    /// ext2, ext3, ext4, or a type of mke2fs.conf [default: ext4]
    #[arg(short = 't', value_name = "TYPE")]
    fs_type: Option<String>,
    /// Block size in bytes; -SIZE: a minimum
    #[arg(short = 'b', value_name = "BYTES", allow_hyphen_values = true)]
    block: Option<i32>,
    /// Inode size in bytes
    #[arg(short = 'I', value_name = "BYTES")]
    inode_bytes: Option<u32>,
    /// Bytes of the volume per inode
    #[arg(short = 'i', value_name = "BYTES")]
    bytes_per_inode: Option<u64>,
    /// Number of inodes
    #[arg(short = 'N', value_name = "COUNT")]
    inodes: Option<u64>,
    /// Percentage of the blocks that is kept for root [default: 5]
    #[arg(short = 'm', value_name = "PERCENT")]
    reserved: Option<f64>,
    /// Label, at most 16 bytes
    #[arg(short = 'L', value_name = "LABEL")]
    label: Option<String>,
    /// UUID: a UUID, random, time or clear
    #[arg(short = 'U', value_name = "UUID", value_parser = NewUuid::parse)]
    uuid: Option<NewUuid>,
    /// Features to add or (^) leave out: extent,^resize_inode; none: start without any
    #[arg(short = 'O', value_name = "FEATURES", allow_hyphen_values = true)]
    features: Vec<String>,
    /// Extended options: stride= stripe_width= resize= desc_size= offset= num_backup_sb= root_owner[=UID:GID]
    /// hash_seed= orphan_file_size= mmp_update_interval= packed_meta_blocks[=0|1] lazy_itable_init[=0|1]
    /// lazy_journal_init[=0|1] assume_storage_prezeroed[=0|1] discard nodiscard test_fs encoding=
    /// encoding_flags=
    #[arg(short = 'E', value_name = "WORDS", short_alias = 'R')]
    extended: Vec<String>,
    /// Make a journal
    #[arg(short = 'j')]
    wants_journal: bool,
    /// Journal options: size=MIB fast_commit_size=KIB location=BLOCK device=PATH
    #[arg(short = 'J', value_name = "WORDS")]
    journal: Vec<String>,
    /// What it is for: types of mke2fs.conf, such as small, news or largefile
    #[arg(short = 'T', value_name = "USE")]
    usage: Option<String>,
    /// Directory where it was last mounted
    #[arg(short = 'M', value_name = "DIR")]
    last_mounted: Option<String>,
    /// What the kernel does on damage: continue, remount-ro or panic
    #[arg(short = 'e', value_name = "WHAT", value_parser = parse_on_error)]
    on_error: Option<OnError>,
    /// Blocks per group
    #[arg(short = 'g', value_name = "BLOCKS")]
    blocks_per_group: Option<u32>,
    /// Groups per flex group
    #[arg(short = 'G', value_name = "GROUPS")]
    groups_per_flex: Option<u32>,
    /// Revision: 0 or 1
    #[arg(short = 'r', value_name = "REVISION")]
    revision: Option<u32>,
}

/// Arguments of `mkfs`.
#[derive(Args, Debug)]
#[command(args_override_self = true)]
pub(crate) struct MkfsArgs {
    /// A file, which is created if it does not exist, a block device, or a partition of one (IMAGE@2)
    pub(crate) image: PathBuf,
    /// The size: with a unit (64M, 20G), in KiB, or, with -b, in blocks. Without it: all of the file or
    /// device
    size: Option<String>,
    /// The size, as pack takes it: with a unit, or in bytes
    #[arg(long = "size", value_name = "SIZE", conflicts_with = "size", value_parser = parse_size)]
    size_bytes: Option<u64>,
    #[command(flatten)]
    volume: VolumeArgs,
    /// Fill it from a directory, a tar archive or a container image, as 'pack' does; - is standard
    /// input
    #[arg(short = 'd', value_name = "SOURCE")]
    pub(crate) source: Option<PathBuf>,
    #[command(flatten)]
    pub(super) disk: DiskArgs,
    /// Operating system that is recorded as the maker
    #[arg(short = 'o', value_name = "OS")]
    creator_os: Option<String>,
    /// Overwrite existing contents; a mounted or used target is never overwritten
    #[arg(short = 'F', action = ArgAction::Count)]
    force: u8,
    /// Only show what would be made
    #[arg(short = 'n')]
    pub(crate) dry_run: bool,
    /// Show more
    #[arg(short = 'v')]
    pub(crate) verbose: bool,
    /// Write superblocks and descriptors only, to rescue a file system that lost all of them: with the
    /// options that it was made with
    #[arg(short = 'S')]
    pub(crate) only_supers: bool,
    /// Accepted: I/O is direct where the device allows it
    #[arg(short = 'D', hide = true)]
    _direct: bool,
    /// Do not discard the blocks of a device first (or: -E nodiscard)
    #[arg(short = 'K', hide = true)]
    keeps: bool,
    #[arg(short = 'c', hide = true, action = ArgAction::Count)]
    bad_blocks: u8,
    #[arg(short = 'l', hide = true)]
    bad_block_list: Option<String>,
    #[arg(short = 'C', hide = true)]
    cluster: Option<String>,
    #[arg(short = 'z', hide = true)]
    undo: Option<String>,
    /// Defaults and exit codes of mke2fs.
    #[arg(long, hide = true)]
    pub(crate) as_mke2fs: bool,
}

impl MkfsArgs {
    pub(crate) fn is_forced(&self) -> bool {
        self.force > 0
    }

    /// Whether a UUID is given.
    pub(super) fn has_uuid(&self) -> bool {
        self.volume.uuid.is_some()
    }

    /// Where the file system begins: `-E offset=` before `--offset`.
    pub(crate) fn offset(&self, global: u64) -> u64 {
        let words = self
            .volume
            .extended
            .iter()
            .flat_map(|words| words.split(','));
        let mut given = words.filter_map(|word| word.trim().strip_prefix("offset="));
        given
            .next_back()
            .and_then(|text| text.parse().ok())
            .unwrap_or(global)
    }

    /// The options of the library.
    pub(crate) fn options(&self, offset: u64) -> Result<MkfsOptions, Failure> {
        self.refuse_missing()?;
        let mut options = MkfsOptions::new();
        self.size()?.map(|size| options.size(size));
        if offset > 0 {
            options
                .extended(&format!("offset={offset}"))
                .map_err(usage)?;
        }
        self.volume.set(&mut options, self.as_mke2fs)?;
        options.only_supers(self.only_supers);
        if self.keeps {
            options.discard(false);
        }
        if let Some(name) = &self.creator_os {
            options.creator_os(name).map_err(usage)?;
        }
        Ok(options)
    }

    /// Refuses, by name, what mke2fs has and this does not, and what mke2fs does only with `-F`.
    fn refuse_missing(&self) -> Result<(), Failure> {
        let unforced = self.as_mke2fs && !self.is_forced();
        let missing = [
            (
                self.bad_blocks > 0,
                "-c: bad blocks are not searched for; badblocks(8) does that",
            ),
            (
                self.bad_block_list.is_some(),
                "-l: lists of bad blocks are not supported",
            ),
            (
                self.cluster.is_some(),
                "-C: the feature bigalloc is not written by this version",
            ),
            (self.undo.is_some(), "-z: undo files are not supported"),
            // Where mke2fs asks.
            (
                unforced && self.only_supers,
                "-S: wrong options may damage the file system further; -F writes it all the same",
            ),
            (
                unforced && self.volume.block.is_some_and(|bytes| bytes > 4096),
                "-b: most kernels mount no blocks of more than 4096 bytes; -F makes them all the same",
            ),
        ];
        match missing.iter().find(|(is_given, _)| *is_given) {
            Some((_, why)) => Err(Failure::Usage((*why).to_owned())),
            None => Ok(()),
        }
    }

    /// The size, if it is given.
    pub(super) fn size(&self) -> Result<Option<VolumeSize>, Failure> {
        let Some(text) = &self.size else {
            return Ok(self.size_bytes.map(VolumeSize::Bytes));
        };
        let in_blocks = self.volume.block.is_some_and(|bytes| bytes >= 0);
        Ok(Some(match text.parse::<u64>() {
            Ok(blocks) if in_blocks => VolumeSize::Blocks(blocks),
            Ok(kib) => VolumeSize::Bytes(
                kib.checked_mul(1024)
                    .ok_or_else(|| Failure::Usage(format!("size {} is too large", quote(text))))?,
            ),
            Err(_) => VolumeSize::Bytes(parse_size(text).map_err(Failure::Usage)?),
        }))
    }
}

impl VolumeArgs {
    /// Sets the options that are given.
    pub(crate) fn set(&self, options: &mut MkfsOptions, as_mke2fs: bool) -> Result<(), Failure> {
        self.block.map(|bytes| match bytes < 0 {
            true => options.min_block_bytes(bytes.unsigned_abs()),
            false => options.block_bytes(bytes.unsigned_abs()),
        });
        for list in &self.features {
            options.features(list).map_err(usage)?;
        }
        for words in &self.extended {
            options.extended(words).map_err(usage)?;
        }
        for words in &self.journal {
            options.journal_options(words).map_err(usage)?;
        }
        if self.wants_journal {
            options.journal();
        }
        self.fs_type.as_deref().map(|name| options.fs_type(name));
        if as_mke2fs {
            let has_journal = self.wants_journal || !self.journal.is_empty();
            options.default_type(if has_journal { "ext3" } else { "ext2" });
        }
        self.usage.as_deref().map(|names| options.usage(names));
        self.inode_bytes.map(|bytes| options.inode_bytes(bytes));
        self.bytes_per_inode
            .map(|bytes| options.bytes_per_inode(bytes));
        self.inodes.map(|count| options.inodes(count));
        self.reserved
            .map(|percent| options.reserved_percent(percent));
        self.label
            .as_deref()
            .map(|label| options.label(fitting(label, as_mke2fs)));
        self.last_mounted
            .as_ref()
            .map(|dir| options.last_mounted(dir));
        self.blocks_per_group
            .map(|blocks| options.blocks_per_group(blocks));
        self.groups_per_flex
            .map(|groups| options.groups_per_flex(groups));
        self.revision.map(|revision| options.revision(revision));
        self.on_error.map(|on_error| options.on_error(on_error));
        self.uuid.map(|uuid| options.uuid(uuid.bytes()));
        Ok(())
    }
}

/// The label; too long a one is cut off where mke2fs would do so.
fn fitting(label: &str, as_mke2fs: bool) -> &[u8] {
    let bytes = label.as_bytes();
    match bytes.get(..16) {
        Some(start) if as_mke2fs && bytes.len() > 16 => {
            let shown = String::from_utf8_lossy(start);
            note(&format!(
                "label too long; it is truncated to {}",
                quote(&*shown)
            ));
            start
        }
        _ => bytes,
    }
}

fn usage(error: MkfsError) -> Failure {
    Failure::Usage(error.to_string())
}
