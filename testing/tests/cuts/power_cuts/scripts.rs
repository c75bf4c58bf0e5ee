//! Workloads aimed at one thing each.

use throughline::{Fallocate, Result};
use throughline_testing::attributes::{NAMES, VALUES};

use super::actor::How;
use super::history::Lane;
use super::random::Player;

const BLOCK: u64 = 4096;

impl Player<'_, '_> {
    /// The actor's own directory.
    fn home(&mut self) -> Result<String> {
        let home = Lane::home(self.actor.lane.number);
        if !self.actor.names.contains_key(&home) {
            self.actor.mkdir(&home)?;
        }
        Ok(home)
    }
}

/// Files that lose their last name while open and are written further; names that are replaced by renames.
pub fn orphans(player: &mut Player<'_, '_>) -> Result<()> {
    let home = player.home()?;
    let actor = &mut *player.actor;
    let mut ids = Vec::new();
    for number in 0..12 {
        let id = actor.create(&format!("{home}/f{number}"))?;
        actor.append(id, (number + 1) * BLOCK, How::Buffered)?;
        ids.push(id);
    }
    actor.sync_volume()?;
    for number in 0..12 {
        match number % 3 {
            0 => actor.remove(&format!("{home}/f{number}"))?,
            1 => actor.rename(
                &format!("{home}/f{}", number + 1),
                &format!("{home}/f{number}"),
            )?,
            _ => {}
        }
        actor.append(ids[number], 3 * BLOCK, How::Direct)?;
        if number % 4 == 3 {
            actor.sync(ids[0], false)?;
        }
    }
    for (number, id) in ids.into_iter().enumerate() {
        actor.close(id);
        if number % 5 == 4 {
            actor.sync_volume()?;
        }
    }
    Ok(())
}

/// Files of hundreds of extents, truncated and removed: more than one transaction of a small journal holds.
pub fn fragments(player: &mut Player<'_, '_>) -> Result<()> {
    let home = player.home()?;
    let extents = player.recipe.extents;
    let actor = &mut *player.actor;
    let keeper = actor.create(&format!("{home}/keeper"))?;
    for round in 0..2 {
        let path = format!("{home}/fragments{round}");
        let id = actor.create(&path)?;
        for piece in 0..220 {
            actor.write(id, piece * 2 * BLOCK, 1024, How::Buffered)?;
        }
        actor.sync(id, false)?;
        actor.set_len(id, 301 * BLOCK + 512)?;
        actor.append(keeper, BLOCK, How::Synced)?;
        actor.allocate(id, Fallocate::PunchHole, 33 * BLOCK + 512, 77 * BLOCK)?;
        if extents {
            actor.allocate(id, Fallocate::Allocate, 0, 120 * BLOCK)?;
            actor.sync(id, true)?;
            actor.write(id, 11 * BLOCK, 9 * BLOCK, How::Direct)?;
        }
        actor.append(keeper, BLOCK, How::Synced)?;
        if round == 0 {
            actor.set_len(id, 0)?;
            actor.append(id, BLOCK, How::Synced)?;
        }
        actor.close(id);
        actor.remove(&path)?;
        actor.append(keeper, BLOCK, How::Synced)?;
    }
    Ok(())
}

/// So many commits that the log wraps several times.
pub fn wrapping(player: &mut Player<'_, '_>) -> Result<()> {
    let home = player.home()?;
    let actor = &mut *player.actor;
    let log = actor.create(&format!("{home}/log"))?;
    for round in 0..160 {
        let (new, old) = (format!("{home}/new"), format!("{home}/f{}", round % 7));
        let id = actor.create(&new)?;
        actor.append(id, 512 * (1 + round % 9), How::Buffered)?;
        actor.sync(id, false)?;
        actor.rename(&new, &old)?;
        actor.close(id);
        if round % 3 == 0 {
            actor.append(log, 512, How::Synced)?;
        }
    }
    Ok(())
}

/// Directories that grow, are renamed and removed.
pub fn directories(player: &mut Player<'_, '_>) -> Result<()> {
    let home = player.home()?;
    let actor = &mut *player.actor;
    let mut deepest = home.clone();
    for depth in 0..6 {
        deepest = format!("{deepest}/d{depth}");
        actor.mkdir(&deepest)?;
        for number in 0..14 {
            let long = "n".repeat(40 + number);
            let id = actor.create(&format!("{deepest}/{long}"))?;
            actor.close(id);
        }
        match depth % 3 {
            0 => {}
            1 => actor.sync_volume()?,
            _ => actor.sync_home()?,
        }
    }
    actor.rename(&format!("{home}/d0/d1/d2"), &format!("{home}/moved"))?;
    actor.sync_volume()?;
    actor.exchange(&format!("{home}/moved"), &format!("{home}/d0/d1"))?;
    let mut paths = actor.paths(|_| true);
    paths.retain(|path| *path != home);
    for (number, path) in paths.into_iter().rev().enumerate() {
        actor.remove(&path)?;
        match number % 25 {
            0 => actor.sync_volume()?,
            12 => actor.sync_home()?,
            _ => {}
        }
    }
    Ok(())
}

