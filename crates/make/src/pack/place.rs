//! Where the blocks of a tree are: metadata first, in the order of the walk, then the data of all files in
//! the same order. So the data is written in long ascending runs, and small files lie side by side.

use std::collections::HashMap;
use std::ops::Range;

use throughline_extfmt::extent::{Extent, MAX_LEN};
use throughline_extfmt::features::Incompat;
use throughline_extfmt::inode::I_BLOCK_BYTES;
use throughline_extfmt::{FileBlock, FsBlock};

use super::measure::{Measured, Needs};
use super::tree::NodeId;
use super::{extents, pointers};
use crate::error::{Error, Result};
use crate::plan::build::Build;

/// The map of a file that is not just a few extents in its inode.
pub(crate) struct Deep {
    pub(crate) root: [u8; I_BLOCK_BYTES],
    /// Blocks of the map.
    pub(crate) own: u64,
}

/// A tree with its places.
pub(crate) struct Placed<'w> {
    pub(crate) measured: &'w Measured<'w>,
    /// By node: the first of its extents, and how many.
    of: Vec<(u32, u32)>,
    extents: Vec<Extent>,
    deep: HashMap<NodeId, Deep>,
    /// Blocks of attributes.
    acl: HashMap<NodeId, u64>,
}

impl Placed<'_> {
    /// The extents of a node.
    pub(crate) fn extents(&self, node: NodeId) -> &[Extent] {
        let (first, count) = self.of[node.index()];
        &self.extents[first as usize..][..count as usize]
    }

    /// The map of a node if the extents alone do not make it.
    pub(crate) fn deep(&self, node: NodeId) -> Option<&Deep> {
        self.deep.get(&node)
    }

    /// The block of attributes of a node.
    pub(crate) fn acl(&self, node: NodeId) -> Option<u64> {
        self.acl.get(&node).copied()
    }
}

/// Free blocks, taken in ascending order.
struct Pool {
    /// In descending order.
    gaps: Vec<Range<u64>>,
}

impl Pool {
    /// Takes blocks; fewer if there are no more. Returns the runs.
    fn take(&mut self, count: u64) -> Vec<Range<u64>> {
        let (mut left, mut runs) = (count, Vec::new());
        while left > 0
            && let Some(gap) = self.gaps.last_mut()
        {
            let len = left.min(gap.end - gap.start);
            runs.push(gap.start..gap.start + len);
            gap.start += len;
            left -= len;
            if gap.start == gap.end {
                self.gaps.pop();
            }
        }
        runs
    }

    fn free(&self) -> u64 {
        self.gaps.iter().map(|gap| gap.end - gap.start).sum()
    }
}

/// What a tree lacks on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lacking {
    pub(crate) blocks: u64,
}

/// Gives the blocks of a tree their places, and takes them. `Err` inside: the blocks that are missing.
///
/// # Errors
/// What the volume cannot hold whatever its size.
pub(crate) fn place<'w>(
    build: &mut Build<'_>,
    measured: &'w Measured<'w>,
) -> Result<std::result::Result<Placed<'w>, Lacking>> {
    let mut gaps = build.free();
    gaps.reverse();
    let mut rest = Pool { gaps };
    let (free, wanted) = (rest.free(), measured.blocks());
    if wanted > free {
        return Ok(Err(Lacking {
            blocks: wanted - free,
        }));
    }
    let mut metadata = Pool {
        gaps: rest.take(measured.metadata_blocks),
    };
    metadata.gaps.reverse();
    let taken = metadata.gaps.clone();
    let mut placer = Placer {
        placed: Placed {
            measured,
            of: vec![(0, 0); measured.walk.tree.id_bound()],
            extents: Vec::new(),
            deep: HashMap::new(),
            acl: HashMap::new(),
        },
        metadata,
        data: rest,
        used: taken,
        lacking: 0,
    };
    for node in measured.walk.nodes() {
        placer.place(build, node)?;
    }
    for run in placer.used {
        build.space.add(run);
    }
    match placer.lacking {
        0 => Ok(Ok(placer.placed)),
        blocks => Ok(Err(Lacking { blocks })),
    }
}

