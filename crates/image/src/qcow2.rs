//! [`Qcow2`]: a disk in clusters of a file, with tables that say where each is.
//!
//! By QEMU's specification, `docs/interop/qcow2.txt`: a table of the first level (L1) has the places of
//! tables of the second level (L2), whose entries have the places of the clusters of the disk. A table of
//! reference counts has the places of blocks of counts, one for each cluster of the file.
//!
//! What a power cut leaves. Data is written at once, to a cluster that nothing refers to, or in place. Tables
//! are changed in memory. [`Qcow2::flush`] (in `flush.rs`) writes them in this order, each step on the disk
//! before the next begins:
//!
//! 1. data, and the counts of the clusters that are newly used;
//! 2. the table of counts, if it has changed; the header, if that table has moved;
//! 3. L2 tables;
//! 4. the L1 table, if it has changed;
//! 5. what is no longer used is free from now on. Its counts are written with the next flush.
//!
//! Invariants, also at any moment of a cut:
//! - What a table in the file refers to is on the disk, and is counted. So a cut only leaves clusters that
//!   are counted and not used; they are counted anew when the image is opened for writing again.
//! - A cluster is written in place only if one entry refers to it.
//! - A cluster that was freed is not used for anything else before the disk has the table without it.
//!
//! Locks, outermost first: `flushing`, `in_flight`, `placing`, `state`. No data is read or written under
//! `state`, but tables are read. Clusters are in `placing` while places are claimed for them, written and
//! entered.

mod backing;
mod cluster;
mod compressed;
mod counts;
mod create;
mod flush;
mod header;
mod parts;
mod placing;
mod streams;
mod survey;
mod tables;
mod write;

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_locks::{Mutex, Rank, RwLock};

use crate::source::ReadAt;
use crate::store::Store;
use crate::virtual_disk::damaged;
use cluster::{Clusters, Entry, long, size};
use compressed::Decompressor;
use counts::Counts;
use placing::Placing;
use streams::Streams;
use survey::{for_reading, for_writing, numbers, table_bytes};
use tables::Tables;

pub(crate) use backing::{check_backing, set_backing};
pub(crate) use create::create;
pub(crate) use header::{Header, NewBacking};

/// The most clusters that are claimed at once.
const MAX_CLAIM: usize = 1 << 10;
/// The most places that wait for a flush before they are free.
const MAX_UNUSED: usize = 1 << 14;

/// What a disk is laid over. Bytes past its end are zeros.
pub(crate) type Base = Box<dyn ReadAt + Send + Sync>;

/// See the head of this file.
pub(crate) struct Qcow2 {
    file: Box<dyn Store>,
    header: Header,
    clusters: Clusters,
    base: Option<(Base, u64)>,
    decompressor: Decompressor,
    streams: Streams,
    state: Mutex<State>,
    placing: Placing,
    /// Held shared while clusters are read or written in place; alone, for a moment, before others are free.
    in_flight: RwLock<()>,
    flushing: Mutex<()>,
    /// A sync failed: what was written before may be lost, so nothing may refer to it.
    failed: OnceLock<String>,
}

struct State {
    tables: Tables,
    /// `None`: the image is only read.
    counts: Option<Counts>,
    /// Bytes of the file from a place to an end that are free when the disk has the tables of now.
    unused: Vec<(u64, u64)>,
}

/// Bytes of the disk that are at one place.
struct Run {
    entry: Entry,
    /// Where they are, if the entry has a place.
    place: u64,
    len_bytes: u64,
}

/// How an image is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opening {
    /// For reading, without a look at its tables: somebody may be writing.
    Peek,
    /// For reading.
    Read,
    /// For writing.
    Write,
}

impl Qcow2 {
    /// # Errors
    /// [`io::ErrorKind::Unsupported`], [`io::ErrorKind::InvalidData`]; of the device.
    pub(crate) fn open(
        file: Box<dyn Store>,
        header: Header,
        base: Option<Base>,
        opening: Opening,
    ) -> io::Result<Qcow2> {
        header.check(opening == Opening::Write)?;
        let clusters = header.clusters()?;
        let counts = match opening {
            Opening::Peek => None,
            Opening::Read => {
                for_reading(&*file, &header)?;
                None
            }
            Opening::Write => Some(for_writing(&*file, &header)?),
        };
        let l1_bytes = table_bytes(size(header.l1_entries.into()));
        let l1 = numbers(&*file, clusters.aligned(header.l1_offset)?, l1_bytes)?;
        let base = match base {
            Some(base) => {
                let len_bytes = base.len_bytes()?;
                Some((base, len_bytes))
            }
            None => None,
        };
        // Its base, which is read under its locks, was opened before.
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let number = u64::MAX.wrapping_sub(OPENED.fetch_add(1, Ordering::Relaxed));
        let disk = Qcow2 {
            decompressor: Decompressor::new(header.compression(), clusters),
            streams: Streams::default(),
            clusters,
            base,
            state: Mutex::numbered(
                Rank::ImageTables,
                number,
                State {
                    tables: Tables::new(clusters, l1),
                    counts,
                    unused: Vec::new(),
                },
            ),
            placing: Placing::default(),
            in_flight: RwLock::numbered(Rank::ImageIo, number, ()),
            flushing: Mutex::numbered(Rank::ImageFlush, number, ()),
            failed: OnceLock::new(),
            file,
            header,
        };
        if opening == Opening::Write {
            disk.begin_writing()?;
        }
        Ok(disk)
    }

