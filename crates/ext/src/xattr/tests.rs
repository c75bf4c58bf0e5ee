//! Attributes stored, moved, shared and released, checked by `e2fsck` and `debugfs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use throughline_extfmt::FsBlock;

use super::XattrMode;
use crate::testing::{Image, Rng};
use crate::{Attributes, Error, Fs, Inode, NewInode, NewKind, Reason};

const OWNER: NewInode = NewInode {
    permissions: 0o644,
    uid: 7,
    gid: 8,
    umask: 0,
};

/// Volumes with different attribute storage: name and arguments of `mke2fs`.
const VOLUMES: [(&str, &[&str]); 6] = [
    ("ext2", &["-t", "ext2", "-b", "1024", "-I", "128"]),
    (
        "ext3",
        &["-t", "ext3", "-b", "1024", "-J", "size=1", "-I", "256"],
    ),
    ("ext4", &["-t", "ext4", "-b", "4096", "-J", "size=4"]),
    (
        "ea_inode",
        &[
            "-t", "ext4", "-b", "1024", "-I", "256", "-J", "size=1", "-O", "ea_inode",
        ],
    ),
    (
        "ea_inode without checksums",
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-I",
            "128",
            "-O",
            "ea_inode,^metadata_csum,^has_journal",
        ],
    ),
    (
        "inline_data",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "256",
            "-O",
            "inline_data,ea_inode",
        ],
    ),
];

fn create(fs: &Fs, name: &str) -> Arc<Inode> {
    let root = fs.root().expect("a root");
    fs.create(&root, name.as_bytes(), NewKind::File, OWNER)
        .expect("a file")
}

fn found(fs: &Fs, name: &str) -> Arc<Inode> {
    let root = fs.root().expect("a root");
    fs.lookup(&root, name.as_bytes()).expect("a file")
}

fn set(fs: &Fs, inode: &Inode, name: &str, value: &[u8]) {
    fs.set_xattr(inode, name.as_bytes(), value, XattrMode::Either)
        .unwrap_or_else(|e| panic!("{name} of {} bytes: {e}", value.len()));
}

