//! Power cuts at any moment of `PackInto`. In each state, after `e2fsck -fy`, every file that is replaced is
//! whole, old or new, what is not touched is there, and a second run makes the whole tree.

use std::path::Path;
use std::sync::Arc;

use throughline::archive::{Limits, Memory, Merge, Meta, Time, write_tar};
use throughline::internal::OpenBlockDevice;
use throughline::{MkfsOptions, OpenOptions, PackInto, Volume, VolumeSize, read_tree};
use throughline_testing::{Image, PowerDevice};
use throughline_testkit::e2fs;
use throughline_testkit::tier::pick;

/// A disk writes it at once, although its checksum is in its second sector.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;
const FILES: u8 = 6;
/// Blocks of 1 KiB are freed and claimed again under a small journal.
const BYTES: u64 = 6 << 20;

fn old(file: u8) -> Vec<u8> {
    vec![0x10 + file; usize::from(file) * 30_000 + 700]
}

fn new(file: u8) -> Vec<u8> {
    vec![0x80 + file; usize::from(file) * 45_000 + 300]
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .write(true)
        .cache_bytes(Some(1 << 20))
        .readahead_max(Some(0));
    options
}

/// A volume with what is to be replaced.
fn made(path: &Path, fs_type: &str) {
    let mut mkfs = MkfsOptions::new();
    mkfs.fs_type(fs_type)
        .block_bytes(1024)
        .size(VolumeSize::Bytes(BYTES));
    mkfs.journal_options("size=1").unwrap();
    mkfs.make(path).unwrap();
    let volume = options().open(path).unwrap();
    for file in 0..FILES {
        volume.write(format!("/f{file}"), old(file)).unwrap();
    }
    volume.write("/kept", old(1)).unwrap();
    volume.write("/gone", old(2)).unwrap();
    volume.write("/becomes", old(0)).unwrap();
    volume.hard_link("/f3", "/second").unwrap();
    volume.symlink("kept", "/link").unwrap();
    volume.close().unwrap();
}

/// Lays the layer over the root. Each few steps are durable before the next.
fn run(volume: &Volume) {
    let root = volume.root().unwrap();
    let (into, mut merge) = PackInto::begin(&root, Limits::default()).unwrap();
    layer(&mut merge);
    let (tree, sources) = merge.finish();
    let mut calls = 0;
    let mut step = |_, _| {
        calls += 1;
        if calls % 2 == 0 {
            volume.sync().unwrap();
        }
        true
    };
    into.apply(&tree, &sources, &mut step).unwrap();
    volume.sync().unwrap();
}

fn layer(merge: &mut Merge) {
    let mut memory = Memory::new();
    let contents: Vec<_> = (0..FILES).map(|file| memory.add(&new(file))).collect();
    let id = merge.sources_mut().add(Box::new(memory));
    let tree = merge.tree_mut();
    tree.begin_layer();
    let meta = Meta {
        mtime: Time::from_seconds(1_600_000_000),
        ..Meta::new(0o755)
    };
    for directory in ["/", "becomes", "deep", "deep/er"] {
        tree.mkdir(directory.as_bytes(), &meta).unwrap();
    }
    for (file, content) in contents.iter().enumerate() {
        let content = content.of(id);
        tree.add_file(format!("f{file}").as_bytes(), &meta, &content)
            .unwrap();
        let inside = format!("deep/er/n{file}");
        tree.add_file(inside.as_bytes(), &meta, &content).unwrap();
    }
    tree.link(b"second", b"f4").unwrap();
    tree.link(b"becomes/kept", b"kept").unwrap();
    tree.symlink(b"link", b"deep", &meta).unwrap();
    tree.whiteout(b"gone");
}

/// All that is there, as an archive.
fn archive(volume: &Volume) -> Vec<u8> {
    let (tree, sources) = read_tree(&volume.root().unwrap()).unwrap();
    let mut out = Vec::new();
    write_tar(&tree, &sources, &mut out).unwrap();
    out
}

fn judge(state: &Image, path: &Path, expected: &[u8]) {
    let _ = std::fs::remove_file(path);
    let file = std::fs::File::create(path).unwrap();
    state.write_file(&file, None).unwrap();
    drop(file);
    e2fs::repair(path);
    e2fs::assert_clean(path);
    let volume = options().open(path).unwrap();
    for file in 0..FILES {
        let found = volume.read(format!("/f{file}")).unwrap();
        assert!(
            found == old(file) || found == new(file),
            "f{file}: {} bytes",
            found.len()
        );
    }
    assert!(volume.read("/kept").unwrap() == old(1), "kept");
    let second = volume.read("/second").unwrap();
    assert!(second == old(3) || second == new(4), "second");
    run(&volume);
    assert!(archive(&volume) == expected, "after a second run");
    volume.close().unwrap();
    e2fs::assert_clean(path);
}

/// Returns the number of states.
fn survives(fs_type: &str, many: usize) -> usize {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.unwrap();
    let path = folder.path().join("image");
    made(&path, fs_type);
    let base = Image::read_file(&path).unwrap();
    let device = Arc::new(PowerDevice::new(
        base,
        throughline_testkit::seed::of_run(11),
    ));
    let volume = options()
        .open_block_device(Arc::clone(&device) as _)
        .unwrap();
    run(&volume);
    let expected = archive(&volume);
    volume.close().unwrap();
    let record = device.record().with_whole(SUPERBLOCK);
    let many = pick(many / 4, many, many);
    let cuts = record.cuts(many, throughline_testkit::seed::of_run(many as u64));
    record.judge_states(cuts, fs_type, |state| judge(state, &path, &expected))
}

#[test]
fn replaced_files_survive_power_cuts() {
    if !e2fs::is_there() {
        return;
    }
    let all = survives("ext4", 500) + survives("ext3", 400);
    throughline_testkit::ledger::judged(all as u64, "crash states of pack");
    assert!(all >= pick(100 / 4, 100, 100), "only {all} states");
}
