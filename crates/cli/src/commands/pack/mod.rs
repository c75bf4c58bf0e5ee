//! `pack`.

mod into;

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args, ValueEnum};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use throughline::archive::{Platform, Sources, Tree};
use throughline::pack::{
    Difference, HashTree, PackOptions, PackSize, Packed, PackedPartition, PartitionTable,
};
use throughline::{Format, MkfsError, MkfsOptions};
use throughline_face::globals::Globals;

use crate::commands::mkfs::{self, VolumeArgs, epoch};
use crate::context::Context;
use crate::image_name::ImageName;
use crate::objects;
use crate::output::note;
use crate::place::Place;
use crate::precious;
use crate::problem::{Failure, Problem};
use crate::progress::Progress;
use crate::sources::{self, Wanted};
use crate::text::{parse_size, quote};

/// Exit codes of `--check`, as of diff(1) and cmp(1).
const EXIT_DIFFERS: u8 = 1;
const EXIT_TROUBLE: u8 = 2;

/// Arguments of `pack`.
#[derive(Args, Debug)]
pub(crate) struct PackArgs {
    /// Directories, tar archives (plain, gzip, xz, zstd, bzip2; - is standard input), container images
    /// (an OCI layout; a tar as skopeo or 'docker save' writes it). Later ones are laid over earlier ones.
    /// oci:PATH:NAME, oci-archive:PATH:NAME and docker-archive:PATH:NAME take one of several images;
    /// docker://[HOST/]NAME[:TAG|@DIGEST] is an image of a registry
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<PathBuf>,
    /// The image: a new file
    #[arg(
        short = 'o',
        long,
        value_name = "IMAGE",
        required_unless_present_any = ["check", "into"]
    )]
    output: Option<PathBuf>,
    /// Image size: a number with a unit (64M, 20G), +FREE for that much free space, or min
    #[arg(long, value_name = "SIZE", default_value = "min", value_parser = size)]
    size: PackSize,
    /// Leave out paths that match, and everything below them. * and ? match within a name, ** also across
    /// slashes. A pattern without a slash matches in every directory, one with a slash from the root
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<String>,
    /// The owner of everything, by number
    #[arg(long, value_name = "UID:GID", value_parser = sources::owner)]
    owner: Option<(u32, u32)>,
    /// The platform of an image that is for several, as linux/arm64 [default: linux, on this CPU]
    #[arg(long, value_name = "PLATFORM", value_parser = sources::platform)]
    platform: Option<Platform>,
    /// false: accept a registry without TLS, or with a certificate that is not trusted
    #[arg(
        long,
        value_name = "BOOL",
        default_value_t = true,
        hide_default_value = true,
        action = ArgAction::Set
    )]
    tls_verify: bool,
    /// Replace IMAGE if it exists
    #[arg(short = 'F', long)]
    force: bool,
    /// Pack again, and list where IMAGE differs from the result; with the options that it was packed with.
    /// Exit codes, as of diff(1): 0: equal; 1: different; 2: trouble
    #[arg(long, value_name = "IMAGE", conflicts_with = "output")]
    check: Option<PathBuf>,
    /// Lay the sources over a directory of an image that exists, instead of making one: as if its own
    /// content were the first source. Only --owner, --exclude and --platform go with it
    #[arg(
        long,
        value_name = "IMAGE:/DIR",
        conflicts_with_all = [
            "output", "check", "size", "force", "fs_type", "block", "inode_bytes", "bytes_per_inode", "inodes", "reserved", "label", "uuid", "features", "extended",
            "wants_journal", "journal", "usage", "last_mounted", "on_error", "blocks_per_group",
            "groups_per_flex", "revision", "partition", "bootable", "verity",
        ]
    )]
    into: Option<Place>,
    #[command(flatten)]
    disk: DiskArgs,
    /// Make a hash tree of dm-verity behind the file system, or in a new file, and print its root hash
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    verity: Option<Option<PathBuf>>,
    #[command(flatten)]
    volume: VolumeArgs,
}

