//! A superblock torn between its two sectors by a power cut.

use std::os::unix::fs::FileExt;

use throughline_extfmt::Superblock;
use throughline_extfmt::features::Incompat;
use zerocopy::IntoBytes;

use crate::testing::Image;
use crate::{Error, OpenOptions};

fn superblock(image: &Image) -> [u8; 1024] {
    let mut bytes = [0; 1024];
    std::fs::File::open(image.path())
        .and_then(|file| file.read_exact_at(&mut bytes, 1024))
        .expect("the superblock");
    bytes
}

fn put(image: &Image, bytes: &[u8]) {
    std::fs::File::options()
        .write(true)
        .open(image.path())
        .and_then(|file| file.write_all_at(bytes, 1024))
        .expect("written");
}

#[test]
fn a_torn_superblock_is_read_and_put_right() {
    let shape = ["-t", "ext4", "-b", "1024", "-O", "metadata_csum"];
    let Some(image) = Image::make("40M", &shape) else {
        return;
    };
    let old = superblock(&image);
    let fs = image.open();
    let new = superblock(&image);
    drop(fs);
    assert_ne!((&old[..512], &old[512..]), (&new[..512], &new[512..]));
    for (first, second, marked) in [(&old, &new, false), (&new, &old, true)] {
        let torn = [&first[..512], &second[512..]].concat();
        put(&image, &torn);
        let fs = image.try_open(&OpenOptions::default()).expect("it is read");
        let recover = fs.superblock().incompat().contains(Incompat::RECOVER);
        assert_eq!(recover, marked);
        drop(fs);
        image.open().close().expect("it is written");
        image.check("repaired");
    }
    // Other damage is not accepted as torn.
    let sound = superblock(&image);
    for at in [
        4, 24, 0x54, 0x5c, 0x60, 0x68, 0xd0, 0xdf, 0xec, 0x100, 0x154, 0x174, 0x24c, 0x270,
    ] {
        let mut damaged = sound;
        damaged[at] ^= 1;
        put(&image, &damaged);
        let found = image.try_open(&OpenOptions::default());
        let is_refused = matches!(found, Err(Error::Corrupt(_) | Error::Unsupported(_)));
        assert_eq!(is_refused, at != 0x100, "byte {at:#x}");
    }
}

/// A volume of one group has no backup: other structures confirm a superblock that is torn as the kernel may
/// tear it, with changes in both sectors.
#[test]
fn a_torn_superblock_without_a_backup_is_read_and_put_right() {
    for more in ["^has_journal", "orphan_file", "^64bit", "quota"] {
        let features = format!("metadata_csum,{more}");
        let shape = ["-t", "ext4", "-b", "1024", "-O", &features];
        let Some(image) = Image::make("8M", &shape) else {
            return;
        };
        let old = superblock(&image);
        let mut later = Superblock::read(&old).expect("a superblock");
        later.s_mtime.set(later.s_mtime.get() ^ 0x1234_5678);
        later.s_wtime.set(later.s_wtime.get() ^ 0x2345_6789);
        later.s_mnt_count.set(7);
        later.update_checksum();
        let new: [u8; 1024] = later.as_bytes().try_into().expect("its length");
        for (first, second) in [(&old, &new), (&new, &old)] {
            let torn = [&first[..512], &second[512..]].concat();
            put(&image, &torn);
            assert!(image.try_open(&OpenOptions::default()).is_ok(), "{more}");
            // What is damaged besides is not accepted.
            let refuses = |damaged: &[u8], what: &str| {
                put(&image, damaged);
                let found = image.try_open(&OpenOptions::default());
                let is_refused = matches!(found, Err(Error::Corrupt(_) | Error::Unsupported(_)));
                assert!(is_refused, "{more}, {what}");
            };
            for (name, bytes) in [("UUID", 0x68..0x78), ("features", 0x60..0x68)] {
                let mut damaged = torn.clone();
                damaged[bytes].iter_mut().for_each(|byte| *byte ^= 0x5a);
                refuses(&damaged, name);
            }
            put(&image, &torn);
            let written = image.open().close();
            written.expect("it is written");
            image.check("repaired");
            let sound = superblock(&image);
            for at in [
                4, 24, 0x54, 0x5c, 0x60, 0x68, 0xd0, 0xec, 0x100, 0x200, 0x270, 0x3fc,
            ] {
                let mut damaged = sound;
                damaged[at] ^= 1;
                refuses(&damaged, &format!("byte {at:#x}"));
            }
            put(&image, &sound);
        }
    }
}
