//! Inodes without names, and attributes that are freed with their inodes.

use throughline_ext::{Error, Last, NewInode, NewKind, Reason};
use throughline_extfmt::orphan;

use crate::names::image::Image;

const OWNER: NewInode = NewInode {
    permissions: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

fn free(fs: &throughline_ext::Fs) -> (u64, u32) {
    let stat = fs.statfs().expect("numbers");
    (stat.free_blocks, stat.free_inodes)
}

#[test]
fn an_open_file_outlives_its_name() {
    let Some(image) = Image::make(&["-t", "ext4", "-O", "metadata_csum"], "32M") else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    let before = free(&fs);
    let mut files = Vec::new();
    for name in ["a", "b", "c", "d"] {
        let file = fs
            .create(&root, name.as_bytes(), NewKind::File, OWNER)
            .expect("made");
        fs.open_inode(&file).expect("opened");
        fs.write_at(&file, 0, &[std::io::IoSlice::new(&[7; 100_000])])
            .expect("written");
        files.push(file);
    }
    for name in ["a", "b", "c", "d"] {
        fs.unlink(&root, name.as_bytes()).expect("unlinked");
    }
    assert!(free(&fs).0 < before.0 - 90);
    // One in the middle of the list, then at its end, then at its head.
    for at in [1, 0, 3] {
        fs.close_inode(&files[at]).expect("closed");
        assert!(matches!(
            fs.open_inode(&files[at]),
            Err(Error::Caller(Reason::NotFound))
        ));
    }
    let mut bytes = vec![0; 100_000];
    let read = fs
        .read_at(&files[2], 0, &mut [std::io::IoSliceMut::new(&mut bytes)])
        .expect("read");
    assert!(read == 100_000 && bytes.iter().all(|&byte| byte == 7));
    fs.close_inode(&files[2]).expect("closed");
    assert_eq!(free(&fs), before);
    fs.close().expect("closed");
    image.check();
}

#[test]
fn a_crash_leaves_orphans_that_the_next_open_frees() {
    let Some(image) = Image::make(&["-t", "ext4", "-O", "metadata_csum"], "32M") else {
        return;
    };
    let fs = image.open();
    let before = free(&fs);
    let root = fs.root().expect("a root");
    for number in 0..5u8 {
        let file = fs
            .create(&root, &[b'a' + number], NewKind::File, OWNER)
            .expect("made");
        fs.open_inode(&file).expect("opened");
        fs.write_at(&file, 0, &[std::io::IoSlice::new(&[7; 50_000])])
            .expect("written");
        fs.unlink(&root, &[b'a' + number]).expect("unlinked");
        if number == 2 {
            fs.close_inode(&file).expect("closed");
        }
    }
    fs.sync().expect("synced");
    // The crash: only the current disk contents remain.
    let crashed = std::fs::read(&image.path).expect("the image");
    drop(fs);
    std::fs::write(&image.path, &crashed).expect("written");
    let fs = image.open();
    let recovery = fs.recovery();
    assert!(recovery.replayed.as_ref().is_some_and(|log| log.blocks > 0));
    assert_eq!(recovery.orphans.freed, 4, "{recovery:?}");
    assert_eq!(free(&fs), before);
    fs.close().expect("closed");
    image.check();
    // e2fsck frees them too.
    std::fs::write(&image.path, &crashed).expect("written");
    let output = image.repair();
    assert!(output.contains("orphaned inode"), "{output}");
    let fs = image.open();
    assert_eq!(free(&fs), before);
}

#[test]
fn the_orphan_file_is_emptied() {
    let Some(image) = Image::make(&["-t", "ext4", "-O", "metadata_csum,orphan_file"], "32M") else {
        return;
    };
    let fs = image.open();
    let before = free(&fs);
    let root = fs.root().expect("a root");
    let file = fs.create(&root, b"f", NewKind::File, OWNER).expect("made");
    fs.write_at(&file, 0, &[std::io::IoSlice::new(&[7; 50_000])])
        .expect("written");
    let ino = file.ino;
    drop(file);
    let place = fs.superblock().s_orphan_file_inum.get();
    let geometry = fs.geometry().clone();
    fs.close().expect("closed");
    // As the kernel leaves it in a crash: no name, and a slot in the orphan file.
    image.debugfs_write(
        "unlink /f\nsif <INO> links_count 0\nfeature orphan_present"
            .replace("INO", &ino.to_string())
            .as_str(),
    );
    let block: u64 = image
        .debugfs(&format!("bmap <{place}> 0"))
        .trim()
        .parse()
        .expect("a block");
    let generation = image
        .debugfs(&format!("stat <{place}>"))
        .split("Generation: ")
        .nth(1)
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .expect("a generation");
    let mut bytes = std::fs::read(&image.path).expect("the image");
    let at = (block * u64::from(geometry.block_bytes)) as usize;
    let seed = geometry.inode_seed(throughline_extfmt::InodeNumber(place), generation);
    let slots = &mut bytes[at..at + geometry.block_bytes as usize];
    let block = throughline_extfmt::FsBlock(block);
    orphan::check(slots, block, geometry.inodes, seed).expect("as mke2fs made it");
    orphan::set_slot(slots, 3, ino, block, seed).expect("set");
    std::fs::write(&image.path, &bytes).expect("written");
    let fs = image.open();
    assert_eq!(free(&fs), before);
    fs.close().expect("closed");
    image.check();
    assert!(!image.debugfs("features").contains("orphan_present"));
}

#[test]
fn attributes_are_read_and_go_with_their_inode() {
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-I",
        "256",
        "-O",
        "metadata_csum,ea_inode",
    ];
    let Some(image) = Image::make(&args, "32M") else {
        return;
    };
    let fs = image.open();
    let before = free(&fs);
    let root = fs.root().expect("a root");
    for name in ["f", "g"] {
        let file = fs
            .create(&root, name.as_bytes(), NewKind::File, OWNER)
            .expect("made");
        fs.write_at(&file, 0, &[std::io::IoSlice::new(&[7; 5_000])])
            .expect("written");
    }
    fs.close().expect("closed");
    // One in the inode, one in the block, one in an inode of its own.
    let (medium, large) = ("m".repeat(900), "l".repeat(7_000));
    image.debugfs_write(&format!(
        "ea_set /f user.small tiny\nea_set /f user.medium {medium}\n\
         ea_set /f user.large {large}\nea_set /g security.x y\n",
    ));
    // debugfs does not count the attributes' blocks.
    image.repair();
    image.check();
    let fs = image.open();
    assert_eq!(free(&fs).1, before.1 - 3, "the large value has an inode");
    let file = fs.resolve(b"/f", Last::Follow).expect("the file");
    let mut names = fs.list_xattrs(&file).expect("attributes");
    names.sort();
    assert_eq!(
        names,
        [
            b"user.large".to_vec(),
            b"user.medium".to_vec(),
            b"user.small".to_vec()
        ]
    );
    assert_eq!(fs.get_xattr(&file, b"user.small").expect("there"), b"tiny");
    assert_eq!(
        fs.get_xattr(&file, b"user.medium").expect("there"),
        medium.as_bytes()
    );
    assert_eq!(
        fs.get_xattr(&file, b"user.large").expect("there"),
        large.as_bytes()
    );
    let got = fs.get_xattr(&file, b"user.none");
    assert!(
        matches!(got, Err(Error::Caller(Reason::NoAttribute))),
        "{got:?}"
    );
    // Names that programs cannot use for attributes, with the kernel's results.
    for none in [&b"nonsense"[..], b"system.data"] {
        let got = fs.get_xattr(&file, none);
        assert!(matches!(got, Err(Error::Unsupported(_))), "{got:?}");
    }
    // Other changes of the file keep its attributes.
    fs.rename(
        &fs.root().expect("a root"),
        b"f",
        &fs.root().expect("a root"),
        b"h",
        throughline_ext::RenameMode::Replace,
    )
    .expect("renamed");
    let set = throughline_ext::Attributes {
        uid: Some(100_000),
        permissions: Some(0o600),
        ..Default::default()
    };
    fs.set_attributes(&file, &set).expect("set");
    fs.close().expect("closed");
    image.check();
    let fs = image.open();
    let root = fs.root().expect("a root");
    let file = fs.lookup(&root, b"h").expect("the file");
    assert_eq!(
        fs.get_xattr(&file, b"user.large").expect("there"),
        large.as_bytes()
    );
    let attributes = fs.metadata(&file).expect("attributes");
    assert_eq!(
        (attributes.uid, attributes.permissions, attributes.links),
        (100_000, 0o600, 1)
    );
    assert!(
        attributes
            .created
            .is_some_and(|born| born <= attributes.changed)
    );
    for name in ["h", "g"] {
        fs.unlink(&root, name.as_bytes()).expect("unlinked");
    }
    assert_eq!(free(&fs), before);
    fs.close().expect("closed");
    image.check();
}
