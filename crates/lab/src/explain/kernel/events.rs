//! The tracepoints that are watched, and what their records say.

use super::devices::Dev;
use super::format::Format;
use super::instance::Raw;
use crate::explain::accountant::Io;

/// What a tracepoint tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    BioQueue,
    BioMerge(&'static str),
    Split,
    RequestMerge,
    Issue,
    Complete,
    Requeue,
    Plug,
    Unplug,
    Dirty,
    Pause,
    Chunk,
    DirectIo,
    Mapping,
    CommitBegins,
    CommitEnds,
    Fork,
    CallBegins,
    CallEnds(&'static str),
    /// A way to do I/O whose bytes are not in the calls.
    OtherCall(&'static str),
}

impl Kind {
    /// Of the command's own calls, and not of the I/O below them.
    pub(super) fn is_of_calls(self) -> bool {
        matches!(
            self,
            Kind::Fork | Kind::CallBegins | Kind::CallEnds(_) | Kind::OtherCall(_)
        )
    }
}

/// The tracepoints, by the path of their folder. What a kernel does not have is left out, and said.
pub(super) const TRACEPOINTS: &[(Kind, &str)] = &[
    (Kind::BioQueue, "block/block_bio_queue"),
    (
        Kind::BioMerge("behind a request"),
        "block/block_bio_backmerge",
    ),
    (
        Kind::BioMerge("before a request"),
        "block/block_bio_frontmerge",
    ),
    (Kind::Split, "block/block_split"),
    (Kind::RequestMerge, "block/block_rq_merge"),
    (Kind::Issue, "block/block_rq_issue"),
    (Kind::Complete, "block/block_rq_complete"),
    (Kind::Requeue, "block/block_rq_requeue"),
    (Kind::Plug, "block/block_plug"),
    (Kind::Unplug, "block/block_unplug"),
    (Kind::Dirty, "writeback/writeback_mark_inode_dirty"),
    (Kind::Pause, "writeback/balance_dirty_pages"),
    (Kind::Chunk, "writeback/writeback_single_inode"),
    (Kind::DirectIo, "iomap/iomap_dio_rw_begin"),
    (Kind::Mapping, "iomap/iomap_iter_dstmap"),
    (Kind::CommitBegins, "jbd2/jbd2_start_commit"),
    (Kind::CommitEnds, "jbd2/jbd2_end_commit"),
    (Kind::Fork, "sched/sched_process_fork"),
    (Kind::CallBegins, "syscalls/sys_enter_read"),
    (Kind::CallBegins, "syscalls/sys_enter_pread64"),
    (Kind::CallBegins, "syscalls/sys_enter_readv"),
    (Kind::CallBegins, "syscalls/sys_enter_preadv"),
    (Kind::CallBegins, "syscalls/sys_enter_preadv2"),
    (Kind::CallBegins, "syscalls/sys_enter_write"),
    (Kind::CallBegins, "syscalls/sys_enter_pwrite64"),
    (Kind::CallBegins, "syscalls/sys_enter_writev"),
    (Kind::CallBegins, "syscalls/sys_enter_pwritev"),
    (Kind::CallBegins, "syscalls/sys_enter_pwritev2"),
    (Kind::CallBegins, "syscalls/sys_enter_copy_file_range"),
    (Kind::CallBegins, "syscalls/sys_enter_sendfile64"),
    (Kind::CallBegins, "syscalls/sys_enter_fsync"),
    (Kind::CallBegins, "syscalls/sys_enter_fdatasync"),
    (Kind::CallBegins, "syscalls/sys_enter_sync_file_range"),
    (Kind::CallBegins, "syscalls/sys_enter_syncfs"),
    (Kind::CallBegins, "syscalls/sys_enter_sync"),
    (Kind::CallEnds("read"), "syscalls/sys_exit_read"),
    (Kind::CallEnds("read"), "syscalls/sys_exit_pread64"),
    (Kind::CallEnds("read"), "syscalls/sys_exit_readv"),
    (Kind::CallEnds("read"), "syscalls/sys_exit_preadv"),
    (Kind::CallEnds("read"), "syscalls/sys_exit_preadv2"),
    (Kind::CallEnds("write"), "syscalls/sys_exit_write"),
    (Kind::CallEnds("write"), "syscalls/sys_exit_pwrite64"),
    (Kind::CallEnds("write"), "syscalls/sys_exit_writev"),
    (Kind::CallEnds("write"), "syscalls/sys_exit_pwritev"),
    (Kind::CallEnds("write"), "syscalls/sys_exit_pwritev2"),
    (Kind::CallEnds("copy"), "syscalls/sys_exit_copy_file_range"),
    (Kind::CallEnds("copy"), "syscalls/sys_exit_sendfile64"),
    (Kind::CallEnds("sync"), "syscalls/sys_exit_fsync"),
    (Kind::CallEnds("sync"), "syscalls/sys_exit_fdatasync"),
    (Kind::CallEnds("sync"), "syscalls/sys_exit_sync_file_range"),
    (Kind::CallEnds("sync"), "syscalls/sys_exit_syncfs"),
    (Kind::CallEnds("sync"), "syscalls/sys_exit_sync"),
    (
        Kind::OtherCall("io_uring"),
        "syscalls/sys_enter_io_uring_enter",
    ),
    (Kind::OtherCall("aio"), "syscalls/sys_enter_io_submit"),
];

/// What a record says.
#[derive(Clone, Copy, Debug)]
pub(super) enum What {
    Bio {
        dev: Dev,
        io: Io,
        kind: &'static str,
        by: Name,
    },
    Merge {
        dev: Dev,
        io: Io,
        how: &'static str,
    },
    Split {
        dev: Dev,
        offset_bytes: u64,
    },
    Issue {
        dev: Dev,
        io: Io,
    },
    Complete {
        dev: Dev,
        io: Io,
        ok: bool,
    },
    Requeue {
        dev: Dev,
        io: Io,
    },
    Plug,
    Unplug,
    /// The thread made something dirty there.
    Dirty {
        dev: Dev,
    },
    Pause {
        dev: Dev,
        ns: u64,
    },
    Chunk {
        dev: Dev,
        bytes: u64,
    },
    DirectIo {
        dev: Dev,
        bytes: u64,
    },
    Mapping {
        dev: Dev,
        bytes: u64,
    },
    CommitBegins {
        dev: Dev,
        tid: u32,
    },
    CommitEnds {
        dev: Dev,
        tid: u32,
    },
    Fork {
        child: i32,
    },
    CallBegins,
    CallEnds {
        op: &'static str,
        bytes: u64,
    },
    OtherCall(&'static str),
}

/// What happened, when, and which thread was at work.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// Of the monotonic clock.
    pub(super) at_ns: u64,
    pub(super) thread: i32,
    pub(super) what: What,
}

/// A thread's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Name([u8; 16]);

impl Name {
    fn new(text: &[u8]) -> Name {
        let mut name = [0; 16];
        let len = text.len().min(name.len());
        name[..len].copy_from_slice(&text[..len]);
        Name(name)
    }

    /// Without what tells one of its kind from the next: `kworker/u8:3` is `kworker`; of a journal's thread the device stays.
    pub(super) fn kind(&self) -> String {
        let text = self.0.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        match text.split_once('/') {
            Some((kind, _)) if kind != "jbd2" => kind.to_owned(),
            _ => text.chars().filter(|c| !c.is_control()).collect(),
        }
    }

    fn is_journal(&self) -> bool {
        self.0.starts_with(b"jbd2/")
    }
}

const SECTOR_BYTES: u64 = 512;
/// Of an inode's flags.
const DIRTY_PAGES: u64 = 1 << 2;

/// What a record says; `None` for one that lacks what it should have, and for what is no news.
pub(super) fn decode(raw: &Raw<'_>) -> Option<Seen> {
    let number = |name| raw.format.number(raw.bytes, name);
    let what = match raw.kind {
        Kind::Dirty | Kind::Pause | Kind::Chunk => of_memory(raw)?,
        Kind::DirectIo | Kind::Mapping | Kind::CommitBegins | Kind::CommitEnds => of_files(raw)?,
        Kind::Fork => What::Fork {
            child: number("child_pid")?.cast_signed() as i32,
        },
        Kind::CallBegins => What::CallBegins,
        Kind::CallEnds(op) => What::CallEnds {
            op,
            bytes: match op {
                "sync" => 0,
                // One that failed moved nothing.
                _ => u64::try_from(number("ret")?.cast_signed()).unwrap_or(0),
            },
        },
        Kind::OtherCall(name) => What::OtherCall(name),
        _ => of_block(raw)?,
    };
    Some(Seen {
        at_ns: raw.at_ns,
        thread: number("common_pid")?.cast_signed() as i32,
        what,
    })
}

fn dev(raw: &Raw<'_>) -> Option<Dev> {
    let number = raw.format.number(raw.bytes, "dev")?;
    Some(Dev(u32::try_from(number).ok()?))
}

/// Of bios and requests.
fn of_block(raw: &Raw<'_>) -> Option<What> {
    let number = |name| raw.format.number(raw.bytes, name);
    Some(match raw.kind {
        Kind::BioQueue => {
            let by = Name::new(raw.format.text(raw.bytes, "comm").unwrap_or_default());
            let rwbs = raw.format.text(raw.bytes, "rwbs")?;
            What::Bio {
                dev: dev(raw)?,
                io: io(raw)?,
                kind: match () {
                    () if by.is_journal() => "journal",
                    () if rwbs.contains(&b'M') => "metadata",
                    () => "data",
                },
                by,
            }
        }
        Kind::BioMerge(how) => What::Merge {
            dev: dev(raw)?,
            io: io(raw)?,
            how,
        },
        Kind::RequestMerge => What::Merge {
            dev: dev(raw)?,
            io: io(raw)?,
            how: "of two requests",
        },
        Kind::Split => What::Split {
            dev: dev(raw)?,
            offset_bytes: number("new_sector")?.saturating_mul(SECTOR_BYTES),
        },
        Kind::Issue => What::Issue {
            dev: dev(raw)?,
            io: io(raw)?,
        },
        Kind::Complete => What::Complete {
            dev: dev(raw)?,
            io: io(raw)?,
            ok: number("error")? == 0,
        },
        Kind::Requeue => What::Requeue {
            dev: dev(raw)?,
            io: io(raw)?,
        },
        Kind::Plug => What::Plug,
        Kind::Unplug => What::Unplug,
        _ => return None,
    })
}

/// Of dirty memory.
fn of_memory(raw: &Raw<'_>) -> Option<What> {
    let number = |name| raw.format.number(raw.bytes, name);
    let named = |field| named_device(raw.format, raw.bytes, field);
    Some(match raw.kind {
        // Contents, that is; of its times, which reading changes too, nobody wants to hear.
        Kind::Dirty if number("flags")? & DIRTY_PAGES == 0 => return None,
        Kind::Dirty => What::Dirty {
            dev: named("name")?,
        },
        Kind::Pause => {
            let ms = u64::try_from(number("pause")?.cast_signed()).ok()?;
            // Without a pause it says that there was no need for one.
            if ms == 0 {
                return None;
            }
            What::Pause {
                dev: named("bdi")?,
                ns: ms.saturating_mul(1_000_000),
            }
        }
        Kind::Chunk => {
            let pages = number("wrote")?;
            if pages == 0 {
                return None;
            }
            let page_bytes = rustix::param::page_size() as u64;
            What::Chunk {
                dev: named("name")?,
                bytes: pages.saturating_mul(page_bytes),
            }
        }
        _ => return None,
    })
}

/// Of file systems.
fn of_files(raw: &Raw<'_>) -> Option<What> {
    let number = |name| raw.format.number(raw.bytes, name);
    let dev = dev(raw)?;
    Some(match raw.kind {
        Kind::DirectIo => What::DirectIo {
            dev,
            bytes: number("count")?,
        },
        Kind::Mapping => What::Mapping {
            dev,
            bytes: number("length")?,
        },
        Kind::CommitBegins => What::CommitBegins {
            dev,
            tid: number("transaction")? as u32,
        },
        Kind::CommitEnds => What::CommitEnds {
            dev,
            tid: number("transaction")? as u32,
        },
        _ => return None,
    })
}

fn io(raw: &Raw<'_>) -> Option<Io> {
    let number = |name| raw.format.number(raw.bytes, name);
    let len_bytes = number("nr_sector")?.saturating_mul(SECTOR_BYTES);
    // That of a flush is all ones.
    let sector = Some(number("sector")?).filter(|_| len_bytes > 0);
    Some(Io {
        op: operation(raw.format.text(raw.bytes, "rwbs")?, len_bytes),
        offset_bytes: sector.unwrap_or(0).saturating_mul(SECTOR_BYTES),
        len_bytes,
    })
}

/// From the kernel's letters: an `F` before the operation is a flush before it.
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

/// `7:0`, as the kernel names what is behind a file system; others, such as `btrfs-1`, are no device of their own.
fn named_device(format: &Format, bytes: &[u8], field: &str) -> Option<Dev> {
    let text = std::str::from_utf8(format.text(bytes, field)?).ok()?;
    let (major, minor) = text.split_once(':')?;
    Dev::new(major.parse().ok()?, minor.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::kernel::format::tests::BIO_QUEUE;

    /// A record of `dd oflag=direct` on an ext3 file system on loop0, as the kernel wrote it.
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
            kind: Kind::BioQueue,
            at_ns: 5,
            format: &format,
            bytes,
        })
    }

    #[test]
    fn a_bio_is_read() {
        let seen = seen(&record()).expect("a bio");
        assert_eq!((seen.at_ns, seen.thread), (5, 4242));
        let What::Bio { dev, io, kind, by } = seen.what else {
            panic!("{seen:?}");
        };
        assert_eq!(
            (dev, kind, by.kind().as_str()),
            (Dev(7 << 20), "data", "dd")
        );
        assert_eq!(
            (io.op, io.offset_bytes, io.len_bytes),
            ("write", 33_000 * 512, 1 << 20)
        );
    }

    #[test]
    fn a_short_record_is_none() {
        let record = record();
        for len in 0..record.len() {
            // Without the end of the name it is still a bio.
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
        assert_eq!(Name::new(b"kworker/u8:3+flush").kind(), "kworker");
        assert_eq!(Name::new(b"jbd2/loop0-8").kind(), "jbd2/loop0-8");
        assert_eq!(Name::new(b"a\x1b[31mb").kind(), "a[31mb");
    }
}
