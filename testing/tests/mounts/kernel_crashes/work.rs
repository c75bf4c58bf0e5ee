//! Load for the kernel: files are created, grown, truncated, renamed and removed, some of them while open,
//! with fsyncs in between.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, XattrFlags};

/// Maximum files held open after their last name is removed.
const HELD: usize = 4;

/// One process at work.
pub(crate) struct Work {
    root: PathBuf,
    random: Rng,
    /// The prefix of its names, so that two processes do not contend for every name.
    own: char,
    held: Vec<File>,
    /// With fast commits: operations that rule them out are rare.
    fast: bool,
}

impl Work {
    pub(crate) fn new(root: &Path, seed: u64, own: char, fast: bool) -> Self {
        Self {
            root: root.to_owned(),
            random: Rng::with_seed(seed),
            own,
            held: Vec::new(),
            fast,
        }
    }

    /// Does this many operations. Failures, as on a missing name, are ignored.
    pub(crate) fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            let _ = self.step();
        }
    }

    fn dir(&mut self) -> PathBuf {
        match self.random.u32(..4) {
            0 => self.root.clone(),
            n => self.root.join(format!("dir{n}")),
        }
    }

    fn path(&mut self) -> PathBuf {
        let number = self.random.u32(..12);
        let long = if number.is_multiple_of(3) {
            "-with-a-rather-long-name-so-that-directories-grow"
        } else {
            ""
        };
        let name = format!("{}{number}{long}", self.own);
        self.dir().join(name)
    }

    fn data(&mut self) -> Vec<u8> {
        let most = if self.random.u8(..4) == 0 {
            60_000
        } else {
            3000
        };
        let mut data = vec![0; self.random.usize(..most)];
        self.random.fill(&mut data);
        data
    }

    fn write(&mut self, file: &File, at: u64) -> io::Result<()> {
        let data = self.data();
        file.write_all_at(&data, at)?;
        if self.random.bool() {
            file.sync_all()?;
        }
        Ok(())
    }

    fn step(&mut self) -> io::Result<()> {
        let path = self.path();
        match self.random.u32(..29) {
            0..=5 => {
                let file = File::create(&path)?;
                self.write(&file, 0)
            }
            6..=9 => {
                let file = OpenOptions::new().write(true).open(&path)?;
                let end = file.metadata()?.len();
                self.write(&file, end)
            }
            10 | 11 => {
                let file = OpenOptions::new().write(true).open(&path)?;
                let at = self.random.u64(..200_000);
                self.write(&file, at)
            }
            12 | 13 => {
                let file = OpenOptions::new().write(true).open(&path)?;
                file.set_len(self.random.u64(..50_000))?;
                if self.random.bool() {
                    file.sync_data()?;
                }
                Ok(())
            }
            14 | 15 => fs::rename(&path, self.path()),
            16 => fs::hard_link(&path, self.path()),
            17 => symlink("somewhere/else", &path),
            18 | 19 => fs::remove_file(&path),
            20 | 26..=28 => self.remove_held(&path),
            21 => {
                let dir = self.random.u32(1..4);
                let dir = self.root.join(format!("dir{dir}"));
                if self.random.bool() {
                    fs::create_dir(&dir)
                } else {
                    fs::create_dir(dir.join(format!("sub{}", self.random.u32(..5))))
                }
            }
            22 => {
                let dir = self.dir().join(format!("sub{}", self.random.u32(..5)));
                fs::remove_dir(dir)
            }
            23 => fs::set_permissions(&path, fs::Permissions::from_mode(self.random.u32(..0o1000))),
            24 => File::open(self.dir())?.sync_all(),
            _ => self.rare(&path),
        }
    }

    /// Removes the last name of a file that stays open.
    fn remove_held(&mut self, path: &Path) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(path)?;
        fs::remove_file(path)?;
        self.write(&file, 0)?;
        self.held.push(file);
        if self.held.len() > HELD {
            self.held.remove(0);
        }
        Ok(())
    }

    fn rare(&mut self, path: &Path) -> io::Result<()> {
        if self.fast && self.random.u8(..8) > 0 {
            return Ok(());
        }
        match self.random.u8(..3) {
            0 => {
                let value = vec![7; self.random.usize(1..400)];
                rustix::fs::setxattr(path, "user.note", &value, XattrFlags::empty())?;
            }
            1 => {
                let file = OpenOptions::new().write(true).open(path)?;
                let (at, len) = (self.random.u64(..40_000), self.random.u64(1..40_000));
                rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, at, len)?;
                file.sync_all()?;
            }
            _ => rustix::fs::mknodat(CWD, path, FileType::Socket, Mode::from_raw_mode(0o600), 0)?,
        }
        Ok(())
    }
}
