//! [`PackOptions`]: from options and a tree to an image.

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use throughline_block::Disk;
use throughline_device::{LockMode, OpenOptions};
use throughline_extfmt::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};

use super::check::{self, Difference};
use super::data::{Pass, Progress};
use super::place::Placed;
use super::size::{self, PackSize, Sized};
use super::tree::{Contents, Kind, Tree};
use super::walk::Walk;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::make::{Made, made};
use crate::options::MkfsOptions;
use crate::plan::Plan;
use crate::request::Request;
use crate::write::{self, Clear, Found, How};

/// How a tree is packed. By default, it becomes the smallest ext4 volume that holds it.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    mkfs: MkfsOptions,
    size: PackSize,
    epoch: Option<SystemTime>,
    overwrite: bool,
    threads: usize,
}

/// An image that was made.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Packed {
    /// The volume.
    pub made: Made,
    /// Bytes of the image.
    pub bytes: u64,
    /// Directories, the root among them.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Symbolic links, devices, pipes, sockets.
    pub others: u64,
    /// Names beyond the first of a node.
    pub hard_links: u64,
    /// Bytes of all files, holes among them.
    pub data_bytes: u64,
}

impl PackOptions {
    /// The defaults.
    pub fn new() -> PackOptions {
        PackOptions::default()
    }

    /// The volume: type, features, sizes of blocks and inodes, label, and so on. Its size and target are not
    /// used. Without a configuration, the one built in counts, not the system's: so the image is the same on
    /// every system.
    pub fn mkfs(&mut self, options: MkfsOptions) -> &mut PackOptions {
        self.mkfs = options;
        self
    }

    /// The size of the image. Default: [`PackSize::Min`].
    pub fn size(&mut self, size: PackSize) -> &mut PackOptions {
        self.size = size;
        self
    }

    /// The time of the making, as `SOURCE_DATE_EPOCH`; later times of files are set to it. Default: the
    /// newest time of a file.
    pub fn epoch(&mut self, time: SystemTime) -> &mut PackOptions {
        self.epoch = Some(time);
        self
    }

    /// Whether a file that exists is replaced. Default: false.
    pub fn overwrite(&mut self, overwrite: bool) -> &mut PackOptions {
        self.overwrite = overwrite;
        self
    }

    /// Threads that read and write, at most 8; 0, the default: by the number of processors. The image does
    /// not depend on it.
    pub fn threads(&mut self, threads: usize) -> &mut PackOptions {
        self.threads = threads;
        self
    }

    /// Packs a tree into the new image `path`. The image gets this name when it is complete and durable; if
    /// anything fails before, nothing is left.
    ///
    /// # Errors
    /// - [`Error::Invalid`]: options, or a tree that the format cannot hold or that does not fit.
    /// - [`Error::Occupied`]: the file exists.
    /// - [`Error::Source`]: a file cannot be read, or has become shorter.
    /// - [`Error::Open`], [`Error::Device`]: the image cannot be written.
    pub fn pack(
        &self,
        tree: &dyn Tree,
        contents: &dyn Contents,
        path: impl AsRef<Path>,
    ) -> Result<Packed> {
        self.pack_showing(tree, contents, path, &|_, _| ())
    }

