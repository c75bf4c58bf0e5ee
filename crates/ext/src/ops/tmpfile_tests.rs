//! Unnamed files and whiteouts on volumes, checked by `e2fsck`.

use std::io::IoSlice;

use throughline_extfmt::acl::{Acl, Entry, Tag};

use crate::testing::Image;
use crate::{Error, FileType, Fs, NewInode, NewKind, Reason, RenameMode, XattrMode};

const OWNER: NewInode = NewInode {
    permissions: 0o644,
    uid: 0,
    gid: 0,
    umask: 0,
};

const SHAPES: [&[&str]; 3] = [
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "orphan_file"],
    &["-t", "ext2", "-b", "1024"],
];

fn not_found<T>(done: crate::Result<T>) -> bool {
    matches!(done, Err(Error::Caller(Reason::NotFound)))
}

#[test]
fn a_file_without_a_name_gets_one_or_goes() {
    for shape in SHAPES {
        let Some(image) = Image::make("16M", shape) else {
            return;
        };
        let fs = image.open();
        let root = fs.root().expect("a root");
        let free = fs.superblock().s_free_inodes_count.get();
        let make = |linkable| {
            let file = fs.tmpfile(&root, OWNER, linkable).expect("made");
            fs.open_inode(&file).expect("opened");
            fs.write_at(&file, 0, &[IoSlice::new(&[7; 5000])])
                .expect("written");
            file
        };
        let (lost, fixed, named) = (make(true), make(false), make(true));
        assert_eq!(fs.metadata(&named).expect("attributes").links, 0);
        assert!(not_found(fs.link(&fixed, &root, b"fixed")));
        fs.link(&named, &root, b"named").expect("linked");
        assert_eq!(fs.metadata(&named).expect("attributes").links, 1);
        fs.link(&named, &root, b"twice").expect("linked");
        for name in [&b"named"[..], b"twice"] {
            fs.unlink(&root, name).expect("gone");
        }
        assert!(not_found(fs.link(&named, &root, b"again")));
        let kept = make(true);
        fs.link(&kept, &root, b"kept").expect("linked");
        for file in [lost, fixed, named, kept] {
            fs.close_inode(&file).expect("closed");
        }
        assert_eq!(fs.superblock().s_free_inodes_count.get(), free - 1);
        let open = make(true);
        fs.close().expect("closed");
        drop(open);
        image.check("one name is left");
        let fs = image.open();
        assert_eq!(fs.superblock().s_free_inodes_count.get(), free - 1);
        let root = fs.root().expect("a root");
        let kept = fs.lookup(&root, b"kept").expect("found");
        assert_eq!(fs.metadata(&kept).expect("attributes").size_bytes, 5000);
        fs.close().expect("closed");
    }
}

#[test]
fn a_link_that_is_refused_leaves_it_linkable() {
    let Some(image) = Image::make("16M", SHAPES[0]) else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    fs.create(&root, b"taken", NewKind::File, OWNER)
        .expect("made");
    let file = fs.tmpfile(&root, OWNER, true).expect("made");
    fs.open_inode(&file).expect("opened");
    let taken = fs.link(&file, &root, b"taken");
    assert!(matches!(taken, Err(Error::Caller(Reason::Exists))));
    fs.link(&file, &root, b"free").expect("linked");
    fs.close_inode(&file).expect("closed");
    fs.close().expect("closed");
    image.check("two files");
}

fn whiteout(replace: bool) -> RenameMode {
    RenameMode::Whiteout {
        replace,
        uid: 3,
        gid: 4,
    }
}

fn is_whiteout(fs: &Fs, name: &[u8]) -> bool {
    let root = fs.root().expect("a root");
    let inode = fs.lookup(&root, name).expect("found");
    let meta = fs.metadata(&inode).expect("attributes");
    meta.file_type == FileType::CharDevice
        && meta.device == Some((0, 0))
        && (meta.permissions, meta.uid, meta.gid) == (0, 3, 4)
}

#[test]
fn whiteouts_are_left_behind() {
    for shape in SHAPES {
        let Some(image) = Image::make("16M", shape) else {
            return;
        };
        let fs = image.open();
        let root = fs.root().expect("a root");
        let make = |name: &[u8], kind| fs.create(&root, name, kind, OWNER).expect("made");
        let (dir, sub) = (make(b"dir", NewKind::Dir), make(b"sub", NewKind::Dir));
        let (a, b) = (make(b"a", NewKind::File), make(b"b", NewKind::File));
        let rename =
            |from: &[u8], to: &[u8], replace| fs.rename(&root, from, &root, to, whiteout(replace));
        let taken = rename(b"a", b"b", false);
        assert!(matches!(taken, Err(Error::Caller(Reason::Exists))));
        rename(b"a", b"b", true).expect("renamed");
        assert!(is_whiteout(&fs, b"a"));
        assert_eq!(fs.lookup(&root, b"b").expect("found").ino, a.ino);
        assert!(fs.image_is_free(b.ino));
        rename(b"b", b"c", false).expect("renamed");
        assert!(is_whiteout(&fs, b"b"));
        fs.rename(&root, b"sub", &dir, b"sub", whiteout(true))
            .expect("moved");
        assert!(is_whiteout(&fs, b"sub"));
        assert_eq!(fs.parent(&sub).expect("a parent").ino, dir.ino);
        fs.close().expect("closed");
        image.check("whiteouts");
    }
}

/// As any inode created in a directory with a default ACL, it has that ACL; its permissions are 0.
#[test]
fn a_whiteout_inherits_the_default_acl() {
    let list = |owner, named, mask, others| {
        let entry = |tag, rights, id| Entry { tag, rights, id };
        let entries = vec![
            entry(Tag::Owner, owner, u32::MAX),
            entry(Tag::User, named, 1000),
            entry(Tag::Group, 5, u32::MAX),
            entry(Tag::Mask, mask, u32::MAX),
            entry(Tag::Others, others, u32::MAX),
        ];
        Acl::new(entries).expect("a list").to_user()
    };
    for shape in SHAPES {
        let Some(image) = Image::make("16M", shape) else {
            return;
        };
        let fs = image.open();
        let root = fs.root().expect("a root");
        let default = list(7, 6, 7, 4);
        fs.set_xattr(
            &root,
            b"system.posix_acl_default",
            &default,
            XattrMode::Either,
        )
        .expect("a list");
        fs.create(&root, b"old", NewKind::File, OWNER)
            .expect("made");
        fs.rename(&root, b"old", &root, b"new", whiteout(false))
            .expect("renamed");
        assert!(is_whiteout(&fs, b"old"));
        let left = fs.lookup(&root, b"old").expect("found");
        let access = fs.get_xattr(&left, b"system.posix_acl_access");
        assert_eq!(access.expect("a list"), list(0, 6, 0, 0));
        let names = fs.list_xattrs(&left).expect("names");
        assert_eq!(names, [b"system.posix_acl_access"]);
        fs.remove_xattr(&root, b"system.posix_acl_default")
            .expect("taken");
        fs.rename(&root, b"new", &root, b"newer", whiteout(false))
            .expect("renamed");
        let left = fs.lookup(&root, b"new").expect("found");
        assert!(fs.list_xattrs(&left).expect("names").is_empty());
        fs.close().expect("closed");
        image.check("whiteouts with lists");
    }
}

impl Fs {
    fn image_is_free(&self, ino: crate::InodeNumber) -> bool {
        !self.is_inode_used(ino).expect("a bitmap")
    }
}
