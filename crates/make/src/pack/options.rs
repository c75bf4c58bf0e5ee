//! [`PackOptions`]: from options and a tree to an image.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use throughline_archive::{Sources, Tree};
use throughline_block::Disk;
use throughline_device::{DeviceKind, LockMode, OpenOptions};
use throughline_extfmt::superblock::{SUPERBLOCK_BYTES, SUPERBLOCK_OFFSET, Superblock};
use throughline_extfmt::verity::BLOCK_BYTES;

use super::check::{self, Difference};
use super::data::{Pass, Progress};
use super::frame::{Around, Frame, HashTree, PartitionTable};
use super::place::Placed;
use super::planned::Packed;
use super::size::{self, PackSize, Sized};
use super::tree::{Input, Kind};
use super::walk::Walk;
use super::whole::{derived, hold, new_file, persist};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::make::made;
use crate::options::MkfsOptions;
use crate::plan::Plan;
use crate::request::Request;
use crate::write::{self, Clear, Found, How};

/// How a tree is packed. By default, it becomes the smallest ext4 volume that holds it.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    pub(super) mkfs: MkfsOptions,
    pub(super) size: PackSize,
    epoch: Option<SystemTime>,
    pub(super) overwrite: bool,
    threads: usize,
    pub(super) around: Around,
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

    /// A partition table around the volume; a size is then that of the whole image. Its GUIDs follow from the
    /// UUID of the volume. Default: none.
    pub fn partition(&mut self, table: Option<PartitionTable>) -> &mut PackOptions {
        self.around.table = table;
        self
    }

    /// A hash tree of dm-verity for the volume: format 1, SHA-256, blocks of 4096 bytes. Its salt follows
    /// from the content. Default: none.
    pub fn verity(&mut self, tree: Option<HashTree>) -> &mut PackOptions {
        self.around.hashes = tree;
        self
    }

    /// Packs a tree into the new image `path`. The image gets this name when it is complete and durable; if
    /// anything fails before, nothing is left.
    ///
    /// ```
    /// use throughline_archive::{Limits, Merge};
    /// use throughline_make::pack::PackOptions;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// # let (source, image) = (directory.path().join("source"), directory.path().join("image"));
    /// # std::fs::create_dir(&source)?;
    /// # std::fs::write(source.join("motd"), "hello\n")?;
    /// let mut merge = Merge::new(Limits::default());
    /// merge.add(&source)?; // a directory, a tar, a container image
    /// let (tree, sources) = merge.finish();
    /// let packed = PackOptions::new().pack(&tree, &sources, &image)?;
    /// assert_eq!(packed.files, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::Invalid`]: options, or a tree that the format cannot hold or that does not fit.
    /// - [`Error::Occupied`]: the file exists.
    /// - [`Error::Source`]: a source cannot be read, or has changed.
    /// - [`Error::Open`], [`Error::Device`]: the image cannot be written.
    pub fn pack(&self, tree: &Tree, sources: &Sources, path: impl AsRef<Path>) -> Result<Packed> {
        self.pack_showing(tree, sources, path, &|_, _| ())
    }

    /// As [`PackOptions::pack`]; `progress` is called with the bytes written so far, and all bytes to write.
    ///
    /// # Errors
    /// As there.
    pub fn pack_showing(
        &self,
        tree: &Tree,
        sources: &Sources,
        path: impl AsRef<Path>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Packed> {
        let path = path.as_ref();
        self.refuse_occupied(path)?;
        if let Some(HashTree::File(hashes)) = &self.around.hashes {
            self.refuse_occupied(hashes)?;
        }
        let _replaced = hold(path)?;
        let (walk, options) = self.walked(tree, sources)?;
        let (sized, frame) = self.sized(&options, &walk)?;
        let unnamed = new_file(path)?;
        let image = unnamed.path();
        let written = self.write_image(image, &sized, &frame, &options, progress)?;
        let made = made(&written.plan, &written.request);
        if let (Some(file), Some(HashTree::File(path))) = (written.hashes, &self.around.hashes) {
            persist(file, path, self.overwrite)?;
        }
        persist(unnamed, path, self.overwrite)?;
        let mut packed = self.packed(made, &walk, &frame);
        packed.verity = written.verity;
        Ok(packed)
    }

    /// Packs a tree again and compares the result with an image. Returns the parts that differ, at most about
    /// 1000; the image is only read. The result is written to a temporary file in the image's directory.
    ///
    /// UUID and hash seed follow from the tree and its data unless they are given. If the UUID differs, this
    /// is one difference, and all others are those from a volume with the UUID, the hash seed and the time of
    /// the image: these three are part of every inode and directory. A hash tree in a file of its own is
    /// compared, too.
    ///
    /// # Errors
    /// As [`PackOptions::pack`].
    pub fn check(
        &self,
        tree: &Tree,
        sources: &Sources,
        image: impl AsRef<Path>,
    ) -> Result<Vec<Difference>> {
        let image = image.as_ref();
        let (walk, mut options) = self.walked(tree, sources)?;
        let (differences, uuid) = self.differences(&walk, &options, image)?;
        if differences.is_empty() || options.uuid.is_some() {
            return Ok(differences);
        }
        let start = self.around.start();
        let Some(identity) = Identity::of(image, start).filter(|found| found.uuid != uuid) else {
            return Ok(differences);
        };
        identity.give(&mut options, self);
        let mut all = vec![Difference::of_uuid(start)];
        all.extend(self.differences(&walk, &options, image)?.0);
        Ok(all)
    }

    /// Where the image differs, and the UUID that it would have.
    fn differences(
        &self,
        walk: &Walk<'_>,
        options: &MkfsOptions,
        image: &Path,
    ) -> Result<(Vec<Difference>, [u8; 16])> {
        let (sized, frame) = self.sized(options, walk)?;
        let unnamed = new_file(image)?;
        let ours = unnamed.path();
        let written = self.write_image(ours, &sized, &frame, options, &|_, _| ())?;
        let mut differences = check::compare(ours, image, &written.plan, &frame)?;
        if let (Some(ours), Some(HashTree::File(path))) = (&written.hashes, &self.around.hashes) {
            differences.extend(check::compare_hashes(ours.path(), path)?);
        }
        Ok((differences, written.request.uuid))
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

    /// The options of the volume, as far as they do not follow from a tree.
    pub(super) fn given(&self) -> Result<MkfsOptions> {
        if self.mkfs.extended.offset.is_some() || self.mkfs.only_supers {
            return Err(Error::invalid(
                "packing makes a whole image: neither -E offset= nor -S goes with it",
            ));
        }
        let mut options = match self.around.hashes {
            Some(_) => (self.mkfs).with_least_blocks(BLOCK_BYTES as u32, "those of dm-verity")?,
            None => self.mkfs.clone(),
        };
        options.config.get_or_insert_with(Config::built_in);
        Ok(options)
    }

    /// The tree in order, and the options of the volume with what follows from it.
    pub(super) fn walked<'t>(
        &self,
        tree: &'t Tree,
        sources: &'t Sources,
    ) -> Result<(Walk<'t>, MkfsOptions)> {
        let walk = Walk::new(Input { tree, sources })?;
        let options = self.volume(&walk)?;
        Ok((walk, options))
    }

    fn volume(&self, walk: &Walk<'_>) -> Result<MkfsOptions> {
        let mut options = self.given()?;
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

    /// The latest time that a file gets.
    pub(super) fn latest(&self) -> Option<u64> {
        let since = self.epoch?.duration_since(SystemTime::UNIX_EPOCH);
        Some(since.map_or(0, |since| since.as_secs()))
    }

    /// The volume, and its place in the image.
    pub(super) fn sized<'w>(
        &self,
        options: &MkfsOptions,
        walk: &'w Walk<'w>,
    ) -> Result<(Sized<'w>, Frame)> {
        let sized = size::choose(options, self.around.inner(self.size)?, walk)?;
        let frame = self.around.frame(self.size, sized.bytes);
        Ok((sized, frame))
    }

    /// Writes the volume. Returns what it became.
    pub(super) fn write<'w>(
        &self,
        sized: &'w Sized<'w>,
        options: &MkfsOptions,
        disk: &Disk,
        clear: Clear,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<(Plan<'w>, Request)> {
        let mut request = sized.request.clone();
        let lacks = || Error::invalid("the plan changed: the tree changed while it was packed");
        let block_bytes = u64::from(request.block_bytes);
        let all = sized.measured.data_blocks * block_bytes;
        let plan = Plan::with(&request, &sized.measured)?.map_err(|_| lacks())?;
        let placed = plan.tree.as_ref().ok_or_else(lacks)?;
        let how = |clear| How {
            offset: 0,
            clear,
            lazy_journal: sized.manner.lazy_journal,
            lazy_itable: sized.manner.lazy_itable,
        };
        let cleared = match clear {
            Clear::New | Clear::Blank => clear,
            _ => {
                write::clear_first(&plan, disk, how(clear))?;
                Clear::Blank
            }
        };
        if disk.info().kind == DeviceKind::RegularFile {
            reserve(disk, placed, block_bytes)?;
        }
        let show: &Progress<'_> = &|written| progress(written, all);
        let pass = Pass {
            placed,
            block_bytes,
            disk,
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
        let found = Found {
            inline: passed.inline,
            clamp: self.latest(),
        };
        write::write(&plan, disk, how(cleared), &found)?;
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
    fn of(image: &Path, start: u64) -> Option<Identity> {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        let file = File::open(image).ok()?;
        file.read_exact_at(&mut bytes, start + SUPERBLOCK_OFFSET)
            .ok()?;
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

/// Target size of bios. The first write to a block of a new file changes the metadata of the host's file
/// system, one write at a time. So fewer and longer ones are faster than those that suit the device: 256 KiB
/// took a tenth longer than this; 4 MiB was no better.
const BIO_BYTES: u32 = 1 << 20;

/// Opens the target.
pub(super) fn open(path: &Path, block_bytes: u32) -> Result<Disk> {
    let failed = Error::open(path);
    let open = || OpenOptions::new().write(true).lock(LockMode::Exclusive);
    let mut disk = Disk::new(open().open(path).map_err(failed)?)?;
    disk.set_bio_target_bytes(Some(BIO_BYTES));
    if disk.limits().logical_block_bytes > block_bytes {
        // Blocks are written one by one only through the host's cache.
        drop(disk);
        disk = Disk::new(open().direct(false).open(path).map_err(failed)?)?;
    }
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
