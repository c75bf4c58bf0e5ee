//! The load: threads that make, write, sync, rename, cut and remove files of their own in directories that they share, by a
//! seed. It runs in a process of its own, which is killed.

use std::path::PathBuf;

use throughline::{Attributes, DirtyLimits, File, FileOptions, OpenOptions, RenameMode, Volume};
use throughline_testing::sectors::{SECTOR_BYTES, filled};

use crate::diary::{Diary, Op, Promise};
use crate::tree;

/// Threads of the load.
pub(crate) const THREADS: usize = 4;
/// What tells the process that it is to be the load.
const ORDER: &str = "THROUGHLINE_KILL_ORDER";
const SECTOR: u64 = SECTOR_BYTES as u64;
/// Files of one thread.
const MOST_FILES: usize = 10;
/// Names of one thread in one directory.
const NAMES: u32 = 16;

/// What the load is to do.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) image: PathBuf,
    pub(crate) diary: PathBuf,
    pub(crate) seed: u64,
    /// Which load on the same image: makes numbers and versions of their own.
    pub(crate) run: u64,
    /// Operations of each thread; then the volume is closed.
    pub(crate) ops: u64,
    /// Promises without keeping: syncs are told and not done.
    pub(crate) lies: bool,
}

impl Order {
    /// For the environment of the process.
    pub(crate) fn to_environment(&self) -> (&'static str, String) {
        let (image, diary) = (self.image.display(), self.diary.display());
        let (seed, run, ops) = (self.seed, self.run, self.ops);
        let lies = u8::from(self.lies);
        let text = format!("{image}\n{diary}\n{seed}\n{run}\n{ops}\n{lies}");
        (ORDER, text)
    }

    /// What this process was told, if it is the load.
    pub(crate) fn from_environment() -> Option<Order> {
        let text = std::env::var(ORDER).ok()?;
        let lines: Vec<&str> = text.lines().collect();
        let number = |index: usize| lines[index].parse().expect("a number of the order");
        Some(Order {
            image: lines[0].into(),
            diary: lines[1].into(),
            seed: number(2),
            run: number(3),
            ops: number(4),
            lies: number(5) != 0,
        })
    }
}

/// Does as told. Returns only if it is not killed.
pub(crate) fn run(order: &Order) {
    let diary = Diary::create(&order.diary);
    if let Err(error) = work(order, &diary) {
        diary.failed(&error.to_string());
    }
}

fn work(order: &Order, diary: &Diary) -> throughline::Result<()> {
    let limits = DirtyLimits::new(Some(1 << 20 << (order.seed % 4)), None);
    let volume = OpenOptions::new()
        .cache_bytes(Some(8 << 20))
        .dirty_limits(limits)
        .open(&order.image)?;
    diary.opened();
    std::thread::scope(|scope| {
        let spawn = |number: usize| {
            let mut worker = Worker::new(order, &volume, diary, number);
            scope.spawn(move || worker.run(order.ops))
        };
        let workers: Vec<_> = (0..THREADS).map(spawn).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a thread of the load"))
    })?;
    diary.begin(0, &Op::Close);
    volume.close()?;
    diary.end(0);
    Ok(())
}

/// A file of the thread.
struct Mine {
    id: u32,
    path: String,
    size: u64,
}

struct Worker<'a> {
    volume: &'a Volume,
    diary: &'a Diary,
    number: usize,
    random: fastrand::Rng,
    /// The next file's number, and the next write's version.
    next_id: u32,
    next_version: u64,
    files: Vec<Mine>,
    /// Open, and without a name.
    ghosts: Vec<File>,
    lies: bool,
}