/// What is around a file system.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct DiskArgs {
    /// Make a disk image with a partition table, and the file system in its only partition, from 1 MiB on
    #[arg(long, value_name = "TABLE")]
    partition: Option<Table>,
    /// Mark the partition as bootable by legacy BIOS
    #[arg(long, requires = "partition")]
    bootable: bool,
}

impl DiskArgs {
    /// The partition table, if there is to be one.
    pub(crate) fn table(self) -> Option<PartitionTable> {
        self.partition.map(|Table::Gpt| PartitionTable::Gpt {
            bootable: self.bootable,
        })
    }
}

/// Partition tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Table {
    /// A GUID partition table.
    Gpt,
}

fn size(text: &str) -> Result<PackSize, String> {
    match text.strip_prefix('+') {
        _ if text == "min" => Ok(PackSize::Min),
        Some(free) => parse_size(free).map(PackSize::Free),
        None => parse_size(text).map(PackSize::Exact),
    }
}

/// Packs sources into an image, or checks one.
pub(crate) fn run(args: &PackArgs, context: &mut Context) -> Result<(), Failure> {
    if let Some(place) = &args.into {
        return into::run(args, place, context);
    }
    let options = options(args)?;
    options
        .check_options()
        .map_err(|error| Failure::Usage(error.to_string()))?;
    refuse_unused(&context.globals)?;
    if let Some(image) = &args.check {
        context.exit_bits = EXIT_TROUBLE;
        let (tree, sources) = merged(args, context)?;
        return check(&options, &tree, &sources, image, context);
    }
    let Some(image) = &args.output else {
        return Err(Failure::Usage("-o IMAGE is needed".to_owned()));
    };
    if image == Path::new("-") {
        return Err(Failure::Usage(
            "an image cannot be written to standard output: name a file".to_owned(),
        ));
    }
    if hash_file(args).is_some_and(|hashes| is_same(&hashes, image)) {
        return Err(Failure::Usage(
            "--verity names the image itself: without =FILE, the hash tree is behind the file system"
                .to_owned(),
        ));
    }
    let doing = || format!("cannot pack into {}", quote(image));
    objects::check_host(image).map_err(|problem| problem.met(doing()))?;
    mkfs::check_name(image, context.globals.image_format)
        .map_err(|problem| problem.met(doing()))?;
    if let Some(why) = precious::in_use(image) {
        return Err(Problem::new(why).met(doing()));
    }
    if ImageName::of(image).is_partition() {
        return Err(
            Problem::new("it names a partition of a disk, not a new file")
                .with_next(
                    "make a file system there (throughline mkfs), and pack with --into IMAGE@2:/",
                )
                .met(doing()),
        );
    }
    if !args.force && image.symlink_metadata().is_ok_and(|found| found.is_file()) {
        // Said before the sources are read, which may take long.
        let why = MkfsError::Occupied(format!("{} exists", image.display()));
        return Err(problem(why).met(doing()));
    }
    let (tree, sources) = merged(args, context)?;
    let progress = Progress::bytes(Some(0), context.globals.quiet || context.json);
    let packed = options.pack_showing(&tree, &sources, image, &|done, of| progress.at(done, of));
    progress.clear();
    let packed = packed.map_err(|error| problem_at(error, image).met(doing()))?;
    note_clamped(&packed, context.globals.quiet);
    if context.json {
        let sum = sum(image)
            .map_err(|error| Problem::from(error).met(format!("cannot read {}", quote(image))))?;
        return context.out.json(&value(&packed, &sum));
    }
    if !context.globals.quiet {
        if packed.made.too_small_for_journal {
            note("no journal: the file system is too small for one");
        }
        context.out.line(text(&packed, image))?;
    }
    Ok(())
}

