//! Events as they come, and the accounts that they become.

use super::*;

const DEV: Dev = Dev(4095 << 20);
const MIB: u64 = 1 << 20;

fn write(offset_bytes: u64, len_bytes: u64) -> Io {
    Io {
        op: "write",
        offset_bytes,
        len_bytes,
    }
}

fn explained(events: &[(u64, i32, What)]) -> Vec<Explained> {
    let mut router = Router::new(1_000, 1, &[]);
    for &(at_ns, thread, what) in events {
        router.take(&Seen {
            at_ns,
            thread,
            what,
        });
    }
    router.end(101_000);
    router.finish(0, &[])
}

fn completed(dev: Dev, io: Io) -> What {
    What::Complete { dev, io, ok: true }
}

fn bio(dev: Dev, io: Io) -> What {
    What::Bio {
        dev,
        io,
        kind: "data",
        by: Name::default(),
    }
}

#[test]
fn a_direct_write_is_followed_to_its_end() {
    let io = write(4096, MIB);
    let (dev, other) = (DEV, Dev(4095 << 20 | 1));
    let explained = explained(&[
        (500, 1, bio(dev, io)), // before the command
        (2_000, 1, What::Fork { child: 10 }),
        (2_100, 10, What::Fork { child: 11 }),
        (3_000, 11, What::CallBegins),
        (4_000, 11, bio(dev, io)),
        (4_500, 99, bio(other, io)), // somebody else, elsewhere
        (5_000, 11, What::Issue { dev, io }),
        (6_000, 0, completed(dev, write(4096, 4096))),
        (7_000, 0, completed(dev, write(8192, MIB - 4096))),
        (
            8_000,
            11,
            What::CallEnds {
                op: "write",
                bytes: MIB,
            },
        ),
        (9_000, 99, What::CallBegins),
        (9_100, 99, bio(dev, io)),                  // somebody else, here
        (9_200, 0, completed(dev, write(0, 4096))), // never begun
    ]);
    assert_eq!(explained.len(), 1, "one device was touched");
    let account = &explained[0].account;
    assert_eq!(account.series, "4095:0 (kernel)");
    assert_eq!(account.bios["write data"].count, 2);
    assert_eq!(account.submitted_by[THE_COMMAND], 1);
    assert_eq!(
        (account.first_submit.count, account.first_submit.max_us),
        (1, 1.0)
    );
    assert_eq!(
        (
            account.requests["write"].count,
            account.requests["write"].bytes
        ),
        (1, MIB)
    );
    assert_eq!(
        (
            account.latency["write"].count,
            account.latency["write"].max_us
        ),
        (1, 2.0)
    );
    assert_eq!(
        (account.asked["write"].count, account.asked["write"].bytes),
        (1, MIB)
    );
    assert!(account.notes.is_empty(), "{:?}", account.notes);
}

#[test]
fn what_is_only_dirty_is_said() {
    let dev = DEV;
    let explained = explained(&[
        (2_000, 1, What::Dirty { dev }),
        (
            3_000,
            1,
            What::Pause {
                dev,
                ns: 10_000_000,
            },
        ),
        (
            3_000,
            9,
            What::Pause {
                dev,
                ns: 10_000_000,
            },
        ),
        (3_000, 9, What::Chunk { dev, bytes: MIB }),
        (4_000, 9, What::CommitBegins { dev, tid: 5 }),
        (6_000, 9, What::CommitEnds { dev, tid: 5 }),
        (
            7_000,
            9,
            What::Issue {
                dev,
                io: write(0, 512),
            },
        ),
    ]);
    let account = &explained[0].account;
    assert_eq!(account.pauses.count, 1, "the command's alone");
    assert_eq!((account.commits.count, account.commits.max_us), (1, 2.0));
    assert_eq!(account.writeback.bytes, MIB);
    assert!(account.notes.iter().any(|note| note.contains("sync")));
    assert!(
        account
            .notes
            .iter()
            .any(|note| note.contains("still on the device"))
    );
}

#[test]
fn hostile_numbers_are_bounded() {
    let mut events = Vec::new();
    for number in 0..200u32 {
        let dev = Dev(4095 << 20 | number);
        events.push((2_000, 1, bio(dev, write(u64::MAX, u64::MAX))));
        events.push((
            2_000,
            1,
            What::Issue {
                dev,
                io: write(u64::MAX, u64::MAX),
            },
        ));
        events.push((
            2_000,
            1,
            What::Complete {
                dev,
                io: write(u64::MAX, 1),
                ok: true,
            },
        ));
    }
    let explained = explained(&events);
    assert_eq!(explained.len(), MAX_DEVICES);
    assert!(
        explained[0]
            .account
            .notes
            .iter()
            .any(|note| note.contains("--device"))
    );
}
