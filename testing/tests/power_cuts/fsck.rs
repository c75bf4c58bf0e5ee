//! `e2fsck` on images that are in memory.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use throughline_testing::Image;

const FUTURE: &str = "time is in the future";

/// A file in memory that images pass through.
pub struct Fsck {
    dir: tempfile::TempDir,
    file: File,
    /// What the file holds.
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
        let mut command = Command::new("e2fsck");
        let output = command.arg(arguments).arg(self.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or(-1), said)
    }

    /// `e2fsck -fn` must find nothing.
    ///
    /// # Errors
    /// With what it found.
    pub fn check(&mut self, image: &Image) -> Result<(), String> {
        loop {
            match self.run(image, "-fn") {
                (0, _) => return Ok(()),
                // Its clock is a few milliseconds behind ours.
                (_, said) if said.contains(FUTURE) => {}
                (code, said) => return Err(format!("e2fsck -fn says {code}: {said}")),
            }
        }
    }

    /// What `e2fsck -fy` makes of it, and what it said.
    ///
    /// # Errors
    /// With what it could not put right.
    pub fn repair(&mut self, image: &Image) -> Result<(Image, String), String> {
        let (code, said) = self.run(image, "-fy");
        if !(0..=1).contains(&code) {
            return Err(format!("e2fsck -fy says {code}: {said}"));
        }
        let repaired = Image::read_file_like(&self.path(), image).unwrap();
        self.known = Some(repaired.clone());
        Ok((repaired, said))
    }
}

/// What `e2fsck -fy` said beyond the replay of the journal, the orphans and the counts in the superblock, which a journaled
/// volume leaves to whoever opens it next; and what it (1.47) has to mend itself, as it counts no attribute's value of an orphan
/// down that it clears.
pub fn repairs(said: &str) -> Vec<&str> {
    let cleared = said.contains("Clearing orphaned inode ");
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
            || line == "Pass 1E: Optimizing extent trees"
            || line == "Fix? yes"
            || line == "Clear? yes"
            || line.ends_with("***** FILE SYSTEM WAS MODIFIED *****")
            || line.contains(" files (")
    };
    let lines = said.lines().map(str::trim);
    lines.filter(|line| !expected(line)).collect()
}

/// Whether `e2fsck -fy` has put inodes of attributes' values into lost+found, and done nothing else that it should not have to:
/// it (1.47) clears an orphan and leaves the inode of a value that it had, which the kernel and we free with it. Then its tree is
/// not what the volume was: `unread` is why that cannot be read.
pub fn left_values(said: &str, unread: &str) -> bool {
    let of_that = |line: &&str| {
        line.starts_with("Unattached inode ")
            || *line == "Connect to /lost+found? yes"
            || line.ends_with(" ref count is 2, should be 1.  Fix? yes")
    };
    said.contains("Clearing orphaned inode ")
        && repairs(said).iter().all(of_that)
        && unread.contains("which is for an attribute's value")
}
