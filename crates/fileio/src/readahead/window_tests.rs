//! Access patterns against a cache modelled as a set of blocks: the windows they produce, and their cost.

use std::collections::BTreeSet;

use super::*;

const BLOCK: u64 = 4096;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn rules() -> Rules {
    Rules {
        block_bytes: BLOCK,
        max_bytes: 4 * MIB,
        own_bytes: 128 * KIB,
        size_bytes: 1 << 30,
    }
}

/// A file whose blocks are cached once read; every range read from the device is one access.
struct Sim {
    windows: Windows,
    rules: Rules,
    cached: BTreeSet<u64>,
    marks: BTreeSet<u64>,
    /// Read by the readers themselves.
    own: Vec<Range<u64>>,
    /// Read in the background.
    ahead: Vec<Range<u64>>,
    /// Bytes read from the device.
    bytes: u64,
}

impl Sim {
    fn new(rules: Rules) -> Sim {
        Sim {
            windows: Windows::default(),
            rules,
            cached: BTreeSet::new(),
            marks: BTreeSet::new(),
            own: Vec::new(),
            ahead: Vec::new(),
            bytes: 0,
        }
    }

    fn fill(&mut self, range: Range<u64>) {
        for block in (range.start / BLOCK)..(range.end / BLOCK) {
            self.bytes += BLOCK * u64::from(self.cached.insert(block * BLOCK));
        }
    }

    fn send(&mut self, range: Range<u64>) {
        assert!(range.end <= self.rules.size_bytes.next_multiple_of(BLOCK));
        if !range.is_empty() {
            self.fill(range.clone());
            self.marks.insert(range.start);
            self.ahead.push(range);
        }
    }

    fn read(&mut self, offset: u64, len: u64) {
        let end = (offset + len).min(self.rules.size_bytes);
        let mut at = offset - offset % BLOCK;
        while at < end {
            if self.marks.remove(&at) {
                let range = self.windows.marked(at, &self.rules);
                self.send(range);
            }
            if !self.cached.contains(&at) {
                let plan = self.windows.missed(offset..offset + len, at, &self.rules);
                assert!(plan.own.start == at && plan.own.end > at);
                assert!(plan.own.end == plan.ahead.start && plan.ahead.start <= plan.ahead.end);
                assert!(plan.own.end <= self.rules.size_bytes.next_multiple_of(BLOCK));
                self.fill(plan.own.clone());
                self.own.push(plan.own);
                self.send(plan.ahead);
            }
            at += BLOCK;
        }
    }

    fn ranges(&self) -> usize {
        self.own.len() + self.ahead.len()
    }
}

fn kib(ranges: &[Range<u64>]) -> Vec<Range<u64>> {
    let scaled = ranges.iter().map(|r| r.start / KIB..r.end / KIB);
    scaled.collect()
}

#[test]
fn first_and_next_sizes() {
    let rules = rules();
    let first = [
        (4, 16),
        (5, 32),
        (16, 64),
        (128, 512),
        (129, 512),
        (256, 512),
        (1024, 2048),
        (1025, 2048),
        (2048, 2048),
        (4096, 4096),
        (9000, 4096),
    ];
    for (asked, window) in first {
        assert_eq!(
            rules.first_size(asked * KIB),
            window * KIB,
            "asked {asked} KiB"
        );
    }
    let next = [
        (16, 64),
        (64, 256),
        (252, 1008),
        (256, 512),
        (512, 1024),
        (2048, 4096),
        (2050, 4096),
        (4096, 4096),
    ];
    for (size, window) in next {
        let size = size * KIB;
        assert_eq!(
            rules.next_size(size),
            (window * KIB).next_multiple_of(BLOCK).min(4 * MIB),
            "after {size}"
        );
    }
}

