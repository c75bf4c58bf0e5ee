//! Makes a volume smaller: plans the stages, then moves and cuts, stage by stage.
//!
//! Between two steps the volume is closed, and sound. Only the journal, the orphan file and the resize inode
//! are moved while it is closed.

use std::sync::Arc;

use throughline_block::Disk;
use throughline_device::DeviceKind;
use throughline_ext::{Geometry, RoCompat, Tenants};
use throughline_make::resize::{self, Contents, Resized};

use super::{ResizeError, Show, check_backups};
use crate::error::Error;
use crate::open::OpenOptions;
use crate::volume::Volume;

/// A way to a smaller volume, checked.
pub(super) struct Plan {
    pub(super) size: Resized,
    /// The size after each stage, in blocks.
    stages: Vec<u64>,
}

/// Plans for a volume that is open for reading: to `blocks` blocks, or to as few as possible.
pub(super) fn plan(volume: &Volume, blocks: Option<u64>) -> Result<Plan, ResizeError> {
    let fs = volume.fs();
    let superblock = fs.superblock();
    let before = fs.geometry();
    let all = fs.tenants(before.blocks).map_err(damaged)?;
    let descs = fs.group_descs().map_err(damaged)?;
    let contents = Contents {
        superblock: &superblock,
        descs: &descs,
        ownerless: all.ownerless_blocks(),
        free_runs: all.free_runs,
    };
    let stages = resize::stages(&contents, blocks)?.blocks;
    // As it is: its last group may be smaller than one that is left by shrinking.
    let Some(&end) = stages.last() else {
        return Ok(Plan {
            size: Resized::new(before, before),
            stages,
        });
    };
    if superblock.ro_compat().contains(RoCompat::QUOTA) {
        // Blocks of quota files are metadata, which is written through the journal and cannot be moved.
        let why = "shrinking a volume with the feature quota: remove it before (tune2fs -O ^quota), and add \
                   it again afterwards";
        return Err(Error::Unsupported(why.to_owned()).into());
    }
    let (_, after) = resize::shrunk(&superblock, end)?;
    let found = fs.tenants(end).map_err(damaged)?;
    if found.bad_blocks > 0 {
        return Err(ResizeError::Size(format!(
            "the list of bad blocks has {} from block {end} on, which cannot be moved",
            found.bad_blocks
        )));
    }
    if found.fixed {
        return Err(ResizeError::Size(format!(
            "metadata that cannot be moved is beyond block {end}"
        )));
    }
    fs.check_moves(&found, end)?;
    Ok(Plan {
        size: Resized::new(before, &after),
        stages,
    })
}

/// Carries a plan out. The volume is closed, and needs no recovery.
pub(super) fn run(
    options: &OpenOptions,
    disk: &Arc<Disk>,
    plan: &Plan,
    show: Show<'_>,
) -> Result<(), ResizeError> {
    let mut options = options.clone();
    options.write(true).no_replay(false);
    let mut moving = Moving {
        done: 0,
        all: 0,
        block_bytes: plan.size.block_bytes.into(),
        show,
    };
    for end in &plan.stages {
        stage(&options, disk, *end, &mut moving)?;
        check_backups(disk)?;
        resize::tidy(disk)?;
    }
    finish(&options, disk)
}

/// Frees what the metadata of groups that are gone had, and cuts a regular file that is longer than its
/// volume.
pub(super) fn finish(options: &OpenOptions, disk: &Arc<Disk>) -> Result<(), ResizeError> {
    let mut options = options.clone();
    options.write(true).no_replay(false);
    let volume = options.open_on(Arc::clone(disk))?;
    // The volume itself says where it ends: nothing of it may be cut off.
    let geo = volume.fs().geometry();
    let (blocks, block_bytes) = (geo.blocks, u64::from(geo.block_bytes));
    let left = volume.fs().tenants(blocks).map_err(damaged)?;
    volume.fs().free_ownerless(&left)?;
    volume.close()?;
    let end = blocks.saturating_mul(block_bytes);
    let is_file = disk.is_resizable() && disk.info().kind == DeviceKind::RegularFile;
    if is_file && disk.len_bytes() > end {
        disk.set_len(end)?;
        disk.flush()?;
    }
    Ok(())
}

/// How far the moving of blocks is. How many a stage moves is known when it begins.
struct Moving<'p> {
    done: u64,
    all: u64,
    block_bytes: u64,
    show: Show<'p>,
}

