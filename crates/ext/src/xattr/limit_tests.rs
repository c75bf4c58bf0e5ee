//! Attributes at their limits: the longest lists, and inconsistent images.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use throughline_extfmt::acl::{Acl, Entry, Tag};
use throughline_testkit::tier::pick;

use super::XattrMode;
use crate::testing::Image;
use crate::{Attributes, Error, Fs, Inode, NewInode, NewKind, Reason};

const OWNER: NewInode = NewInode {
    permissions: 0o664,
    uid: 7,
    gid: 8,
    umask: 0,
};

fn create(fs: &Fs, name: &str, kind: NewKind<'_>) -> Arc<Inode> {
    let root = fs.root().expect("a root");
    fs.create(&root, name.as_bytes(), kind, OWNER)
        .expect("an inode")
}

fn set(fs: &Fs, inode: &Inode, name: &str, value: &[u8]) -> crate::Result<()> {
    fs.set_xattr(inode, name.as_bytes(), value, XattrMode::Either)
}

fn get(fs: &Fs, inode: &Inode, name: &str) -> crate::Result<Vec<u8>> {
    fs.get_xattr(inode, name.as_bytes())
}

fn is_full<T>(done: &crate::Result<T>) -> bool {
    matches!(done, Err(Error::Caller(Reason::NoSpace)))
}

/// An ACL in its user-space form with this many users.
fn list(users: u32) -> Vec<u8> {
    let entry = |tag, rights, id| Entry { tag, rights, id };
    let mut entries = vec![entry(Tag::Owner, 7, u32::MAX)];
    entries.extend((0..users).map(|user| entry(Tag::User, 5, 1000 + user)));
    entries.push(entry(Tag::Group, 7, u32::MAX));
    entries.push(entry(Tag::Mask, 7, u32::MAX));
    entries.push(entry(Tag::Others, 4, u32::MAX));
    Acl::new(entries).expect("well formed").to_user()
}

/// ACLs with thousands of entries are stored in value inodes: set, updated by permissions, inherited, and
/// freed.
#[test]
fn thousands_of_attributes() {
    let args = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-O", "ea_inode"];
    let Some(image) = Image::make("24M", &args) else {
        return;
    };
    let before = image.free_counts();
    let fs = image.open();
    let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
    let dir = create(&fs, "d", NewKind::Dir);
    let longest = (65_536 - 4) / 8 - 4;
    for users in [3000, longest] {
        set(&fs, &dir, default, &list(users)).expect("set");
        assert_eq!(get(&fs, &dir, default).expect("there"), list(users));
    }
    let too_long = set(&fs, &dir, default, &list(longest + 1));
    assert!(matches!(too_long, Err(Error::Caller(Reason::ValueTooLong))));
    let made = |name: &[u8], kind| fs.create(&dir, name, kind, OWNER).expect("made");
    let (file, sub) = (made(b"f", NewKind::File), made(b"s", NewKind::Dir));
    assert_eq!(get(&fs, &sub, default).expect("inherited"), list(longest));
    let inherited = get(&fs, &file, access).expect("inherited");
    assert_eq!(inherited.len(), list(longest).len());
    let mode = Attributes {
        permissions: Some(0o600),
        ..Attributes::default()
    };
    fs.set_attributes(&file, &mode).expect("changed");
    let changed = Acl::from_user(&get(&fs, &file, access).expect("there"));
    let changed = changed.expect("well formed").expect("not empty");
    assert_eq!(changed.permissions(), (0o600, false));
    set(&fs, &file, access, &list(2)).expect("shorter");
    drop((file, sub));
    fs.close().expect("close");
    image.check("long lists");
    let fs = image.open();
    let root = fs.root().expect("a root");
    let dir = fs.lookup(&root, b"d").expect("found");
    fs.unlink(&dir, b"f").expect("removed");
    fs.rmdir(&dir, b"s").expect("removed");
    drop(dir);
    fs.rmdir(&root, b"d").expect("removed");
    drop(root);
    fs.close().expect("close");
    image.check("all gone");
    assert_eq!(image.free_counts(), before);
    // Without value inodes there is no room for so long an ACL, and the previous one stays.
    let Some(image) = Image::make("8M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = image.open();
    let file = create(&fs, "f", NewKind::File);
    set(&fs, &file, access, &list(20)).expect("set");
    assert!(is_full(&set(&fs, &file, access, &list(3000))));
    assert_eq!(get(&fs, &file, access).expect("there"), list(20));
    assert_eq!(fs.metadata(&file).expect("attributes").permissions, 0o774);
    fs.close().expect("close");
    image.check("a short list");
}

/// Volumes without checksums, so that direct changes are accepted.
fn without_checksums() -> [&'static [&'static str]; 2] {
    [
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "ea_inode,^metadata_csum",
        ],
        &["-t", "ext2", "-b", "1024", "-I", "128"],
    ]
}

