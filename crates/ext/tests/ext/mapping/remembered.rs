//! Each thread's cached extents of a file become invalid with each change of its mapping. The file loses
//! blocks while other threads read and overwrite it, and another file gets them. A thread that still used
//! stale extents would read, or destroy, the other file's bytes.

use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};

use throughline_ext::{Error, Fallocate, Fs, Inode, Reason};

use super::support::{Image, Random, create, read_all};

/// The bytes of the file that changes, and of the one that gets its blocks.
const OURS: u8 = b'A';
const OTHERS: u8 = b'B';

/// The file's length in blocks: few extents, so that cached ones are used often.
const BLOCKS: u64 = 256;
const ROUNDS: u64 = 300;

fn write(fs: &Fs, inode: &Inode, offset: u64, len: u64, byte: u8) {
    match fs.write_at(inode, offset, &[IoSlice::new(&vec![byte; len as usize])]) {
        Ok(_) | Err(Error::Caller(Reason::NoSpace)) => {}
        Err(error) => panic!("writing {len} bytes at {offset}: {error}"),
    }
}

/// Frees blocks of the file in each possible way, lets the other file allocate them, and fills the file
/// again.
fn change(fs: &Fs, inode: &Inode, other: &Inode, unit: u64, extents: bool, seed: u64) {
    let mut random = Random::new(seed);
    let size = BLOCKS * unit;
    for round in 0..ROUNDS {
        let (at, len) = (random.below(BLOCKS), 1 + random.below(64));
        match random.below(3) {
            0 => fs.truncate(inode, at * unit).expect("a truncation"),
            1 if extents => fs
                .fallocate(inode, Fallocate::Collapse, at / 2 * unit, len.min(8) * unit)
                .expect("a collapse"),
            _ => fs
                .fallocate(inode, Fallocate::PunchHole, at * unit, len * unit)
                .expect("a hole"),
        }
        write(
            fs,
            other,
            random.below(4 * BLOCKS) * unit,
            len * unit,
            OTHERS,
        );
        fs.truncate(inode, size).expect("a size");
        write(fs, inode, at * unit, unit * len.min(BLOCKS - at), OURS);
        if round % 16 == 15 {
            fs.truncate(other, 0).expect("a truncation");
        }
    }
}

/// Reads and overwrites the file block by block until `stop` is set.
fn use_it(fs: &Fs, inode: &Inode, unit: u64, seed: u64, stop: &AtomicBool) {
    let mut random = Random::new(seed);
    let mut block = vec![0; unit as usize];
    while !stop.load(Ordering::Relaxed) {
        let at = random.below(BLOCKS) * unit;
        if random.below(4) == 0 {
            write(fs, inode, at, unit, OURS);
            continue;
        }
        let n = fs
            .read_at(inode, at, &mut [IoSliceMut::new(&mut block)])
            .expect("a read");
        let strange = block[..n].iter().find(|b| ![0, OURS].contains(b));
        assert_eq!(strange, None, "in the block at {at}");
    }
}

/// Sets the stop flag when dropped, also when its thread panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn blocks_that_went_to_another_file_are_left_alone() {
    for (number, (args, extents)) in [
        (&["-t", "ext4", "-b", "1024"][..], true),
        (&["-t", "ext2", "-b", "1024"][..], false),
        (&["-t", "ext4", "-b", "4096"][..], true),
    ]
    .into_iter()
    .enumerate()
    {
        let Some(image) = Image::make("8M", args) else {
            continue;
        };
        let seed = 50 + number as u64;
        println!("{args:?}: seed {seed}");
        let fs = image.open();
        let (inode, other) = (create(&fs, "ours"), create(&fs, "others"));
        let unit = if args.contains(&"4096") { 4096 } else { 1024 };
        write(&fs, &inode, 0, BLOCKS * unit, OURS);
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (fs, inode, other, stop) = (&fs, &*inode, &*other, &stop);
            for thread in 1..=3 {
                scope.spawn(move || {
                    let _stop = StopOnDrop(stop);
                    use_it(fs, inode, unit, seed + thread * 1000, stop);
                });
            }
            let _stop = StopOnDrop(stop);
            change(fs, inode, other, unit, extents, seed);
        });
        let size = other.image().size_bytes(fs.geometry()).expect("a size");
        let bytes = read_all(&fs, &other, size as usize);
        assert!(bytes.iter().all(|b| [0, OTHERS].contains(b)), "{args:?}");
        fs.close().expect("closing");
        image.check("two files");
    }
}
