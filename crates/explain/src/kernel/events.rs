//! The tracepoints in use, and how their records are decoded.

use super::devices::Dev;
use super::format::Format;
use super::instance::Raw;
use crate::accountant::{Io, NO_IO};

/// What a tracepoint reports, and what its number ([`Seen::number`]) means. The number is 0 if none is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A bio was submitted to the device.
    Bio,
    /// A bio or request was merged into another, in this way.
    Merge(&'static str),
    /// A bio was split. The number is the first byte after the split.
    Split,
    Issue,
    /// A request completed. The number is its error, 0 for none.
    Complete,
    Requeue,
    /// The thread dirtied pages of a file.
    Dirty,
    /// A writer paused. The number is the duration in nanoseconds.
    Pause,
    /// The kernel wrote back a chunk of a file. The number is its length in bytes.
    Chunk,
    /// Direct I/O. The number is its bytes.
    DirectIo,
    /// A commit. The number is that of the transaction.
    CommitBegins,
    CommitEnds,
    /// A thread was created. The number is its ID.
    Fork,
    CallBegins,
    /// A system call that reads, writes, copies or syncs ended. The number is the bytes moved.
    CallEnds(&'static str),
    /// I/O by an interface whose system calls do not return byte counts.
    OtherCall(&'static str),
}

impl Kind {
    /// Whether it is an event of the command's own calls, not of the I/O below them.
    pub(super) fn is_of_calls(self) -> bool {
        matches!(
            self,
            Kind::Fork | Kind::CallBegins | Kind::CallEnds(_) | Kind::OtherCall(_)
        )
    }

    /// Whether its record describes one bio or request.
    fn has_io(self) -> bool {
        use Kind::{Bio, Complete, Issue, Merge, Requeue};
        matches!(self, Bio | Merge(_) | Issue | Complete | Requeue)
    }
}

/// A tracepoint. Those missing from the running kernel are left out, with a note.
#[derive(Clone, Debug)]
pub(super) struct Tracepoint {
    pub(super) kind: Kind,
    /// Its directory.
    pub(super) path: String,
    /// The field with the device's number or name; empty if there is none.
    device: &'static str,
    /// The field with the number; empty if there is none.
    number: &'static str,
}

macro_rules! points {
    ($($kind:ident $(($of:literal))?, $path:literal, $device:literal, $number:literal;)*) => {
        &[$((Kind::$kind $(($of))?, $path, $device, $number)),*]
    };
}

const POINTS: &[(Kind, &str, &str, &str)] = points! {
    Bio,                       "block/block_bio_queue",               "dev",  "";
    Merge("back merge"),       "block/block_bio_backmerge",           "dev",  "";
    Merge("front merge"),      "block/block_bio_frontmerge",          "dev",  "";
    Split,                     "block/block_split",                   "dev",  "new_sector";
    Merge("request merge"),    "block/block_rq_merge",                "dev",  "";
    Issue,                     "block/block_rq_issue",                "dev",  "";
    Complete,                  "block/block_rq_complete",             "dev",  "error";
    Requeue,                   "block/block_rq_requeue",              "dev",  "";
    Dirty,                     "writeback/writeback_mark_inode_dirty", "name", "flags";
    Pause,                     "writeback/balance_dirty_pages",       "bdi",  "pause";
    Chunk,                     "writeback/writeback_single_inode",    "name", "wrote";
    DirectIo,                  "iomap/iomap_dio_rw_begin",            "dev",  "count";
    CommitBegins,              "jbd2/jbd2_start_commit",              "dev",  "transaction";
    CommitEnds,                "jbd2/jbd2_end_commit",                "dev",  "transaction";
    Fork,                      "sched/sched_process_fork",            "",     "child_pid";
    OtherCall("io_uring"),     "syscalls/sys_enter_io_uring_enter",   "",     "";
    OtherCall("aio"),          "syscalls/sys_enter_io_submit",        "",     "";
};

/// System calls that do I/O, by what they do; each has a tracepoint at its start and one at its end.
const CALLS: [(&str, &str); 4] = [
    ("read", "read pread64 readv preadv preadv2"),
    ("write", "write pwrite64 writev pwritev pwritev2"),
    ("copy", "copy_file_range sendfile64"),
    ("sync", "fsync fdatasync sync_file_range syncfs sync"),
];

/// All tracepoints.
pub(super) fn tracepoints() -> Vec<Tracepoint> {
    let point = |kind, path: String, device, number| Tracepoint {
        kind,
        path,
        device,
        number,
    };
    let points = POINTS.iter();
    let mut all: Vec<_> = points
        .map(|&(kind, path, device, number)| point(kind, path.to_owned(), device, number))
        .collect();
    for (op, calls) in CALLS {
        let moved = if op == "sync" { "" } else { "ret" };
        for call in calls.split_whitespace() {
            let path = |end: &str| format!("syscalls/sys_{end}_{call}");
            all.push(point(Kind::CallBegins, path("enter"), "", ""));
            all.push(point(Kind::CallEnds(op), path("exit"), "", moved));
        }
    }
    all
}

/// What happened, when, and on which thread.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// The time by the monotonic clock.
    pub(super) at_ns: u64,
    pub(super) thread: i32,
    pub(super) kind: Kind,
    /// The device, for events that have one.
    pub(super) dev: Option<Dev>,
    /// The bio or request, if the event is about one.
    pub(super) io: Io,
    /// The content of a bio.
    pub(super) purpose: &'static str,
    /// The kind of thread: see [`kind_of_thread`].
    pub(super) by: String,
    /// See [`Kind`].
    pub(super) number: u64,
}

/// A thread's name without the part that distinguishes threads of one kind: `kworker/u8:3` gives `kworker`. A
/// journal thread's name keeps the device.
fn kind_of_thread(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    match text.split_once('/') {
        Some((kind, _)) if kind != "jbd2" => kind.to_owned(),
        _ => text.chars().filter(|c| !c.is_control()).collect(),
    }
}

const SECTOR_BYTES: u64 = 512;
/// A flag of an inode's state.
const DIRTY_PAGES: u64 = 1 << 2;

/// Decodes a record; `None` if fields are missing or the event is irrelevant.
pub(super) fn decode(raw: &Raw<'_>) -> Option<Seen> {
    let (format, bytes, point) = (raw.format, raw.bytes, raw.point);
    let number = |name| format.number(bytes, name);
    let kind = point.kind;
    let dev = match point.device {
        "" => None,
        "dev" => Some(Dev(u32::try_from(number("dev")?).ok()?)),
        field => Some(named_device(format, bytes, field)?),
    };
    let value = match point.number {
        "" => 0,
        field => number(field)?,
    };
    // A negative value means that no bytes were moved and no writer paused.
    let not_below_0 = u64::try_from(value.cast_signed()).unwrap_or(0);
    let value = match kind {
        // Ignore changes of an inode's times, which reads cause too, and empty pauses and chunks.
        Kind::Dirty if value & DIRTY_PAGES == 0 => return None,
        Kind::Pause | Kind::Chunk if not_below_0 == 0 => return None,
        Kind::Pause => not_below_0.saturating_mul(1_000_000),
        Kind::Chunk => not_below_0.saturating_mul(rustix::param::page_size() as u64),
        Kind::Split => value.saturating_mul(SECTOR_BYTES),
        Kind::CallEnds(_) => not_below_0,
        _ => value,
    };
    let text = |name| format.text(bytes, name);
    let by = text("comm").unwrap_or_default();
    let is_metadata = text("rwbs").is_some_and(|rwbs| rwbs.contains(&b'M'));
    Some(Seen {
        at_ns: raw.at_ns,
        thread: number("common_pid")?.cast_signed() as i32,
        kind,
        dev,
        io: if kind.has_io() { io(raw)? } else { NO_IO },
        purpose: match is_metadata {
            _ if by.starts_with(b"jbd2/") => "journal",
            true => "metadata",
            false => "data",
        },
        by: kind_of_thread(by),
        number: value,
    })
}

fn io(raw: &Raw<'_>) -> Option<Io> {
    let number = |name| raw.format.number(raw.bytes, name);
    let len_bytes = number("nr_sector")?.saturating_mul(SECTOR_BYTES);
    // The sector of a flush is all ones.
    let sector = Some(number("sector")?).filter(|_| len_bytes > 0);
    Some(Io {
        op: operation(raw.format.text(raw.bytes, "rwbs")?, len_bytes),
        offset_bytes: sector.unwrap_or(0).saturating_mul(SECTOR_BYTES),
        len_bytes,
    })
}

/// The operation, from the kernel's letters. A leading `F` means a flush before it.
fn operation(rwbs: &[u8], len_bytes: u64) -> &'static str {
    let rest = match rwbs {
        [b'F', rest @ ..] if !rest.is_empty() => rest,
        all => all,
    };
    match rest.first() {
        Some(b'F') => "flush",
        Some(b'W') if len_bytes == 0 => "flush",
        Some(b'W') => "write",
        Some(b'R') => "read",
        Some(b'D') => "discard",
        Some(b'Z') => "zone",
        _ => "other",
    }
}