#[test]
fn small_sequential_reads() {
    let mut sim = Sim::new(rules());
    for at in (0..16 * MIB).step_by(4096) {
        sim.read(at, 4096);
    }
    // The reader's own reads end with the first mark; windows end at their natural boundaries.
    assert_eq!(kib(&sim.own), [0..16, 16..64, 64..192]);
    assert_eq!(
        kib(&sim.ahead),
        [
            192..256,
            256..512,
            512..1024,
            1024..2048,
            2048..4096,
            4096..8192,
            8192..12288,
            12288..16384,
            16384..20480
        ]
    );
}

#[test]
fn unaligned_small_reads_are_sequential_too() {
    let mut sim = Sim::new(rules());
    let from = 10 * MIB + 1234;
    for index in 0..20_000 {
        sim.read(from + index * 1000, 1000);
    }
    assert!(sim.ranges() < 20, "{:?} {:?}", sim.own, sim.ahead);
    assert!(sim.bytes < 20_000_000 + 9 * MIB);
}

#[test]
fn a_stream_from_the_middle_is_seen_at_its_second_miss() {
    let mut sim = Sim::new(rules());
    sim.read(100 * MIB, 32 * KIB);
    assert_eq!(sim.bytes, 32 * KIB);
    sim.read(100 * MIB + 32 * KIB, 32 * KIB);
    assert!(sim.bytes > 64 * KIB);
}

#[test]
fn reads_larger_than_the_largest_window() {
    let mut sim = Sim::new(rules());
    for at in (0..64).step_by(8) {
        sim.read(at * MIB, 8 * MIB);
    }
    assert_eq!(sim.own.len(), 1);
    assert_eq!(sim.own[0], 0..8 * MIB);
    assert!(
        sim.ahead
            .iter()
            .all(|range| range.end - range.start <= 4 * MIB)
    );
    assert!(sim.bytes <= 64 * MIB + 8 * MIB);
}

#[test]
fn large_reads_leave_the_device_something_to_do() {
    for mib in [1, 2, 3, 4, 16] {
        let mut sim = Sim::new(rules());
        sim.read(0, mib * MIB);
        sim.read(mib * MIB, mib * MIB);
        assert!(!sim.ahead.is_empty(), "{mib} MiB: {:?}", sim.own);
    }
}

#[test]
fn interleaved_streams_each_have_their_windows() {
    for count in 2..=8_u64 {
        let mut sim = Sim::new(rules());
        for step in 0..2048 {
            for stream in 0..count {
                sim.read(stream * 100 * MIB + step * 4096, 4096);
            }
        }
        let most = count as usize * 12;
        assert!(
            sim.ranges() <= most,
            "{count} streams: {} ranges",
            sim.ranges()
        );
        assert!(sim.bytes <= count * (8 + 8) * MIB);
    }
}

#[test]
fn backward_reads_get_no_readahead() {
    for len in [4096, 64 * KIB, 1000] {
        let mut sim = Sim::new(rules());
        let mut asked = BTreeSet::new();
        for index in (1..1000).rev() {
            sim.read(index * len, len);
            let (first, last) = (index * len / BLOCK, (index * len + len - 1) / BLOCK);
            asked.extend(first..=last);
        }
        assert_eq!(sim.bytes, asked.len() as u64 * BLOCK, "reads of {len}");
        assert!(sim.ahead.is_empty());
    }
}

#[test]
fn random_reads_are_exact_and_leave_streams_alone() {
    let mut sim = Sim::new(rules());
    let mut seed = 7_u64;
    for index in 0..4000_u64 {
        // A full-period generator over the blocks of the last half of the file: no block twice.
        seed = (seed * 5 + 12_345) % (1 << 17);
        sim.read((1 << 29) + seed * BLOCK, BLOCK);
        sim.read(index * BLOCK, BLOCK);
    }
    let random: Vec<_> = sim
        .own
        .iter()
        .filter(|range| range.start >= 1 << 29)
        .collect();
    assert!(random.iter().all(|range| range.end - range.start == BLOCK));
    assert!(sim.ahead.iter().all(|range| range.end <= 1 << 29));
    assert_eq!(sim.own.len() - random.len(), 3, "the stream's own reads");
}

