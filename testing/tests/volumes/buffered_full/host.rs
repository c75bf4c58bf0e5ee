//! Sparse images on a host that has no room for them: every error says so, nothing stops for good, and when
//! there is room again, or after a kill or a close without room, everything promised is there.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use throughline::{Device, Error, OpenOptions, Reason, Result, Volume, VolumeOptions};
use throughline_testing::Image;
use throughline_testkit::e2fs;

use crate::oracle::image::{Scratch, Shape, shape_of};
use crate::oracle::seeds::{Counts, Deadline, Seeds};

/// What the host allocates at a time, in bytes.
const HOST_BLOCK: usize = 4096;
const STEPS: u32 = 100;
const FILES: u32 = 12;
/// Little enough for every shape.
const MOST_BYTES: usize = 300 << 10;
const SHAPES: [&str; 5] = [
    "ext4 4k",
    "ext4 1k",
    "bigalloc 1k in 4k",
    "ext3 1k",
    "ext2 1k",
];

/// A file of zeros and data on a full file system: a write to a hole takes one of the blocks left.
#[derive(Clone)]
struct SmallHost(Arc<Mutex<Host>>);

struct Host {
    image: Image,
    is_there: Vec<bool>,
    room: u64,
    refused: u32,
}

impl SmallHost {
    fn new(image: Image, room: u64) -> SmallHost {
        let blocks = image.len_bytes() as usize / HOST_BLOCK;
        let mut bytes = [0; HOST_BLOCK];
        let is_there = (0..blocks).map(|block| {
            image.read((block * HOST_BLOCK) as u64, &mut bytes);
            bytes != [0; HOST_BLOCK]
        });
        let is_there = is_there.collect();
        SmallHost(Arc::new(Mutex::new(Host {
            image,
            is_there,
            room,
            refused: 0,
        })))
    }

    fn set_room(&self, blocks: u64) {
        self.0.lock().room = blocks;
    }

    /// What a killed process leaves.
    fn image(&self) -> Image {
        self.0.lock().image.clone()
    }

    fn refused(&self) -> u32 {
        self.0.lock().refused
    }
}

