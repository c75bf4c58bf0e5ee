//! [`VolumeStatus`]: counters and state of an open volume.

use serde::Serialize;
use throughline_device::Op;
use throughline_fileio::throttle::Pauses;

use crate::volume::Volume;

/// A snapshot of an open volume: totals since it was opened, and work in progress. To get rates, subtract two
/// snapshots.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct VolumeStatus {
    /// The device below: a path, or a description.
    pub device: String,
    /// The label, as text.
    pub label: String,
    /// Whether the volume is read-only.
    pub read_only: bool,
    /// Whether [`Volume::take_down`] was called.
    pub down: bool,
    /// Why it refuses further changes; `None` while it accepts them.
    pub stopped: Option<String>,
    /// The error with which write-back currently fails; `None` if it does not.
    pub failing: Option<String>,
    /// Damaged places found since the volume was opened, at most 4096; the log has their inodes and blocks.
    pub damaged_places: usize,
    /// The device's I/Os.
    pub io: IoStatus,
    /// The page cache.
    pub cache: CacheStatus,
    /// Dirty memory.
    pub dirty: DirtyStatus,
    /// The flusher's totals.
    pub writeback: WritebackStatus,
    /// The journal.
    pub journal: JournalStatus,
    /// The metadata cache.
    pub metadata: MetadataStatus,
}

/// I/O of the device. A bio is one request to it.
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
    /// Bios in flight.
    pub in_flight: u64,
    /// Readahead bytes in flight.
    pub readahead_bytes: u64,
}

/// The page cache and its reads.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct CacheStatus {
    /// Memory that the cache may use, in bytes.
    pub budget_bytes: u64,
    /// Memory that holds file data, in bytes.
    pub cached_bytes: u64,
    /// Read calls served from the cache alone.
    pub hits: u64,
    /// Bytes that reads found in the cache.
    pub hit_bytes: u64,
    /// Read calls that had to read from the device.
    pub misses: u64,
    /// Bytes that readers had to read from the device.
    pub miss_bytes: u64,
}

/// Dirty memory and the throttling of writers. Times in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct DirtyStatus {
    /// Dirty bytes, including those under write-back.
    pub bytes: u64,
    /// Threshold of background write-back.
    pub background_bytes: u64,
    /// Upper limit of dirty bytes.
    pub limit_bytes: u64,
    /// Writers waiting for room.
    pub waiting: usize,
    /// Measured write bandwidth of the device, in bytes per second; `None` before the first measurement.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Number of pauses of writers.
    pub pauses: u64,
    /// Their total time.
    pub pauses_ms: f64,
    /// The longest pause.
    pub longest_pause_ms: f64,
    /// Number of waits for room at the limit.
    pub waits: u64,
    /// Their total time.
    pub waits_ms: f64,
    /// Age at which dirty file data is written back.
    pub age_ms: f64,
}

/// The flusher's totals.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct WritebackStatus {
    /// Runs of adjacent blocks written back.
    pub runs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Failed runs; their blocks are dirty again.
    pub errors: u64,
    /// Retries of files.
    pub retries: u64,
}

/// The journal, or its in-memory substitute. Times in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct JournalStatus {
    /// Whether the volume has a journal on disk.
    pub has_log: bool,
    /// The running transaction.
    pub running: u32,
    /// Age of the oldest change in the running transaction; `None` if it has none.
    pub running_age_ms: Option<f64>,
    /// The newest durable transaction.
    pub committed: u32,
    /// The last commit or checkpoint found no room below the volume; it is tried again.
    pub full: bool,
    /// The longest time until a change is committed.
    pub commit_interval_ms: f64,
    /// Commits.
    pub commits: u64,
    /// Calls that waited for a commit or performed one.
    pub waits: u64,
    /// Checkpoints: the log's changes written in place.
    pub checkpoints: u64,
    /// Size of the log in bytes; 0 if there is none.
    pub log_bytes: u64,
    /// Bytes of the log in use.
    pub log_used_bytes: u64,
    /// Bytes not yet checkpointed.
    pub pending_bytes: u64,
}

/// Metadata in memory.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct MetadataStatus {
    /// Bytes of cached blocks.
    pub resident_bytes: u64,
    /// Bytes of blocks not yet written in place, counting every version that is kept.
    pub dirty_bytes: u64,
    /// Number of cached inodes.
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
        full: status.full,
        commit_interval_ms: ms(fs.commit_interval()),
        commits: counts.commits,
        waits: counts.waits,
        checkpoints: counts.checkpoints,
        log_bytes: status.log.map_or(0, |log| bytes(log.blocks.into())),
        log_used_bytes: status.log.map_or(0, |log| bytes(log.used_blocks.into())),
        pending_bytes: status.log.map_or(0, |log| bytes(log.pending_blocks)),
    }
}
