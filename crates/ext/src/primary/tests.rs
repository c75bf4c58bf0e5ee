//! A superblock torn between its two sectors by a power cut.

use std::os::unix::fs::FileExt;

use throughline_extfmt::features::Incompat;

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
