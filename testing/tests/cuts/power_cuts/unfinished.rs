//! A truncated file that is still being rewritten: the work of other programs must not commit a part of it.
//! One that is rewritten and closed, in a directory that moves then or gets wider rights: others are not
//! shown what it held before.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use throughline::{Acl, AclEntry, AclTag, DirtyLimits, FileOptions, Volume};
use throughline_testing::PowerDevice;

use super::durable::bytes;
use super::fsck::Fsck;
use super::judge;
use super::oracle::external;
use super::oracle::image::tools;
use super::recipes::{RECIPES, Recipe};
use super::tree::{self, Entry, Tree};

const PATH: &str = "/a";
const OLD_BYTES: u64 = 10_000;
/// More than the background threshold. Together with the other files' dirty data, less than the limit.
const PART_BYTES: u64 = 140_000;
const REST_BYTES: u64 = 20_000;
/// Enough to go to the flusher, which then looks for other data to write.
const OTHERS_BYTES: usize = 70_000;
const LIMIT_BYTES: u64 = 256 << 10;

/// Another program's file, synced.
fn other(volume: &Volume, number: u32) -> throughline::Result<()> {
    let file = volume.create_new(format!("/o{number}"))?;
    file.write_all_at(&vec![7; OTHERS_BYTES], 0)?;
    file.sync_all()
}

fn left(recipe: &Recipe) -> Result<(), String> {
    let device = Arc::new(PowerDevice::new(recipe.image(), 0));
    let mut options = tree::options();
    options
        .cache_bytes(Some(4 << 20))
        .dirty_limits(DirtyLimits::new(Some(LIMIT_BYTES), None));
    let volume = external::open_power(&options, &device).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let (old, new) = (
        bytes(&mut random, OLD_BYTES),
        bytes(&mut random, PART_BYTES + REST_BYTES),
    );
    let file = volume.create_new(PATH).unwrap();
    file.write_all_at(&old, 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    let file = FileOptions::new()
        .truncate(true)
        .open(&volume, PATH)
        .unwrap();
    let (part, rest) = new.split_at(PART_BYTES as usize);
    file.write_all_at(part, 0).unwrap();
    // The second sync returns only after the flusher has looked for other data after the first one.
    (0..2).for_each(|number| other(&volume, number).unwrap());
    let found = |when: &str, content: &[u8]| -> Result<(), String> {
        let state = match recipe.journaled {
            true => judge::recover(&device.contents())?.contents(),
            false => device.contents(),
        };
        let found = &tree::read(&state)?[PATH].content;
        match found == content {
            true => Ok(()),
            false => Err(format!("{when}: {} bytes", found.len())),
        }
    };
    found("half of it written", &old)?;
    file.write_all_at(rest, PART_BYTES).unwrap();
    file.sync_all().unwrap();
    found("synced", &new)
}

#[test]
fn a_file_being_replaced_is_not_committed_partially() {
    if !tools() {
        return;
    }
    let recipes = RECIPES.iter();
    let wrong: Vec<String> = recipes
        .filter_map(|recipe| Some(format!("{}: {}", recipe.name, left(recipe).err()?)))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Power cuts of each kind of volume and way.
const CUTS: usize = 200;

/// What shows the files below a directory to others.
#[derive(Clone, Copy, Debug)]
enum Published {
    Moved,
    Permissions,
    List,
}

impl Published {
    const ALL: [Published; 3] = [Published::Moved, Published::Permissions, Published::List];

    fn change(self, volume: &Volume) {
        let done = match self {
            Published::Moved => volume.rename("/from/dir", "/to/dir"),
            Published::Permissions => {
                volume.set_permissions("/from/dir", Permissions::from_mode(0o755))
            }
            Published::List => {
                let entry = |tag, rights, id| AclEntry { tag, rights, id };
                let list = Acl::new(vec![
                    entry(AclTag::Owner, 7, u32::MAX),
                    entry(AclTag::User, 5, 1000),
                    entry(AclTag::Group, 0, u32::MAX),
                    entry(AclTag::Mask, 5, u32::MAX),
                    entry(AclTag::Others, 0, u32::MAX),
                ]);
                let attributes = volume.xattrs("/from/dir");
                attributes.and_then(|attributes| attributes.set_acl(Some(&list.unwrap())))
            }
        };
        done.unwrap();
    }

    /// The file, if others see it.
    fn shown(self, tree: &Tree) -> Option<&Entry> {
        let dir = match self {
            Published::Moved => "/to/dir",
            Published::Permissions | Published::List => "/from/dir",
        };
        let is_open = |mode: u32| match self {
            Published::Moved => true,
            Published::Permissions => mode & 0o005 != 0,
            Published::List => mode & 0o050 != 0,
        };
        let found = tree.get(dir).filter(|found| is_open(found.mode));
        found.and_then(|_| tree.get(&format!("{dir}/h")))
    }
}

/// Returns how many states show the file to others.
fn published(recipe: &Recipe, how: Published) -> Result<usize, String> {
    let device = Arc::new(PowerDevice::new(recipe.image(), 0));
    let volume = external::open_power(&tree::options(), &device).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let [old, new] = [0, 1].map(|_| bytes(&mut random, OLD_BYTES));
    volume.create_dir_all("/from/dir").unwrap();
    let private = Permissions::from_mode(0o700);
    volume.set_permissions("/from/dir", private).unwrap();
    volume.create_dir("/to").unwrap();
    volume.write("/from/dir/h", &old).unwrap();
    volume.sync().unwrap();
    let first = device.mark();
    let mut options = FileOptions::new();
    let file = options.truncate(true).open(&volume, "/from/dir/h").unwrap();
    file.write_all_at(&new, 0).unwrap();
    drop(file);
    how.change(&volume);
    volume.sync().unwrap();
    let record = device.record().with_sectors_of(recipe.sector_bytes);
    let (mut states, mut fsck, mut shown) = (record.states(), Fsck::new(), 0);
    let cuts = record
        .cuts(throughline_testkit::tier::pick(CUTS / 8, CUTS, CUTS), 1)
        .into_iter();
    for cut in cuts.filter(|cut| cut.at >= first) {
        let (repaired, _) = fsck.repair(&states.state(cut))?;
        match how.shown(&tree::read(&repaired)?) {
            Some(found) if found.content != new => {
                return Err(format!("{cut:?}: old {}", found.content == old));
            }
            found => shown += usize::from(found.is_some()),
        }
    }
    Ok(shown)
}

#[test]
fn a_published_directory_does_not_show_what_its_files_held_before() {
    if !tools() {
        return;
    }
    let judged = |(recipe, how): (&Recipe, Published)| match published(recipe, how) {
        Ok(0) => Some(format!("{}, {how:?}: the file is never shown", recipe.name)),
        Ok(_) => None,
        Err(what) => Some(format!("{}, {how:?}: {what}", recipe.name)),
    };
    // Without a journal nothing orders the two; with one, its transactions do.
    let recipes = RECIPES.iter();
    let recipes = recipes.filter(|recipe| !recipe.journaled || recipe.name == "ext4 1k");
    let all = recipes.flat_map(|recipe| Published::ALL.map(|how| (recipe, how)));
    let wrong: Vec<String> = all.filter_map(judged).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
