//! `bigalloc` by hand: files in fragments, and what they take from the volume, to the cluster.

use std::io::IoSlice;
use std::sync::Arc;

use super::{close, create, open, pattern, read, write, write_all};
use crate::open_file::OpenFile;
use crate::testing::Image;
use crate::{Error, Fallocate, Fs, Inode, Reason, map};

/// Size, arguments of `mke2fs`.
const VOLUMES: [(&str, &[&str]); 3] = [
    (
        "16M",
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"],
    ),
    (
        "32M",
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
    ),
    (
        "64M",
        &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "65536"],
    ),
];

/// Each volume, opened, with its name, block bytes and blocks of a cluster.
fn on_each(test: impl Fn(&Arc<Fs>, &str, u64, u64)) {
    for (size, args) in VOLUMES {
        let Some(image) = Image::make(size, args) else {
            continue;
        };
        let what = format!("{args:?}");
        let fs = open(&image, 16 << 20);
        let ratio = 1 << fs.geo.cluster_ratio_log;
        test(&fs, &what, fs.geo.block_bytes.into(), ratio);
        close(&image, fs, &what);
    }
}

fn free(fs: &Fs) -> u64 {
    fs.sync().expect("synced");
    fs.statfs().expect("counts").free_blocks
}

fn whole(fs: &Fs, inode: &Inode) -> map::Survey {
    let size = fs.metadata(inode).expect("attributes").size_bytes;
    let found = map::survey(fs, inode, size, 4096).expect("a mapping");
    found.expect("a small mapping")
}

/// The clusters that hold data of a file; checks the file's own count.
fn clusters(fs: &Fs, inode: &Inode) -> u64 {
    let found = whole(fs, inode);
    let counted = fs.metadata(inode).expect("attributes").blocks_512 * 512;
    assert_eq!(
        counted,
        found.blocks(&fs.geo) << fs.geo.block_log,
        "i_blocks"
    );
    let blocks: u64 = found.data.iter().map(|(_, len)| u64::from(*len)).sum();
    blocks >> fs.geo.cluster_ratio_log
}

fn direct(file: &OpenFile, at: u64, bytes: &[u8]) -> crate::Result<()> {
    let bufs = [IoSlice::new(bytes)];
    let done = file.write(false, Some(at), &bufs)?;
    assert_eq!(done.1, bytes.len());
    Ok(())
}

fn is_full<R>(result: crate::Result<R>) -> bool {
    match result {
        Ok(_) => false,
        Err(Error::Caller(Reason::NoSpace)) => true,
        Err(error) => panic!("{error}"),
    }
}

/// Discards the free clusters: all of them, and no other.
fn trim_all(fs: &Fs, what: &str, block: u64) {
    let left = free(fs) * block;
    match fs.trim(0..u64::MAX, 0) {
        Ok(trimmed) => assert_eq!(trimmed, left, "{what}"),
        Err(Error::Unsupported(_)) => {}
        Err(error) => panic!("{what}: {error}"),
    }
}