struct Placer<'w> {
    placed: Placed<'w>,
    metadata: Pool,
    data: Pool,
    used: Vec<Range<u64>>,
    lacking: u64,
}

impl Placer<'_> {
    fn place(&mut self, build: &mut Build<'_>, node: NodeId) -> Result<()> {
        let measured = self.placed.measured;
        let needs = measured.needs(node)?;
        if needs.has_acl
            && let Some(run) = self.metadata.take(1).first()
        {
            self.placed.acl.insert(node, run.start);
        }
        if needs.runs.is_empty() {
            return Ok(());
        }
        let own = self.metadata.take(needs.pointers);
        let mapped = needs.mapped();
        let places = match needs.is_metadata {
            true => self.metadata.take(mapped),
            false => self.take_data(mapped),
        };
        let first = self.placed.extents.len();
        join(&needs.runs, &places, &mut self.placed.extents);
        let count = self.placed.extents.len() - first;
        let number = u32::try_from(first).map_err(|_| Error::invalid("more than 2^32 extents"))?;
        self.placed.of[node.index()] = (number, count as u32);
        match build.geo.incompat.contains(Incompat::EXTENTS) {
            true if count > extents::ROOT_ENTRIES => self.tree(build, node, count),
            true => Ok(()),
            false => self.pointers(build, node, &needs, &places, own),
        }
    }

    fn take_data(&mut self, count: u64) -> Vec<Range<u64>> {
        let runs = self.data.take(count);
        let got: u64 = runs.iter().map(|run| run.end - run.start).sum();
        self.lacking += count - got;
        for run in &runs {
            match self.used.last_mut() {
                Some(last) if last.end == run.start => last.end = run.end,
                _ => self.used.push(run.clone()),
            }
        }
        runs
    }

    /// Writes an extent tree into blocks after the data: their number follows from the data's places.
    fn tree(&mut self, build: &mut Build<'_>, node: NodeId, count: usize) -> Result<()> {
        let bytes = build.geo.block_bytes;
        let own = self.take_data(extents::count(count, bytes));
        let seed = self.placed.measured.seed(&build.geo, node);
        let tree = extents::write(
            self.placed.extents(node),
            bytes,
            own.into_iter().flatten(),
            seed,
        )?;
        let deep = Deep {
            root: tree.root,
            own: tree.nodes.len() as u64,
        };
        build.content.extend(tree.nodes);
        self.placed.deep.insert(node, deep);
        Ok(())
    }

    fn pointers(
        &mut self,
        build: &mut Build<'_>,
        node: NodeId,
        needs: &Needs,
        places: &[Range<u64>],
        own: Vec<Range<u64>>,
    ) -> Result<()> {
        if places.iter().any(|run| run.end > u64::from(u32::MAX)) {
            return Err(Error::invalid("blocks beyond 2^32 need the feature extent"));
        }
        let places = places.iter().flat_map(|run| run.clone());
        let bytes = build.geo.block_bytes;
        let map = pointers::write(&needs.runs, bytes, places, own.into_iter().flatten());
        let deep = Deep {
            root: map.root,
            own: map.tables.len() as u64,
        };
        build.content.extend(map.tables);
        self.placed.deep.insert(node, deep);
        Ok(())
    }
}

/// Joins runs of file blocks and runs of their places to extents, each as long as it can be.
fn join(runs: &[Range<u32>], places: &[Range<u64>], extents: &mut Vec<Extent>) {
    let mut places = places.iter().cloned();
    let mut place = places.next().unwrap_or(0..0);
    for run in runs {
        let mut at = run.start;
        while at < run.end {
            if place.is_empty() {
                match places.next() {
                    Some(next) => place = next,
                    None => return,
                }
            }
            let len = u64::from(run.end - at)
                .min(place.end - place.start)
                .min(MAX_LEN.into());
            extents.push(Extent {
                block: FileBlock(at),
                len: len as u32,
                start: FsBlock(place.start),
                unwritten: false,
            });
            at += len as u32;
            place.start += len;
        }
    }
}