fn get(fs: &Fs, inode: &Inode, name: &str) -> Vec<u8> {
    fs.get_xattr(inode, name.as_bytes())
        .unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn block_of(fs: &Fs, inode: &Inode) -> FsBlock {
    inode.image().file_acl(&fs.geo)
}

fn is_reason<T>(result: crate::Result<T>, reason: &Reason) -> bool {
    matches!(result, Err(Error::Caller(found)) if found == *reason)
}

/// From the inode's body to the block, to a separate inode, and back, with others beside it.
#[test]
fn a_value_grows_and_shrinks() {
    for (what, args) in VOLUMES {
        let Some(image) = Image::make("24M", args) else {
            continue;
        };
        let before = image.free_counts();
        let fs = image.open();
        let inodes = args.iter().any(|arg| arg.contains("ea_inode"));
        let file = create(&fs, "f");
        let mut owned = Vec::new();
        for len in [0, 5, 40, 300, 900, 3000, 20_000, 65_536, 900, 40, 7000, 1] {
            let value: Vec<u8> = (0..len).map(|at| (at * 7 + len) as u8).collect();
            let done = fs.set_xattr(&file, b"user.it", &value, XattrMode::Either);
            let most = if inodes {
                65_536
            } else {
                fs.geo.block_bytes as usize - 80
            };
            if len > most {
                assert!(is_reason(done, &Reason::NoSpace), "{what}: {len}");
                continue;
            }
            done.unwrap_or_else(|e| panic!("{what}: {len}: {e}"));
            set(&fs, &file, "trusted.beside", b"something else");
            assert_eq!(get(&fs, &file, "user.it"), value, "{what}: {len}");
            let names = fs.list_xattrs(&file).expect("names");
            assert_eq!(names.len(), 2, "{what}: {len}");
            let free = fs.statfs().expect("numbers");
            owned.push((len, block_of(&fs, &file) != FsBlock(0), free.free_inodes));
        }
        let last = owned.pop().expect("steps");
        let in_body = !args.contains(&"128");
        assert_eq!(last.1, !in_body, "{what}: {last:?}");
        drop(file);
        fs.close().expect("close");
        image.check(what);
        let listed = image.debugfs("ea_list f");
        assert!(listed.contains("user.it (1)"), "{what}: {listed}");
        let fs = image.open();
        let file = found(&fs, "f");
        let long = fs.set_xattr(&file, b"user.it", &[0; 65_537], XattrMode::Either);
        assert!(is_reason(long, &Reason::ValueTooLong));
        fs.remove_xattr(&file, b"user.it").expect("taken");
        assert!(is_reason(
            fs.remove_xattr(&file, b"user.it"),
            &Reason::NoAttribute
        ));
        fs.remove_xattr(&file, b"trusted.beside").expect("taken");
        assert_eq!(block_of(&fs, &file), FsBlock(0));
        assert_eq!(fs.list_xattrs(&file).expect("names"), Vec::<Vec<u8>>::new());
        fs.unlink(&fs.root().expect("a root"), b"f")
            .expect("removed");
        drop(file);
        fs.close().expect("close");
        image.check(what);
        assert_eq!(image.free_counts(), before, "{what}");
    }
}

#[test]
fn invalid_requests_are_refused() {
    let Some(image) = Image::make("24M", &["-t", "ext4", "-b", "1024"]) else {
        return;
    };
    let fs = image.open();
    let file = create(&fs, "f");
    let set = |name: &[u8], mode| fs.set_xattr(&file, name, b"v", mode);
    assert!(is_reason(
        set(b"user.a", XattrMode::Replace),
        &Reason::NoAttribute
    ));
    set(b"user.a", XattrMode::Create).expect("new");
    assert!(is_reason(
        set(b"user.a", XattrMode::Create),
        &Reason::Exists
    ));
    set(b"user.a", XattrMode::Replace).expect("there");
    let long = [b"user.", &[b'n'; 251][..]].concat();
    assert!(is_reason(
        set(&long, XattrMode::Either),
        &Reason::AttributeName
    ));
    set(&long[..255], XattrMode::Either).expect("as long as can be");
    assert!(is_reason(
        set(b"", XattrMode::Either),
        &Reason::AttributeName
    ));
    assert!(matches!(
        set(b"user.", XattrMode::Either),
        Err(Error::Caller(Reason::Invalid(_)))
    ));
    for name in [&b"system.data"[..], b"other.a", b"system.richacl", b"user"] {
        assert!(matches!(
            set(name, XattrMode::Either),
            Err(Error::Unsupported(_))
        ));
        assert!(matches!(
            fs.get_xattr(&file, name),
            Err(Error::Unsupported(_))
        ));
    }
    let root = fs.root().expect("a root");
    let link = fs
        .create(&root, b"l", NewKind::Symlink(b"f"), OWNER)
        .expect("a link");
    let done = fs.set_xattr(&link, b"user.a", b"v", XattrMode::Either);
    assert!(is_reason(done, &Reason::Permission));
    fs.set_xattr(&link, b"trusted.a", b"v", XattrMode::Either)
        .expect("on a link too");
    let done = fs.set_xattr(&link, b"system.posix_acl_access", b"", XattrMode::Either);
    assert!(matches!(done, Err(Error::Unsupported(_))));
    assert!(is_reason(
        fs.get_xattr(&file, b"security.capability"),
        &Reason::NoAttribute
    ));
    assert!(!fs.drop_capability(&file).expect("nothing to do"));
    fs.set_xattr(&file, b"security.capability", b"caps", XattrMode::Either)
        .expect("set");
    let chown = Attributes {
        uid: Some(9),
        ..Attributes::default()
    };
    fs.set_attributes(&file, &chown).expect("another owner");
    assert!(is_reason(
        fs.get_xattr(&file, b"security.capability"),
        &Reason::NoAttribute
    ));
    fs.close().expect("close");
    image.check("after all");
}

/// Inodes with the same attributes share a block, up to 1024 of them; changing one does not affect the
/// others.
#[test]
fn equal_blocks_are_shared() {
    let args = &["-t", "ext2", "-b", "1024", "-I", "128", "-N", "2048"];
    let Some(image) = Image::make("24M", args) else {
        return;
    };
    let fs = image.open();
    let files: Vec<_> = (0..1030)
        .map(|number| create(&fs, &format!("f{number}")))
        .collect();
    for file in &files {
        set(&fs, file, "user.one", b"1");
        set(&fs, file, "user.two", b"2");
    }
    let blocks: std::collections::BTreeSet<_> =
        files.iter().map(|file| block_of(&fs, file).0).collect();
    assert_eq!(blocks.len(), 2);
    set(&fs, &files[3], "user.one", b"other");
    assert!(!blocks.contains(&block_of(&fs, &files[3]).0));
    set(&fs, &files[3], "user.one", b"1");
    assert!(blocks.contains(&block_of(&fs, &files[3]).0));
    fs.remove_xattr(&files[4], b"user.two").expect("taken");
    assert_eq!(get(&fs, &files[5], "user.two"), b"2");
    drop(files);
    fs.close().expect("close");
    image.check("shared");
    let fs = image.open();
    let root = fs.root().expect("a root");
    for number in 0..1030 {
        fs.unlink(&root, format!("f{number}").as_bytes())
            .expect("removed");
    }
    fs.close().expect("close");
    image.check("all gone");
}

/// Equal values share an inode.
#[test]
fn equal_values_are_shared() {
    let args = &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "ea_inode"];
    let Some(image) = Image::make("24M", args) else {
        return;
    };
    let before = image.free_counts();
    let fs = image.open();
    let files = ["a", "b", "c"].map(|name| create(&fs, name));
    let free = fs.statfs().expect("numbers").free_inodes;
    for file in &files {
        set(&fs, file, "user.one", &[1; 5000]);
        set(&fs, file, "user.two", &[1; 5000]);
    }
    assert_eq!(fs.statfs().expect("numbers").free_inodes, free - 1);
    set(&fs, &files[0], "user.one", &[2; 5000]);
    assert_eq!(fs.statfs().expect("numbers").free_inodes, free - 2);
    set(&fs, &files[0], "user.one", &[1; 5000]);
    assert_eq!(fs.statfs().expect("numbers").free_inodes, free - 1);
    assert_eq!(get(&fs, &files[2], "user.two"), [1; 5000]);
    drop(files);
    fs.close().expect("close");
    image.check("shared");
    let fs = image.open();
    let root = fs.root().expect("a root");
    for name in ["a", "b", "c"] {
        fs.unlink(&root, name.as_bytes()).expect("removed");
    }
    drop(root);
    fs.close().expect("close");
    image.check("all gone");
    assert_eq!(image.free_counts(), before);
}

