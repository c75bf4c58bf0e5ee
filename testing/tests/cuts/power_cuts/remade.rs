//! A volume that is made over another one (`mkfs -F`): whatever a power cut leaves, no superblock, nor a copy
//! of one, leads to a mix of the two.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use throughline::internal::OpenBlockDevice;
use throughline::{MkfsOptions, OpenOptions, Volume};
use throughline_extfmt::{Geometry, Superblock};
use throughline_testing::{Image, PowerDevice};
use throughline_testkit::e2fs;
use throughline_testkit::tier::pick;
use zerocopy::IntoBytes;

const PRIMARY: u64 = 1024;
/// A disk writes it at once: a superblock that is torn is another fault.
const WHOLE: std::ops::Range<u64> = 0..2048;

/// The arguments of `mke2fs` for the old volume, its size in KiB; what `mkfs` is asked for.
const RECIPES: &[(&str, u64, &str)] = &[
    ("-t ext4 -b 1024 -J size=1", 30_000, ""),
    ("-t ext4 -b 1024 -J size=1", 30_000, "nodiscard"),
    (
        "-t ext2 -b 1024 -O ^sparse_super,^resize_inode",
        30_000,
        "nodiscard",
    ),
    ("-t ext4 -b 4096 -g 2048 -J size=4", 40_000, "nodiscard"),
    (
        "-t ext4 -b 1024 -J size=1 -O ^metadata_csum",
        30_000,
        "nodiscard,lazy_itable_init=1",
    ),
];

type Tree = BTreeMap<String, Vec<u8>>;

fn tree(volume: &Volume) -> throughline::Result<Tree> {
    let paths = volume.walk("/")?;
    paths
        .map(|found| {
            let found = found?;
            let bytes = match volume.symlink_metadata(found.path())?.is_file() {
                true => volume.read(found.path())?,
                false => Vec::new(),
            };
            Ok((found.path().display().to_string(), bytes))
        })
        .collect()
}

/// What a state is compared with.
struct Expected {
    old: Tree,
    new: Tree,
    old_uuid: [u8; 16],
    /// Where the superblock and its copies are, or were, in bytes.
    places: Vec<u64>,
}

fn superblock(state: &Image, at: u64) -> Option<Superblock> {
    let mut bytes = [0; 1024];
    state.read(at, &mut bytes);
    Superblock::read(&bytes).ok().filter(Superblock::has_magic)
}

/// Where the superblocks of a volume are.
fn places(image: &Image) -> Vec<u64> {
    let found = superblock(image, PRIMARY).expect("a superblock");
    let geo = Geometry::new(&found).expect("a geometry");
    let groups = geo.superblock_groups().skip(1);
    let copies = groups.filter_map(|group| geo.superblock_block(group));
    let copies = copies.map(|at| at.0 * u64::from(geo.block_bytes));
    std::iter::once(PRIMARY).chain(copies).collect()
}

fn save(state: &Image, path: &Path) {
    std::fs::remove_file(path).ok();
    let file = std::fs::File::create(path).expect("a file");
    state.write_file(&file, None).expect("it is written");
}

/// Judges what the superblock at each place leads to.
fn judge(state: &Image, expected: &Expected, path: &Path) {
    for at in &expected.places {
        let Some(mut found) = superblock(state, *at) else {
            continue;
        };
        // As `e2fsck -b` uses it.
        let mut used = state.clone();
        if *at != PRIMARY {
            found.s_block_group_nr.set(0);
            found.update_checksum();
            used.write(PRIMARY, found.as_bytes());
        }
        let device = Arc::new(PowerDevice::new(used.clone(), 0));
        let mut options = OpenOptions::new();
        let opened = options.allow_unclean(true).open_block_device(device);
        let Ok(volume) = opened else { continue };
        let is_old = found.s_uuid == expected.old_uuid;
        let right = if is_old { &expected.old } else { &expected.new };
        let shown = tree(&volume);
        let shown = shown.unwrap_or_else(|e| panic!("superblock at {at}, old {is_old}: {e}"));
        assert!(
            shown == *right,
            "superblock at {at}, old {is_old}: another tree"
        );
        drop(volume);
        save(&used, path);
        e2fs::assert_clean(path);
    }
}

/// Returns the number of states.
fn survives((words, kib, extended): (&str, u64, &str), many: usize) -> usize {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.expect("a place for temporary files");
    let path = folder.path().join("image");
    let words: Vec<&str> = words.split_whitespace().collect();
    if !e2fs::mke2fs_if_supported(&path, &format!("{kib}k"), &words) {
        return 0;
    }
    let volume = OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("a volume");
    for number in 0..40_usize {
        volume.create_dir_all(format!("/d{number}")).expect("made");
        let bytes = vec![number as u8 + 1; number * 9000 + 1];
        volume
            .write(format!("/d{number}/file"), bytes)
            .expect("written");
    }
    let old = tree(&volume).expect("a tree");
    volume.close().expect("closed");
    let base = Image::read_file(&path).expect("the image");
    let device = Arc::new(PowerDevice::new(
        base.clone(),
        throughline_testkit::seed::of_run(3),
    ));
    let mut options = MkfsOptions::new();
    options.overwrite(true).block_bytes(1024);
    if !extended.is_empty() {
        options.extended(extended).expect("extended options");
    }
    options.make_on(Arc::clone(&device) as _).expect("made");
    let made = device.contents();
    let volume = OpenOptions::new().open_block_device(Arc::new(PowerDevice::new(made.clone(), 0)));
    let new = tree(&volume.expect("a volume")).expect("a tree");
    let mut all = places(&base);
    all.extend(places(&made));
    all.sort_unstable();
    all.dedup();
    let old_uuid = superblock(&base, PRIMARY).expect("a superblock").s_uuid;
    let expected = Expected {
        old,
        new,
        old_uuid,
        places: all,
    };
    let record = device.record().with_whole(WHOLE);
    let many = pick(many / 4, many, many);
    let cuts = record.cuts(many, throughline_testkit::seed::of_run(many as u64));
    let what = format!("{words:?}, {extended}");
    record.judge_states(cuts, &what, |state| judge(state, &expected, &path))
}

#[test]
fn a_volume_made_over_another_is_the_old_one_none_or_the_new_one() {
    if !e2fs::is_there() {
        return;
    }
    let all: usize = RECIPES.iter().map(|recipe| survives(*recipe, 120)).sum();
    throughline_testkit::ledger::judged(all as u64, "crash states of mkfs over a volume");
    assert!(all >= pick(60 / 4, 60, 60), "only {all} states");
}
