//! One run: a volume, its mounts, one request with a failure, and the comparison.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use throughline::Volume;
use throughline::internal::OpenBlockDevice;
use throughline_device::{BlockDevice, MemoryDevice, Op, Segment, scope};
use throughline_fuse::{MountOptions, Session, Unmount, unmount};
use throughline_testing::transport::{DEV_FUSE, chosen};
use throughline_testing::{DiskImage, Fault, FaultDevice, Mounted};

use crate::failed_requests::requests::Request;
use crate::failed_requests::seen::{Contents, Stats};

/// Not a measurement: limit for what would otherwise take forever.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes written at a time.
const PIECE: usize = 256 << 10;

/// The kinds of volumes, as arguments of mke2fs. With checksums, an inode's version cannot be set.
pub(crate) const IMAGES: &[&str] = &[
    "-t ext4 -b 1024 -m 0 -O project,^metadata_csum",
    "-t ext4 -b 1024 -m 0 -O project",
    "-t ext2 -b 1024 -m 0",
    "-t ext3 -b 1024 -m 0",
    "-t ext4 -b 4096 -m 0 -O inline_data -I 256",
];

/// How a request fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Failure {
    /// The device fails; I/Os are counted from the beginning of the request.
    Io(Fault),
    /// The volume has this many free blocks.
    Blocks(u64),
    /// The volume has this many free inodes.
    Inodes(u64),
}

/// A kind of run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Variant {
    /// The place in [`IMAGES`].
    pub(crate) image: usize,
    /// Mount options.
    pub(crate) options: &'static str,
    /// Everything is read before the request.
    pub(crate) warm: bool,
}

/// What happened in a run.
pub(crate) struct Done {
    /// The failure was met: with a later one, there is more to try.
    pub(crate) failed: bool,
    /// The request failed.
    pub(crate) refused: bool,
}

/// The images, each with the tree that the requests change.
pub(crate) struct Stage {
    images: Vec<Vec<u8>>,
}

impl Stage {
    /// `None` where nothing can be mounted, or made.
    pub(crate) fn new() -> Option<Stage> {
        if !Mounted::possible() {
            return None;
        }
        if !throughline_testkit::tier::as_root() {
            throughline_testkit::missing!("owners, devices and flags take root");
            return None;
        }
        if !throughline_testing::program::has(&["perl"]) {
            return None;
        }
        let images = IMAGES.iter().map(|arguments| {
            let image = DiskImage::make(arguments, "2m")?;
            let mounted = Mounted::new(image.path(), "");
            crate::failed_requests::requests::tree(mounted.root());
            mounted.unmount();
            Some(std::fs::read(image.path()).expect("the image"))
        });
        Some(Stage {
            images: images.collect::<Option<_>>()?,
        })
    }

    /// One run.
    ///
    /// # Errors
    /// The difference between what two mounts show.
    pub(crate) fn run(
        &self,
        variant: &Variant,
        request: &Request,
        failure: Failure,
    ) -> Result<Done, String> {
        let below = load(&self.images[variant.image]);
        let device = Arc::new(FaultDevice::counting(Arc::clone(&below)));
        let mut options = MountOptions::default();
        options.add(variant.options).expect("options");
        let volume = options
            .volume_options()
            .open_block_device(Arc::clone(&device) as _);
        let volume = volume.expect("a volume");
        // The mounts that only show what is there are quick to make. One over io_uring has hundreds of rings,
        // and the kernel takes minutes to take down those of thousands of mounts.
        let mut shown_by = options.clone();
        shown_by.add(DEV_FUSE).expect("options");
        options.add(&chosen().unwrap_or_default()).expect("options");
        let used = Served::new(&volume, &options);
        match failure {
            Failure::Io(_) => {}
            Failure::Blocks(free) => take_blocks(used.root(), &volume, free),
            Failure::Inodes(free) => take_inodes(used.root(), &volume, free),
        }
        if variant.warm {
            // The attributes last, because reading makes the kernel drop access times from its cache.
            drop((Contents::of(used.root()), Stats::of(used.root())));
        }
        let opened = (request.prepare)(used.root());
        let before = device.requests();
        if let Failure::Io(fault) = failure {
            device.set_fault(later(fault, before));
        }
        let answer = (request.act)(used.root(), opened.as_ref());
        let failed = match failure {
            Failure::Io(_) => device.failed() > 0,
            // A copy that ends early is `WriteZero`.
            Failure::Blocks(_) | Failure::Inodes(_) => answer.as_ref().is_err_and(|error| {
                matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::WriteZero)
            }),
        };
        device.set_fault(Fault::Never);
        used.settle();
        let fresh = Served::new(&volume, &shown_by);
        let (shown, live) = (Stats::of(used.root()), Stats::of(fresh.root()));
        let again = Stats::of(used.root());
        let contents = (Contents::of(used.root()), Contents::of(fresh.root()));
        drop(opened);
        drop((used, fresh));
        let told = |what: &str, why: String| format!("{answer:?}, {what}: {why}");
        shown
            .same_as(&live, &again)
            .map_err(|why| told("live", why))?;
        let (kept, read) = contents;
        kept.same_as(&read).map_err(|why| told("live", why))?;
        let sound = volume.stopped().is_none();
        let closed = volume.close();
        if sound && closed.is_ok() {
            let volume = options.volume_options().open_block_device(below);
            let volume = volume.map_err(|why| told("reopened", why.to_string()))?;
            let reopened = Served::new(&volume, &shown_by);
            let stats = Stats::of(reopened.root());
            let found = Contents::of(reopened.root());
            let same = live
                .same_after_remount(&stats)
                .and_then(|()| read.same_as(&found));
            same.map_err(|why| told("reopened", why))?;
        }
        Ok(Done {
            failed,
            refused: answer.is_err(),
        })
    }
}