/// Without space nothing changes, and partial work is undone.
#[test]
fn a_full_volume_takes_no_more() {
    for (what, args) in [VOLUMES[0], VOLUMES[3]] {
        let Some(image) = Image::make("8M", args) else {
            continue;
        };
        let fs = image.open();
        let (file, full) = (create(&fs, "f"), create(&fs, "full"));
        set(&fs, &file, "user.a", &[7; 100]);
        let mut at = 0;
        for len in [65_536, 1024] {
            let bytes = vec![1; len];
            let slices = [std::io::IoSlice::new(&bytes)];
            while let Ok(done @ 1..) = fs.write_at(&full, at, &slices) {
                at += done as u64;
            }
        }
        let mut kept = 0;
        for number in 0..2000 {
            let value = vec![number as u8; 700 + (number % 5) * 900];
            let name = format!("user.{number}");
            match fs.set_xattr(&file, name.as_bytes(), &value, XattrMode::Either) {
                Ok(()) => {
                    kept += 1;
                    assert_eq!(get(&fs, &file, &name), value);
                }
                Err(Error::Caller(Reason::NoSpace)) => break,
                Err(error) => panic!("{what}: {error}"),
            }
        }
        assert_eq!(get(&fs, &file, "user.a"), [7; 100]);
        assert_eq!(
            fs.list_xattrs(&file).expect("names").len(),
            kept + 1,
            "{what}"
        );
        fs.close().expect("close");
        image.check(what);
    }
}