    /// As [`PackOptions::pack`]; `progress` is called with the bytes written so far, and all bytes to write.
    ///
    /// # Errors
    /// As there.
    pub fn pack_showing(
        &self,
        tree: &dyn Tree,
        contents: &dyn Contents,
        path: impl AsRef<Path>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Packed> {
        let path = path.as_ref();
        self.refuse_occupied(path)?;
        let walk = Walk::new(tree)?;
        let options = self.volume(&walk)?;
        let sized = size::choose(&options, self.size, &walk)?;
        let failed = |source| Error::Open {
            path: path.to_owned(),
            source,
        };
        let unnamed = temporary(path)?;
        let (plan, request) = self.write(&sized, &options, contents, unnamed.path(), progress)?;
        let made = made(&plan, &request);
        let named = match self.overwrite {
            true => unnamed.persist(path),
            false => unnamed.persist_noclobber(path),
        };
        named.map_err(|error| failed(error.error))?;
        File::open(directory_of(path))
            .and_then(|directory| directory.sync_all())
            .map_err(failed)?;
        Ok(packed(made, &walk, sized.bytes))
    }

    /// Packs a tree again and compares the result with an image. Returns the parts that differ, at most about
    /// 1000; the image is only read. The result is written to a temporary file in the image's directory.
    ///
    /// UUID and hash seed follow from the tree and its data unless they are given. If the UUID differs, this
    /// is one difference, and all others are those from a volume with the UUID, the hash seed and the time of
    /// the image: these three are part of every inode and directory.
    ///
    /// # Errors
    /// As [`PackOptions::pack`].
    pub fn check(
        &self,
        tree: &dyn Tree,
        contents: &dyn Contents,
        image: impl AsRef<Path>,
    ) -> Result<Vec<Difference>> {
        let image = image.as_ref();
        let walk = Walk::new(tree)?;
        let mut options = self.volume(&walk)?;
        let (differences, uuid) = self.differences(&walk, &options, contents, image)?;
        if differences.is_empty() || options.uuid.is_some() {
            return Ok(differences);
        }
        let Some(identity) = Identity::of(image).filter(|found| found.uuid != uuid) else {
            return Ok(differences);
        };
        identity.give(&mut options, self);
        let mut all = vec![Difference::of_uuid()];
        all.extend(self.differences(&walk, &options, contents, image)?.0);
        Ok(all)
    }

    /// Where the image differs, and the UUID that it would have.
    fn differences(
        &self,
        walk: &Walk<'_>,
        options: &MkfsOptions,
        contents: &dyn Contents,
        image: &Path,
    ) -> Result<(Vec<Difference>, [u8; 16])> {
        let sized = size::choose(options, self.size, walk)?;
        let unnamed = temporary(image)?;
        let (plan, request) = self.write(&sized, options, contents, unnamed.path(), &|_, _| ())?;
        let differences = check::compare(unnamed.path(), image, &plan)?;
        Ok((differences, request.uuid))
    }

    fn refuse_occupied(&self, path: &Path) -> Result<()> {
        match std::fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => Err(Error::Occupied(format!(
                "{} exists and is not a regular file",
                path.display()
            ))),
            Ok(_) if !self.overwrite => Err(Error::Occupied(format!("{} exists", path.display()))),
            _ => Ok(()),
        }
    }

    /// The options of the volume, with what follows from the tree.
    fn volume(&self, walk: &Walk<'_>) -> Result<MkfsOptions> {
        if self.mkfs.extended.offset.is_some() || self.mkfs.only_supers {
            return Err(Error::invalid(
                "an image is packed from its start, and whole: no offset, no -S",
            ));
        }
        let mut options = self.mkfs.clone();
        options.config.get_or_insert_with(Config::built_in);
        if options.hash_seed.is_none() && options.extended.hash_seed.is_none() {
            options.hash_seed(derived(&[b"hash seed", &walk.digest]));
        }
        match self.epoch {
            Some(time) => options.time(time),
            None if options.time.is_none() => {
                options.time = Some(walk.newest);
                &mut options
            }
            None => &mut options,
        };
        Ok(options)
    }

    /// Writes the image. Returns what it became.
    fn write<'w>(
        &self,
        sized: &'w Sized<'w>,
        options: &MkfsOptions,
        contents: &dyn Contents,
        path: &Path,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(Plan<'w>, Request)> {
        let mut request = sized.request.clone();
        let lacks = || Error::invalid("the plan changed: the tree changed while it was packed");
        let disk = create(path, sized.bytes, request.block_bytes)?;
        let block_bytes = u64::from(request.block_bytes);
        let all = sized.measured.data_blocks * block_bytes;
        let plan = Plan::with(&request, &sized.measured)?.map_err(|_| lacks())?;
        let placed = plan.tree.as_ref().ok_or_else(lacks)?;
        reserve(&disk, placed, block_bytes)?;
        let show: &Progress<'_> = &|written| progress(written, all);
        let pass = Pass {
            placed,
            block_bytes,
            disk: &disk,
            contents,
            progress: show,
            threads: self.threads,
            written_bytes: AtomicU64::new(0),
        };
        let passed = pass.run()?;
        if options.uuid.is_none() {
            request.uuid = [0; 16];
            let text = format!("{request:?}");
            let digest = &sized.measured.walk.digest;
            request.uuid = derived(&[b"uuid", digest, &passed.digest, text.as_bytes()]);
        }
        drop(plan);
        let plan = Plan::with(&request, &sized.measured)?.map_err(|_| lacks())?;
        let how = How {
            offset: 0,
            clear: Clear::Blank,
            lazy_journal: sized.manner.lazy_journal,
            lazy_itable: sized.manner.lazy_itable,
        };
        let found = Found {
            inline: passed.inline,
            clamp: self.epoch.map(|_| request.time),
        };
        write::write(&plan, &disk, how, &found)?;
        Ok((plan, request))
    }
}

