//! How an open volume does: [`VolumeStatus`].

use serde::Serialize;
use throughline_device::Op;
use throughline_fileio::throttle::Pauses;

use crate::volume::Volume;

/// An open volume at one moment: what it has done since it was opened, and what it has under way. For rates, two of them are
/// compared.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct VolumeStatus {
    /// The device below: a path, or a word.
    pub device: String,
    /// The label, as text.
    pub label: String,
    /// Nothing can be changed.
    pub read_only: bool,
    /// It was taken down.
    pub down: bool,
    /// Why it takes no more changes, if that is so.
    pub stopped: Option<String>,
    /// Why the write-back of some file fails at present, if it does.
    pub failing: Option<String>,
    /// Damaged places that were met since the volume was opened, 4096 at the most; the log has their inodes and blocks.
    pub damaged_places: usize,
    /// The device's I/Os.
    pub io: IoStatus,
    /// The page cache.
    pub cache: CacheStatus,
    /// Dirty memory.
    pub dirty: DirtyStatus,
    /// What the flusher has done.
    pub writeback: WritebackStatus,
    /// The journal.
    pub journal: JournalStatus,
    /// The cache of metadata.
    pub metadata: MetadataStatus,
}

/// I/Os of the device. Bios are its requests.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct IoStatus {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes of the device's cache.
    pub flushes: u64,
    /// Bytes discarded.
    pub discard_bytes: u64,
    /// Bios that are on their way.
    pub in_flight: u64,
    /// Bytes that are being read ahead.
    pub readahead_bytes: u64,
}

/// The page cache and its readers.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct CacheStatus {
    /// Memory that it may take, in bytes.
    pub budget_bytes: u64,
    /// Memory that holds bytes of files.
    pub cached_bytes: u64,
    /// Read calls that found everything.
    pub hits: u64,
    /// Bytes that readers found.
    pub hit_bytes: u64,
    /// Read calls that had something to bring.
    pub misses: u64,
    /// Bytes that readers had to bring themselves.
    pub miss_bytes: u64,
}

/// Dirty memory and what it costs writers. Times in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct DirtyStatus {
    /// Dirty bytes, those under write-back among them.
    pub bytes: u64,
    /// From here on the flusher writes without being asked.
    pub background_bytes: u64,
    /// Never more than this.
    pub limit_bytes: u64,
    /// Writers that wait for room.
    pub waiting: usize,
    /// What the device takes, in bytes a second; `None` until it was measured.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Pauses of writers.
    pub pauses: u64,
    /// All of them together.
    pub pauses_ms: f64,
    /// The longest.
    pub longest_pause_ms: f64,
    /// Waits for room at the limit.
    pub waits: u64,
    /// All of them together.
    pub waits_ms: f64,
    /// After this file data is written without another reason.
    pub age_ms: f64,
}

/// What the flusher has done.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct WritebackStatus {
    /// Runs of adjacent blocks.
    pub runs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Runs that failed: their blocks are dirty again.
    pub errors: u64,
    /// Times that a file was tried again.
    pub retries: u64,
}

/// The journal, or what stands in for one. Times in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct JournalStatus {
    /// Whether it is on the disk.
    pub has_log: bool,
    /// The running transaction.
    pub running: u32,
    /// How long that has had changes; `None` where it has none.
    pub running_age_ms: Option<f64>,
    /// The newest durable transaction.
    pub committed: u32,
    /// A change is committed after this at the latest.
    pub commit_interval_ms: f64,
    /// Commits.
    pub commits: u64,
    /// Calls that waited for one, or made it.
    pub waits: u64,
    /// Times that the log was written home.
    pub checkpoints: u64,
    /// Bytes of the log; 0 where there is none.
    pub log_bytes: u64,
    /// Those of them that are in use.
    pub log_used_bytes: u64,
    /// Bytes that are not home yet.
    pub pending_bytes: u64,
}

