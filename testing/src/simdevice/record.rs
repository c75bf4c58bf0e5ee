//! [`Record`]: the requests of a device, and what the device may hold if power fails.
//!
//! ```text
//!  position   0   1   2   3   4   5   6 ...        a cut at 5 lets 0 to 4 have happened
//!  event      W0  W1  C0  F   C3  W5
//!                         └───┘ durable from here on: W0, completed before the flush was submitted
//! ```
//!
//! Invariants:
//! - A write is durable once it has completed with FUA, or once a flush of its range, submitted after its
//!   completion, has completed. Of all other writes any subset of sectors may be on the medium; where they
//!   overlap, in any order that their submissions and completions allow. A discard is never durable: its
//!   range holds zeros or the old data. No flush makes a write durable that a failed flush dropped.
//! - A state is a function of the record and the [`Cut`] only.

use std::ops::Range;
use std::sync::Arc;

use super::image::Image;

/// Bytes that a device writes atomically, by default.
const SECTOR_BYTES: usize = 512;

/// Effect of a request other than a read.
#[derive(Clone, Debug)]
pub enum Change {
    /// A write.
    Write {
        /// Offset.
        offset: u64,
        /// Data.
        bytes: Arc<[u8]>,
        /// Whether it is durable once completed.
        fua: bool,
    },
    /// A discard.
    Discard {
        /// Offset.
        offset: u64,
        /// Zeros.
        bytes: Arc<[u8]>,
    },
    /// Makes durable what was completed before in a range: that of a whole device, or of one of several that
    /// lose power together.
    Flush(Range<u64>),
}

impl Change {
    /// The written bytes and their offset.
    pub(super) fn content(&self) -> Option<(u64, &[u8])> {
        match self {
            Change::Write { offset, bytes, .. } | Change::Discard { offset, bytes } => {
                Some((*offset, bytes))
            }
            Change::Flush(_) => None,
        }
    }
}

/// An event.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request was submitted.
    Submitted(Change),
    /// The completion of the request submitted by this event was reaped.
    Completed(usize),
    /// Nothing: a moment that differs from those before and after it.
    Marked,
    /// A flush failed, and the device dropped all that was not durable.
    Dropped,
}

/// When power fails, and what of the volatile cache is on the medium then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cut {
    /// Number of events that have happened.
    pub at: usize,
    /// What happens to writes that are not durable.
    pub keep: Keep,
}

/// Which writes that are not durable are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keep {
    /// None.
    Nothing,
    /// All, in order of submission.
    Everything,
    /// Some, and some torn, by the seed.
    Some(u64),
}

/// Flushes by their submission: when it was, and the earliest completion of that or any later one.
type Flushes = Vec<(usize, usize)>;

/// The initial contents of a device and all requests since.
#[derive(Clone)]
pub struct Record {
    base: Image,
    events: Vec<Event>,
    /// For each event that submitted a write: the position from which it is durable.
    durable_from: Vec<usize>,
    /// For each event that submitted a request: the event that completed it, or the end.
    completed: Vec<usize>,
    /// Range that never tears.
    whole: Range<u64>,
    /// Bytes that are written atomically.
    sector_bytes: usize,
}

impl Record {
    pub(super) fn new(base: Image, events: Vec<Event>) -> Record {
        let mut completed = vec![events.len(); events.len()];
        for (at, event) in events.iter().enumerate() {
            if let Event::Completed(number) = event {
                completed[*number] = at;
            }
        }
        let mut record = Record {
            base,
            durable_from: vec![usize::MAX; events.len()],
            completed,
            events,
            whole: 0..0,
            sector_bytes: SECTOR_BYTES,
        };
        record.find_durable();
        record
    }

    fn find_durable(&mut self) {
        let flushes = self.flushes();
        let is_drop = |(at, event): (usize, &Event)| matches!(event, Event::Dropped).then_some(at);
        let drops: Vec<usize> = self.events.iter().enumerate().filter_map(is_drop).collect();
        for (at, event) in self.events.iter().enumerate() {
            let Event::Submitted(Change::Write { fua, offset, .. }) = event else {
                continue;
            };
            let done = self.completed[at];
            let by_flush = flushes
                .iter()
                .filter(|(range, _)| range.contains(offset))
                .filter_map(|(_, flushes)| {
                    let next = flushes.partition_point(|(submitted, _)| *submitted < done);
                    flushes.get(next).map(|(_, by)| *by)
                })
                .min()
                .unwrap_or(usize::MAX);
            let is_dropped = drops.iter().any(|drop| (at..by_flush).contains(drop));
            let by_flush = if is_dropped { usize::MAX } else { by_flush };
            let by = if *fua { by_flush.min(done) } else { by_flush };
            if by < self.events.len() {
                self.durable_from[at] = by + 1;
            }
        }
    }