/// The fault, with its requests counted from `before`.
fn later(fault: Fault, before: u64) -> Fault {
    match fault {
        Fault::Once(n) => Fault::Once(before + n),
        Fault::From(n) => Fault::From(before + n),
        other => other,
    }
}

/// Takes all blocks except for this many.
fn take_blocks(root: &Path, volume: &Volume, free: u64) {
    use std::os::unix::fs::FileExt;
    let block = u64::from(volume.block_bytes());
    let file = std::fs::File::create(root.join("filling")).expect("a file");
    let piece = vec![0xa5; block as usize];
    let mut at = 0;
    while file.write_all_at(&piece, at).is_ok() {
        at += block;
    }
    file.sync_all().expect("a sync");
    file.set_len(at.saturating_sub(free * block)).expect("cut");
    drop(file);
    volume.sync().expect("a sync");
}

/// Takes all inodes except for this many.
fn take_inodes(root: &Path, volume: &Volume, free: u64) {
    let dir = root.join("filling");
    std::fs::create_dir(&dir).expect("a directory");
    let has = || rustix::fs::statvfs(root).expect("the free inodes").f_ffree;
    for number in free..has() {
        std::fs::File::create_new(dir.join(number.to_string())).expect("a file");
    }
    assert_eq!(has(), free, "the free inodes");
    volume.sync().expect("a sync");
}

/// A mount served by a thread of this process; dropping it unmounts.
struct Served {
    point: PathBuf,
    serving: Option<JoinHandle<()>>,
    _dir: TempDir,
}

impl Served {
    fn new(volume: &Volume, options: &MountOptions) -> Served {
        let dir = TempDir::with_prefix("throughline-failed-").expect("a directory");
        let point = dir.path().canonicalize().expect("its path");
        let session = Session::mount(volume.clone(), Path::new("memory"), &point, options);
        let session = session.expect("a mount");
        // It ends with an error: the volume has other holders.
        let serving = std::thread::spawn(move || drop(session.run()));
        Served {
            point,
            serving: Some(serving),
            _dir: dir,
        }
    }

    fn root(&self) -> &Path {
        &self.point
    }

    /// Waits until the kernel has all notifications.
    fn settle(&self) {
        let until = Instant::now() + PATIENCE;
        let mut bytes = vec![0; 1 << 16];
        loop {
            let read = rustix::fs::getxattr(&self.point, "throughline.status", &mut bytes[..]);
            let status: serde_json::Value =
                serde_json::from_slice(&bytes[..read.expect("the status")]).expect("JSON");
            if status["requests"]["notices_due"] == 0 {
                return;
            }
            assert!(Instant::now() < until, "notifications are due");
            std::thread::yield_now();
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if unmount(&self.point, Unmount::Plain).is_err() {
            let _ = unmount(&self.point, Unmount::Lazy);
        }
        if let Some(serving) = self.serving.take() {
            let _ = serving.join();
        }
    }
}

/// A device in memory with this content.
fn load(bytes: &[u8]) -> Arc<dyn BlockDevice> {
    let device = MemoryDevice::new(bytes.len() as u64);
    let mut queue = device.open_queue().expect("a queue");
    let mut done = Vec::new();
    scope(&mut *queue, |scope| {
        for (index, piece) in bytes.chunks(PIECE).enumerate() {
            let at = (index * PIECE) as u64;
            scope.submit(0, Op::Write, at, [Segment::Write(piece)], false);
            scope.reap(1, &mut done);
        }
    });
    assert!(done.iter().all(|one| one.result.is_ok()));
    Arc::new(device)
}