/// Blocks of two files in turn, buffered and direct; then holes, and cuts within clusters. After each step,
/// what the volume lost is what the files have.
#[test]
fn files_in_fragments_take_what_their_clusters_are() {
    on_each(|fs, what, block, ratio| {
        let (a, b) = (create(fs, "a"), create(fs, "b"));
        let before = free(fs);
        let same = |step: &str| {
            let now = free(fs);
            clusters(fs, &a);
            clusters(fs, &b);
            let taken = whole(fs, &a).blocks(&fs.geo) + whole(fs, &b).blocks(&fs.geo);
            assert_eq!(before - now, taken, "{what}: {step}");
        };
        let (file, other) = (
            fs.open_file(&a).expect("open"),
            fs.open_file(&b).expect("open"),
        );
        for at in (0..128).step_by(2).map(|at| at * block) {
            write_all(&file, at, &pattern(1, at, block as usize)).expect("written");
            direct(&other, at, &pattern(2, at, block as usize)).expect("written");
        }
        file.sync(false).expect("synced");
        same("every second block");
        assert_eq!(clusters(fs, &a), 128 / ratio, "{what}");
        assert_eq!(clusters(fs, &b), 128 / ratio, "{what}");
        for at in (0..64).rev().map(|at| (2 * at + 1) * block) {
            direct(&file, at, &pattern(1, at, block as usize)).expect("written");
            write_all(&other, at, &pattern(2, at, block as usize)).expect("written");
        }
        other.sync(false).expect("synced");
        same("all blocks");
        assert_eq!(clusters(fs, &a), 128 / ratio, "{what}");
        assert!(read(&file, true, 0, 1 << 20) == pattern(1, 0, 128 * block as usize));
        assert!(read(&other, false, 0, 1 << 20) == pattern(2, 0, 128 * block as usize));

        let punch = |inode: &Inode, at: u64| {
            let done = fs.fallocate(inode, Fallocate::PunchHole, at * block, block);
            done.expect("punched");
        };
        (0..128).step_by(3).for_each(|at| punch(&a, at));
        same("every third block punched");
        assert_eq!(clusters(fs, &a), 128 / ratio, "{what}");
        trim_all(fs, what, block);
        for at in 0..ratio {
            assert_eq!(clusters(fs, &b), 128 / ratio, "{what}: {at} of a cluster");
            punch(&b, ratio + (at * 7 + 3) % ratio);
        }
        same("a cluster punched");
        trim_all(fs, what, block);
        let kept = 3 * ratio * block;
        let bytes = read(&other, false, kept, 1 << 20);
        assert!(
            bytes == pattern(2, kept, (128 * block - kept) as usize),
            "{what}"
        );
        assert_eq!(clusters(fs, &b), 128 / ratio - 1, "{what}");

        for cut in [
            100 * block + 17,
            97 * block,
            96 * block,
            5 * block + 1,
            block,
        ] {
            fs.truncate(&b, cut).expect("cut");
            same("truncated");
            let left = cut.div_ceil(block * ratio) - u64::from(cut > ratio * block);
            assert_eq!(clusters(fs, &b), left, "{what}: cut to {cut}");
        }
        fs.truncate(&a, 0).expect("cut");
        drop((file, other));
        fs.truncate(&b, 0).expect("cut");
        fs.finish_emptied().expect("truncated");
        same("empty");
        assert_eq!(free(fs), before, "{what}");
    });
}

#[test]
fn unwritten_clusters_are_written_in_parts() {
    on_each(|fs, what, block, ratio| {
        let a = create(fs, "a");
        let before = free(fs);
        let file = fs.open_file(&a).expect("open");
        let len = (5 * ratio - 1) * block;
        fs.fallocate(&a, Fallocate::Allocate, block, len - block)
            .expect("allocated");
        assert_eq!(clusters(fs, &a), 5, "{what}");
        let mut model = vec![0; len as usize];
        for at in [1, ratio, 3 * ratio + 1, 2 * ratio - 1, 0] {
            let at = at * block;
            let bytes = pattern(3, at, block as usize);
            write_all(&file, at, &bytes).expect("written");
            model[at as usize..(at + block) as usize].copy_from_slice(&bytes);
        }
        file.sync(false).expect("synced");
        assert!(read(&file, false, 0, model.len()) == model, "{what}");
        assert_eq!(clusters(fs, &a), 5, "{what}");
        for (from, to) in [(0, ratio - 1), (ratio - 1, 2 * ratio + 1)] {
            let (from, to) = (from * block, to * block);
            fs.fallocate(&a, Fallocate::PunchHole, from, to - from)
                .expect("punched");
            model[from as usize..to as usize].fill(0);
        }
        assert_eq!(clusters(fs, &a), 3, "{what}");
        assert!(read(&file, true, 0, model.len()) == model, "{what}");
        let cluster = ratio * block;
        for mode in [Fallocate::Collapse, Fallocate::Insert] {
            let done = fs.fallocate(&a, mode, cluster, block);
            assert!(
                matches!(done, Err(Error::Caller(Reason::Invalid(_)))),
                "{what}: {done:?}"
            );
        }
        fs.fallocate(&a, Fallocate::Collapse, cluster, cluster)
            .expect("collapsed");
        model.drain(cluster as usize..2 * cluster as usize);
        fs.fallocate(&a, Fallocate::Insert, 2 * cluster, cluster)
            .expect("inserted");
        let at = 2 * cluster as usize;
        model.splice(at..at, vec![0; cluster as usize]);
        assert!(read(&file, true, 0, len as usize) == model, "{what}");
        let taken = whole(fs, &a).blocks(&fs.geo);
        assert_eq!(before - free(fs), taken, "{what}");
    });
}