/// Finds bytes in the image, and overwrites those at offset `behind` from them.
fn patch(image: &Image, found: &[u8], behind: usize, with: &[u8]) {
    let bytes = std::fs::read(image.path()).expect("the image");
    let mut hits = 0;
    for at in (0..bytes.len() - found.len()).filter(|at| bytes[*at..].starts_with(found)) {
        let file = std::fs::File::options().write(true).open(image.path());
        let at = (at + behind) as u64;
        file.expect("the image")
            .write_all_at(with, at)
            .expect("written");
        hits += 1;
    }
    assert!(hits > 0, "{found:?} is nowhere");
}

/// The entry of a `user.` attribute with a name of five letters.
fn entry_of(image: &Image, name: &[u8; 5]) -> Vec<u8> {
    let bytes = std::fs::read(image.path()).expect("the image");
    let mut places = (16..bytes.len() - 5).filter(|at| bytes[*at..].starts_with(name));
    let at = places.find(|at| bytes[at - 16..at - 14] == [5, 1]);
    let at = at.expect("an entry");
    bytes[at - 16..at].to_vec()
}

/// All operations on the attributes of `f` and `g`: damage is refused, and nothing panics.
fn use_all(image: &Image, what: &str) {
    let fs = image.open();
    let root = fs.root().expect("a root");
    for name in [&b"f"[..], b"g"] {
        let Ok(file) = fs.lookup(&root, name) else {
            continue;
        };
        let refused = |done: crate::Result<()>| match done {
            Ok(()) | Err(Error::Corrupt(_) | Error::Stopped(_)) => {}
            Err(Error::Caller(Reason::NoAttribute | Reason::NoSpace)) => {}
            Err(error) => panic!("{what}: {error:?}"),
        };
        refused(fs.list_xattrs(&file).map(drop));
        for attribute in ["user.block", "user.value", "user.new"] {
            refused(get(&fs, &file, attribute).map(drop));
            refused(set(&fs, &file, attribute, &[8; 50]));
            refused(set(&fs, &file, attribute, &[9; 4000]));
            refused(fs.remove_xattr(&file, attribute.as_bytes()));
        }
        let chown = Attributes {
            uid: Some(1),
            ..Attributes::default()
        };
        refused(fs.set_attributes(&file, &chown));
        refused(fs.unlink(&root, name));
    }
    drop(root);
    // The damage may also be reported at the close.
    let _ = fs.close();
    image.repair();
    image.check(what);
}

