//! The load: threads that create, write, sync, rename, truncate and remove their own files in shared
//! directories, by a seed. The volume is killed under them, or they are killed.

use throughline_testing::attributes::{self, Attributes};
use throughline_testing::sectors::{SECTOR_BYTES, filled};

use crate::diary::tree;
use crate::diary::{Diary, Op, Promise};

/// Number of threads.
pub(crate) const THREADS: usize = 4;
const SECTOR: u64 = SECTOR_BYTES as u64;
/// Files per thread.
const MAX_FILES: usize = 10;
/// Names per thread and directory.
const NAMES: u32 = 16;

/// How a file is opened for writing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    pub(crate) direct: bool,
    /// The promise that a returned write makes.
    pub(crate) promise: Promise,
}

impl How {
    /// Buffered, without a promise.
    pub(crate) const PLAIN: How = How {
        direct: false,
        promise: Promise::None,
    };
}

/// An existing file.
pub(crate) struct Found {
    pub(crate) path: String,
    pub(crate) id: u32,
    pub(crate) size: u64,
    pub(crate) attributes: Attributes,
}

/// The target of the load. Paths are absolute on the volume.
pub(crate) trait Place: Sync {
    /// An open file.
    type File: Send;
    type Error;

    /// The names in a directory.
    fn list(&self, dir: &str) -> Result<Vec<String>, Self::Error>;
    /// The type of a name; other threads change theirs meanwhile.
    fn look(&self, path: &str) -> Result<Found, Self::Error>;
    /// Creates a file with owner `id`, in one operation.
    fn create(&self, path: &str, id: u32) -> Result<(), Self::Error>;
    fn open(&self, path: &str, how: How) -> Result<Self::File, Self::Error>;
    fn write(&self, file: &Self::File, at: u64, bytes: &[u8]) -> Result<(), Self::Error>;
    fn sync(&self, file: &Self::File, data_only: bool) -> Result<(), Self::Error>;
    fn set_len(&self, file: &Self::File, size: u64) -> Result<(), Self::Error>;
    /// Sets or removes an attribute; returns `false`, without a change, if there is no space for it.
    fn set_attribute(
        &self,
        path: &str,
        name: &str,
        value: Option<&[u8]>,
    ) -> Result<bool, Self::Error>;
    fn rename(&self, from: &str, to: &str) -> Result<(), Self::Error>;
    fn unlink(&self, path: &str) -> Result<(), Self::Error>;
    /// The operation that syncs more than one file, at `dir`, and its call.
    fn wide(&self, dir: &str) -> Op;
    fn sync_wide(&self, dir: &str) -> Result<(), Self::Error>;
}

/// Parameters of a load.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) seed: u64,
    /// Number of the load on this image: makes file numbers and versions unique.
    pub(crate) run: u64,
    /// Operations per thread.
    pub(crate) ops: u64,
    /// Makes false promises: reports syncs without doing them.
    pub(crate) skips_syncs: bool,
}

impl Load {
    /// Runs on `place`. Returns when all threads have finished, or the first error of any.
    pub(crate) fn run<P: Place>(&self, place: &P, diary: &Diary) -> Result<(), P::Error>
    where
        P::Error: Send,
    {
        std::thread::scope(|scope| {
            let spawn = |number: usize| {
                let mut worker = Worker::new(self, place, diary, number);
                scope.spawn(move || worker.run(self.ops))
            };
            let workers: Vec<_> = (0..THREADS).map(spawn).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("a thread of the load"))
        })
    }
}

struct Worker<'a, P: Place> {
    place: &'a P,
    diary: &'a Diary,
    number: usize,
    random: fastrand::Rng,
    /// Number of the next file, and version of the next write.
    next_id: u32,
    next_version: u64,
    files: Vec<Found>,
    /// Open, without a name.
    ghosts: Vec<P::File>,
    skips_syncs: bool,
}