/// Dirty data reserves each cluster once, and gives up what it does not need.
#[test]
fn dirty_runs_of_a_cluster_reserve_it_once() {
    on_each(|fs, what, block, ratio| {
        let a = create(fs, "a");
        let file = fs.open_file(&a).expect("open");
        let put = |at: u64| write(&file, at * block, &pattern(4, at, block as usize));
        for at in [0, 2, ratio - 1] {
            put(at).expect("written");
        }
        assert_eq!(fs.balloc.blocks_reserved(), 1, "{what}");
        put(3 * ratio).expect("written");
        assert_eq!(fs.balloc.blocks_reserved(), 2, "{what}");
        let shown = fs.metadata(&a).expect("attributes").blocks_512;
        assert_eq!(shown, 2 * ratio * block / 512, "{what}");
        file.sync(false).expect("synced");
        assert_eq!(fs.balloc.blocks_reserved(), 0, "{what}");
        assert_eq!(clusters(fs, &a), 2, "{what}");
        put(1).expect("written");
        // The file has the cluster. A node may be reserved.
        assert_eq!(
            fs.metadata(&a).expect("attributes").blocks_512,
            shown,
            "{what}"
        );
        file.sync(false).expect("synced");
        for at in 0..8 * ratio {
            put(5 * ratio + at).expect("written");
        }
        let reserved = fs.balloc.blocks_reserved();
        // One may be for a node.
        assert!((8..=9).contains(&reserved), "{what}: {reserved}");
        fs.truncate(&a, (7 * ratio + 1) * block).expect("cut");
        file.sync(false).expect("synced");
        assert_eq!(fs.balloc.blocks_reserved(), 0, "{what}");
        assert_eq!(clusters(fs, &a), 5, "{what}");
        for at in 0..8 * ratio {
            put(20 * ratio + at).expect("written");
        }
        fs.truncate(&a, 0).expect("cut");
        assert_eq!(fs.balloc.blocks_reserved(), 0, "{what}: all is dropped");
    });
}

/// A full volume has no cluster left; blocks of clusters that a file has cost nothing.
#[test]
fn a_full_volume_is_full_to_the_last_cluster() {
    on_each(|fs, what, block, ratio| {
        let (a, b) = (create(fs, "a"), create(fs, "b"));
        let (file, other) = (
            fs.open_file(&a).expect("open"),
            fs.open_file(&b).expect("open"),
        );
        let cluster = ratio * block;
        let bytes = pattern(5, 0, cluster as usize);
        for at in 0..4 {
            direct(&other, at * 2 * cluster, &bytes[..block as usize]).expect("written");
        }
        let mut end = 0;
        while !is_full(write_all(&file, end, &bytes)) {
            end += cluster;
        }
        file.sync(false).expect("synced");
        while !is_full(direct(&file, end, &bytes)) {
            end += cluster;
        }
        file.sync(false).expect("synced");
        assert_eq!(fs.balloc.blocks_left(), 0, "{what}");
        for at in 0..4 {
            // In the other blocks of its clusters, not in a new one.
            let at = at * 2 * cluster;
            write_all(&other, at + block, &bytes[..(cluster - block) as usize]).expect("written");
            assert!(is_full(write(&other, at + cluster, &bytes[..1])), "{what}");
        }
        other.sync(false).expect("synced");
        assert_eq!(clusters(fs, &b), 4, "{what}");
        let punch = |from: u64, len: u64| {
            fs.fallocate(&a, Fallocate::PunchHole, from, len)
                .expect("punched");
        };
        let nodes = || whole(fs, &a).nodes.len() as u64;
        let nodes_before = nodes();
        punch(cluster, cluster - block);
        assert!(is_full(direct(&other, cluster, &bytes)), "{what}");
        punch(2 * cluster - block, block);
        // If the split extent needed a node, that came from what data leaves to mappings, which is filled up
        // first. Whether it needed one depends on when the data was written back.
        for extra in 0..nodes() - nodes_before {
            punch((2 + extra) * cluster, cluster);
        }
        direct(&other, cluster, &bytes).expect("the cluster that was freed");
        assert!(is_full(direct(&other, 3 * cluster, &bytes)), "{what}");
    });
}