/// Metadata in memory.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct MetadataStatus {
    /// Blocks, in bytes.
    pub resident_bytes: u64,
    /// Those of them that are not home yet, in all versions that are kept, in bytes.
    pub dirty_bytes: u64,
    /// Inodes.
    pub inodes: usize,
}

fn ms(time: std::time::Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl VolumeStatus {
    pub(crate) fn of(volume: &Volume) -> VolumeStatus {
        let (fs, cache) = (volume.fs(), volume.cache());
        VolumeStatus {
            device: fs.disk().info().name.clone(),
            label: String::from_utf8_lossy(&fs.label()).into_owned(),
            read_only: volume.is_read_only(),
            down: fs.is_down(),
            stopped: fs.stopped().map(|why| why.to_string()),
            failing: cache.writeback().failing().map(|why| why.to_string()),
            damaged_places: fs.damaged_places(),
            io: io(volume),
            cache: {
                let reads = cache.read_counts();
                CacheStatus {
                    budget_bytes: cache.budget_bytes(),
                    cached_bytes: cache.used_bytes(),
                    hits: reads.hits,
                    hit_bytes: reads.hit_bytes,
                    misses: reads.misses,
                    miss_bytes: reads.miss_bytes,
                }
            },
            dirty: dirty(volume),
            writeback: {
                let counts = cache.writeback().counts();
                WritebackStatus {
                    runs: counts.runs,
                    bytes: counts.bytes,
                    errors: counts.errors,
                    retries: counts.retries,
                }
            },
            journal: journal(volume),
            metadata: {
                let status = fs.journal_status();
                MetadataStatus {
                    resident_bytes: status.resident_bytes,
                    dirty_bytes: status.dirty_bytes,
                    inodes: fs.resident_inodes(),
                }
            },
        }
    }
}

fn io(volume: &Volume) -> IoStatus {
    let counters = volume.disk().counters();
    IoStatus {
        reads: counters.bios(Op::Read),
        read_bytes: counters.bytes(Op::Read),
        writes: counters.bios(Op::Write),
        write_bytes: counters.bytes(Op::Write),
        flushes: counters.bios(Op::Flush),
        discard_bytes: counters.bytes(Op::Discard),
        in_flight: volume.disk().in_flight(),
        readahead_bytes: volume.cache().readahead().counts().in_flight_bytes,
    }
}

fn dirty(volume: &Volume) -> DirtyStatus {
    let state = volume.cache().throttle().state();
    let sum = |pauses: &Pauses| (pauses.count, ms(pauses.total));
    let ((pauses, pauses_ms), (waits, waits_ms)) = (sum(&state.pauses), sum(&state.waits));
    DirtyStatus {
        bytes: state.dirty_bytes,
        background_bytes: state.background_bytes,
        limit_bytes: state.limit_bytes,
        waiting: state.waiting,
        bandwidth_bytes_per_s: state.bandwidth_bytes_per_s,
        pauses,
        pauses_ms,
        longest_pause_ms: ms(state.pauses.longest),
        waits,
        waits_ms,
        age_ms: ms(volume.cache().writeback().age()),
    }
}

fn journal(volume: &Volume) -> JournalStatus {
    let fs = volume.fs();
    let (status, counts) = (fs.journal_status(), fs.journal_counts());
    let block_bytes = u64::from(fs.geometry().block_bytes);
    let bytes = |blocks: u64| blocks.saturating_mul(block_bytes);
    JournalStatus {
        has_log: status.log.is_some(),
        running: status.running.0,
        running_age_ms: status.running_age.map(ms),
        committed: status.committed.0,
        commit_interval_ms: ms(fs.commit_interval()),
        commits: counts.commits,
        waits: counts.waits,
        checkpoints: counts.checkpoints,
        log_bytes: status.log.map_or(0, |log| bytes(log.blocks.into())),
        log_used_bytes: status.log.map_or(0, |log| bytes(log.used_blocks.into())),
        pending_bytes: status.log.map_or(0, |log| bytes(log.pending_blocks)),
    }
}
