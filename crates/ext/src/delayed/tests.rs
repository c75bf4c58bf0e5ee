//! The space reserved for data in memory, as the attributes show it while the data is written back.

use std::io::IoSlice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use throughline_block::Disk;
use throughline_device::Op;
use throughline_testing::{Fault, FaultDevice};

use crate::testing::Image;
use crate::{Fs, NewInode, NewKind, OpenOptions};

const OWNER: NewInode = NewInode {
    permissions: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// A device that can pause its next write: the write waits at the barrier twice, so that the test can act in
/// between.
fn stopping(image: &Image) -> (Arc<Disk>, Arc<AtomicBool>, Arc<Barrier>) {
    let stops = Arc::new(AtomicBool::new(false));
    let barrier = Arc::new(Barrier::new(2));
    let (asked, met) = (Arc::clone(&stops), Arc::clone(&barrier));
    let device = throughline_device::OpenOptions::new()
        .write(true)
        .direct(false)
        .open(image.path());
    let device = FaultDevice::new(device.expect("the image opens"), Fault::Never).only_where(
        move |request| {
            if request.op() == Op::Write && asked.swap(false, Ordering::SeqCst) {
                met.wait();
                met.wait();
            }
            true
        },
    );
    let disk = Disk::new(Arc::new(device)).expect("a disk");
    (Arc::new(disk), stops, barrier)
}

/// Space is reserved again before the first write-back enters the block: the count shown then is not final,
/// and is marked so.
#[test]
fn a_block_dirtied_again_while_it_is_written_makes_the_count_unstable() {
    let Some(image) = Image::make("24M", &["-t", "ext4", "-b", "4096"]) else {
        return;
    };
    let (disk, stops, barrier) = stopping(&image);
    let options = OpenOptions {
        write: true,
        ..OpenOptions::default()
    };
    let fs = Arc::new(Fs::open(disk, &options).expect("the volume opens"));
    let root = fs.root().expect("the root");
    let inode = fs
        .create(&root, b"log", NewKind::File, OWNER)
        .expect("a file");
    let file = fs.open_file(&inode).expect("opened");
    let write = |at: u64| {
        let line = [IoSlice::new(&[7; 100])];
        file.write(true, Some(at), &line).expect("written");
    };
    let look = || {
        let found = fs.metadata(&inode).expect("attributes");
        (found.blocks_512, found.is_stable)
    };
    fs.sync().expect("a sync");
    write(0);
    assert_eq!(look(), (8, true));
    std::thread::scope(|scope| {
        stops.store(true, Ordering::SeqCst);
        scope.spawn(|| fs.sync_data(&inode).expect("a sync"));
        barrier.wait();
        write(100);
        let (_, is_stable) = look();
        assert!(!is_stable, "it is promised twice");
        barrier.wait();
    });
    fs.sync_data(&inode).expect("a sync");
    assert_eq!(look(), (8, true));
    drop(file);
    fs.shut_down().expect("shut down");
}

/// Mapping blocks that may be needed do not count before they are allocated, but mark the count as not final.
#[test]
fn a_file_whose_mapping_may_need_blocks_has_an_unstable_count() {
    let Some(image) = Image::make("24M", &["-t", "ext4", "-b", "4096"]) else {
        return;
    };
    let fs = Arc::new(image.open());
    let root = fs.root().expect("the root");
    let inode = fs
        .create(&root, b"holes", NewKind::File, OWNER)
        .expect("a file");
    let file = fs.open_file(&inode).expect("opened");
    let mut shown = Vec::new();
    for piece in 0..6 {
        let bytes = [IoSlice::new(&[7; 4096])];
        file.write(true, Some(piece * 8192), &bytes)
            .expect("written");
        let found = fs.metadata(&inode).expect("attributes");
        shown.push((found.blocks_512, found.is_stable));
    }
    let few = [(8, true), (16, true), (24, true), (32, true)];
    assert_eq!(shown[..4], few);
    assert_eq!(shown[4..], [(40, false), (48, false)]);
    fs.sync_data(&inode).expect("a sync");
    let found = fs.metadata(&inode).expect("attributes");
    assert_eq!((found.blocks_512, found.is_stable), (56, true));
    drop(file);
    fs.shut_down().expect("shut down");
    image.check("with holes");
}
