//! Parts of blocks are punched while no block is free to replace them. With a journal, each such block is
//! as before or as after the punch, whatever the power cut. Without one, the zeros are written in place, as
//! in the kernel's ext4, and may be there in part.

use std::sync::Arc;

use throughline::{Error, Fallocate, FileOptions, Reason, Volume};
use throughline_testing::{Cut, Image, Keep, PowerDevice};

use super::durable::{bytes, fill};
use super::fsck::Fsck;
use super::judge;
use super::oracle::external;
use super::oracle::image::tools;
use super::recipes::{RECIPES, Recipe};
use super::tree;

const PATH: &str = "/f";
/// Number of random subsets of the unflushed writes that are tried at each moment.
const SUBSETS: u64 = 6;
/// After this many names in a row for which there is no space, the volume is full.
const FULL_NAMES: u32 = 16;

/// A full volume with a durable file of some blocks.
fn start(recipe: &Recipe) -> throughline::Result<(Image, Vec<u8>)> {
    let device = Arc::new(PowerDevice::new(recipe.image(), 0));
    let volume = external::open_power(&tree::options(), &device)?;
    let content = bytes(&mut fastrand::Rng::with_seed(3), 9 * recipe.block_bytes());
    let file = volume.create_new(PATH)?;
    file.write_all_at(&content, 0)?;
    file.sync_all()?;
    drop(file);
    fill(&volume)?;
    // Space may still have been waiting for its transaction: sync until the volume is full. A directory needs
    // one block, but two if its name belongs in a full block of its hashed parent, so several names must
    // fail.
    let (mut number, mut failed) = (0, 0);
    while failed < FULL_NAMES {
        volume.sync()?;
        match volume.create_dir(format!("/late{number}")) {
            Ok(_) => failed = 0,
            Err(Error::Caller(Reason::NoSpace)) => failed += 1,
            Err(error) => return Err(error),
        }
        number += 1;
    }
    volume.close()?;
    Ok((device.contents(), content))
}

/// Fails unless the volume has no room for a directory.
fn check_full(volume: &Volume) -> Result<(), String> {
    match volume.create_dir("/one-more") {
        Err(Error::Caller(Reason::NoSpace)) => Ok(()),
        made => Err(format!(
            "making a directory on a full volume gave {:?}",
            made.map(drop)
        )),
    }
}

/// Punches a block and checks all states; returns their number.
fn punch(recipe: &Recipe) -> Result<usize, String> {
    let (image, old) = start(recipe).map_err(|error| error.to_string())?;
    let block = recipe.block_bytes();
    let (from, len) = (2 * block + 100, block - 200);
    let mut new = old.clone();
    new[from as usize..(from + len) as usize].fill(0);
    let device = Arc::new(PowerDevice::new(image, 0));
    let volume = external::open_power(&tree::options(), &device);
    let volume = volume.map_err(|error| error.to_string())?;
    check_full(&volume)?;
    let file = FileOptions::new().open(&volume, PATH).unwrap();
    let first = device.mark();
    let done = file.allocate(Fallocate::PunchHole, from, len);
    done.map_err(|error| error.to_string())?;
    let punched = device.mark();
    file.sync_all().map_err(|error| error.to_string())?;
    let synced = device.mark();
    // A later write to the block must not be undone by a replay.
    let mut later = new.clone();
    later[2 * block as usize..][..block as usize].fill(9);
    file.write_all_at(&later[2 * block as usize..][..block as usize], 2 * block)
        .map_err(|error| error.to_string())?;
    file.sync_all().map_err(|error| error.to_string())?;
    let written = device.mark();
    let record = device.record().with_sectors_of(recipe.sector_bytes);
    let mut states = record.states();
    let mut fsck = Fsck::new();
    let mut judged = 0;
    for at in first..=written {
        let some =
            (0..throughline_testkit::tier::pick(SUBSETS / 4, SUBSETS, SUBSETS)).map(Keep::Some);
        for keep in [Keep::Nothing, Keep::Everything].into_iter().chain(some) {
            let cut = Cut { at, keep };
            let state = states.state(cut);
            let recovered = match recipe.journaled {
                true => judge::recover(&state)?.contents(),
                false => fsck.repair(&state)?.0,
            };
            let found = &tree::read(&recovered)?[PATH].content;
            judged += 1;
            let may_be: &[&Vec<u8>] = match () {
                () if at >= written => &[&later],
                // This write is in place, and may be there in part.
                () if at > synced => continue,
                () if at >= synced => &[&new],
                () => &[&old, &new],
            };
            let in_part = || {
                let same = |(place, byte): (usize, &u8)| *byte == old[place] || *byte == new[place];
                at < synced && found.len() == old.len() && found.iter().enumerate().all(same)
            };
            if !may_be.contains(&found) && (recipe.journaled || !in_part()) {
                let place = (0..found.len()).find(|place| found[*place] != old[*place]);
                return Err(format!(
                    "{cut:?}, punched from {first} to {punched}, synced at {synced}: neither as before \
                     (differs from byte {place:?} on) nor as after"
                ));
            }
        }
    }
    Ok(judged)
}

#[test]
fn a_partial_block_write_is_atomic_on_a_full_volume() {
    if !tools() {
        return;
    }
    let mut states = 0;
    let mut wrong = Vec::new();
    for recipe in RECIPES {
        match punch(recipe) {
            Ok(judged) => states += judged,
            Err(what) => wrong.push(format!("{}: {what}", recipe.name)),
        }
    }
    throughline_testkit::ledger::judged(states as u64, "crash states of blocks punched in part");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        states > throughline_testkit::tier::pick(200, 500, 500),
        "only {states} states"
    );
}