/// Refuses options that say how an image lies in its file: what is packed is the whole of a raw image.
fn refuse_unused(globals: &Globals) -> Result<(), Failure> {
    let other_format = globals
        .image_format
        .is_some_and(|format| format != Format::Raw);
    let unused = [
        (
            globals.offset > 0,
            "--offset",
            "an image begins at its start (--partition gpt puts a table there)",
        ),
        (
            other_format,
            "--image-format",
            "the image is raw ('qemu-img convert' converts it)",
        ),
        (globals.overlay.is_some(), "--overlay", "the image is new"),
        (
            !globals.backing.is_empty(),
            "--backing",
            "the image is whole",
        ),
        (
            globals.journal_device.is_some(),
            "--journal",
            "the journal is inside",
        ),
        (
            globals.no_replay,
            "--noload",
            "there is no journal to replay",
        ),
    ];
    match unused.into_iter().find(|(is_given, ..)| *is_given) {
        Some((_, name, why)) => Err(Failure::Usage(format!(
            "{name} is not for pack without --into: {why}"
        ))),
        None => Ok(()),
    }
}

fn options(args: &PackArgs) -> Result<PackOptions, Failure> {
    let mut volume = MkfsOptions::new();
    args.volume.set(&mut volume, false)?;
    let mut options = PackOptions::new();
    options.mkfs(volume).size(args.size).overwrite(args.force);
    options.partition(args.disk.table());
    options.verity(args.verity.as_ref().map(|file| match file {
        Some(file) => HashTree::File(file.clone()),
        None => HashTree::Appended,
    }));
    if let Some(time) = epoch()? {
        options.epoch(time);
    }
    Ok(options)
}

fn merged(args: &PackArgs, context: &Context) -> Result<(Tree, Sources), Failure> {
    let hashes = hash_file(args);
    let wanted = Wanted {
        exclude: &args.exclude,
        owner: args.owner,
        platform: args.platform.as_ref(),
        size_bytes: match args.size {
            PackSize::Exact(bytes) => Some(bytes),
            _ => None,
        },
        without: [&args.output, &args.check, &hashes]
            .into_iter()
            .filter_map(Option::as_deref)
            .collect(),
        quiet: context.globals.quiet,
        is_tls_unverified: !args.tls_verify,
        ..Wanted::default()
    };
    sources::merged(&args.sources, &wanted)
}

/// Says that the inodes cannot hold the times of some files.
pub(super) fn note_clamped(packed: &Packed, quiet: bool) {
    let (count, bytes) = (packed.clamped_times, packed.made.inode_bytes);
    if count > 0 && !quiet {
        let last = if bytes < 256 { 2038 } else { 2446 };
        note(&format!(
            "files with times that inodes of {bytes} bytes cannot hold (1901 to {last}): {count}; they have \
             the nearest time"
        ));
    }
}

/// As [`problem`], without the image's path again.
fn problem_at(error: MkfsError, image: &Path) -> Problem {
    match error {
        MkfsError::Open { source, path } if path == image => {
            let is_missing = source.kind() == std::io::ErrorKind::NotFound;
            let directory = image.parent().filter(|path| is_missing && !path.exists());
            let directory = directory.filter(|path| *path != Path::new(""));
            let problem = Problem::from(source);
            match directory {
                Some(directory) => problem.with_next(format!(
                    "the image's directory is made first: mkdir -p {}",
                    quote(directory)
                )),
                None => problem,
            }
        }
        other => problem(other),
    }
}

pub(super) fn problem(error: MkfsError) -> Problem {
    match error {
        MkfsError::Source(source) => source.into(),
        MkfsError::Occupied(why) => match why.ends_with("exists") {
            true => Problem::new(why).with_next("-F replaces it"),
            false => Problem::new(why).with_next("name a new file, or a regular file with -F"),
        },
        MkfsError::Device(device) => throughline::Error::Device(device).into(),
        other => Problem::new(other.to_string()),
    }
}

