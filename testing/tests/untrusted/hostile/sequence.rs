//! Random sequences of operations on an untrusted image, by paths and by files that stay open. Each follows
//! from its choices alone. Errors are allowed; a panic, a hang or unbounded memory is not.

use std::path::PathBuf;
use std::sync::Arc;

use throughline::internal::OpenBlockDevice;
use throughline::{
    Attributes, DeviceNumber, File, FileOptions, NewNode, OpenOptions, RenameMode, Volume,
};
use throughline_device::BlockDevice;

use super::choices::Choices;
use super::exercise::MODES;

/// The most paths that are known at a time.
const MAX_PATHS: usize = 48;
const MAX_OPEN: usize = 6;
const OPERATIONS: u32 = 80;

/// Performs a sequence of operations on the image. Returns how many succeeded.
pub(crate) fn run(device: &Arc<dyn BlockDevice>, choices: Choices<'_>) -> usize {
    let mut options = OpenOptions::new();
    let options = options.write(true).allow_unclean(true);
    let Ok(volume) = options.open_block_device(Arc::clone(device)) else {
        return 0;
    };
    let mut sequence = Sequence {
        choices,
        paths: found(&volume),
        open: Vec::new(),
        made: 0,
    };
    let mut done = 0;
    for _ in 0..OPERATIONS {
        if sequence.choices.is_spent() {
            break;
        }
        done += usize::from(sequence.step(&volume).is_some());
    }
    drop(sequence);
    let _ = volume.close();
    done
}

/// Paths in the image, the root first, some of each level.
fn found(volume: &Volume) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::from("/")];
    let mut at = 0;
    while let Some(dir) = paths.get(at).cloned() {
        at += 1;
        let Ok(entries) = volume.read_dir(&dir) else {
            continue;
        };
        for entry in entries.take(12).map_while(Result::ok) {
            if paths.len() < MAX_PATHS {
                paths.push(dir.join(entry.file_name()));
            }
        }
    }
    paths
}

struct Sequence<'a> {
    choices: Choices<'a>,
    paths: Vec<PathBuf>,
    open: Vec<File>,
    /// The number of names that were made up.
    made: u32,
}

