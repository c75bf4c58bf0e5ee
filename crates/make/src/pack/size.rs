//! The size of a volume that holds a tree.
//!
//! A plan costs no I/O, so the smallest volume is found by planning: first without the tree, where only its
//! number of blocks counts, then with it.

use throughline_extfmt::Geometry;
use throughline_extfmt::features::Compat;

use super::measure::{self, Measured};
use super::walk::Walk;
use crate::error::{Error, Result};
use crate::options::{MkfsOptions, VolumeSize};
use crate::plan::Plan;
use crate::request::{InodeCount, JournalRequest, Request};
use crate::resolve::{self, Manner, Target};

/// How large an image is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PackSize {
    /// This many bytes.
    Exact(u64),
    /// As small as it can be.
    #[default]
    Min,
    /// So small that this many bytes are free.
    Free(u64),
}

/// The blocks from which the default journal is larger: below each of these, more may fit than at it.
const STEPS: [u64; 8] = [
    2048,
    32 << 10,
    256 << 10,
    512 << 10,
    4096 << 10,
    8192 << 10,
    16384 << 10,
    32768 << 10,
];
/// Fewest blocks that are tried.
const LEAST_BLOCKS: u64 = 16;
/// Most blocks that are tried.
const MOST_BLOCKS: u64 = 1 << 48;
/// Blocks of the volume that the tree is measured on.
const PROBE_BLOCKS: u64 = 1 << 18;
/// The type of a volume follows from its size, and its size from its type: attempts until they agree.
const ROUNDS: usize = 4;
/// The size of most volumes' blocks, and the largest that the kernel mounts everywhere.
const USUAL_BLOCK_BYTES: u32 = 4096;
/// A size for which every option that any size allows is allowed.
const USUAL_BYTES: u64 = 1 << 20;
/// Attempts until the blocks of extent trees are found.
const ATTEMPTS: usize = 64;

/// What is made, and the tree measured for it.
pub(crate) struct Sized<'w> {
    pub(crate) request: Request,
    pub(crate) manner: Manner,
    pub(crate) measured: Measured<'w>,
    /// Bytes of the image.
    pub(crate) bytes: u64,
}

/// Chooses the size.
///
/// # Errors
/// Options that do not go together; a tree that does not fit, with what it needs.
pub(crate) fn choose<'w>(
    options: &MkfsOptions,
    size: PackSize,
    walk: &'w Walk<'w>,
) -> Result<Sized<'w>> {
    if let PackSize::Exact(bytes) = size {
        return exact(options, bytes, walk);
    }
    let free = match size {
        PackSize::Free(bytes) => bytes,
        _ => 0,
    };
    let mut guess = walk.bytes.saturating_add(free).clamp(1 << 20, 1 << 50);
    for round in 1.. {
        let (mut request, manner) = resolved(options, guess, walk)?;
        let measured = measure(&request, walk, options)?;
        let wanted = free.div_ceil(u64::from(request.block_bytes));
        request.inodes = match options.inodes {
            Some(count) => asked(count, &measured)?,
            None => InodeCount::AtLeast(measured.inodes() + by_rule(&request, free)),
        };
        let geo = with_inodes(&mut request, &measured, |request| {
            let search = Search {
                request,
                measured: &measured,
                wanted,
            };
            search.smallest()
        })?;
        let blocks = geo.blocks;
        let bytes = blocks * u64::from(request.block_bytes);
        let (again, _) = resolved(options, bytes, walk)?;
        let agrees =
            again.block_bytes == request.block_bytes && again.inode_bytes == request.inode_bytes;
        if agrees || round == ROUNDS {
            return Ok(Sized {
                request,
                manner,
                measured,
                bytes,
            });
        }
        guess = bytes;
    }
    unreachable!("a round is the last")
}

