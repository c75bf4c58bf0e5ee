//! `pack --size min` beside `mke2fs -d`: with the same features, inodes and journal, `mke2fs` fails at every
//! size that is more than 1 % smaller.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use throughline_testkit::e2fs;

use crate::common::{assert_clean, noise, run, tools_are_missing};

/// Sizes at which `mke2fs -d` must fail, in percent of ours.
const TOO_SMALL_PERCENT: [u64; 2] = [99, 96];
/// A size at which it must succeed, so that it does not fail for another reason.
const ENOUGH_PERCENT: u64 = 102;

const OPTIONS: [&[&str]; 3] = [&[], &["-t", "ext2"], &["-O", "^metadata_csum,^64bit"]];

fn many_small(tree: &Path) {
    for at in 0..1000 {
        let folder = tree.join(format!("d{}", at % 10));
        fs::create_dir_all(&folder).unwrap();
        let len = at * 37 % 6000;
        fs::write(folder.join(format!("f{at}")), noise(len, at as u64)).unwrap();
    }
}

fn few_large(tree: &Path) {
    for at in 0..4 {
        let content = noise(2_000_000 + at * 777, at as u64);
        fs::write(tree.join(format!("f{at}")), content).unwrap();
    }
}

fn one_directory(tree: &Path) {
    for at in 0..1000 {
        fs::write(tree.join(format!("a rather long name of a file {at}")), "").unwrap();
    }
}

fn deep(tree: &Path) {
    let mut folder = tree.to_owned();
    for at in 0..40 {
        folder.push(format!("d{at}"));
        fs::create_dir(&folder).unwrap();
        symlink("x".repeat(100), folder.join("link")).unwrap();
        fs::write(folder.join("file"), noise(30_000, at)).unwrap();
    }
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(9 << 20).unwrap();
}

/// Fills a directory.
type Make = fn(&Path);

/// What `mke2fs` needs to make the same kind of volume, and how many blocks this one has.
struct Kind {
    block_bytes: u64,
    blocks: u64,
    arguments: Vec<String>,
}

impl Kind {
    fn of(image: &Path) -> Kind {
        let head = e2fs::dumpe2fs(image, &["-h"]);
        let field = |name: &str| {
            let found = head.lines().find_map(|line| line.strip_prefix(name));
            found.map(|rest| rest.trim_start_matches(':').trim().to_owned())
        };
        let must = |name: &str| field(name).unwrap_or_else(|| panic!("no {name}: {head}"));
        let features = must("Filesystem features").replace(' ', ",");
        let block_bytes = must("Block size");
        let mut arguments: Vec<String> = ["-b", &block_bytes, "-m", "0"].map(Into::into).into();
        arguments.extend(["-I".into(), must("Inode size")]);
        arguments.extend(["-N".into(), must("Inode count")]);
        arguments.extend(["-O".into(), format!("none,{features}")]);
        if let Some(journal) = field("Total journal size") {
            let kib: u64 = journal.trim_end_matches('k').parse().unwrap();
            arguments.extend(["-J".into(), format!("size={}", kib >> 10)]);
        }
        Kind {
            block_bytes: block_bytes.parse().unwrap(),
            blocks: must("Block count").parse().unwrap(),
            arguments,
        }
    }

    /// Whether `mke2fs -d` can make a volume of this size.
    fn fits(&self, tree: &Path, percent: u64) -> bool {
        let image = tree.with_file_name("theirs");
        let _ = fs::remove_file(&image);
        let kib = self.blocks * percent / 100 * self.block_bytes / 1024;
        let mut arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        arguments.extend(["-d", tree.to_str().unwrap()]);
        let ran = e2fs::try_mke2fs(&image, &format!("{kib}k"), &arguments).unwrap();
        ran.status.success()
    }
}

#[test]
fn the_smallest_volume_is_within_one_percent_of_that_of_mke2fs() {
    if tools_are_missing() {
        return;
    }
    let trees: [(&str, Make); 4] = [
        ("many small files", many_small),
        ("few large files", few_large),
        ("one directory", one_directory),
        ("deep directories", deep),
    ];
    for (name, make) in trees {
        let dir = tempfile::tempdir().unwrap();
        let (tree, image) = (dir.path().join("tree"), dir.path().join("ours"));
        fs::create_dir(&tree).unwrap();
        make(&tree);
        for options in OPTIONS {
            let paths = [tree.to_str().unwrap(), "-F", "-o", image.to_str().unwrap()];
            let words = ["pack"].into_iter().chain(paths);
            let ran = run(words.chain(options.iter().copied()));
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            assert_clean(&image);
            let kind = Kind::of(&image);
            let what = format!("{name}, {options:?}, {:?}", kind.arguments);
            assert!(kind.fits(&tree, ENOUGH_PERCENT), "mke2fs fails: {what}");
            for percent in TOO_SMALL_PERCENT {
                let fits = kind.fits(&tree, percent);
                assert!(!fits, "{percent} % of ours is enough for mke2fs: {what}");
            }
        }
    }
}