    pub(crate) fn len_bytes(&self) -> u64 {
        self.header.len_bytes
    }

    /// Fills `buffer` from byte `at` on, which must be in the disk.
    ///
    /// # Errors
    /// If the tables are damaged; of the device.
    pub(crate) fn read(&self, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            let _in_flight = self.in_flight.read();
            let run = self.run(at, long(buffer.len()))?;
            let (part, rest) = buffer.split_at_mut(size(run.len_bytes).min(buffer.len()));
            self.read_run(&run, part, at)?;
            buffer = rest;
            at = at.saturating_add(run.len_bytes);
        }
        Ok(())
    }

    fn read_run(&self, run: &Run, buffer: &mut [u8], at: u64) -> io::Result<()> {
        match (run.entry, &self.base) {
            (Entry::Plain(_), _) => read_cut_short(&*self.file, buffer, run.place),
            (Entry::Compressed { place, len_bytes }, _) => {
                let within = self.clusters.within(at);
                let packed = (place, len_bytes);
                self.decompressor.read(&*self.file, packed, within, buffer)
            }
            (Entry::Absent, Some((base, len_bytes))) => {
                let there = len_bytes.saturating_sub(at).min(long(buffer.len()));
                let (there, past) = buffer.split_at_mut(size(there));
                past.fill(0);
                match there.is_empty() {
                    true => Ok(()),
                    false => base.read_exact_at(there, at),
                }
            }
            (Entry::Absent | Entry::Zeros(_), _) => {
                buffer.fill(0);
                Ok(())
            }
        }
    }

    /// The bytes from `at` on that are at one place, at most `most`.
    fn run(&self, at: u64, most: u64) -> io::Result<Run> {
        if self.clusters.has_parts {
            return self.run_of_parts(at, most);
        }
        let mut state = self.state.lock();
        let tables = &mut state.tables;
        let first = self.clusters.number(at);
        let entry = tables.entry(&*self.file, first)?;
        let mut len_bytes = self.clusters.rest(at);
        let place = match entry {
            Entry::Plain(place) | Entry::Zeros(Some(place)) => place,
            Entry::Absent => {
                let absent = tables.absent(first).saturating_sub(1);
                len_bytes = len_bytes.saturating_add(absent.saturating_mul(self.clusters.bytes()));
                0
            }
            Entry::Zeros(None) | Entry::Compressed { .. } => 0,
        };
        while len_bytes < most {
            let number = self.clusters.number(at.saturating_add(len_bytes));
            let follows = match (entry, tables.entry(&*self.file, number)?) {
                (Entry::Plain(_), Entry::Plain(next)) => {
                    let ahead = self.clusters.start(number.saturating_sub(first));
                    next == place.saturating_add(ahead)
                }
                (Entry::Absent, Entry::Absent) | (Entry::Zeros(_), Entry::Zeros(_)) => true,
                _ => false,
            };
            if !follows {
                break;
            }
            let absent = tables
                .absent(number)
                .max(1)
                .saturating_mul(self.clusters.bytes());
            len_bytes = len_bytes.saturating_add(absent);
        }
        Ok(Run {
            entry,
            place: place.saturating_add(self.clusters.within(at)),
            len_bytes: len_bytes.min(most),
        })
    }

    /// The first run of bytes from `at` on that this file has itself, not its base; `None`: there is none.
    ///
    /// # Errors
    /// If the tables are damaged; of the device.
    pub(crate) fn next_own(&self, mut at: u64) -> io::Result<Option<(u64, u64)>> {
        let mut found: Option<(u64, u64)> = None;
        while at < self.header.len_bytes {
            let run = self.run(at, self.header.len_bytes.saturating_sub(at))?;
            let end = at.saturating_add(run.len_bytes);
            found = match (run.entry, found) {
                (Entry::Absent, None) => None,
                (Entry::Absent, Some(_)) => break,
                (_, None) => Some((at, end)),
                (_, Some((from, _))) => Some((from, end)),
            };
            at = end;
        }
        Ok(found)
    }

    /// Writes everything, counts of free clusters as well.
    pub(crate) fn close(&self) -> io::Result<()> {
        // Clusters that the first one frees are counted by the second.
        self.flush()?;
        self.flush()
    }

    fn check_failed(&self) -> io::Result<()> {
        match self.failed.get() {
            None => Ok(()),
            Some(why) => Err(io::Error::other(format!(
                "the image could not be synced before: {why}"
            ))),
        }
    }
}

fn read_only() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}

/// Reads bytes that the file may not have to their end: the rest are zeros.
fn read_cut_short(file: &dyn ReadAt, buffer: &mut [u8], place: u64) -> io::Result<()> {
    match file.read_exact_at(buffer, place) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
        done => return done,
    }
    let there = file.len_bytes()?.saturating_sub(place);
    let (there, past) = buffer.split_at_mut(size(there).min(buffer.len()));
    past.fill(0);
    file.read_exact_at(there, place)
}

fn broken(why: impl std::fmt::Display) -> io::Error {
    damaged(format!(
        "the tables of the qcow2 image are damaged: {why}; 'qemu-img check -r all' may mend it"
    ))
}

impl ReadAt for Qcow2 {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(long(buffer.len()));
        match end.is_some_and(|end| end <= self.len_bytes()) {
            true => self.read(buffer, at),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(Qcow2::len_bytes(self))
    }
}