/// Refuses options that are wrong whatever is packed, before the sources are read.
///
/// # Errors
/// Those of the options.
pub(crate) fn check(options: &MkfsOptions, size: PackSize) -> Result<()> {
    let bytes = match size {
        PackSize::Exact(bytes) => bytes,
        _ => USUAL_BYTES,
    };
    refuse_outside(options)?;
    let mut options = options.clone();
    options.size(VolumeSize::Bytes(bytes));
    let (request, _) = resolve::resolve(&options, Target { bytes: None })?;
    match size {
        // What does not fit an empty volume of that size.
        PackSize::Exact(_) => Plan::new(&request).map(drop),
        _ => Ok(()),
    }
}

/// Nothing but the image is written.
fn refuse_outside(options: &MkfsOptions) -> Result<()> {
    match options.journal.device {
        Some(_) => Err(Error::unsupported(
            "a tree of files on a volume whose journal is outside (-J device=)",
        )),
        None => Ok(()),
    }
}

/// The request for a size. The kernel adds the feature `ext_attr` when it sets the first extended attribute,
/// whatever the options of mkfs were; so do we. Revision 0 has no features.
///
/// Without a block size in the options, blocks are so large that all attributes and links fit, if they do in
/// those of [`USUAL_BLOCK_BYTES`].
fn resolved(options: &MkfsOptions, bytes: u64, walk: &Walk<'_>) -> Result<(Request, Manner)> {
    refuse_outside(options)?;
    let mut options = options.clone();
    options.size(VolumeSize::Bytes(bytes));
    let (mut request, manner) = loop {
        let resolved = resolve::resolve(&options, Target { bytes: None })?;
        let block_bytes = resolved.0.block_bytes;
        if options.block_bytes.is_some()
            || block_bytes >= USUAL_BLOCK_BYTES
            || measure::fits_blocks(walk, &resolved.0)?
        {
            break resolved;
        }
        options.min_block_bytes(block_bytes * 2);
    };
    if walk.has_xattrs {
        if request.revision_0 {
            return Err(Error::invalid(
                "the files have extended attributes, which a file system of revision 0 (-r 0) does not hold",
            ));
        }
        request.features.compat |= Compat::EXT_ATTR;
    }
    Ok((request, manner))
}

fn exact<'w>(options: &MkfsOptions, bytes: u64, walk: &'w Walk<'w>) -> Result<Sized<'w>> {
    let (mut request, manner) = resolved(options, bytes, walk)?;
    let measured = measure(&request, walk, options)?;
    request.inodes = match options.inodes {
        Some(count) => asked(count, &measured)?,
        None => InodeCount::AtLeast(measured.inodes().max(by_rule(&request, bytes))),
    };
    with_inodes(&mut request, &measured, |request| Ok(request.blocks))?;
    match Plan::with(&request, &measured)? {
        Ok(_) => Ok(Sized {
            request,
            manner,
            measured,
            bytes,
        }),
        Err(lacking) => Err(Error::invalid(format!(
            "{bytes} bytes (--size) are too few: {} blocks of {} bytes are lacking; fewer inodes (-N) \
             leave more blocks, and --size min makes the smallest volume that holds all of it",
            lacking.blocks, request.block_bytes
        ))),
    }
}

/// Asks for more inodes until there are as many as the tree needs: the number in a group is rounded down to a
/// multiple of 8. `blocks` chooses the blocks.
fn with_inodes(
    request: &mut Request,
    measured: &Measured<'_>,
    blocks: impl Fn(&Request) -> Result<u64>,
) -> Result<Geometry> {
    for _ in 0..ATTEMPTS {
        request.blocks = blocks(request)?;
        let geo = Plan::new(request)?.geo;
        let lacking = measured.inodes().saturating_sub(u64::from(geo.inodes));
        match request.inodes {
            InodeCount::AtLeast(count) if lacking > 0 => {
                request.inodes = InodeCount::AtLeast(count + lacking.max(u64::from(geo.groups)));
            }
            _ => return Ok(geo),
        }
    }
    Err(Error::invalid(
        "no number of inodes with these options is enough",
    ))
}

