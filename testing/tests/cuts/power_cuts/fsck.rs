//! Runs `e2fsck` on images in memory.

use std::fs::File;
use std::path::PathBuf;

use throughline_testing::Image;

use super::oracle::external;
use super::recipes::Recipe;

const FUTURE: &str = "time is in the future";

/// In-memory files through which images are passed to `e2fsck`.
pub struct Fsck {
    _dir: tempfile::TempDir,
    volume: Passed,
    /// A journal that is outside.
    journal: Passed,
}

/// A file, and its current contents.
struct Passed {
    path: PathBuf,
    known: Option<Image>,
}

impl Passed {
    fn write(&mut self, image: Image) {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.path)
            .unwrap();
        image.write_file(&file, self.known.as_ref()).unwrap();
        self.known = Some(image);
    }

    /// What a program left in it.
    fn read(&mut self) -> Image {
        let before = self.known.take().expect("it was written");
        let after = Image::read_file_like(&self.path, &before).unwrap();
        self.known = Some(after.clone());
        after
    }
}

impl Fsck {
    pub fn new() -> Fsck {
        let memory = std::path::Path::new("/dev/shm");
        let dir = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let dir = dir.unwrap();
        let passed = |name| Passed {
            path: dir.path().join(name),
            known: None,
        };
        Fsck {
            volume: passed("image"),
            journal: passed("journal"),
            _dir: dir,
        }
    }

    fn run(&mut self, image: &Image, arguments: &str) -> (i32, String) {
        let begin = external::begin_in(image);
        let (volume, journal) = image.split_at(begin.unwrap_or(image.len_bytes()));
        self.volume.write(volume);
        if begin.is_some() {
            self.journal.write(journal);
        }
        let journal = begin.map(|_| self.journal.path.as_path());
        // What it (1.47) makes narrower, it counts wrong in the usage of an owner of clusters.
        let arguments = ["-E", "no_optimize_extents", arguments];
        let ran = external::e2fsck(&self.volume.path, journal, &arguments);
        (ran.code(), ran.text())
    }

    /// Runs `e2fsck -fn`, which must find nothing.
    ///
    /// # Errors
    /// What it found.
    pub fn check(&mut self, image: &Image) -> Result<(), String> {
        loop {
            match self.run(image, "-fn") {
                (0, _) => return Ok(()),
                // Its clock is a few milliseconds behind ours.
                (_, text) if text.contains(FUTURE) => {}
                (code, text) => return Err(format!("e2fsck -fn exited with {code}: {text}")),
            }
        }
    }

    /// Runs `e2fsck -fy`. Returns the repaired image and the output.
    ///
    /// # Errors
    /// What it could not repair.
    pub fn repair(&mut self, image: &Image) -> Result<(Image, String), String> {
        let (code, text) = self.run(image, "-fy");
        if !(0..=1).contains(&code) {
            return Err(format!("e2fsck -fy exited with {code}: {text}"));
        }
        let repaired = self.volume.read();
        let repaired = match external::begin_in(image) {
            Some(_) => repaired.joined(self.journal.read()),
            None => repaired,
        };
        Ok((repaired, text))
    }
}

/// The messages of `e2fsck -fy`, except the replay of the journal, the orphans and the superblock's counts,
/// which a journaled volume leaves for the next open; and except repairs that it (1.47) causes itself: when
/// it clears an orphan, it does not decrement the count of its attribute values, and its block of attributes
/// stays in the usage of the owner.
pub fn repairs(text: &str) -> Vec<&str> {
    let cleared = text.contains("Clearing orphaned inode ");
    let mut warnings = text
        .lines()
        .filter(|line| line.starts_with("[QUOTA WARNING]"));
    let attributes_counted = cleared && warnings.all(counts_too_much);
    let expected = |line: &str| {
        line.is_empty()
            || line.starts_with("e2fsck 1.")
            || line.starts_with("Pass ")
            || line.ends_with(": recovering journal")
            || line.starts_with("Clearing orphaned inode ")
            || line.starts_with("Truncating orphaned inode ")
            || line.starts_with("Setting free ")
            || cleared
                && line.starts_with("Extended attribute inode ")
                && line.contains(" ref count is ")
            || attributes_counted
                && (line.starts_with("[QUOTA WARNING]") || line.starts_with("Update quota info "))
            || line.starts_with("Free blocks count wrong (")
            || line.starts_with("Free inodes count wrong (")
            || line.starts_with("Orphan file (inode ") && line.ends_with(" is not clean.")
            || line == "Feature orphan_present is set but orphan file is clean."
            || line.contains(FUTURE)
            || line.starts_with("(by less than a day, ")
            || line.ends_with("could be shorter.  Optimize? yes")
            || line.ends_with("could be narrower.  Optimize? yes")
            || line == "Pass 1E: Optimizing extent trees"
            || line == "Fix? yes"
            || line == "Clear? yes"
            || line.ends_with("***** FILE SYSTEM WAS MODIFIED *****")
            || line.contains(" files (")
    };
    let lines = text.lines().map(str::trim);
    lines.filter(|line| !expected(line)).collect()
}

/// The usages in a line such as `actual (0, 1) != expected (1024, 1)`: what was counted, and what the quota
/// file had, in bytes and inodes.
pub fn counts(line: &str) -> Option<((u64, u64), (u64, u64))> {
    let pair = |after: &str| -> Option<(u64, u64)> {
        let (_, rest) = line.split_once(after)?;
        let (bytes, inodes) = rest.split_once(')')?.0.split_once(", ")?;
        Some((bytes.parse().ok()?, inodes.parse().ok()?))
    };
    pair("actual (").zip(pair("expected ("))
}

/// Whether a usage has too many bytes and no other error.
fn counts_too_much(line: &str) -> bool {
    counts(line).is_some_and(|(actual, expected)| actual.0 < expected.0 && actual.1 == expected.1)
}

/// Whether `e2fsck -fy` is no judge of a state, because it had to end a truncation with `bigalloc`: it (1.47)
/// frees nothing past the size of an orphan, and then takes what is there for damage, or the size. The kernel
/// and we free it.
pub fn cannot_truncate(recipe: &Recipe, text: &str) -> bool {
    recipe.cluster_bytes() > recipe.block_bytes() && text.contains("Truncating orphaned inode ")
}

/// Whether `e2fsck -fy` has put inodes of attribute values into lost+found, and nothing else that should not
/// be needed: it (1.47) clears an orphan but keeps the inode of its attribute value, which the kernel and we
/// free with it. The tree then differs from the volume: `unread` is the reason why that could not be read.
pub fn left_values(text: &str, unread: &str) -> bool {
    text.contains("Clearing orphaned inode ")
        && repairs(text).iter().all(|line| is_of_left_value(line))
        && leads_to_value(unread)
}

/// Whether a line is about an inode that `e2fsck` has put into lost+found.
pub fn is_of_left_value(line: &str) -> bool {
    line.starts_with("Unattached inode ")
        || line == "Connect to /lost+found? yes"
        || line.ends_with(" ref count is 2, should be 1.  Fix? yes")
}

/// Whether a tree could not be read because a name leads to an inode of an attribute value.
pub fn leads_to_value(unread: &str) -> bool {
    unread.contains("which holds an attribute's value")
}