/// Random changes of a few inodes, compared with a map in memory; the volume is sometimes reopened.
#[test]
fn random_changes_are_what_they_should_be() {
    let soak = throughline_testkit::tier::soak();
    let steps = if soak { 20_000 } else { 400 };
    for (seed, (what, args)) in (1..).zip(VOLUMES) {
        let Some(image) = Image::make("24M", args) else {
            continue;
        };
        let mut rng = Rng::new(seed);
        let mut model = vec![BTreeMap::<String, Vec<u8>>::new(); 5];
        let mut fs = image.open();
        let mut files: Vec<_> = (0..5).map(|at| create(&fs, &format!("f{at}"))).collect();
        for step in 0..steps {
            if step % 100 == 99 {
                files.clear();
                fs.close().expect("close");
                image.check(&format!("{what}, seed {seed}, step {step}"));
                fs = image.open();
                let root = fs.root().expect("a root");
                files = (0..5)
                    .map(|at| fs.lookup(&root, format!("f{at}").as_bytes()).expect("it"))
                    .collect();
            }
            let at = rng.below(5) as usize;
            let (file, model) = (&files[at], &mut model[at]);
            let space = ["user", "trusted", "security"][rng.below(3) as usize];
            let name = format!(
                "{space}.{:x<1$}",
                rng.below(4),
                1 + rng.below(2) as usize * 30
            );
            let place = format!("{what}, seed {seed}, step {step}, {name}");
            if rng.below(3) == 0 {
                let done = fs.remove_xattr(file, name.as_bytes());
                assert_eq!(done.is_ok(), model.remove(&name).is_some(), "{place}");
            } else {
                let most = [20, 100, 700, 3000][rng.below(4) as usize];
                let value = vec![rng.below(3) as u8; rng.below(most) as usize];
                match fs.set_xattr(file, name.as_bytes(), &value, XattrMode::Either) {
                    Ok(()) => drop(model.insert(name, value)),
                    Err(Error::Caller(Reason::NoSpace)) => {}
                    Err(error) => panic!("{place}: {error}"),
                }
            }
            let mut names: Vec<_> = fs.list_xattrs(file).expect("names");
            names.sort();
            let expected: Vec<_> = model.keys().map(|name| name.clone().into_bytes()).collect();
            let mut expected = expected;
            expected.sort();
            assert_eq!(names, expected, "{place}");
            for (name, value) in model.iter() {
                assert_eq!(&get(&fs, file, name), value, "{place}: {name}");
            }
        }
        files.clear();
        fs.close().expect("close");
        image.check(what);
    }
}

/// More value inodes than one transaction releases.
#[test]
fn many_values_in_inodes_go_with_their_file() {
    let args = &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "ea_inode"];
    let Some(image) = Image::make("24M", args) else {
        return;
    };
    let before = image.free_counts();
    let value = image.path().with_extension("value");
    let mut requests = vec![format!("write {} f", value.display())];
    for number in 0..2 * super::release::VALUES_PER_STEP + 3 {
        requests.push(format!("ea_set -f {} f user.{number}", value.display()));
    }
    std::fs::write(&value, [b'v'; 1000]).expect("a value");
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    image.debugfs_write_all(&requests);
    let stat = image.debugfs("ea_list f");
    if !stat.contains("user.34") || image.free_counts()[0].1 + 30 > before[0].1 {
        throughline_testkit::missing!("this debugfs puts no values into inodes: {stat}");
        return;
    }
    let fs = image.open();
    let root = fs.root().expect("the root");
    let file = fs.lookup(&root, b"f").expect("the file");
    assert_eq!(fs.get_xattr(&file, b"user.7").expect("a value").len(), 1000);
    drop(file);
    fs.unlink(&root, b"f").expect("removed");
    drop(root);
    fs.close().expect("close");
    image.check("values");
    assert_eq!(image.free_counts(), before);
}

/// A shared block may be evicted between the reading of its count and the update.
#[test]
fn a_shared_block_is_checked_again_before_its_count_changes() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^has_journal"];
    let Some(image) = Image::make("24M", &args) else {
        return;
    };
    let fs = image.open_forgetful();
    let [one, other] = ["one", "other"].map(|name| create(&fs, name));
    for file in [&one, &other] {
        set(&fs, file, "user.some", &[7; 600]);
    }
    let at = one.image().file_acl(&fs.geo);
    assert_eq!(at, other.image().file_acl(&fs.geo), "a shared block");
    fs.sync().expect("a sync");
    image.spoil(&fs, at, 800);
    let before = image.block(&fs, at);
    let done = fs.transact(4, |h| {
        let mut known = fs.xattrs.known();
        super::release::release_block(&fs, h, &one, (at, 2, 0), &mut known)
    });
    assert!(matches!(done, Err(Error::Corrupt(_))), "{done:?}");
    let _ = fs.sync();
    assert!(
        before == image.block(&fs, at),
        "a damaged block was written"
    );
}