/// What a volume is told from others by, and what follows from the sources unless it is given.
struct Identity {
    uuid: [u8; 16],
    hash_seed: [u8; 16],
    time: u64,
}

impl Identity {
    /// That of an image; `None` if it has no superblock.
    fn of(image: &Path) -> Option<Identity> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let file = File::open(image).ok()?;
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).ok()?;
        let found = Superblock::read(&bytes).ok()?;
        let mut hash_seed = [0; 16];
        for (word, bytes) in found.hash_seed().iter().zip(hash_seed.chunks_exact_mut(4)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        Some(Identity {
            uuid: found.s_uuid,
            hash_seed,
            time: u64::from(found.s_mkfs_time.get()),
        })
    }

    /// Sets what `asked` leaves open.
    fn give(&self, options: &mut MkfsOptions, asked: &PackOptions) {
        options.uuid(self.uuid);
        if asked.mkfs.hash_seed.is_none() && asked.mkfs.extended.hash_seed.is_none() {
            options.hash_seed(self.hash_seed);
        }
        if asked.epoch.is_none() && asked.mkfs.time.is_none() {
            options.time = Some(self.time);
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// A file that goes away with the value, in the directory of `path`.
fn temporary(path: &Path) -> Result<NamedTempFile> {
    tempfile::Builder::new()
        .prefix(".pack-")
        .suffix(".tmp")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory_of(path))
        .map_err(|source| Error::Open {
            path: path.to_owned(),
            source,
        })
}

/// Opens a new file for the image.
fn create(path: &Path, bytes: u64, block_bytes: u32) -> Result<Disk> {
    let failed = |source| Error::Open {
        path: path.to_owned(),
        source,
    };
    let open = || OpenOptions::new().write(true).lock(LockMode::Exclusive);
    let mut disk = Disk::new(open().open(path).map_err(failed)?)?;
    if disk.limits().logical_block_bytes > block_bytes {
        // Blocks are written one by one only through the host's cache.
        drop(disk);
        disk = Disk::new(open().direct(false).open(path).map_err(failed)?)?;
    }
    disk.set_len(bytes)?;
    Ok(disk)
}

/// Reserves space for the data, so that a full disk is reported before the first byte is copied and the
/// host's file has few extents.
fn reserve(disk: &Disk, placed: &Placed<'_>, block_bytes: u64) -> Result<()> {
    let mut open: Option<std::ops::Range<u64>> = None;
    let mut runs = Vec::new();
    for node in placed.measured.walk.nodes() {
        if !matches!(placed.measured.walk.tree.kind(node), Kind::File { .. }) {
            continue;
        }
        for extent in placed.extents(node) {
            let run = extent.start.0..extent.start.0 + u64::from(extent.len);
            match &mut open {
                Some(before) if before.end == run.start => before.end = run.end,
                _ => runs.extend(open.replace(run)),
            }
        }
    }
    runs.extend(open);
    for run in runs {
        let reserved = disk.reserve(run.start * block_bytes, (run.end - run.start) * block_bytes);
        match reserved {
            Err(throughline_block::Error::Device { source, .. })
                if source.kind() == std::io::ErrorKind::Unsupported =>
            {
                return Ok(());
            }
            other => other?,
        }
    }
    Ok(())
}

/// 16 bytes that follow from others, as a UUID.
fn derived(parts: &[&[u8]]) -> [u8; 16] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    let sum: [u8; 32] = digest.finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&sum[..16]);
    uuid::Builder::from_random_bytes(bytes)
        .into_uuid()
        .into_bytes()
}

fn packed(made: Made, walk: &Walk<'_>, bytes: u64) -> Packed {
    let mut packed = Packed {
        made,
        bytes,
        directories: 0,
        files: 0,
        others: 0,
        hard_links: 0,
        data_bytes: walk.bytes,
    };
    for node in walk.nodes() {
        let kind = walk.tree.kind(node);
        match kind {
            Kind::Directory => packed.directories += 1,
            Kind::File { .. } => packed.files += 1,
            _ => packed.others += 1,
        }
        if kind != Kind::Directory {
            packed.hard_links += u64::from(walk.links(node).saturating_sub(1));
        }
    }
    packed
}