impl Moving<'_> {
    fn expect(&mut self, blocks: u64) {
        self.all = self.done.saturating_add(blocks);
        self.moved(0);
    }

    fn moved(&mut self, blocks: u64) {
        self.done = self.done.saturating_add(blocks);
        let [done, all] = [self.done, self.all].map(|n| n.saturating_mul(self.block_bytes));
        (self.show)(done, all);
    }
}

/// Makes the volume end before block `end`.
fn stage(
    options: &OpenOptions,
    disk: &Arc<Disk>,
    end: u64,
    moving: &mut Moving<'_>,
) -> Result<(), ResizeError> {
    let mut volume = options.open_on(Arc::clone(disk))?;
    let found = volume.fs().tenants(end).map_err(damaged)?;
    volume.fs().free_ownerless(&found)?;
    volume.fs().confine(end)?;
    moving.expect(found.blocks);
    let moved = &mut |blocks| moving.moved(blocks);
    volume.fs().move_out(&found, end, moved).map_err(full)?;
    let moves = OwnMoves::prepare(&volume, &found, end)?;
    let geo = volume.fs().geometry().clone();
    volume.close()?;
    if !moves.is_empty() {
        moves.carry_out(disk, &geo)?;
        volume = options.open_on(Arc::clone(disk))?;
        let left = volume.fs().tenants(end).map_err(damaged)?;
        volume.fs().free_ownerless(&left)?;
        volume.close()?;
    }
    // The journal is empty again: when it is replayed, nothing in it is beyond the new end.
    volume = options.open_on(Arc::clone(disk))?;
    let fs = volume.fs();
    let left = fs.tenants(end).map_err(damaged)?;
    if !left.is_none() || !left.own_files.is_empty() || left.resize_block.is_some() {
        let why = format!("blocks or inodes beyond block {end} are still in use");
        return Err(ResizeError::NeedsCheck(why));
    }
    let (superblock, after) = resize::shrunk(&fs.superblock(), end)?;
    let copy = resize::first_copy(&superblock)?;
    let copy = copy.as_ref().map(|(at, bytes)| (*at, bytes.as_slice()));
    fs.cut(&superblock, &after, copy)?;
    Ok(volume.close()?)
}

/// Runs of blocks: the first, and how many.
type Runs = Vec<(u64, u32)>;

/// The volume's own files, and blocks for them.
struct OwnMoves {
    /// Each with its new places, and blocks for its mapping.
    files: Vec<(resize::OwnFile, resize::NewPlaces, Runs)>,
    resize_block: Option<u64>,
}

impl OwnMoves {
    fn prepare(volume: &Volume, found: &Tenants, end: u64) -> Result<OwnMoves, ResizeError> {
        let fs = volume.fs();
        let mut moves = OwnMoves {
            files: Vec::new(),
            resize_block: None,
        };
        for ino in &found.own_files {
            let file = own_file(fs.own_file(*ino)?);
            let runs = fs.take_blocks(file.beyond(end)).map_err(full)?;
            let places = file.place(end, &runs);
            let nodes = places.nodes(&file, fs.geometry().block_bytes);
            let nodes = fs.take_blocks(nodes).map_err(full)?;
            moves.files.push((file, places, nodes));
        }
        if found.resize_block.is_some() {
            let runs = fs.take_blocks(1).map_err(full)?;
            moves.resize_block = runs.first().map(|(start, _)| *start);
        }
        Ok(moves)
    }

    fn is_empty(&self) -> bool {
        self.files.is_empty() && self.resize_block.is_none()
    }

    fn carry_out(self, disk: &Disk, geo: &Geometry) -> Result<(), ResizeError> {
        for (file, places, nodes) in self.files {
            resize::move_own_file(disk, geo, file, &places, &nodes)?;
        }
        if let Some(place) = self.resize_block {
            resize::move_resize_block(disk, geo, place)?;
        }
        Ok(())
    }
}

fn own_file(found: throughline_ext::OwnFile) -> resize::OwnFile {
    resize::OwnFile {
        ino: found.ino,
        image: found.image,
        inode_at: found.inode_at,
        data: found.data,
    }
}

/// Damage that is found before anything is written.
fn damaged(error: throughline_ext::Error) -> ResizeError {
    match error {
        throughline_ext::Error::Corrupt(corrupt) => ResizeError::NeedsCheck(corrupt.to_string()),
        other => other.into(),
    }
}

/// No space for what moves: files in more pieces need more blocks.
fn full(error: throughline_ext::Error) -> ResizeError {
    match error {
        throughline_ext::Error::Caller(throughline_ext::Reason::NoSpace) => ResizeError::Size(
            "moving the files needs more blocks than planned: choose a larger size. The volume is whole"
                .to_owned(),
        ),
        other => Error::from(other).into(),
    }
}