/// One of several threads that append and sync continuously.
pub fn appending(player: &mut Player<'_, '_>) -> Result<()> {
    let home = player.home()?;
    let actor = &mut *player.actor;
    let id = actor.create(&format!("{home}/log"))?;
    for round in 0..25 {
        let how = [How::Buffered, How::Direct, How::Synced][round % 3];
        actor.append(id, 512 * (round as u64 % 5 + 1), how)?;
        match round % 5 {
            0 => actor.post(id)?,
            1 => actor.sync_posted(false)?,
            _ if how != How::Synced => actor.sync(id, round % 2 == 0)?,
            _ => {}
        }
    }
    Ok(())
}

/// Directories whose blocks are in the log are removed, and unlogged file data takes their blocks.
pub fn metadata_becomes_data(player: &mut Player<'_, '_>) -> Result<()> {
    let home = player.home()?;
    let actor = &mut *player.actor;
    for number in 0..24 {
        actor.mkdir(&format!("{home}/d{number}"))?;
    }
    actor.sync_volume()?;
    for number in 0..24 {
        actor.remove(&format!("{home}/d{number}"))?;
    }
    actor.sync_volume()?;
    fill(player, 16)
}

/// Data whose blocks are freed and reused for other data.
pub fn data_becomes_data(player: &mut Player<'_, '_>) -> Result<()> {
    let home = player.home()?;
    let actor = &mut *player.actor;
    for number in 0..4 {
        let id = actor.create(&format!("{home}/old{number}"))?;
        actor.append(id, 64 * BLOCK, How::Direct)?;
        actor.close(id);
    }
    actor.sync_volume()?;
    for number in 0..4 {
        actor.remove(&format!("{home}/old{number}"))?;
    }
    fill(player, 16)
}

/// Takes nearly all space, without a sync until the end.
fn fill(player: &mut Player<'_, '_>, files: u64) -> Result<()> {
    let home = player.home()?;
    let free = player.actor.volume.stat_fs()?;
    let bytes = free.free_blocks * u64::from(free.block_bytes) / 10 * 8;
    let each = bytes / files / BLOCK * BLOCK;
    let actor = &mut *player.actor;
    let mut last = None;
    for number in 0..files {
        let id = actor.create(&format!("{home}/new{number}"))?;
        actor.append(id, each, How::Direct)?;
        last = Some(id);
    }
    match last {
        Some(id) => actor.sync(id, false),
        None => Ok(()),
    }
}

/// Files with the same attributes as others, which change them, lose them, and are removed with them.
pub fn attributes(player: &mut Player<'_, '_>) -> Result<()> {
    let home = player.home()?;
    let actor = &mut *player.actor;
    let mut ids = Vec::new();
    for number in 0..8 {
        let id = actor.create(&format!("{home}/f{number}"))?;
        actor.append(id, 512, How::Buffered)?;
        ids.push(id);
    }
    for round in 0..5 {
        for (number, id) in (0..).zip(&ids) {
            let name = (round + number / 2) % NAMES.len() as u8;
            let value = (round * 2 + number / 4) % VALUES;
            actor.set_attribute(*id, name, Some(value))?;
            if number % 3 == 0 {
                actor.sync(*id, round % 2 == 0)?;
            }
        }
    }
    actor.sync_volume()?;
    for (number, id) in (0..).zip(ids) {
        for name in 0..number % (NAMES.len() as u8 + 1) {
            actor.set_attribute(id, name, None)?;
        }
        if number % 2 == 0 {
            actor.sync(id, false)?;
        }
        if number % 4 > 1 {
            actor.remove(&format!("{home}/f{number}"))?;
        }
        actor.close(id);
    }
    actor.sync_home()
}

/// New and extended files, written with direct I/O.
pub fn growing(player: &mut Player<'_, '_>) -> Result<()> {
    let home = player.home()?;
    let actor = &mut *player.actor;
    for number in 0..6 {
        let id = actor.create(&format!("{home}/f{number}"))?;
        for _ in 0..3 {
            actor.append(id, 3 * BLOCK, How::Direct)?;
        }
        actor.append(id, 5 * BLOCK, How::Buffered)?;
        actor.sync(id, false)?;
    }
    Ok(())
}
