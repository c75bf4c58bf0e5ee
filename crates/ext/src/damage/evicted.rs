//! Metadata evicted and loaded again for a change: if it is damaged by then, it is not changed and gets no
//! valid checksum.

use std::io::IoSlice;
use std::sync::Arc;

use throughline_extfmt::GroupNumber;

use crate::testing::Image;
use crate::{Error, Fs, Inode, NewInode, NewKind};

const OWNER: NewInode = NewInode {
    permissions: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

fn create(fs: &Fs, name: &str) -> Arc<Inode> {
    let root = fs.root().expect("the root");
    fs.create(&root, name.as_bytes(), NewKind::File, OWNER)
        .expect("a file")
}

#[test]
fn a_block_bitmap_is_checked_again() {
    // With a checksum, and with only the free count.
    for kind in [&["-t", "ext4", "-O", "^has_journal"][..], &["-t", "ext2"]] {
        let change: [fn(&Fs, &Inode) -> crate::Result<()>; 2] = [
            |fs, file| {
                let written = fs.write_at(file, 8192, &[IoSlice::new(&[7; 4096])]);
                written.map(drop)
            },
            |fs, file| fs.truncate(file, 0),
        ];
        for (which, change) in change.into_iter().enumerate() {
            let args = [kind, &["-b", "1024", "-g", "8192"]].concat();
            let Some(image) = Image::make("24M", &args) else {
                return;
            };
            let fs = image.open_forgetful();
            let file = create(&fs, "file");
            fs.write_at(&file, 0, &[IoSlice::new(&[7; 4096])])
                .expect("written");
            fs.sync().expect("a sync");
            let mut damaged = Vec::new();
            for group in 0..fs.geo.groups {
                let desc = fs.group_desc(GroupNumber(group)).expect("a descriptor");
                damaged.push(desc.block_bitmap());
            }
            damaged.iter().for_each(|at| image.spoil(&fs, *at, 900));
            let before: Vec<_> = damaged.iter().map(|at| image.block(&fs, *at)).collect();
            let done = change(&fs, &file);
            assert!(matches!(done, Err(Error::Corrupt(_))), "{which}: {done:?}");
            let _ = fs.sync();
            let after: Vec<_> = damaged.iter().map(|at| image.block(&fs, *at)).collect();
            assert!(before == after, "{which}: a damaged bitmap was written");
        }
    }
}
