//! Two trees made the same way: an image mounted by the kernel's own ext4, and a copy of it mounted by us.
//!
//! The copy has the same hash seed, so directory order is the same. A test does everything in both.

use std::path::Path;

use crate::{Actor, DiskImage, Entry, Ids, Mount, Mounted, View};

/// Times outside these bounds were set explicitly; others are times of operations.
const LONG_AGO: i64 = 1_700_000_000;
const FAR_AHEAD: i64 = 2_100_000_000;

/// Both trees.
pub struct Pair {
    images: [DiskImage; 2],
    kernel: Mount,
    ours: Ours,
}

/// The tree under test.
enum Ours {
    Mounted(Mounted),
    /// Also the kernel's: checks that a test has only one possible result.
    Kernel(Mount),
}

/// How to make and mount a pair.
pub struct Recipe {
    /// Arguments of `mke2fs`.
    pub mke2fs: &'static str,
    /// Size of the images, in the syntax of `mke2fs`.
    pub size: &'static str,
    /// Additional mount options for both; may be empty.
    pub options: &'static str,
}

/// One of the two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel's ext4.
    Kernel,
    /// Our mount.
    Ours,
}

impl Pair {
    /// Makes and mounts both. With `THROUGHLINE_JUDGE=itself` the kernel mounts the second one as well;
    /// `THROUGHLINE_MOUNT_OPTIONS` adds options to our mount. Needs root, loop devices, `/dev/fuse` and
    /// e2fsprogs; without them prints what is skipped and why to standard error, and returns `None`.
    ///
    /// # Panics
    /// If a step fails for another reason.
    pub fn make(recipe: &Recipe) -> Option<Pair> {
        if !throughline_testkit::tier::as_root() || !Path::new("/dev/loop-control").exists() {
            throughline_testkit::missing!("root and loop devices are required");
            return None;
        }
        if !Mounted::possible() {
            return None;
        }
        let image = DiskImage::make(recipe.mke2fs, recipe.size)?;
        let images = [image.copy(), image];
        let with = |always: &str| match recipe.options {
            "" => always.to_owned(),
            more => format!("{always},{more}"),
        };
        let kernel = Mount::with_options(images[0].path(), &with("loop,rw"));
        let kernel = kernel
            .map_err(|why| throughline_testkit::kernel::skip(&format!("the volume: {why}")))
            .ok()?;
        let ours = if std::env::var("THROUGHLINE_JUDGE").is_ok_and(|who| who == "itself") {
            let second = Mount::with_options(images[1].path(), &with("loop,rw"));
            Ours::Kernel(second.expect("mounted as the first one"))
        } else {
            let mut options = with("allow_other,suid,dev");
            if let Ok(more) = std::env::var("THROUGHLINE_MOUNT_OPTIONS") {
                options.push(',');
                options.push_str(&more);
            }
            Ours::Mounted(Mounted::new(images[1].path(), &options))
        };
        Some(Pair {
            images,
            kernel,
            ours,
        })
    }

    /// The root of one tree.
    pub fn root(&self, side: Side) -> &Path {
        match side {
            Side::Kernel => self.kernel.root(),
            Side::Ours => match &self.ours {
                Ours::Mounted(ours) => ours.root(),
                Ours::Kernel(second) => second.root(),
            },
        }
    }

    /// Starts an actor in a directory of one tree.
    pub fn actor(&self, program: &str, side: Side, dir: &str, ids: Ids) -> Actor {
        Actor::start(Path::new(program), &self.root(side).join(dir), ids)
    }

    /// The status of our mount, as JSON. `None` for the kernel's ext4.
    pub fn status(&self, side: Side) -> Option<String> {
        match (side, &self.ours) {
            (Side::Ours, Ours::Mounted(ours)) => Some(ours.status()),
            _ => None,
        }
    }

    /// The differences between the trees as programs see them, except times not set explicitly.
    pub fn differences(&self) -> Vec<String> {
        // In the kernel's files without extents, data not yet written back is a hole to `SEEK_DATA`.
        std::fs::File::open(self.root(Side::Kernel))
            .and_then(|root| Ok(rustix::fs::syncfs(root)?))
            .expect("the kernel writes back");
        let [kernel, ours] = [Side::Kernel, Side::Ours].map(|side| View::of(self.root(side)));
        let entry_of = |view: &View, path: &Vec<u8>| view.entries().get(path).map(timeless);
        let mut paths: Vec<&Vec<u8>> = kernel.entries().keys().collect();
        paths.extend(ours.entries().keys());
        paths.sort();
        paths.dedup();
        paths
            .into_iter()
            .filter_map(|path| {
                let (kernel, ours) = (entry_of(&kernel, path), entry_of(&ours, path));
                let name = String::from_utf8_lossy(path);
                (kernel != ours).then(|| format!("/{name}: kernel {kernel:?}\n  ours {ours:?}"))
            })
            .collect()
    }

    /// Unmounts both. Checks that `e2fsck -fn` finds nothing in either image and that the kernel sees in ours
    /// what we showed.
    ///
    /// # Panics
    /// If a check fails.
    pub fn finish(self, when: &str) {
        let live = View::of(self.root(Side::Ours));
        match self.ours {
            Ours::Mounted(ours) => ours.unmount(),
            Ours::Kernel(second) => second.close(),
        }
        self.kernel.close();
        self.images[0].check(&format!("{when}, the kernel's image"));
        self.images[1].check(when);
        let kernel = Mount::new(self.images[1].path(), false);
        let kernel = kernel.unwrap_or_else(|why| panic!("{when}: the kernel mounts ours: {why}"));
        live.assert_same(
            &View::of(kernel.root()),
            &format!("{when}: what we showed, and what the kernel sees in our image"),
        );
    }
}

/// An entry without what may differ between the sides, such as times of operations.
fn timeless(entry: &Entry) -> Entry {
    let set = |time: (i64, i64)| {
        if (LONG_AGO..FAR_AHEAD).contains(&time.0) {
            (0, 0)
        } else {
            time
        }
    };
    let mut entry = entry.clone();
    entry.modified = set(entry.modified);
    entry.changed = (0, 0);
    match rustix::fs::FileType::from_raw_mode(entry.mode) {
        // When a directory grows by a block is up to the file system.
        rustix::fs::FileType::Directory => entry.len = 0,
        // Data in a pipe is handled by the kernel: a FUSE server does not see it.
        rustix::fs::FileType::Fifo => entry.modified = (0, 0),
        _ => {}
    }
    entry
}