/// Parses `7:0`, as the kernel names the device behind a file system. Other names, such as `btrfs-1`, are not
/// devices.
fn named_device(format: &Format, bytes: &[u8], field: &str) -> Option<Dev> {
    let text = std::str::from_utf8(format.text(bytes, field)?).ok()?;
    let (major, minor) = text.split_once(':')?;
    Dev::new(major.parse().ok()?, minor.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::format::tests::BIO_QUEUE;

    /// A record of `dd oflag=direct` on an ext3 file system on loop0, as written by the kernel.
    fn record() -> Vec<u8> {
        let mut record = Vec::new();
        record.extend(2097u16.to_ne_bytes());
        record.extend([0, 0]);
        record.extend(4242i32.to_ne_bytes());
        record.extend((7u32 << 20).to_ne_bytes());
        record.extend([0; 4]);
        record.extend(33_000u64.to_ne_bytes());
        record.extend(2048u32.to_ne_bytes());
        record.extend(b"WS\0\0\0\0\0\0\0\0");
        record.extend(b"dd\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        record
    }

    fn seen(bytes: &[u8]) -> Option<Seen> {
        let format = Format::parse(BIO_QUEUE).expect("a format");
        decode(&Raw {
            point: &tracepoints()[0],
            at_ns: 5,
            format: &format,
            bytes,
        })
    }

    #[test]
    fn a_bio_is_read() {
        let seen = seen(&record()).expect("a bio");
        assert_eq!((seen.at_ns, seen.thread), (5, 4242));
        assert_eq!(
            (seen.dev, seen.purpose, seen.by.as_str()),
            (Some(Dev(7 << 20)), "data", "dd")
        );
        assert_eq!(
            (seen.io.op, seen.io.offset_bytes, seen.io.len_bytes),
            ("write", 33_000 * 512, 1 << 20)
        );
    }

    #[test]
    fn a_short_record_is_none() {
        let record = record();
        for len in 0..record.len() {
            // If only the end of the name is missing, it is still a bio.
            assert!(seen(&record[..len]).is_none() || len >= 38, "{len}");
        }
    }

    #[test]
    fn letters_are_operations() {
        assert_eq!(operation(b"WS", 512), "write");
        assert_eq!(operation(b"FWFSM", 4096), "write");
        assert_eq!(operation(b"FWS", 0), "flush");
        assert_eq!(operation(b"FF", 0), "flush");
        assert_eq!(operation(b"F", 0), "flush");
        assert_eq!(operation(b"RA", 4096), "read");
        assert_eq!(operation(b"DE", 4096), "discard");
        assert_eq!(operation(b"", 1), "other");
    }

    #[test]
    fn threads_are_named_by_their_kind() {
        assert_eq!(kind_of_thread(b"kworker/u8:3+flush"), "kworker");
        assert_eq!(kind_of_thread(b"jbd2/loop0-8"), "jbd2/loop0-8");
        assert_eq!(kind_of_thread(b"a\x1b[31mb"), "a[31mb");
    }
}
