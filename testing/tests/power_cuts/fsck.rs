//! Runs `e2fsck` on images in memory.

use std::fs::File;
use std::path::PathBuf;

use throughline_testing::Image;
use throughline_testkit::e2fs;

use super::recipes::Recipe;

const FUTURE: &str = "time is in the future";

/// An in-memory file through which images are passed to `e2fsck`.
pub struct Fsck {
    dir: tempfile::TempDir,
    file: File,
    /// The file's current contents.
    known: Option<Image>,
}

impl Fsck {
    pub fn new() -> Fsck {
        let memory = std::path::Path::new("/dev/shm");
        let dir = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let dir = dir.unwrap();
        let file = File::create(dir.path().join("image")).unwrap();
        Fsck {
            dir,
            file,
            known: None,
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn run(&mut self, image: &Image, arguments: &str) -> (i32, String) {
        image.write_file(&self.file, self.known.as_ref()).unwrap();
        self.known = Some(image.clone());
        let ran = e2fs::e2fsck(&self.path(), &[arguments]);
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
        let repaired = Image::read_file_like(&self.path(), image).unwrap();
        self.known = Some(repaired.clone());
        Ok((repaired, text))
    }
}

/// The messages of `e2fsck -fy`, except the replay of the journal, the orphans and the superblock's counts,
/// which a journaled volume leaves for the next open; and except repairs that it (1.47) causes itself: it
/// does not decrement the count of an attribute value when it clears an orphan with it.
pub fn repairs(text: &str) -> Vec<&str> {
    let cleared = text.contains("Clearing orphaned inode ");
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
    let of_that = |line: &&str| {
        line.starts_with("Unattached inode ")
            || *line == "Connect to /lost+found? yes"
            || line.ends_with(" ref count is 2, should be 1.  Fix? yes")
    };
    text.contains("Clearing orphaned inode ")
        && repairs(text).iter().all(of_that)
        && unread.contains("which holds an attribute's value")
}