/// The inodes that mkfs gives a volume of so many bytes.
fn by_rule(request: &Request, bytes: u64) -> u64 {
    match request.inodes {
        InodeCount::BytesPer(each) => bytes / each.max(1),
        InodeCount::AtLeast(count) => count,
    }
}

fn asked(count: u64, measured: &Measured<'_>) -> Result<InodeCount> {
    let needed = measured.inodes();
    match count >= needed {
        true => Ok(InodeCount::AtLeast(count)),
        false => Err(Error::invalid(format!(
            "{count} inodes (-N) are too few: {needed} are needed"
        ))),
    }
}

fn measure<'w>(
    request: &Request,
    walk: &'w Walk<'w>,
    options: &MkfsOptions,
) -> Result<Measured<'w>> {
    let mut probe = request.clone();
    probe.blocks = PROBE_BLOCKS;
    probe.inodes = InodeCount::AtLeast(1);
    probe.journal = JournalRequest::default();
    let plan = Plan::new(&probe)?;
    Measured::new(
        walk,
        &plan.geo,
        &plan.superblock,
        options.extended.root_owner,
    )
}

struct Search<'s, 'w> {
    request: &'s Request,
    measured: &'s Measured<'w>,
    /// Blocks that are to stay free.
    wanted: u64,
}

impl Search<'_, '_> {
    /// Free blocks of an empty volume of a size; `None`: there is no such volume.
    fn free(&self, blocks: u64) -> Option<u64> {
        let mut request = self.request.clone();
        request.blocks = blocks;
        let plan = Plan::new(&request).ok()?;
        Some(plan.superblock.free_blocks_count())
    }

    fn holds(&self, blocks: u64, needed: u64) -> bool {
        self.free(blocks).is_some_and(|free| free >= needed)
    }

    /// The smallest volume with so many free blocks.
    fn with_free(&self, needed: u64) -> Option<u64> {
        let mut low = needed.max(LEAST_BLOCKS);
        for step in STEPS.into_iter().filter(|step| *step > needed) {
            if self.holds(step - 1, needed) {
                return Some(self.bisect(low, step - 1, needed));
            }
            low = low.max(step);
        }
        let mut high = low;
        while !self.holds(high, needed) {
            low = high;
            high = high.checked_mul(2).filter(|high| *high <= MOST_BLOCKS)?;
        }
        Some(self.bisect(low, high, needed))
    }

    /// `high` holds it.
    fn bisect(&self, mut low: u64, mut high: u64, needed: u64) -> u64 {
        while low < high {
            let middle = low + (high - low) / 2;
            match self.holds(middle, needed) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        high
    }

    fn smallest(&self) -> Result<u64> {
        // The empty volume has a block of the root directory, and lost+found, that the tree brings itself.
        let own = match self.measured.walk.lost_and_found {
            Some(node) => 1 + u64::from(self.measured.directory_blocks(node)),
            None => 1,
        };
        let mut needed = self.measured.blocks().saturating_sub(own) + self.wanted;
        for _ in 0..ATTEMPTS {
            let blocks = self.with_free(needed).ok_or_else(|| self.impossible())?;
            let mut request = self.request.clone();
            request.blocks = blocks;
            match Plan::with(&request, self.measured)? {
                Err(lacking) => needed += lacking.blocks,
                Ok(plan) => match self.wanted.checked_sub(plan.superblock.free_blocks_count()) {
                    None | Some(0) => return Ok(blocks),
                    Some(more) => needed += more,
                },
            }
        }
        Err(self.impossible())
    }

    /// Why no size will do.
    fn impossible(&self) -> Error {
        let mut request = self.request.clone();
        request.blocks = self.measured.blocks().saturating_mul(2).max(PROBE_BLOCKS);
        match Plan::new(&request) {
            Err(error) => error,
            Ok(_) => Error::invalid("no size with these options holds all of it"),
        }
    }
}
