//! Damaged inodes and mappings: whatever the damage is, every call returns, and nothing panics or hangs.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use throughline_device::{BlockDevice, MemoryDevice};
use throughline_ext::{Fallocate, Fs, Inode};

use crate::mapping::support::{Image, Random, create, open};

/// The bytes of an image whose files have trees and tables, and the positions worth damaging.
struct Victim {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

fn victim(args: &[&str]) -> Option<Victim> {
    let image = Image::make("6M", args)?;
    let fs = image.open();
    for name in ["a", "b"] {
        let inode = create(&fs, name);
        fs.truncate(&inode, 1500 * 1024).expect("a size");
        for i in 0..700u64 {
            fs.write_at(&inode, i * 2048, &[IoSlice::new(&[9; 1024])])
                .expect("a write");
        }
    }
    let far = fs.max_file_size(&create(&fs, "far")).min(16 << 30) - 5000;
    let inode = fs
        .lookup(&fs.root().expect("the root"), b"far")
        .expect("the file");
    fs.write_at(&inode, far, &[IoSlice::new(&[9; 5000])])
        .expect("a write");
    fs.close().expect("closing");
    let bytes = std::fs::read(image.path()).expect("the image");
    // The nodes of trees, the inodes, and blocks that look like tables of pointers.
    let mut places = Vec::new();
    for (block, content) in bytes.chunks_exact(1024).enumerate() {
        let is_node = content.starts_with(&[0x0A, 0xF3]);
        let in_inode = content.chunks_exact(128).any(|i| i[40..42] == [0x0A, 0xF3]);
        let pointers = content
            .chunks_exact(4)
            .filter(|p| p[3] == 0 && p[2] == 0 && p[1] != 0)
            .count();
        if is_node || in_inode || pointers > 100 {
            places.extend(block * 1024..block * 1024 + 1024);
        }
    }
    places.extend(
        (0..bytes.len()).filter(|at| bytes[*at] == 0x0A && bytes.get(at + 1) == Some(&0xF3)),
    );
    Some(Victim { bytes, places })
}

fn damaged(victim: &Victim, random: &mut Random) -> Arc<dyn BlockDevice> {
    let mut bytes = victim.bytes.clone();
    for _ in 0..=random.below(6) {
        let at = victim.places[random.below(victim.places.len() as u64) as usize];
        match random.below(4) {
            0 => bytes[at] = random.below(256) as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => {
                // The number of a random block, or a large number.
                let at = at & !3;
                let value = if random.chance(50) {
                    random.below(6 << 10)
                } else {
                    random.below(u64::MAX)
                };
                bytes[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes());
            }
            _ => {
                // Bytes from another of these places.
                let from = victim.places[random.below(victim.places.len() as u64) as usize];
                let piece: [u8; 12] =
                    std::array::from_fn(|i| bytes[(from + i) % victim.bytes.len()]);
                let at = at.min(bytes.len() - 12);
                bytes[at..at + 12].copy_from_slice(&piece);
            }
        }
    }
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(bytes.len() as u64));
    let disk = throughline_block::Disk::new(Arc::clone(&device)).expect("a disk");
    disk.write_at(0, &bytes, false).expect("filled");
    device
}

fn use_it(fs: &Fs, inode: &Inode, random: &mut Random) {
    let mut buf = vec![0; 40_000];
    for _ in 0..12 {
        let offset = random.below(1600 * 1024) & !1023;
        let len = (1 + random.below(30)) * 1024;
        let _ = match random.below(10) {
            0..3 => fs
                .read_at(inode, offset, &mut [IoSliceMut::new(&mut buf)])
                .map(drop),
            3..5 => fs
                .write_at(inode, offset, &[IoSlice::new(&buf[..len as usize])])
                .map(drop),
            5 => fs.fallocate(inode, Fallocate::PunchHole, offset, len * 10),
            6 => fs.fallocate(inode, Fallocate::Collapse, offset, len),
            7 => fs.fallocate(inode, Fallocate::Insert, offset, len),
            8 => fs.fallocate(inode, Fallocate::ZeroRange, offset, len),
            _ => fs.truncate(inode, offset),
        };
        let _ = fs.seek_data(inode, offset);
        let _ = fs.seek_hole(inode, offset);
    }
}

#[test]
fn damaged_mappings_are_contained() {
    let shapes: [&[&str]; 2] = [
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "^metadata_csum,^has_journal,^64bit",
            "-N",
            "32",
        ],
        &["-t", "ext2", "-b", "1024", "-N", "32"],
    ];
    for (shape, args) in shapes.iter().enumerate() {
        let Some(victim) = victim(args) else { continue };
        for seed in 0..throughline_testkit::tier::pick(40, 150, 150) {
            println!("shape {shape} seed {seed}");
            let mut random = Random::new(seed * 2 + shape as u64 + 1);
            let Ok(fs) = open(damaged(&victim, &mut random)) else {
                continue;
            };
            let Ok(root) = fs.root() else { continue };
            for name in ["a", "b", "far"] {
                if let Ok(inode) = fs.lookup(&root, name.as_bytes()) {
                    use_it(&fs, &inode, &mut random);
                    drop(inode);
                    let _ = fs.unlink(&root, name.as_bytes());
                }
            }
        }
    }
}
