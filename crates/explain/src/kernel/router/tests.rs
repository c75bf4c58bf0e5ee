//! Sequences of events, and the accounts they result in.

use super::*;
use crate::Counted;

const DEV: Dev = Dev(4095 << 20);
const MIB: u64 = 1 << 20;

fn write(offset_bytes: u64, len_bytes: u64) -> Io {
    Io {
        op: "write",
        offset_bytes,
        len_bytes,
    }
}

/// An event: time, thread, kind, device, I/O and number.
type Told = (u64, i32, Kind, Dev, Io, u64);

fn explained(events: &[Told]) -> Vec<Explained> {
    let mut router = Router::new(1_000, 1, &[]);
    for &(at_ns, thread, kind, dev, io, number) in events {
        router.take(&Seen {
            at_ns,
            thread,
            kind,
            dev: Some(dev),
            io,
            purpose: "data",
            by: String::new(),
            number,
        });
    }
    router.end(101_000);
    router.finish(0, &[])
}

#[test]
fn a_direct_write_is_followed_to_its_end() {
    let io = write(4096, MIB);
    let (dev, other) = (DEV, Dev(4095 << 20 | 1));
    let (first, rest) = (write(4096, 4096), write(8192, MIB - 4096));
    let explained = explained(&[
        (500, 1, Kind::Bio, dev, io, 0), // before the command
        (2_000, 1, Kind::Fork, dev, io, 10),
        (2_100, 10, Kind::Fork, dev, io, 11),
        (3_000, 11, Kind::CallBegins, dev, io, 0),
        (4_000, 11, Kind::Bio, dev, io, 0),
        (4_500, 99, Kind::Bio, other, io, 0), // another process, another device
        (5_000, 11, Kind::Issue, dev, io, 0),
        (6_000, 0, Kind::Complete, dev, first, 0),
        (7_000, 0, Kind::Complete, dev, rest, 0),
        (8_000, 11, Kind::CallEnds("write"), dev, io, MIB),
        (9_000, 99, Kind::CallBegins, dev, io, 0),
        (9_100, 99, Kind::Bio, dev, io, 0), // another process, this device
        (9_200, 0, Kind::Complete, dev, write(0, 4096), 0), // never started
    ]);
    assert_eq!(explained.len(), 1, "one device was touched");
    let account = &explained[0].account;
    assert_eq!(account.series, "4095:0 (kernel)");
    assert_eq!(account.bios["write data"].count, 2);
    assert_eq!(account.submitted_by[THE_COMMAND], 1);
    let once = Counted {
        count: 1,
        bytes: MIB,
    };
    assert_eq!(
        (account.requests["write"], account.asked["write"]),
        (once, once)
    );
    let [submit, device] = [account.first_submit, account.latency["write"]];
    assert_eq!((submit.count, submit.max_us), (1, 1.0));
    assert_eq!((device.count, device.max_us), (1, 2.0));
    assert!(account.notes.is_empty(), "{:?}", account.notes);
}

#[test]
fn data_left_dirty_is_noted() {
    let (dev, io) = (DEV, write(0, 512));
    let explained = explained(&[
        (2_000, 1, Kind::Dirty, dev, io, 0),
        (3_000, 1, Kind::Pause, dev, io, 10_000_000),
        (3_000, 9, Kind::Pause, dev, io, 10_000_000),
        (3_000, 9, Kind::Chunk, dev, io, MIB),
        (4_000, 9, Kind::CommitBegins, dev, io, 5),
        (6_000, 9, Kind::CommitEnds, dev, io, 5),
        (7_000, 9, Kind::Issue, dev, io, 0),
    ]);
    let account = &explained[0].account;
    assert_eq!(account.pauses.count, 1, "the command's alone");
    assert_eq!((account.commits.count, account.commits.max_us), (1, 2.0));
    assert_eq!(account.writeback.bytes, MIB);
    let is_noted = |what: &str| account.notes.iter().any(|note| note.contains(what));
    assert!(is_noted("sync") && is_noted("still in flight"));
}

#[test]
fn hostile_numbers_are_bounded() {
    let mut events = Vec::new();
    for number in 0..200u32 {
        let dev = Dev(4095 << 20 | number);
        let io = write(u64::MAX, u64::MAX);
        events.push((2_000, 1, Kind::Bio, dev, io, 0));
        events.push((2_000, 1, Kind::Issue, dev, io, 0));
        events.push((2_000, 1, Kind::Complete, dev, write(u64::MAX, 1), 0));
    }
    let explained = explained(&events);
    assert_eq!(explained.len(), MAX_DEVICES);
    let mut notes = explained[0].account.notes.iter();
    assert!(notes.any(|note| note.contains("--device")));
}
