//! Two trees made by one recipe: an image that the kernel's own ext4 has mounted, and a copy of it that we have.
//!
//! The copy has the same hash seed, so that directories have the same order; whatever a test does in one it does in the other.

use std::path::Path;

use crate::{Actor, DiskImage, Entry, Ids, Mount, Mounted, View};

/// Times before that were set by somebody; later ones are when something was done.
const LONG_AGO: i64 = 1_700_000_000;
const FAR_AHEAD: i64 = 2_100_000_000;

/// Both trees.
pub struct Pair {
    images: [DiskImage; 2],
    kernel: Mount,
    ours: Ours,
}

/// The tree that is judged.
enum Ours {
    Mounted(Mounted),
    /// The kernel's too, to see that what a test does has one answer only.
    Kernel(Mount),
}

/// How a pair is made and mounted.
pub struct Recipe {
    /// Arguments of `mke2fs`.
    pub mke2fs: &'static str,
    /// Size of the images, as `mke2fs` takes it.
    pub size: &'static str,
    /// Mount options for both, beside those that a pair always has; none if empty.
    pub options: &'static str,
}

/// Which of the two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel's ext4.
    Kernel,
    /// Our mount.
    Ours,
}

impl Pair {
    /// Makes and mounts both; with `THROUGHLINE_JUDGE=itself` the kernel mounts the second one as well, and
    /// `THROUGHLINE_MOUNT_OPTIONS` adds options to our mount. Says on standard error what is skipped and why where that cannot be: it takes root, loop
    /// devices, `/dev/fuse` and e2fsprogs.
    ///
    /// # Panics
    /// Where one of them fails though it could be.
    pub fn make(recipe: &Recipe) -> Option<Pair> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("skipped: it takes root and loop devices");
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
            .map_err(|why| eprintln!("skipped: the kernel does not mount: {why}"))
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

    /// The root of one.
    pub fn root(&self, side: Side) -> &Path {
        match side {
            Side::Kernel => self.kernel.root(),
            Side::Ours => match &self.ours {
                Ours::Mounted(ours) => ours.root(),
                Ours::Kernel(second) => second.root(),
            },
        }
    }

    /// Starts a process in a directory of one of them.
    pub fn actor(&self, program: &str, side: Side, dir: &str, ids: Ids) -> Actor {
        Actor::start(Path::new(program), &self.root(side).join(dir), ids)
    }

    /// Where the trees differ as programs see them, times that nobody set aside.
    pub fn differences(&self) -> Vec<String> {
        // What is not written back yet is a hole to `SEEK_DATA` in the kernel's files without extents.
        std::fs::File::open(self.root(Side::Kernel))
            .and_then(|root| Ok(rustix::fs::syncfs(root)?))
            .expect("the kernel writes back");
        let [kernel, ours] = [Side::Kernel, Side::Ours].map(|side| View::of(self.root(side)));
        let told = |view: &View, path: &Vec<u8>| view.entries().get(path).map(timeless);
        let mut paths: Vec<&Vec<u8>> = kernel.entries().keys().collect();
        paths.extend(ours.entries().keys());
        paths.sort();
        paths.dedup();
        paths
            .into_iter()
            .filter_map(|path| {
                let (kernel, ours) = (told(&kernel, path), told(&ours, path));
                let name = String::from_utf8_lossy(path);
                (kernel != ours).then(|| format!("/{name}: kernel {kernel:?}\n  ours {ours:?}"))
            })
            .collect()
    }

    /// Unmounts both. `e2fsck -fn` finds nothing in either, and the kernel sees in our image what we showed.
    ///
    /// # Panics
    /// Where that is not so.
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

/// An entry as it is on both sides: without the times at which things were done.
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
        // When a directory takes another block is the file system's own business.
        rustix::fs::FileType::Directory => entry.len = 0,
        // What passes through a pipe is the kernel's alone: a FUSE server does not hear of it.
        rustix::fs::FileType::Fifo => entry.modified = (0, 0),
        _ => {}
    }
    entry
}