impl<'a> Worker<'a> {
    fn new(order: &Order, volume: &'a Volume, diary: &'a Diary, number: usize) -> Worker<'a> {
        let mix = order.run.rotate_left(20) ^ (number as u64).rotate_left(50);
        Worker {
            volume,
            diary,
            number,
            random: fastrand::Rng::with_seed(order.seed ^ mix),
            next_id: ((order.run as u32) << 16 | (number as u32) << 13) + 1,
            next_version: (order.run << 20) + 1,
            files: Vec::new(),
            ghosts: Vec::new(),
            lies: order.lies,
        }
    }

    fn run(&mut self, ops: u64) -> throughline::Result<()> {
        self.find_mine()?;
        (0..ops).try_for_each(|_| self.step())
    }

    /// The files that loads before this one have left.
    fn find_mine(&mut self) -> throughline::Result<()> {
        for dir in tree::DIRS {
            for entry in self.volume.read_dir(dir)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                if tree::thread_of(&name) == Some(self.number) {
                    let path = format!("{dir}/{name}");
                    let metadata = self.volume.metadata(&path)?;
                    let (id, size) = (metadata.uid(), metadata.len());
                    self.files.push(Mine { id, path, size });
                }
            }
        }
        Ok(())
    }

    /// Calls, with a line before and a line after.
    fn call<R>(
        &self,
        op: &Op,
        call: impl FnOnce() -> throughline::Result<R>,
    ) -> throughline::Result<R> {
        self.diary.begin(self.number, op);
        let result = call()?;
        self.diary.end(self.number);
        Ok(result)
    }

    fn step(&mut self) -> throughline::Result<()> {
        if self.random.u8(..12) == 0 {
            self.ghosts.clear();
        }
        if self.files.len() < 2 {
            return self.create();
        }
        let chosen = self.random.usize(..self.files.len());
        match self.random.u8(..100) {
            0..18 if self.files.len() < MOST_FILES => self.create(),
            0..50 => self.write(chosen),
            50..66 => self.sync(chosen),
            66..80 => self.rename(chosen),
            80..88 => self.unlink(chosen),
            88..98 => self.cut(chosen),
            _ => self.call(&Op::SyncAll, || self.volume.sync()),
        }
    }

    fn some_name(&mut self) -> String {
        let dir = tree::DIRS[self.random.usize(..tree::DIRS.len())];
        format!("{dir}/t{}-{}", self.number, self.random.u32(..NAMES))
    }

    fn create(&mut self) -> throughline::Result<()> {
        let path = self.some_name();
        if self.files.iter().any(|mine| mine.path == path) {
            return Ok(());
        }
        let id = self.next_id;
        self.next_id += 1;
        let op = Op::Create {
            id,
            path: path.clone(),
        };
        let attributes = Attributes::new().uid(id);
        drop(self.call(&op, || self.volume.create_new(&path, &attributes))?);
        self.files.push(Mine { id, path, size: 0 });
        Ok(())
    }

    fn write(&mut self, chosen: usize) -> throughline::Result<()> {
        let mine = &self.files[chosen];
        let (id, size) = (mine.id, mine.size);
        let sectors = match self.random.u8(..10) {
            0..6 => self.random.u64(1..17),
            6..9 => self.random.u64(1..130),
            _ => self.random.u64(1..1000),
        };
        let at = match self.random.u8(..10) {
            0..6 => size,
            6..9 => self.random.u64(..=size / SECTOR) * SECTOR,
            _ => self.random.u64(..600) * SECTOR,
        };
        let promise = match self.random.u8(..8) {
            0 => Promise::Data,
            1 => Promise::All,
            _ => Promise::None,
        };
        let mut options = FileOptions::new();
        options
            .direct(self.random.u8(..3) == 0)
            .data_sync(promise == Promise::Data && !self.lies);
        options.sync(promise == Promise::All && !self.lies);
        let file = options.open(self.volume, &mine.path)?;
        let version = self.next_version;
        self.next_version += 1;
        let len = sectors * SECTOR;
        let bytes = filled(len as usize, id.into(), at, version);
        let op = Op::Write {
            id,
            at,
            len,
            version,
            promise,
        };
        self.call(&op, || file.write_all_at(at, &bytes))?;
        self.files[chosen].size = size.max(at + len);
        Ok(())
    }

    fn sync(&mut self, chosen: usize) -> throughline::Result<()> {
        let mine = &self.files[chosen];
        let file = self.volume.open_file(&mine.path)?;
        let data_only = self.random.bool();
        let promise = if data_only {
            Promise::Data
        } else {
            Promise::All
        };
        let op = Op::Sync {
            id: mine.id,
            promise,
        };
        self.call(&op, || match data_only {
            _ if self.lies => Ok(()),
            true => file.sync_data(),
            false => file.sync_all(),
        })
    }

    fn rename(&mut self, chosen: usize) -> throughline::Result<()> {
        let to = self.some_name();
        let mine = &self.files[chosen];
        if mine.path == to {
            return Ok(());
        }
        let op = Op::Rename {
            id: mine.id,
            to: to.clone(),
        };
        self.call(&op, || {
            self.volume.rename(&mine.path, &to, RenameMode::Replace)
        })?;
        let id = mine.id;
        self.files.retain(|other| other.path != to);
        if let Some(mine) = self.files.iter_mut().find(|mine| mine.id == id) {
            mine.path = to;
        }
        Ok(())
    }

    /// Sometimes the file stays open, is written to, and goes later.
    fn unlink(&mut self, chosen: usize) -> throughline::Result<()> {
        let Mine { id, path, size } = self.files.swap_remove(chosen);
        let file = self.volume.open_file(&path)?;
        self.call(&Op::Unlink { id }, || self.volume.remove_file(&path))?;
        if self.random.bool() {
            let version = self.next_version;
            self.next_version += 1;
            let op = Op::Write {
                id,
                at: size,
                len: 8 * SECTOR,
                version,
                promise: Promise::None,
            };
            let bytes = filled(8 * SECTOR_BYTES, id.into(), size, version);
            self.call(&op, || file.write_all_at(size, &bytes))?;
            self.ghosts.push(file);
        }
        Ok(())
    }

    fn cut(&mut self, chosen: usize) -> throughline::Result<()> {
        let mine = &self.files[chosen];
        let old = mine.size / SECTOR;
        let size = SECTOR
            * match self.random.u8(..6) {
                0 => 0,
                1 => old + self.random.u64(..200),
                _ => self.random.u64(..=old),
            };
        let file = self.volume.open_file(&mine.path)?;
        let op = Op::Cut { id: mine.id, size };
        self.call(&op, || file.set_len(size))?;
        self.files[chosen].size = size;
        Ok(())
    }
}
