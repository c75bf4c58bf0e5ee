//! A key-value store in one log. A `put` that has returned survives `kill -9` and power cuts; concurrent puts
//! share commits. `cargo run --example log_store -- DISK.img` puts in eight threads until it is killed.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Mutex;

use throughline::{File, FileOptions, OpenOptions, Result, Volume};

/// A record: a checksum of the rest, the key, the length of the value (8 bytes each); then the value.
const HEAD_BYTES: usize = 24;

pub(crate) struct Store {
    log: File,
    /// For each key, the offset of its newest value in the log, and the value's length.
    index: Mutex<HashMap<u64, (u64, usize)>>,
}

impl Store {
    /// Reads the log up to the first torn record.
    pub(crate) fn open(volume: &Volume) -> Result<Store> {
        let log = FileOptions::new().create(true).open(volume, "/log")?;
        let bytes = volume.read("/log")?;
        let (mut index, mut end) = (HashMap::new(), 0);
        while let Some((key, len)) = record(&bytes[end..]) {
            index.insert(key, ((end + HEAD_BYTES) as u64, len));
            end += HEAD_BYTES + len;
        }
        log.set_len(end as u64)?;
        let index = Mutex::new(index);
        Ok(Store { log, index })
    }

    /// Returns when the value survives a crash. After an error, reopen the store.
    pub(crate) fn put(&self, key: u64, value: &[u8]) -> Result<()> {
        let len = value.len() as u64;
        let rest = [&key.to_le_bytes(), &len.to_le_bytes(), value].concat();
        let at = self.log.append_all(&[&sum(&rest), &rest[..]].concat())?;
        self.log.sync_data()?; // one commit for all waiting threads
        let mut index = self.index.lock().unwrap();
        let newest = index.entry(key).or_default();
        *newest = (*newest).max((at + HEAD_BYTES as u64, value.len()));
        Ok(())
    }

    pub(crate) fn get(&self, key: u64) -> Result<Option<Vec<u8>>> {
        let at = self.index.lock().unwrap().get(&key).copied();
        let Some((at, len)) = at else { return Ok(None) };
        let mut value = vec![0; len];
        self.log.read_exact_at(&mut value, at).map(|()| Some(value))
    }
}

/// The key of the first record in `log` and the length of its value; `None` if the record is torn.
fn record(log: &[u8]) -> Option<(u64, usize)> {
    let word = |at| Some(u64::from_le_bytes(*log.get(at..)?.first_chunk()?));
    let len = usize::try_from(word(16)?).ok()?;
    let rest = log.get(8..HEAD_BYTES.checked_add(len)?)?;
    (sum(rest)[..] == log[..8]).then_some((word(8)?, len))
}

fn sum(bytes: &[u8]) -> [u8; 8] {
    let hasher = BuildHasherDefault::<DefaultHasher>::new(); // a real store would use a CRC
    hasher.hash_one(bytes).to_le_bytes()
}

#[allow(dead_code, reason = "tests do so by themselves")]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os();
    let image = arguments.nth(1).ok_or("usage: log_store DISK.img")?;
    let volume = OpenOptions::new().write(true).open(image)?;
    let store = Store::open(&volume)?;
    println!("{:?} was put before", store.get(0)?);
    let puts = |thread: u64| (0..).try_for_each(|n| store.put(thread << 32 | n, b"value"));
    std::thread::scope(|scope| {
        let threads = [0, 1, 2, 3, 4, 5, 6, 7].map(|n| scope.spawn(move || puts(n)));
        let mut ends = threads.into_iter().map(|thread| thread.join());
        ends.try_for_each(|end| Ok(end.expect("no panic")?))
    })
}