    /// The flushes of each range.
    fn flushes(&self) -> Vec<(Range<u64>, Flushes)> {
        let mut all: Vec<(Range<u64>, Flushes)> = Vec::new();
        for (at, event) in self.events.iter().enumerate() {
            let Event::Submitted(Change::Flush(range)) = event else {
                continue;
            };
            let flush = (at, self.completed[at]);
            match all.iter_mut().find(|(known, _)| known == range) {
                Some((_, flushes)) => flushes.push(flush),
                None => all.push((range.clone(), vec![flush])),
            }
        }
        for (_, flushes) in &mut all {
            let mut earliest = usize::MAX;
            for flush in flushes.iter_mut().rev() {
                earliest = earliest.min(flush.1);
                flush.1 = earliest;
            }
        }
        all
    }

    /// Makes a range atomic, as some disks do for more than a sector.
    #[must_use]
    pub fn with_whole(mut self, range: Range<u64>) -> Record {
        self.whole = range;
        self
    }

    /// Lets writes tear only at multiples of `bytes` from their start, a multiple of 512: for devices with
    /// larger blocks.
    #[must_use]
    pub fn with_sectors_of(mut self, bytes: usize) -> Record {
        self.sector_bytes = bytes;
        self
    }

    /// The initial contents.
    pub fn base(&self) -> &Image {
        &self.base
    }

    /// The last position, after all events.
    pub fn end(&self) -> usize {
        self.events.len()
    }

    /// All events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The events before `at`, one line each, for people.
    pub fn describe(&self, at: usize) -> String {
        let line = |(number, event): (usize, &Event)| match event {
            Event::Submitted(Change::Write { offset, bytes, fua }) => {
                let fua = if *fua { ", FUA" } else { "" };
                let durable = match self.durable_from[number] <= at {
                    true => ", durable",
                    false => "",
                };
                format!("{number}: write {offset}+{}{fua}{durable}\n", bytes.len())
            }
            Event::Submitted(Change::Discard { offset, bytes }) => {
                format!("{number}: discard {offset}+{}\n", bytes.len())
            }
            Event::Submitted(Change::Flush(range)) => {
                format!(
                    "{number}: flush {}+{}\n",
                    range.start,
                    range.end - range.start
                )
            }
            Event::Completed(which) => format!("{number}: {which} done\n"),
            Event::Marked => format!("{number}: mark\n"),
            Event::Dropped => format!("{number}: a flush fails, all that is volatile is dropped\n"),
        };
        self.events[..at].iter().enumerate().map(line).collect()
    }

    /// The positions right after the completion of a flush or of a write with FUA.
    pub fn barriers(&self) -> Vec<usize> {
        let barrier = |number: &usize| match &self.events[*number] {
            Event::Submitted(Change::Flush(_)) => true,
            Event::Submitted(Change::Write { fua, .. }) => *fua,
            _ => false,
        };
        let behind = self
            .events
            .iter()
            .enumerate()
            .filter_map(|(at, event)| match event {
                Event::Completed(number) if barrier(number) => Some(at + 1),
                _ => None,
            });
        behind.collect()
    }

    /// Builds this record's states; fastest if used in ascending order.
    pub fn states(&self) -> States<'_> {
        States {
            record: self,
            applied: 0,
            image: self.base.clone(),
            last: 0,
        }
    }
}

/// Builds crash states.
pub struct States<'a> {
    record: &'a Record,
    /// All events before this are in `image`.
    applied: usize,
    image: Image,
    /// Position of the last cut.
    last: usize,
}

/// A write that may reach the medium.
struct Landing<'a> {
    at: usize,
    offset: u64,
    bytes: &'a [u8],
    durable: bool,
}