impl<'a, P: Place> Worker<'a, P> {
    fn new(load: &Load, place: &'a P, diary: &'a Diary, number: usize) -> Worker<'a, P> {
        let mix = load.run.rotate_left(20) ^ (number as u64).rotate_left(50);
        Worker {
            place,
            diary,
            number,
            random: fastrand::Rng::with_seed(load.seed ^ mix),
            next_id: ((load.run as u32) << 16 | (number as u32) << 13) + 1,
            next_version: (load.run << 20) + 1,
            files: Vec::new(),
            ghosts: Vec::new(),
            skips_syncs: load.skips_syncs,
        }
    }

    fn run(&mut self, ops: u64) -> Result<(), P::Error> {
        self.find_mine()?;
        (0..ops).try_for_each(|_| self.step())
    }

    /// Files that earlier loads have left.
    fn find_mine(&mut self) -> Result<(), P::Error> {
        for dir in tree::DIRS {
            for name in self.place.list(dir)? {
                if tree::thread_of(&name) == Some(self.number) {
                    self.files.push(self.place.look(&format!("{dir}/{name}"))?);
                }
            }
        }
        Ok(())
    }

    /// Calls with a diary line before and after.
    fn call<R>(&self, op: &Op, call: impl FnOnce() -> Result<R, P::Error>) -> Result<R, P::Error> {
        self.diary.begin(self.number, op);
        let result = call()?;
        self.diary.end(self.number);
        Ok(result)
    }

    fn step(&mut self) -> Result<(), P::Error> {
        if self.random.u8(..12) == 0 {
            self.ghosts.clear();
        }
        if self.files.len() < 2 {
            return self.create();
        }
        let chosen = self.random.usize(..self.files.len());
        match self.random.u8(..100) {
            0..18 if self.files.len() < MAX_FILES => self.create(),
            0..50 => self.write(chosen),
            50..66 => self.sync(chosen),
            66..72 => self.attribute(chosen),
            72..80 => self.rename(chosen),
            80..88 => self.unlink(chosen),
            88..98 => self.cut(chosen),
            _ => self.sync_wide(),
        }
    }

    fn some_name(&mut self) -> String {
        let dir = tree::DIRS[self.random.usize(..tree::DIRS.len())];
        format!("{dir}/t{}-{}", self.number, self.random.u32(..NAMES))
    }

    fn create(&mut self) -> Result<(), P::Error> {
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
        self.call(&op, || self.place.create(&path, id))?;
        let attributes = Attributes::default();
        self.files.push(Found {
            id,
            path,
            size: 0,
            attributes,
        });
        Ok(())
    }

    fn write(&mut self, chosen: usize) -> Result<(), P::Error> {
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
        let how = How {
            direct: self.random.u8(..3) == 0,
            promise: if self.skips_syncs {
                Promise::None
            } else {
                promise
            },
        };
        let file = self.place.open(&mine.path, how)?;
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
        self.call(&op, || self.place.write(&file, at, &bytes))?;
        self.files[chosen].size = size.max(at + len);
        Ok(())
    }

    fn sync(&mut self, chosen: usize) -> Result<(), P::Error> {
        let mine = &self.files[chosen];
        let file = self.place.open(&mine.path, How::PLAIN)?;
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
        self.call(&op, || match self.skips_syncs {
            true => Ok(()),
            false => self.place.sync(&file, data_only),
        })
    }

    fn attribute(&mut self, chosen: usize) -> Result<(), P::Error> {
        let name = self.random.u8(..attributes::NAMES.len() as u8);
        let number = (self.random.u8(..4) > 0).then(|| self.random.u8(..attributes::VALUES));
        let mine = &mut self.files[chosen];
        if number.is_none() && !mine.attributes.has(name) {
            return Ok(());
        }
        let op = Op::Attribute {
            id: mine.id,
            name,
            value: number,
        };
        let value = number.map(|number| attributes::value(name, number));
        let known = attributes::NAMES[usize::from(name)];
        self.diary.begin(self.number, &op);
        let done = self
            .place
            .set_attribute(&mine.path, known, value.as_deref())?;
        if done {
            mine.attributes.set(name, number);
            self.diary.end(self.number);
        } else {
            self.diary.refused(self.number);
        }
        Ok(())
    }

    fn sync_wide(&mut self) -> Result<(), P::Error> {
        let dir = tree::DIRS[self.random.usize(..tree::DIRS.len())];
        self.call(&self.place.wide(dir), || match self.skips_syncs {
            true => Ok(()),
            false => self.place.sync_wide(dir),
        })
    }

    fn rename(&mut self, chosen: usize) -> Result<(), P::Error> {
        let to = self.some_name();
        let mine = &self.files[chosen];
        if mine.path == to {
            return Ok(());
        }
        let op = Op::Rename {
            id: mine.id,
            to: to.clone(),
        };
        self.call(&op, || self.place.rename(&mine.path, &to))?;
        let id = mine.id;
        self.files.retain(|other| other.path != to);
        if let Some(mine) = self.files.iter_mut().find(|mine| mine.id == id) {
            mine.path = to;
        }
        Ok(())
    }

    /// Sometimes the file stays open, is written to, and is removed later.
    fn unlink(&mut self, chosen: usize) -> Result<(), P::Error> {
        let Found { id, path, size, .. } = self.files.swap_remove(chosen);
        let file = self.place.open(&path, How::PLAIN)?;
        self.call(&Op::Unlink { id }, || self.place.unlink(&path))?;
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
            self.call(&op, || self.place.write(&file, size, &bytes))?;
            self.ghosts.push(file);
        }
        Ok(())
    }

    fn cut(&mut self, chosen: usize) -> Result<(), P::Error> {
        let mine = &self.files[chosen];
        let old = mine.size / SECTOR;
        let size = SECTOR
            * match self.random.u8(..6) {
                0 => 0,
                1 => old + self.random.u64(..200),
                _ => self.random.u64(..=old),
            };
        let file = self.place.open(&mine.path, How::PLAIN)?;
        let op = Op::Cut { id: mine.id, size };
        self.call(&op, || self.place.set_len(&file, size))?;
        self.files[chosen].size = size;
        Ok(())
    }
}
