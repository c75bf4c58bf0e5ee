//! Where a program plays: an image of a recipe, mounted by us, and what must hold when the program is gone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use throughline_testing::program::{self, Ran};
use throughline_testing::{DiskImage, Mount, Mounted, View};

/// How the image is made: arguments of `mke2fs`.
pub(crate) const EXT2_1K: &str = "-t ext2 -b 1024";
pub(crate) const EXT3: &str = "-t ext3";
pub(crate) const EXT4: &str = "-t ext4";
pub(crate) const INLINE_DATA: &str = "-t ext4 -O inline_data";
pub(crate) const EXT4_1K: &str = "-t ext4 -b 1024";
pub(crate) const NO_JOURNAL: &str = "-t ext4 -O ^has_journal";

/// How long one program may take; none needs a minute on a quiet machine.
const LIMIT: Duration = Duration::from_secs(300);
const SOAK_LIMIT: Duration = Duration::from_secs(3600);

/// Whether the long versions were asked for.
pub(crate) fn soak() -> bool {
    std::env::var_os("THROUGHLINE_SOAK").is_some_and(|value| value == "1")
}

/// One number for the fast test and another for the long one.
pub(crate) fn amount(fast: u64, long: u64) -> u64 {
    if soak() { long } else { fast }
}

/// Runs a program to its end, which must be a good one.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ran {
    let what = format!("{command:?}");
    program::run(command, if soak() { SOAK_LIMIT } else { LIMIT }).good(&what)
}

/// As [`run`], for a program by name and arguments.
#[track_caller]
pub(crate) fn call(program: &str, arguments: &[&str]) -> Ran {
    run(Command::new(program).args(arguments))
}

/// An image of ours on a mount of ours.
pub(crate) struct Stage {
    recipe: &'static str,
    image: DiskImage,
    mounted: Mounted,
}

impl Stage {
    /// A new image; `None`, and a word on standard error, where mounting, `mke2fs` or one of the programs is not to be had.
    pub(crate) fn new(recipe: &'static str, size: &str, programs: &[&str]) -> Option<Stage> {
        if !Mounted::possible() || !program::has(programs) {
            return None;
        }
        let image = DiskImage::make(recipe, size)?;
        let mounted = Mounted::new(image.path(), "");
        Some(Stage {
            recipe,
            image,
            mounted,
        })
    }

    /// The root of the mount.
    pub(crate) fn root(&self) -> &Path {
        self.mounted.root()
    }

    /// Where a path of the volume is on the host.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.mounted.path(path)
    }

    /// The same, as an argument.
    pub(crate) fn name(&self, path: &str) -> String {
        let path = self.path(path).into_os_string();
        path.into_string()
            .expect("temporary files have plain names")
    }

    /// A path outside of the mount, for as long as the image is there.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.image.beside(name)
    }

    /// Kills the server with SIGKILL, and mounts the image anew, which recovers it.
    #[track_caller]
    pub(crate) fn crash(self) -> Stage {
        let Stage {
            recipe,
            image,
            mounted,
        } = self;
        mounted.kill9();
        let mounted = Mounted::new(image.path(), "");
        Stage {
            recipe,
            image,
            mounted,
        }
    }

    /// Unmounts; the image is sound and shows everyone the tree that is there now.
    #[track_caller]
    pub(crate) fn finish(self) {
        let recipe = self.recipe;
        let live = View::of(self.root());
        self.mounted.unmount();
        self.image.check(recipe);
        if let Some(kernel) = Mount::or_skip(self.image.path(), false) {
            let seen = View::of(kernel.root());
            live.assert_same(&seen, &format!("{recipe}: the live mount and the kernel's"));
            kernel.close();
        }
        let again = Mounted::new(self.image.path(), "ro");
        let seen = View::of(again.root());
        live.assert_same(&seen, &format!("{recipe}: the live mount and the next"));
        again.unmount();
    }
}