impl Sequence<'_> {
    /// `None`: it failed.
    fn step(&mut self, volume: &Volume) -> Option<()> {
        match self.choices.word_below(24) {
            0 => volume.create_dir(self.new_path()).ok().map(drop),
            1 => volume.create_file(self.new_path()).ok().map(drop),
            2 => volume.symlink(self.some(), self.new_path()).ok(),
            3 => volume.hard_link(self.some(), self.new_path()).ok(),
            4 => self.node(volume),
            5 | 6 => self.rename(volume),
            7 => volume.remove_file(self.some()).ok(),
            8 => volume.remove_dir(self.some()).ok(),
            9 => volume.remove_dir_all(self.some()).ok(),
            10 => self.read(volume),
            11 => self.list(volume),
            12 => volume.metadata(self.some()).ok().map(drop),
            13 => self.set_attributes(volume),
            14 => self.xattrs(volume),
            15 => volume.sync().ok(),
            16 => volume.trim(0..u64::MAX, 0).ok().map(drop),
            17 | 18 => self.open(volume),
            _ => self.on_open(),
        }
    }

    fn some(&mut self) -> PathBuf {
        let at = self.choices.index(self.paths.len());
        self.paths[at].clone()
    }

    /// A new name in some directory, which is known from now on.
    fn new_path(&mut self) -> PathBuf {
        self.made += 1;
        let len = self.choices.of(&[3, 20, 200]);
        let path = self.some().join(format!("{:0len$}", self.made));
        let last = self.paths.len();
        match last < MAX_PATHS {
            true => self.paths.push(path.clone()),
            false => self.paths[last - 1 - self.made as usize % (MAX_PATHS / 2)] = path.clone(),
        }
        path
    }

    fn node(&mut self, volume: &Volume) -> Option<()> {
        let kind = self.choices.of(&[
            NewNode::Fifo,
            NewNode::Socket,
            NewNode::CharDevice(DeviceNumber { major: 4, minor: 1 }),
        ]);
        let made = volume.make_node(self.new_path(), kind, &Attributes::new());
        made.ok().map(drop)
    }

    fn rename(&mut self, volume: &Volume) -> Option<()> {
        let mode = self.choices.of(&[
            RenameMode::Replace,
            RenameMode::NoReplace,
            RenameMode::Exchange,
        ]);
        let to = match self.choices.bool() {
            true => self.some(),
            false => self.new_path(),
        };
        volume.rename_with(self.some(), to, mode).ok()
    }

    /// A file may claim to have 2^60 bytes, and a file is read into memory of its length.
    fn read(&mut self, volume: &Volume) -> Option<()> {
        let path = self.some();
        let len = volume.metadata(&path).ok()?.len();
        match len <= 4 << 20 {
            true => volume.read(path).ok().map(drop),
            false => None,
        }
    }

    fn list(&mut self, volume: &Volume) -> Option<()> {
        let entries = volume.read_dir(self.some()).ok()?;
        entries.take(500).map_while(Result::ok).for_each(drop);
        Some(())
    }

    fn set_attributes(&mut self, volume: &Volume) -> Option<()> {
        let attributes = Attributes::new()
            .mode(self.choices.any_word() & 0o7777)
            .uid(self.choices.word_below(70_000))
            .gid(self.choices.word_below(70_000));
        let path = self.some();
        volume.set_attributes(path, &attributes).ok()
    }

    fn xattrs(&mut self, volume: &Volume) -> Option<()> {
        let path = self.some();
        let xattrs = volume.xattrs(path).ok()?;
        let name = format!("user.{}", self.choices.word_below(6));
        let len = self.choices.of(&[0, 10, 300, 4000]);
        match self.choices.word_below(4) {
            0 => xattrs.remove(&name).ok(),
            1 => {
                for name in xattrs.names().ok()?.iter().take(20) {
                    let _ = xattrs.get(name);
                }
                Some(())
            }
            _ => xattrs.set(&name, vec![1; len]).ok(),
        }
    }

    fn open(&mut self, volume: &Volume) -> Option<()> {
        let mut options = FileOptions::new();
        options.read(true).write(true).direct(self.choices.bool());
        options.create(self.choices.bool());
        let file = options.open(volume, self.some()).ok()?;
        if self.open.len() == MAX_OPEN {
            let at = self.choices.index(MAX_OPEN);
            self.open.swap_remove(at);
        }
        self.open.push(file);
        Some(())
    }

    /// A byte of a file: often at its ends, of its blocks or of its data.
    fn place(&mut self, file: &File) -> u64 {
        let size = file.metadata().map_or(0, |metadata| metadata.len());
        match self.choices.word_below(6) {
            0 => 0,
            1 => size,
            2 => size.saturating_sub(self.choices.below(5000)),
            3 => self.choices.below(64) * 1024,
            4 => 1 << self.choices.word_below(63),
            _ => self.choices.within(0..=size.min(1 << 20)),
        }
    }

    fn on_open(&mut self) -> Option<()> {
        if self.open.is_empty() {
            return None;
        }
        let which = self.choices.index(self.open.len());
        let file = self.open.swap_remove(which);
        let done = self.on(&file);
        self.open.push(file);
        done
    }

    fn on(&mut self, file: &File) -> Option<()> {
        let at = self.place(file);
        let len = self.choices.of(&[1, 700, 4096, 30_000]);
        match self.choices.word_below(9) {
            0 | 1 => file.write_at(&vec![9; len], at).ok().map(drop),
            2 | 3 => file.read_at(&mut vec![0; len], at).ok().map(drop),
            4 => file.set_len(at).ok(),
            5 => {
                let mode = self.choices.of(&MODES);
                file.allocate(mode, at & !1023, (len as u64) << 4 & !1023)
                    .ok()
            }
            6 => file.sync_all().ok(),
            7 => file.seek_data(at).ok().map(drop),
            _ => file.append(&vec![8; len]).ok().map(drop),
        }
    }
}