#[test]
fn strides_are_exact() {
    let mut sim = Sim::new(rules());
    for index in 1..1000 {
        sim.read(index * 64 * KIB, 8 * KIB);
    }
    assert_eq!(sim.bytes, 999 * 8 * KIB);
}

#[test]
fn nothing_past_the_end_of_the_file() {
    for size in [1, 4095, 4096, 4097, 70_001, 3 * MIB + 1] {
        for len in [1, 511, 4096, 1 << 20] {
            let mut sim = Sim::new(Rules {
                size_bytes: size,
                ..rules()
            });
            for at in (0..size).step_by(len) {
                sim.read(at, len as u64);
            }
            assert_eq!(sim.bytes, size.next_multiple_of(BLOCK), "{size} by {len}");
        }
    }
}

#[test]
fn without_a_window_everything_is_exact() {
    for max_bytes in [0, 4095] {
        let mut sim = Sim::new(Rules {
            max_bytes,
            ..rules()
        });
        for at in (0..MIB).step_by(8192) {
            sim.read(at, 8192);
        }
        assert_eq!((sim.own.len(), sim.ahead.len()), (128, 0));
    }
}

#[test]
fn odd_rules_give_whole_blocks() {
    for max_bytes in [4096, 5000, 100_000, 3 * MIB + 777, u64::MAX] {
        for block_bytes in [4096, 65536] {
            let rules = Rules {
                max_bytes,
                block_bytes,
                own_bytes: 777,
                size_bytes: 40 * MIB + 1,
            };
            let mut windows = Windows::default();
            let mut at = 0;
            while at < rules.size_bytes {
                let plan = windows.missed(at..at + 1, at, &rules);
                for edge in [plan.own.start, plan.own.end, plan.ahead.end] {
                    assert_eq!(edge % block_bytes, 0, "{plan:?}");
                }
                let next = windows.marked(plan.own.start, &rules);
                assert!(next.end.is_multiple_of(block_bytes) && next.start <= next.end);
                at = next.end.max(plan.ahead.end);
            }
        }
    }
}

#[test]
fn a_stream_continues_from_where_a_plan_stopped() {
    let rules = rules();
    let mut windows = Windows::default();
    let plan = windows.missed(0..MIB, 0, &rules);
    assert_eq!(
        plan,
        Plan {
            own: 0..MIB,
            ahead: MIB..2 * MIB
        }
    );
    windows.reached(MIB);
    let plan = windows.missed(MIB..2 * MIB, MIB, &rules);
    assert_eq!(plan.own, MIB..2 * MIB);
    assert!(!plan.ahead.is_empty(), "still a stream");
    windows.reached(plan.own.start);
    let plan = windows.missed(MIB..MIB + 1, MIB, &rules);
    assert_eq!(plan.own.start, MIB);
    assert!(
        plan.ahead.end > plan.own.start,
        "even where nothing was reached"
    );
}

#[test]
fn a_mark_of_another_handles_window_begins_a_stream() {
    let rules = rules();
    let mut windows = Windows::default();
    assert_eq!(windows.marked(8 * MIB, &rules), 8 * MIB..9 * MIB);
    assert_eq!(windows.marked(8 * MIB, &rules), 9 * MIB..10 * MIB);
    windows.clear();
    assert_eq!(
        windows.marked(rules.size_bytes, &rules).end,
        rules.size_bytes
    );
}

#[test]
fn offsets_at_the_end_of_the_number_range() {
    let rules = Rules {
        size_bytes: u64::MAX,
        ..rules()
    };
    let mut windows = Windows::default();
    let at = u64::MAX - 10_000;
    for _ in 0..2 {
        let plan = windows.missed(at..u64::MAX, at, &rules);
        assert!(plan.own.end > plan.own.start && plan.ahead.end >= plan.ahead.start);
    }
    let next = windows.marked(at, &rules);
    assert!(next.start <= next.end);
}