impl Device for SmallHost {
    fn len_bytes(&self) -> u64 {
        self.0.lock().image.len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.lock().image.read(offset, buf);
        Ok(())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut host = self.0.lock();
        let mut at = offset as usize;
        let mut left = buf;
        while !left.is_empty() {
            let block = at / HOST_BLOCK;
            let len = left.len().min((block + 1) * HOST_BLOCK - at);
            if !host.is_there[block] {
                if host.room == 0 {
                    host.refused += 1;
                    return Err(rustix::io::Errno::NOSPC.into());
                }
                host.room -= 1;
                host.is_there[block] = true;
            }
            host.image.write(at as u64, &left[..len]);
            (at, left) = (at + len, &left[len..]);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

fn open(host: &SmallHost) -> Result<Volume> {
    let mut volume = VolumeOptions::new();
    // Also by the journal's thread.
    volume.commit_interval(Duration::from_millis(20));
    let mut options = OpenOptions::new();
    options
        .write(true)
        .cache_bytes(Some(2 << 20))
        .volume(&volume);
    options.open_device(host.clone())
}

/// What happens when the host is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Room,
    Kill,
    Close,
}

/// The files as they are, and as the last sync has promised them; a file of which a change failed is in
/// neither.
#[derive(Default)]
struct Files {
    now: BTreeMap<String, Vec<u8>>,
    promised: BTreeMap<String, Vec<u8>>,
}

impl Files {
    /// One random operation.
    fn step(&mut self, volume: &Volume, random: &mut fastrand::Rng) -> Result<()> {
        let number = random.u32(..FILES);
        let path = format!("/d{}/f{number}", number % 3);
        match random.u32(..10) {
            0 => {
                volume.sync()?;
                self.promised = self.now.clone();
                Ok(())
            }
            1 | 2 if self.now.contains_key(&path) => {
                volume.open_file(&path)?.sync_all()?;
                self.promised.insert(path.clone(), self.now[&path].clone());
                Ok(())
            }
            3 if self.now.contains_key(&path) => {
                self.promised.remove(&path);
                self.now.remove(&path);
                volume.remove_file(&path)
            }
            4 if self.now.contains_key(&path) => {
                self.promised.remove(&path);
                let mut bytes = self.now.remove(&path).expect("it is there");
                bytes.truncate(random.usize(..=bytes.len()));
                volume.open_file(&path)?.set_len(bytes.len() as u64)?;
                self.now.insert(path, bytes);
                Ok(())
            }
            _ => {
                self.promised.remove(&path);
                let mut bytes = self.now.remove(&path).unwrap_or_default();
                let file = match volume.open_file(&path) {
                    Err(Error::Caller(Reason::NotFound)) => volume.create_file(&path)?,
                    other => other?,
                };
                // Of a file whose last change failed, the rest is not known.
                file.set_len(bytes.len() as u64)?;
                let at = random.usize(..=bytes.len());
                let len = random
                    .usize(1..100 << 10)
                    .min(MOST_BYTES.saturating_sub(at));
                let new = vec![random.u8(1..); len];
                file.write_all_at(&new, at as u64)?;
                bytes.resize(bytes.len().max(at + len), 0);
                bytes[at..at + len].copy_from_slice(&new);
                self.now.insert(path, bytes);
                Ok(())
            }
        }
    }
}

fn check(volume: &Volume, files: &BTreeMap<String, Vec<u8>>) -> std::result::Result<(), String> {
    files.iter().try_for_each(|(path, wanted)| {
        let found = volume
            .read(path)
            .map_err(|error| format!("{path}: {error}"))?;
        match found == *wanted {
            true => Ok(()),
            false => Err(format!("{path}: {} bytes, other content", found.len())),
        }
    })
}

fn run(seed: u64, scratch: &Scratch) -> std::result::Result<Counts, String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let name = SHAPES[(seed % SHAPES.len() as u64) as usize];
    // Without a journal, only e2fsck repairs what a crash leaves.
    let then = match (seed / SHAPES.len() as u64 % 3, name) {
        (0, _) | (_, "ext2 1k") => Then::Room,
        (1, _) => Then::Kill,
        _ => Then::Close,
    };
    let what = format!("{name}, {then:?}, seed {seed}");
    let _deadline = Deadline::new(what);
    let shape = Shape {
        mib: 16,
        ..*shape_of(name)
    };
    let image = Image::read_file(&scratch.make(&shape)).map_err(|error| error.to_string())?;
    let host = SmallHost::new(image, 1 << 20);
    let volume = open(&host).map_err(|error| format!("open: {error}"))?;
    for dir in ["/d0", "/d1", "/d2"] {
        let made = volume.create_dir(dir);
        made.map_err(|error| format!("{dir}: {error}"))?;
    }
    volume.sync().map_err(|error| format!("sync: {error}"))?;
    host.set_room(random.u64(..250));
    let mut files = Files::default();
    let mut refused = 0;
    for step in 0..STEPS {
        match files.step(&volume, &mut random) {
            Ok(()) => {}
            Err(error) if error.is_host_full() => refused += 1,
            Err(error) => return Err(format!("{then:?}, step {step}: {error}")),
        }
    }
    let promised = files.promised.clone();
    let mut free = None;
    let left = match then {
        Then::Room => {
            host.set_room(1 << 20);
            volume
                .sync()
                .map_err(|error| format!("with room: {error}"))?;
            check(&volume, &files.now)?;
            for step in 0..STEPS {
                let done = files.step(&volume, &mut random);
                done.map_err(|error| format!("with room, step {step}: {error}"))?;
            }
            let files = files.now;
            check(&volume, &files)?;
            volume.sync().map_err(|error| format!("sync: {error}"))?;
            free = volume.stat_fs().ok().map(|space| space.free_blocks);
            volume.close().map_err(|error| format!("close: {error}"))?;
            files
        }
        Then::Kill => promised,
        Then::Close => match volume.close() {
            Ok(()) => files.now,
            Err(error) if error.is_host_full() => promised,
            Err(error) => return Err(format!("close without room: {error}")),
        },
    };
    let after = SmallHost::new(host.image(), 1 << 20);
    let again = open(&after).map_err(|error| format!("{then:?}: open again: {error}"))?;
    let found = again.stat_fs().ok().map(|space| space.free_blocks);
    if free.is_some() && free != found {
        return Err(format!("{free:?} blocks were free, and {found:?} are"));
    }
    check(&again, &left).map_err(|wrong| format!("{then:?}: {wrong}"))?;
    again
        .close()
        .map_err(|error| format!("close again: {error}"))?;
    let file = std::fs::File::create(scratch.path()).map_err(|error| error.to_string())?;
    (after.image().write_file(&file, None)).map_err(|error| error.to_string())?;
    let checked = e2fs::e2fsck(&scratch.path(), &["-fn"]);
    if checked.code() != 0 {
        return Err(format!("{then:?}: e2fsck -fn: {}", checked.stdout));
    }
    Ok(Counts {
        no_space: refused.min(host.refused()),
        files: left.len(),
        ..Counts::default()
    })
}

#[test]
fn a_full_host_stops_nothing_for_good() {
    let seeds = Seeds {
        usual: 45,
        soak: 3000,
        found: &[],
    };
    if let Some(sum) = seeds.run("a full host", run) {
        assert!(sum.no_space > 200 && sum.files > 50, "{sum:?}");
    }
}