fn check(
    options: &PackOptions,
    tree: &Tree,
    sources: &Sources,
    image: &Path,
    context: &mut Context,
) -> Result<(), Failure> {
    let doing = || format!("cannot check {}", quote(image));
    let found = options.check(tree, sources, image);
    let found = found.map_err(|error| match error {
        MkfsError::Open { source, path } if path == image => Problem::from(source).met(doing()),
        other => problem(other).met(doing()),
    })?;
    if context.json {
        let list: Vec<Value> = found.iter().map(difference).collect();
        context
            .out
            .json(&json!({ "equal": found.is_empty(), "differences": list }))?;
    } else {
        for Difference {
            offset, len, what, ..
        } in &found
        {
            context
                .out
                .line(format!("{len} bytes at {offset}: {what}"))?;
        }
    }
    match found.is_empty() {
        true => Ok(()),
        false => {
            context.exit_bits = EXIT_DIFFERS;
            Err(Problem::new("it is not what its sources pack to")
                .with_next("pack with the options that it was packed with, or pack again")
                .met(format!("{} differs", quote(image))))
        }
    }
}

fn difference(found: &Difference) -> Value {
    json!({ "offset": found.offset, "bytes": found.len, "what": found.what })
}

fn sum(image: &Path) -> std::io::Result<String> {
    let (mut file, mut digest) = (File::open(image)?, Sha256::new());
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            len => digest.update(&buffer[..len]),
        }
    }
    Ok(hex(&digest.finalize()))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether two paths are of one file, which need not be there.
fn is_same(one: &Path, other: &Path) -> bool {
    let found = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    if let (Some(one), Some(other)) = (found(one), found(other)) {
        return one == other;
    }
    let place = |path: &Path| {
        let directory = path.parent().filter(|path| *path != Path::new(""));
        let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
        Some(directory.join(path.file_name()?))
    };
    one == other || place(one).is_some_and(|one| Some(one) == place(other))
}

/// The file of the hash tree, if it is one of its own.
fn hash_file(args: &PackArgs) -> Option<PathBuf> {
    args.verity.clone().flatten()
}

/// A partition that was made.
pub(super) fn partition_value(partition: PackedPartition) -> Value {
    let guid = |bytes| uuid::Uuid::from_bytes(bytes).to_string();
    json!({
        "start": partition.start,
        "bytes": partition.bytes,
        "disk_guid": guid(partition.disk_guid),
        "guid": guid(partition.guid),
    })
}

/// The same for people.
pub(super) fn partition_text(partition: PackedPartition) -> String {
    format!(
        "partition: {} bytes at {}",
        partition.bytes, partition.start
    )
}

fn value(packed: &Packed, sum: &str) -> Value {
    let mut value = mkfs::value(&packed.made, Some(packed));
    value["partition"] = json!(packed.partition.map(partition_value));
    value["verity"] = json!(packed.verity.as_ref().map(|tree| {
        json!({
            "root_hash": hex(&tree.root_hash),
            "salt": hex(&tree.salt),
            "data_blocks": tree.data_blocks,
            "hash_offset": tree.hash_offset,
        })
    }));
    value["bytes"] = json!(packed.bytes);
    value["sha256"] = json!(sum);
    value
}

fn text(packed: &Packed, image: &Path) -> String {
    let mut text = format!(
        "{}: {} bytes, UUID {}; directories: {}, files: {}, others: {}, bytes of data: {}",
        quote(image),
        packed.bytes,
        uuid::Uuid::from_bytes(packed.made.uuid),
        packed.directories,
        packed.files,
        packed.others,
        packed.data_bytes
    );
    if let Some(partition) = packed.partition {
        text += &format!("; {}", partition_text(partition));
    }
    if let Some(tree) = &packed.verity {
        text += &format!(
            "\nroot hash: {}, salt: {}, hash offset: {}",
            hex(&tree.root_hash),
            hex(&tree.salt),
            tree.hash_offset
        );
    }
    text
}
