//! Attributes that the kernel caches while data is only in memory: once the data is written back, by whatever
//! path, programs see the volume's values. Write-back allocates mapping blocks, which are then counted; no
//! request informs the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{AtFlags, FallocateFlags};
use throughline_testing::{DiskImage, Mounted};

use crate::coherence::failures::{check, look};

/// Mounts a new image made with these options of mke2fs.
fn mounted(options: &str) -> Option<(DiskImage, Mounted)> {
    if !Mounted::possible() {
        return None;
    }
    let image = DiskImage::make(options, "24m")?;
    let mounted = Mounted::new(image.path(), "");
    Some((image, mounted))
}

fn blocks(path: &Path) -> u64 {
    look(path, AtFlags::empty()).stx_blocks
}

/// Syncs, and checks the kernel's cached attributes before and after; the sync adds `more` units of 512
/// bytes.
#[track_caller]
fn sync(file: &File, path: &Path, more: u64) {
    let before = blocks(path);
    check(path, "before a sync");
    file.sync_all().expect("a sync");
    check(path, "after a sync");
    assert_eq!(blocks(path), before + more, "what the mapping needs");
}

#[test]
fn blocks_of_a_mapping_are_seen_when_write_back_takes_them() {
    for (options, kind) in [
        ("-t ext4 -b 4096", "extents"),
        ("-t ext2 -b 4096", "pointers"),
    ] {
        let Some((image, mounted)) = mounted(options) else {
            return;
        };
        let path = mounted.path(kind);
        let file = File::create_new(&path).expect("a file");
        // Eight pieces, the last of them beyond what the inode itself maps.
        for piece in 0..8 {
            file.write_all_at(&[1; 4096], piece * 8192)
                .expect("written");
        }
        sync(&file, &path, 8);
        sync(&file, &path, 0);
        drop(file);
        mounted.unmount();
        image.check(kind);
    }
}

#[test]
fn blocks_of_a_mapping_are_seen_when_what_was_allocated_is_written() {
    let Some((image, mounted)) = mounted("-t ext4 -b 4096") else {
        return;
    };
    let path = mounted.path("allocated");
    let file = File::create_new(&path).expect("a file");
    let len = 16 * 4096;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len).expect("allocated");
    sync(&file, &path, 0);
    for piece in 0..4 {
        file.write_all_at(&[1; 4096], piece * 16384 + 4096)
            .expect("written");
        // Again, while write-back may be in progress.
        file.write_all_at(&[2; 4096], piece * 16384 + 4096)
            .expect("written");
    }
    sync(&file, &path, 8);
    drop(file);
    mounted.unmount();
    image.check("allocated and written");
}