impl States<'_> {
    /// The contents of the medium at a cut.
    ///
    /// # Panics
    /// If the cut is past the end.
    pub fn state(&mut self, cut: Cut) -> Image {
        assert!(cut.at <= self.record.end());
        self.apply_durable(cut.at);
        let mut landings = self.pending(cut.at);
        let mut image = self.image.clone();
        let mut random = match cut.keep {
            Keep::Some(seed) => fastrand::Rng::with_seed(seed),
            _ => fastrand::Rng::with_seed(0),
        };
        if matches!(cut.keep, Keep::Some(_)) {
            // Overlapping writes reach the medium in any possible order.
            for landing in &mut landings {
                let done = self.record.completed[landing.at].min(cut.at);
                landing.at = random.usize(landing.at..=done);
            }
            landings.sort_by_key(|landing| landing.at);
        }
        let volatile = landings.iter().filter(|landing| !landing.durable).count();
        let mut kept = Kept::new(cut.keep, volatile, &mut random);
        for landing in &landings {
            let fate = match landing.durable {
                true => Fate::Whole,
                false => kept.next(&mut random),
            };
            match fate {
                Fate::Whole => image.write(landing.offset, landing.bytes),
                Fate::Lost => {}
                Fate::Torn => tear(&mut image, landing, self.record, &mut random),
            }
        }
        image
    }

    /// The writes before `at` that are not in the image.
    fn pending(&self, at: usize) -> Vec<Landing<'_>> {
        let submitted = |number: usize| match &self.record.events[number] {
            Event::Submitted(change) => {
                let (offset, bytes) = change.content()?;
                Some(Landing {
                    at: number,
                    offset,
                    bytes,
                    durable: self.record.durable_from[number] <= at,
                })
            }
            Event::Completed(_) | Event::Marked | Event::Dropped => None,
        };
        (self.applied..at).filter_map(submitted).collect()
    }

    /// Applies the longest prefix, in order of submission, of writes that are all durable at `at`.
    fn apply_durable(&mut self, at: usize) {
        let record = self.record;
        if at < self.last {
            (self.applied, self.image) = (0, record.base.clone());
        }
        self.last = at;
        for number in self.applied..at {
            if let Event::Submitted(change) = &record.events[number]
                && let Some((offset, bytes)) = change.content()
            {
                if record.durable_from[number] > at {
                    return;
                }
                self.image.write(offset, bytes);
            }
            self.applied = number + 1;
        }
    }
}

enum Fate {
    Whole,
    Torn,
    Lost,
}

/// Which writes are kept: patterns that random choice rarely hits, and random ones.
enum Kept {
    All,
    None,
    /// All but this one.
    AllBut(usize, usize),
    /// Only this one.
    Only(usize, usize),
    /// This percentage is kept whole; half of the others are torn.
    Some(u8),
}

impl Kept {
    fn new(keep: Keep, volatile: usize, random: &mut fastrand::Rng) -> Kept {
        match keep {
            Keep::Nothing => Kept::None,
            Keep::Everything => Kept::All,
            Keep::Some(_) => match random.u8(..8) {
                0 | 1 => Kept::AllBut(0, random.usize(..volatile.max(1))),
                2 => Kept::Only(0, random.usize(..volatile.max(1))),
                _ => Kept::Some([10, 50, 50, 90][random.usize(..4)]),
            },
        }
    }

    fn next(&mut self, random: &mut fastrand::Rng) -> Fate {
        let (kept, whole_or_lost) = match self {
            Kept::All => (true, true),
            Kept::None => (false, true),
            Kept::AllBut(at, but) => {
                *at += 1;
                (*at - 1 != *but, random.bool())
            }
            Kept::Only(at, only) => {
                *at += 1;
                (*at - 1 == *only, true)
            }
            Kept::Some(in_100) => (random.u8(..100) < *in_100, random.bool()),
        };
        match (kept, whole_or_lost) {
            (true, _) => Fate::Whole,
            (false, true) => Fate::Lost,
            (false, false) => Fate::Torn,
        }
    }
}

fn tear(image: &mut Image, landing: &Landing<'_>, record: &Record, random: &mut fastrand::Rng) {
    let whole_kept = random.bool();
    let sector_bytes = record.sector_bytes;
    for (index, sector) in landing.bytes.chunks(sector_bytes).enumerate() {
        let at = landing.offset + (index * sector_bytes) as u64;
        let kept = match record.whole.contains(&at) {
            true => whole_kept,
            false => random.bool(),
        };
        if kept {
            image.write(at, sector);
        }
    }
}
