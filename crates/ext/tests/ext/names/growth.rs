//! Large directories: levels of the hash tree, counts of subdirectories and names, a volume that fills up.

use std::collections::BTreeMap;
use std::sync::Arc;

use throughline_ext::{Error, Fs, Inode, Last, NewInode, NewKind, Reason};

use crate::names::image::{Image, Random};

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    umask: 0,
};

/// A name of 250 bytes, so that few fit a block.
fn long(number: usize) -> String {
    format!("{number:06}{}", "n".repeat(244))
}

fn link_many(
    fs: &Fs,
    dir: &Arc<Inode>,
    names: impl Iterator<Item = String>,
) -> Result<(), (String, Error)> {
    // The names refer to a few inodes: only the names matter here.
    let mut inode = None;
    for (count, name) in names.enumerate() {
        let done = match &inode {
            Some(inode) if count % 60_000 != 0 => fs.link(inode, dir, name.as_bytes()),
            _ => fs
                .create(dir, name.as_bytes(), NewKind::File, OWNER)
                .map(|new| inode = Some(new)),
        };
        done.map_err(|error| (name, error))?;
    }
    Ok(())
}

fn levels(image: &Image, path: &str) -> u32 {
    let dump = image.debugfs(&format!("htree_dump {path}"));
    let line = dump
        .lines()
        .find(|line| line.contains("Indirect levels"))
        .unwrap_or_else(|| panic!("no tree: {dump:.200}"));
    line.trim()
        .rsplit(' ')
        .next()
        .and_then(|last| last.parse().ok())
        .expect("a number")
}

fn grow(args: &[&str], count: usize, expected_levels: u32) {
    let Some(image) = Image::make(args, "256M") else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    let dir = fs
        .create(&root, b"many", NewKind::Dir, OWNER)
        .expect("made");
    link_many(&fs, &dir, (0..count).map(long)).expect("room for all");
    // Remove every third name, and add some again.
    for number in (0..count).step_by(3) {
        fs.unlink(&dir, long(number).as_bytes()).expect("a name");
    }
    for number in (0..count).step_by(6) {
        fs.create(&dir, long(number).as_bytes(), NewKind::File, OWNER)
            .expect("room");
    }
    let there = |number: usize| !number.is_multiple_of(3) || number.is_multiple_of(6);
    for number in (0..count).step_by(7) {
        let found = fs.lookup(&dir, long(number).as_bytes());
        assert_eq!(found.is_ok(), there(number), "{number}");
    }
    fs.close().expect("closed");
    image.check();
    assert_eq!(levels(&image, "/many"), expected_levels);
    let fs = image.open();
    let dir = fs.resolve(b"/many", Last::Follow).expect("the directory");
    let mut names: Vec<_> = fs
        .read_dir(&dir)
        .map(|entry| entry.expect("sound").name)
        .collect();
    names.sort_unstable();
    let expected: Vec<_> = (0..count)
        .filter(|&n| there(n))
        .map(|n| long(n).into_bytes())
        .collect();
    assert!(
        names == expected,
        "{} names, not {}",
        names.len(),
        expected.len()
    );
}

#[test]
fn one_level_of_nodes() {
    grow(
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-N",
            "30000",
            "-O",
            "metadata_csum",
        ],
        5_000,
        1,
    );
}

#[test]
fn two_levels_of_nodes_with_large_dir() {
    if throughline_testkit::tier::is_too_long("60,000 names") {
        return;
    }
    grow(
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-N",
            "30000",
            "-O",
            "metadata_csum,large_dir",
        ],
        60_000,
        2,
    );
}

#[test]
fn a_full_index_fails_with_no_space_and_stays_valid() {
    let Some(image) = Image::make(&["-t", "ext3", "-b", "1024", "-N", "30000"], "256M") else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    let dir = fs
        .create(&root, b"many", NewKind::Dir, OWNER)
        .expect("made");
    let (name, error) =
        link_many(&fs, &dir, (0..90_000).map(long)).expect_err("more names than two levels hold");
    assert!(matches!(error, Error::Caller(Reason::NoSpace)), "{error:?}");
    assert!(fs.lookup(&dir, name.as_bytes()).is_err());
    fs.close().expect("closed");
    image.check();
}

