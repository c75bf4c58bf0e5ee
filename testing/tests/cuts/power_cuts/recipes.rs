//! The volumes that lose power, made by `mke2fs`: small, with small journals, and with stale bytes in all
//! free blocks.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock};

use throughline_testing::Image;
use throughline_testkit::e2fs;

/// Initial contents of every free block.
pub const OLD: u8 = 0xa5;

/// A kind of volume.
pub struct Recipe {
    /// Name in messages.
    pub name: &'static str,
    /// Arguments of `mke2fs`.
    mke2fs: &'static str,
    /// Size in MiB.
    mib: u64,
    /// Size of a journal on a device of its own, in KiB; 0: it is inside, or there is none.
    journal_kib: u64,
    /// Whether it has a journal and makes all promises.
    pub journaled: bool,
    /// Whether files have extents, and can have unwritten blocks.
    pub extents: bool,
    /// Granularity at which writes may tear. Extents changed in place, without a journal, require atomic
    /// blocks: their entries move, and a mixture of old and new entries refers to unallocated blocks.
    pub sector_bytes: usize,
}

const fn journaled(name: &'static str, mib: u64, extents: bool, mke2fs: &'static str) -> Recipe {
    Recipe {
        name,
        mke2fs,
        mib,
        journal_kib: 0,
        journaled: true,
        extents,
        sector_bytes: 512,
    }
}

const fn plain(name: &'static str, mib: u64, mke2fs: &'static str) -> Recipe {
    Recipe {
        name,
        mke2fs,
        mib,
        journal_kib: 0,
        journaled: false,
        extents: false,
        sector_bytes: 512,
    }
}

/// With a journal on a device of its own, behind the volume.
const fn outside(
    name: &'static str,
    mib: u64,
    extents: bool,
    mke2fs: &'static str,
    journal_kib: u64,
) -> Recipe {
    Recipe {
        journal_kib,
        ..journaled(name, mib, extents, mke2fs)
    }
}

/// ext3 and ext4 with the features that change how metadata is written, and ext2 with its own promise.
pub const RECIPES: &[Recipe] = &[
    journaled("ext4 1k", 8, true, "-b 1024 -t ext4 -J size=1"),
    journaled("ext3 1k", 8, false, "-b 1024 -t ext3 -J size=1"),
    plain("ext2 1k", 6, "-b 1024 -t ext2 -g 2048"),
    journaled("ext4 4k", 16, true, "-b 4096 -t ext4 -J size=4"),
    journaled(
        "ext4 1k orphan_file",
        8,
        true,
        "-b 1024 -t ext4 -J size=1 -O orphan_file",
    ),
    journaled(
        "ext4 1k quota",
        8,
        true,
        "-b 1024 -t ext4 -J size=1 -O quota,project",
    ),
    journaled(
        "ext4 1k no metadata_csum, no 64bit",
        8,
        true,
        "-b 1024 -t ext4 -J size=1 -O ^metadata_csum,^64bit -g 2048",
    ),
    journaled("ext3 4k", 16, false, "-b 4096 -t ext3 -J size=4 -g 1024"),
    journaled(
        "ext4 1k no 64bit",
        8,
        true,
        "-b 1024 -t ext4 -J size=1 -O ^64bit",
    ),
    plain("ext2 4k", 8, "-b 4096 -t ext2"),
    journaled(
        "ext4 4k no metadata_csum",
        16,
        true,
        "-b 4096 -t ext4 -J size=4 -O ^metadata_csum",
    ),
    journaled(
        "ext4 4k no 64bit, orphan_file, ea_inode",
        16,
        true,
        "-b 4096 -t ext4 -J size=4 -O ^64bit,orphan_file,ea_inode -g 1024",
    ),
    journaled(
        "ext4 1k without extents",
        8,
        false,
        "-b 1024 -t ext4 -J size=1 -O ^extent,^64bit,metadata_csum",
    ),
    journaled(
        "ext4 1k in clusters of 4k",
        8,
        true,
        "-b 1024 -t ext4 -J size=1 -O bigalloc -C 4096",
    ),
    journaled(
        "ext4 4k in clusters of 16k",
        24,
        true,
        "-b 4096 -t ext4 -J size=4 -O bigalloc -C 16384",
    ),
    journaled(
        "ext4 1k in clusters of 4k, quota",
        8,
        true,
        "-b 1024 -t ext4 -J size=1 -O bigalloc,quota -C 4096",
    ),
    Recipe {
        extents: true,
        sector_bytes: 1024,
        ..plain(
            "ext4 1k without a journal",
            6,
            "-b 1024 -t ext4 -O ^has_journal,^metadata_csum,uninit_bg -g 2048",
        )
    },
    Recipe {
        extents: true,
        sector_bytes: 4096,
        ..plain(
            "ext4 4k without a journal",
            8,
            "-b 4096 -t ext4 -O ^has_journal",
        )
    },
    journaled(
        "ext4 1k inline_data, ea_inode",
        8,
        true,
        "-b 1024 -t ext4 -J size=1 -O inline_data,ea_inode -I 512 -g 1024",
    ),
    journaled(
        "ext4 1k casefold",
        8,
        true,
        "-b 1024 -t ext4 -J size=1 -O casefold,inline_data",
    ),
    journaled(
        "ext4 1k encrypt, verity",
        8,
        true,
        "-b 1024 -t ext4 -J size=1 -O encrypt,verity,stable_inodes",
    ),
    outside(
        "ext4 1k, journal outside",
        8,
        true,
        "-b 1024 -t ext4 -O ^has_journal",
        1100,
    ),
    outside(
        "ext4 4k quota, journal outside",
        16,
        true,
        "-b 4096 -t ext4 -O ^has_journal,quota",
        4400,
    ),
    outside(
        "ext3 1k, journal outside",
        8,
        false,
        "-b 1024 -t ext3 -O ^has_journal",
        1100,
    ),
];