#[test]
fn blocks_and_values_that_lie() {
    for args in without_checksums() {
        let Some(image) = Image::make("8M", args) else {
            continue;
        };
        let inodes = args.iter().any(|arg| arg.contains("ea_inode"));
        let fs = image.open();
        let mut numbers = Vec::new();
        for name in ["f", "g"] {
            let file = create(&fs, name, NewKind::File);
            set(&fs, &file, "user.block", &[5; 300]).expect("set");
            if inodes {
                set(&fs, &file, "user.value", &[6; 3000]).expect("set");
            }
            numbers.push(file.ino.0);
        }
        fs.close().expect("close");
        image.check("before");
        // The header of a block: h_refcount, h_blocks, h_hash.
        let head = [&[0, 0, 2, 0xEA][..], &[2, 0, 0, 0, 1, 0, 0, 0]].concat();
        let heads = [
            (4, [0; 4]),
            (4, [1, 0, 0, 0]),
            (4, [255; 4]),
            (8, [0; 4]),
            (8, [255; 4]),
            (12, [0; 4]),
            (12, [255; 4]),
        ];
        for (behind, with) in heads.into_iter().step_by(pick(3, 1, 1)) {
            let image = image.copy();
            patch(&image, &head, behind, &with);
            use_all(&image, &format!("{args:?}: head, {behind}: {with:?}"));
        }
        // An entry with the value "block", followed by its name: e_name_len, e_value_offs, e_value_size.
        let was = entry_of(&image, b"block");
        let entries = [
            (0, &[255][..]),
            (0, &[0]),
            (1, &[0]),
            (1, &[99]),
            (2, &[0, 0]),
            (2, &[33, 0]),
            (2, &[255, 255]),
            (4, &[1, 0, 0, 0]),
            (4, &[255, 255, 255, 255]),
            (8, &[255, 255, 255, 255]),
            (8, &[255, 3, 0, 0]),
            (12, &[1, 2, 3, 4]),
        ];
        for (behind, with) in entries.into_iter().step_by(pick(3, 1, 1)) {
            let image = image.copy();
            patch(&image, &was, behind, with);
            use_all(&image, &format!("{args:?}: entry, {behind}: {with:?}"));
        }
        if inodes {
            use_wrong_values(&image, &numbers);
        }
    }
}

/// The inode of a value is not a file: a name that leads to it is damage.
#[test]
fn a_value_has_no_name() {
    let Some(image) = Image::make("8M", without_checksums()[0]) else {
        return;
    };
    let fs = image.open();
    let file = create(&fs, "f", NewKind::File);
    set(&fs, &file, "user.value", &[6; 3000]).expect("set");
    drop(file);
    fs.close().expect("close");
    let entry = entry_of(&image, b"value");
    let holder = u32::from_le_bytes(entry[4..8].try_into().expect("four bytes"));
    image.debugfs_write_all(&[&format!("link <{holder}> named")]);
    let fs = image.open();
    let root = fs.root().expect("a root");
    assert!(matches!(fs.lookup(&root, b"named"), Err(Error::Corrupt(_))));
    let file = fs.lookup(&root, b"f").expect("found");
    assert_eq!(get(&fs, &file, "user.value").expect("there"), [6; 3000]);
}

/// An `e_value_inum` that is not a value: the inode itself, a directory, the journal, 0, a missing inode.
fn use_wrong_values(image: &Image, numbers: &[u32]) {
    let entry = &entry_of(image, b"value");
    let holder = u32::from_le_bytes(entry[4..8].try_into().expect("four bytes"));
    assert!(holder > 10, "{entry:?}");
    for ino in [numbers[0], numbers[1], 2, 8, 1, 0, holder + 1, u32::MAX] {
        let image = image.copy();
        patch(&image, entry, 4, &ino.to_le_bytes());
        use_all(&image, &format!("value in inode {ino}"));
    }
    for size in [0u32, 1, 2999, 3001, 1 << 24, u32::MAX] {
        let image = image.copy();
        patch(&image, entry, 8, &size.to_le_bytes());
        use_all(&image, &format!("value of {size} bytes"));
    }
    // The count of a value's inode: the low half is its version, the high half its change time.
    for field in [
        "version",
        "ctime",
        "atime",
        "flags",
        "links_count",
        "size",
        "block[0]",
    ] {
        // debugfs refuses a number that is too large for its field.
        let largest = match field {
            "links_count" => "0xffff",
            _ => "0xffffffff",
        };
        for value in ["0", largest, "7"] {
            let image = image.copy();
            image.debugfs_write_all(&[&format!("sif <{holder}> {field} {value}")]);
            use_all(&image, &format!("{field} = {value}"));
        }
    }
}