#[test]
fn subdirectories_beyond_counting() {
    if throughline_testkit::tier::is_too_long("65,010 subdirectories") {
        return;
    }
    let args = [
        "-t",
        "ext4",
        "-b",
        "1024",
        "-N",
        "70000",
        "-O",
        "dir_nlink,metadata_csum",
    ];
    let Some(image) = Image::make(&args, "256M") else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    let dir = fs.create(&root, b"d", NewKind::Dir, OWNER).expect("made");
    for number in 0..65_010 {
        fs.create(&dir, format!("{number}").as_bytes(), NewKind::Dir, OWNER)
            .expect("made");
        match number {
            64_996 => assert_eq!(dir.image().links_count(), 64_999),
            64_999.. => assert_eq!(dir.image().links_count(), 1, "{number}"),
            _ => {}
        }
    }
    for number in 0..100 {
        fs.rmdir(&dir, format!("{number}").as_bytes())
            .expect("removed");
    }
    assert_eq!(dir.image().links_count(), 1);
    fs.close().expect("closed");
    image.check();
}

#[test]
fn links_are_counted_to_65000() {
    if throughline_testkit::tier::is_too_long("65,000 links") {
        return;
    }
    let args = [
        "-t",
        "ext4",
        "-b",
        "4096",
        "-N",
        "70000",
        "-O",
        "^dir_nlink",
    ];
    let Some(image) = Image::make(&args, "512M") else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("a root");
    let dir = fs.create(&root, b"d", NewKind::Dir, OWNER).expect("made");
    let file = fs.create(&root, b"f", NewKind::File, OWNER).expect("made");
    for number in 0..64_999 {
        fs.link(&file, &dir, format!("{number}").as_bytes())
            .expect("another name");
    }
    let more = fs.link(&file, &dir, b"more");
    assert!(
        matches!(more, Err(Error::Caller(Reason::TooManyLinks))),
        "{more:?}"
    );
    for number in 0..64_998 {
        fs.create(&dir, format!("d{number}").as_bytes(), NewKind::Dir, OWNER)
            .expect("made");
    }
    let more = fs.create(&dir, b"more", NewKind::Dir, OWNER).map(drop);
    assert!(
        matches!(more, Err(Error::Caller(Reason::TooManyLinks))),
        "{more:?}"
    );
    fs.close().expect("closed");
    image.check();
}

#[test]
fn a_volume_that_fills_up_stays_valid() {
    for args in [
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-N",
            "8000",
            "-O",
            "metadata_csum,inline_data",
            "-I",
            "256",
        ][..],
        &["-t", "ext2", "-b", "1024", "-N", "8000"],
        &["-t", "ext4", "-b", "1024", "-N", "64"],
    ] {
        let Some(image) = Image::make(args, "4M") else {
            return;
        };
        let fs = image.open();
        let mut random = Random(7);
        let mut dirs = vec![fs.root().expect("a root")];
        let mut made: BTreeMap<(usize, String), bool> = BTreeMap::new();
        let mut refused = 0;
        for number in 0..20_000 {
            let at = random.below(dirs.len());
            let name = format!("{number}{}", "f".repeat(random.below(200)));
            let kind = match random.below(4) {
                0 => NewKind::Dir,
                1 => NewKind::Symlink(&[b't'; 300]),
                _ => NewKind::File,
            };
            match fs.create(&dirs[at], name.as_bytes(), kind, OWNER) {
                Ok(inode) => {
                    made.insert((at, name), kind == NewKind::Dir);
                    if kind == NewKind::Dir && dirs.len() < 40 {
                        dirs.push(inode);
                    }
                }
                Err(Error::Caller(Reason::NoSpace)) => {
                    refused += 1;
                    assert!(
                        fs.lookup(&dirs[at], name.as_bytes()).is_err(),
                        "{name} was refused"
                    );
                    if refused > 200 {
                        break;
                    }
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
        assert!(refused > 200, "it never filled up");
        for (at, name) in made.keys() {
            fs.lookup(&dirs[*at], name.as_bytes())
                .expect("a name that was made");
        }
        fs.close().expect("closed");
        image.check();
    }
}
