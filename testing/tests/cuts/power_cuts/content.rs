//! File contents: the effect of operations on a file, and what a crash may leave in each sector.
//!
//! Invariants:
//! - Operations on one file are sequential. All cover whole sectors, each of which identifies its owner.
//! - What a sync covers and no later operation touched is present to the byte. A sector touched since holds
//!   its old contents or what one of these operations wrote; never anything else.
//! - Extended attributes are those after some number of their changes, at least those that a sync covers,
//!   with the permissions that an ACL implies.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use throughline_testing::attributes::{Attributes, Found};
use throughline_testing::sectors::{SECTOR_BYTES, Sector, parse};

use super::names::{Id, Span};
use super::recipes::OLD;

const SECTOR: u64 = SECTOR_BYTES as u64;

/// An operation on the contents of a file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum FileOp {
    /// Writes self-describing sectors of this version.
    Write { offset: u64, len: u64, version: u64 },
    /// Zeroes the range.
    Zero { offset: u64, len: u64 },
    /// Extends the file to at least this size.
    Grow { len: u64 },
    /// Sets the size.
    SetLen { len: u64 },
    /// Sets an attribute to the value with this number, or removes it.
    Attribute { name: u8, value: Option<u8> },
}

/// The operations on one file, in order, and its syncs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FileHistory {
    pub ops: Vec<(Span, FileOp)>,
    pub syncs: Vec<Span>,
}

/// The contents: the version of each nonzero sector.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub size: u64,
    pub attributes: Attributes,
    sectors: BTreeMap<u64, u64>,
}

impl FileOp {
    /// Applies the operation.
    pub fn apply(&self, content: &mut Content) {
        match *self {
            FileOp::Write {
                offset,
                len,
                version,
            } => {
                let range = offset / SECTOR..(offset + len) / SECTOR;
                content
                    .sectors
                    .extend(range.map(|sector| (sector, version)));
                content.size = content.size.max(offset + len);
            }
            FileOp::Zero { offset, len } => {
                let range = offset / SECTOR..(offset + len) / SECTOR;
                content.sectors.retain(|sector, _| !range.contains(sector));
            }
            FileOp::Grow { len } => content.size = content.size.max(len),
            FileOp::SetLen { len } => {
                content.size = len;
                content.sectors.split_off(&(len / SECTOR));
            }
            FileOp::Attribute { name, value } => content.attributes.set(name, value),
        }
    }
}

/// The states of a file that are allowed after a crash.
pub struct Window {
    /// The guaranteed state.
    first: Content,
    /// Versions that may have been written since, by sector.
    since: BTreeMap<u64, BTreeSet<u64>>,
    /// Sectors that may have been zeroed since; past `zero_from` all of them.
    zeroed: BTreeSet<u64>,
    zero_from: u64,
    sizes: (u64, u64),
    /// Allowed attributes: the guaranteed ones, and later changes.
    attributes: Vec<Attributes>,
}

impl FileHistory {
    /// The allowed states if power fails at `at`. `whole` are syncs of the whole volume.
    pub fn window(&self, whole: &[Span], at: usize) -> Window {
        let covered = |sync: &Span| {
            let done = |(span, _): &&(Span, FileOp)| span.done_by(sync.begun);
            self.ops.iter().take_while(done).count()
        };
        let syncs = self.syncs.iter().chain(whole);
        let syncs = syncs.filter(|sync| sync.done_by(at));
        let covered = syncs.map(covered).max().unwrap_or(0);
        let mut now = Content::default();
        for (_, op) in &self.ops[..covered] {
            op.apply(&mut now);
        }
        let mut window = Window::of(now.clone());
        let begun = |(span, _): &&(Span, FileOp)| span.begun < at;
        for (_, op) in self.ops[covered..].iter().take_while(begun) {
            window.may_come(op, &now);
            op.apply(&mut now);
            let (least, most) = window.sizes;
            window.sizes = (least.min(now.size), most.max(now.size));
            if let FileOp::Attribute { .. } = op {
                window.attributes.push(now.attributes.clone());
            }
        }
        window
    }
}

impl Window {
    fn of(first: Content) -> Window {
        Window {
            since: BTreeMap::new(),
            zeroed: BTreeSet::new(),
            zero_from: first.size / SECTOR,
            sizes: (first.size, first.size),
            attributes: vec![first.attributes.clone()],
            first,
        }
    }

    fn may_come(&mut self, op: &FileOp, now: &Content) {
        match *op {
            FileOp::Write {
                offset,
                len,
                version,
            } => {
                for sector in offset / SECTOR..(offset + len) / SECTOR {
                    self.since.entry(sector).or_default().insert(version);
                    if !now.sectors.contains_key(&sector) {
                        self.zeroed.insert(sector);
                    }
                }
            }
            FileOp::Zero { offset, len } => {
                self.zeroed.extend(offset / SECTOR..(offset + len) / SECTOR);
            }
            FileOp::Grow { .. } | FileOp::Attribute { .. } => {}
            FileOp::SetLen { len } => self.zero_from = self.zero_from.min(len / SECTOR),
        }
    }

    /// Whether the size is allowed.
    pub fn check_size(&self, size: u64) -> Result<(), String> {
        let (least, most) = self.sizes;
        match (least..=most).contains(&size) {
            true => Ok(()),
            false => Err(format!("size {size}, not in {least}..={most}")),
        }
    }

    /// Whether these attributes are allowed. If `torn`, attributes changed since a sync may have any state.
    pub fn check_attributes(&self, found: &Found, mode: u32, torn: bool) -> Result<(), String> {
        if torn && self.attributes.len() > 1 {
            return Ok(());
        }
        let found = Attributes::of(found, mode)?;
        match self.attributes.iter().any(|one| one.admits(&found)) {
            true => Ok(()),
            false => Err(format!("{found:?}, not one of {:?}", self.attributes)),
        }
    }

    /// Whether nothing touched the file since a sync.
    pub fn is_exact(&self) -> bool {
        self.since.is_empty() && self.zeroed.is_empty() && self.sizes.0 == self.sizes.1
    }

    /// Whether file `id` may contain these bytes. If `torn`, on a volume that makes no promise about it,
    /// zeros are allowed in any touched sector.
    pub fn check(&self, id: Id, bytes: &[u8], torn: bool) -> Result<(), String> {
        for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            if sector.len() < SECTOR_BYTES {
                return Err(format!("a size of {} bytes", bytes.len()));
            }
            self.check_sector(id, index as u64, sector, torn)
                .map_err(|what| format!("sector {index}: {what}"))?;
        }
        Ok(())
    }

    fn check_sector(&self, id: Id, index: u64, sector: &[u8], torn: bool) -> Result<(), String> {
        let was = self.first.sectors.get(&index);
        match parse(sector) {
            Sector::Zero => {
                let may = was.is_none() || self.zeroed.contains(&index) || index >= self.zero_from;
                let may = may || torn && !self.is_exact();
                may.then_some(())
                    .ok_or_else(|| format!("zeros instead of version {was:?}"))
            }
            Sector::Data {
                file,
                offset,
                version,
            } if file == u64::from(id) && offset == index * SECTOR => {
                let since = self.since.get(&index);
                let may = was == Some(&version)
                    || since.is_some_and(|versions| versions.contains(&version));
                may.then_some(())
                    .ok_or_else(|| format!("version {version}, not {was:?} and not of {since:?}"))
            }
            Sector::Garbage if sector.iter().all(|byte| *byte == OLD) => {
                Err("old bytes of the disk".into())
            }
            other => Err(format!("foreign data: {other:?}")),
        }
    }
}