impl Recipe {
    /// The recipe with this name.
    ///
    /// # Panics
    /// If there is none.
    pub fn named(name: &str) -> &'static Recipe {
        let found = RECIPES.iter().find(|recipe| recipe.name == name);
        found.unwrap_or_else(|| panic!("no recipe {name}"))
    }

    /// Block size in bytes.
    ///
    /// # Panics
    /// If the arguments do not specify it.
    pub fn block_bytes(&self) -> u64 {
        self.argument("-b").expect("a block size is given")
    }

    /// Bytes of a cluster; of a block without `bigalloc`.
    pub fn cluster_bytes(&self) -> u64 {
        self.argument("-C").unwrap_or_else(|| self.block_bytes())
    }

    fn argument(&self, name: &str) -> Option<u64> {
        let mut arguments = self.mke2fs.split(' ');
        arguments.find(|argument| *argument == name)?;
        arguments.next()?.parse().ok()
    }

    /// An empty volume with a directory `/shared`; created once.
    pub fn image(&self) -> Image {
        static MADE: OnceLock<Mutex<HashMap<&'static str, Image>>> = OnceLock::new();
        let mut made = MADE.get_or_init(Mutex::default).lock().unwrap();
        made.entry(self.name).or_insert_with(|| self.make()).clone()
    }

    fn make(&self) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, vec![OLD; (self.mib << 20) as usize]).unwrap();
        // Nothing is zeroed unnecessarily: what is not metadata keeps the stale bytes.
        let whole = ["-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"];
        let mut arguments = vec!["-m", "0", "-N", "512", "-L", "cuts"];
        arguments.extend(whole.into_iter().chain(self.mke2fs.split(' ')));
        assert!(e2fs::mke2fs(&path, "", &arguments));
        e2fs::debugfs_write(&path, "mkdir /shared");
        if self.mke2fs.contains("casefold") {
            e2fs::set_casefold(&path, "/");
            e2fs::set_casefold(&path, "/shared");
        }
        if self.mke2fs.contains("quota") {
            // debugfs does not count what it makes.
            e2fs::repair(&path);
        }
        e2fs::assert_clean(&path);
        let image = Image::read_file(&path).unwrap();
        if self.journal_kib == 0 {
            return image;
        }
        let journal = dir.path().join("journal");
        let size = format!("{}k", self.journal_kib);
        e2fs::add_journal_device(&path, &journal, &size, self.block_bytes());
        let image = Image::read_file_like(&path, &image).unwrap();
        image.joined(Image::read_file(&journal).unwrap())
    }
}
