//! The environment of a program: an image made from a recipe, mounted by us, and the checks after the
//! program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use throughline_testing::program::{self, Ran};
use throughline_testing::{DiskImage, Mount, Mounted, View};

/// Arguments of `mke2fs`.
pub(crate) const EXT2_1K: &str = "-t ext2 -b 1024";
pub(crate) const EXT3: &str = "-t ext3";
pub(crate) const EXT4: &str = "-t ext4";
pub(crate) const INLINE_DATA: &str = "-t ext4 -O inline_data";
pub(crate) const EXT4_1K: &str = "-t ext4 -b 1024";
pub(crate) const NO_JOURNAL: &str = "-t ext4 -O ^has_journal";

/// Time limit for one program; none needs a minute on an idle machine.
const LIMIT: Duration = Duration::from_secs(300);
const SOAK_LIMIT: Duration = Duration::from_secs(3600);

pub(crate) use throughline_testkit::tier::soak;

/// A number for the fast test and another for the long one.
pub(crate) fn amount(fast: u64, long: u64) -> u64 {
    if soak() { long } else { fast }
}

/// Runs a program to its end; it must succeed.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> Ran {
    let what = format!("{command:?}");
    program::run(command, if soak() { SOAK_LIMIT } else { LIMIT }).good(&what)
}

/// As [`run`], for a program given by name and arguments.
#[track_caller]
pub(crate) fn call(program: &str, arguments: &[&str]) -> Ran {
    run(Command::new(program).args(arguments))
}

/// An image on a mount of ours.
pub(crate) struct Stage {
    recipe: &'static str,
    image: DiskImage,
    mounted: Mounted,
}

impl Stage {
    /// A new image. If mounting, `mke2fs` or one of the programs is not available: prints a message and
    /// returns `None`.
    pub(crate) fn new(recipe: &'static str, size: &str, programs: &[&str]) -> Option<Stage> {
        if throughline_testkit::tier::is_too_long("other programs on a mount")
            || !Mounted::possible()
            || !program::has(programs)
        {
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

    /// The mount point.
    pub(crate) fn root(&self) -> &Path {
        self.mounted.root()
    }

    /// The host path of a path on the volume.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.mounted.path(path)
    }

    /// The same, as an argument.
    pub(crate) fn name(&self, path: &str) -> String {
        let path = self.path(path).into_os_string();
        path.into_string()
            .expect("temporary files have plain names")
    }

    /// A path outside the mount that exists as long as the image.
    pub(crate) fn sibling(&self, name: &str) -> PathBuf {
        self.image.sibling(name)
    }

    /// Kills the server with SIGKILL and mounts the image again, which recovers it.
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

    /// Unmounts; the image must be sound and show the same tree in our mount and the kernel's.
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
