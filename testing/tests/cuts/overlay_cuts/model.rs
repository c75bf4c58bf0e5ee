//! What files may hold after a cut. Files that are replaced or removed are there as a whole, old or new; one
//! that got a name which was free may be a begin of itself, until it is synced. In the pool, which is
//! overwritten in place, each sector is old or new.

use std::collections::{BTreeMap, HashMap};

use throughline::Volume;

/// The number of files that are replaced.
pub(crate) const NAMES: u64 = 12;
/// The file that is overwritten.
pub(crate) const POOL: &str = "/pool";
const SECTOR: usize = 512;
const POOL_SECTORS: usize = 512;

pub(crate) fn name(number: u64) -> String {
    format!("/f{number}")
}

/// What the file of that number has after a turn.
pub(crate) fn content(number: u64, turn: u64) -> Vec<u8> {
    let len = 1 + (number * 7919 + turn * 104_729) % 90_000;
    vec![(number * 16 + turn % 16 + 1) as u8; len as usize]
}

/// The bytes of the pool in the base.
pub(crate) fn new_pool() -> Vec<u8> {
    let marks = (0..POOL_SECTORS).map(new_mark);
    marks.flat_map(|mark| [mark; SECTOR]).collect()
}

fn new_mark(sector: usize) -> u8 {
    (100 + sector % 100) as u8
}

/// What a file may be.
struct Allowed {
    /// `None`: there is no such file.
    content: Option<Vec<u8>>,
    /// Also a begin of it.
    is_new: bool,
}

impl Allowed {
    fn fits(&self, found: Option<&[u8]>) -> bool {
        match (&self.content, found) {
            (Some(content), Some(found)) if self.is_new => content.starts_with(found),
            (content, found) => content.as_deref() == found,
        }
    }
}

/// See the head of this file.
pub(crate) struct Model {
    /// What each file may be, the present content last.
    files: BTreeMap<String, Vec<Allowed>>,
    /// Of each sector of the pool: the byte that fills it.
    pool: Vec<u8>,
    /// The bytes that fill sectors which were overwritten since the last sync.
    allowed: HashMap<usize, Vec<u8>>,
}

impl Model {
    /// As in the base.
    pub(crate) fn new() -> Model {
        let of_base = |number| Allowed {
            content: Some(content(number, 0)),
            is_new: false,
        };
        let files = (0..NAMES).map(|number| (name(number), vec![of_base(number)]));
        Model {
            files: files.collect(),
            pool: (0..POOL_SECTORS).map(new_mark).collect(),
            allowed: HashMap::new(),
        }
    }

    pub(crate) fn is_there(&self, name: &str) -> bool {
        let last = self.files[name].last();
        last.is_some_and(|last| last.content.is_some())
    }

    /// Replaces a file, or removes it.
    pub(crate) fn set(&mut self, name: &str, content: Option<Vec<u8>>) {
        let is_new = !self.is_there(name);
        let contents = self.files.get_mut(name).unwrap();
        contents.push(Allowed { content, is_new });
    }

    /// Overwrites a range of the pool. Returns its begin and its bytes.
    pub(crate) fn overwrite(&mut self, turn: u64, numbers: &mut fastrand::Rng) -> (u64, Vec<u8>) {
        let from = numbers.usize(..POOL_SECTORS);
        let end = (from + numbers.usize(1..140)).min(POOL_SECTORS);
        let mark = (1 + turn % 90) as u8;
        for sector in from..end {
            let before = self.pool[sector];
            let marks = self.allowed.entry(sector).or_insert_with(|| vec![before]);
            marks.push(mark);
            self.pool[sector] = mark;
        }
        ((from * SECTOR) as u64, vec![mark; (end - from) * SECTOR])
    }

    /// The file was synced.
    pub(crate) fn synced(&mut self, name: &str) {
        keep_last(self.files.get_mut(name).unwrap());
    }

    pub(crate) fn pool_synced(&mut self) {
        self.allowed.clear();
    }

    pub(crate) fn all_synced(&mut self) {
        self.files.values_mut().for_each(keep_last);
        self.pool_synced();
    }

    /// Compares what a cut left.
    pub(crate) fn check(&self, volume: &Volume, at: &str) {
        for (name, allowed) in &self.files {
            let found = match volume.exists(name).unwrap() {
                true => Some(volume.read(name).unwrap()),
                false => None,
            };
            let len = |it: &Allowed| (it.content.as_ref().map(Vec::len), it.is_new);
            let lens: Vec<_> = allowed.iter().map(len).collect();
            assert!(
                allowed.iter().any(|it| it.fits(found.as_deref())),
                "{at}: {name} has {:?} bytes, allowed are {lens:?}",
                found.map(|it| it.len())
            );
        }
        let pool = volume.read(POOL).unwrap();
        assert_eq!(pool.len(), POOL_SECTORS * SECTOR, "{at}: the pool");
        for (sector, bytes) in pool.chunks(SECTOR).enumerate() {
            let first = bytes[0];
            assert!(
                bytes.iter().all(|byte| *byte == first),
                "{at}: sector {sector} of the pool is mixed"
            );
            let now = [self.pool[sector]];
            let allowed = self.allowed.get(&sector).map_or(&now[..], Vec::as_slice);
            assert!(
                allowed.contains(&first),
                "{at}: sector {sector} of the pool is {first}, allowed are {allowed:?}"
            );
        }
    }
}

/// Only the present content, and as a whole.
fn keep_last(contents: &mut Vec<Allowed>) {
    contents.drain(..contents.len() - 1);
    if let Some(last) = contents.last_mut() {
        last.is_new = false;
    }
}
