//! Directories that ignore case (`casefold`, `chattr +F`): random operations against a model that folds names
//! by a table of its own, and names of many scripts, in every format of directories.

use std::collections::BTreeSet;

use throughline_ext::{
    Error, Fs, InodeFlags, Last, NewInode, NewKind, OpenOptions, Reason, RenameMode,
};

use crate::names::image::{Image, Random};
use crate::names::model::Model;
use crate::names::{against_a_model, free};

/// What a directory that ignores case does not distinguish.
const SPELLINGS: [&[&str]; 12] = [
    &["x", "X"],
    &["y", "Y"],
    &["ss", "SS", "ß", "ẞ", "ſs"],
    &["é", "É", "e\u{301}", "E\u{301}"],
    &["σ", "Σ", "ς"],
    &["ж", "Ж"],
    &["i\u{307}", "İ"],
    &["q\u{323}\u{307}", "Q\u{307}\u{323}"],
    &["각", "\u{1100}\u{1161}\u{11A8}"],
    &["", "\u{AD}", "\u{200D}"],
    &["k", "K", "\u{212A}"],
    &["\u{1E922}", "\u{1E900}"],
];

/// The first spelling of everything in a name.
fn form(name: &str) -> String {
    let mut form = String::new();
    let mut rest = name;
    'name: while let Some(first) = rest.chars().next() {
        for spellings in SPELLINGS {
            let spelled = spellings.iter().filter(|text| !text.is_empty());
            if let Some(text) = spelled.clone().find(|text| rest.starts_with(**text)) {
                form.push_str(spellings[0]);
                rest = &rest[text.len()..];
                continue 'name;
            }
        }
        form.push(first);
        rest = &rest[first.len_utf8()..];
    }
    form
}

/// Names of which many differ only in spelling.
fn pool(random: &mut Random, count: usize) -> Vec<String> {
    (0..count)
        .map(|at| {
            let mut parts = Random(at as u64 / 3);
            let mut name = format!("{}-", at / 3);
            for _ in 0..1 + parts.below(24) {
                let spellings = SPELLINGS[parts.below(SPELLINGS.len())];
                name.push_str(spellings[random.below(spellings.len())]);
            }
            name
        })
        .collect()
}

/// Volumes whose root ignores case: name, arguments of `mke2fs`, and the flags of the root.
const VOLUMES: [(&str, &[&str], &str); 5] = [
    (
        "hashed",
        &["-t", "ext4", "-b", "1024", "-O", "casefold"],
        "0x40080000",
    ),
    (
        "strict, block map, no checksums",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-O",
            "casefold,^extent,^64bit,^metadata_csum",
            "-E",
            "encoding_flags=strict",
        ],
        "0x40000000",
    ),
    (
        "linear",
        &["-t", "ext4", "-b", "1024", "-O", "casefold,^dir_index"],
        "0x40080000",
    ),
    (
        "inline",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "512",
            "-O",
            "casefold,inline_data",
        ],
        "0x40080000",
    ),
    (
        "large directories, 4 KiB",
        &[
            "-t",
            "ext4",
            "-b",
            "4096",
            "-O",
            "casefold,large_dir,^has_journal",
        ],
        "0x40080000",
    ),
];

/// A volume whose root ignores case.
fn volume(args: &[&str], flags: &str) -> Option<Image> {
    let image = Image::make(args, "32M")?;
    image.debugfs_write(&format!("sif / flags {flags}"));
    image.check();
    Some(image)
}

const OWNER: NewInode = NewInode {
    permissions: 0o755,
    uid: 0,
    gid: 0,
    umask: 0,
};

#[test]
fn random_names_against_a_model() {
    for (at, (what, args, flags)) in VOLUMES.into_iter().enumerate() {
        let Some(image) = volume(args, flags) else {
            return;
        };
        let seed = 0xCA5E_0000 + at as u64;
        eprintln!("{what}, seed {seed:#x}");
        let mut random = Random(seed);
        let names = pool(&mut random, 300);
        against_a_model(&image, Model::with_form(form), &mut random, &names);
    }
}

/// Two characters of each of many scripts, with other spellings of the name.
fn scripts(count: usize) -> Vec<[String; 3]> {
    const STARTS: [u32; 16] = [
        0x41, 0xC0, 0x391, 0x410, 0x531, 0x5D0, 0x628, 0x905, 0x10A0, 0x1E00, 0x1F08, 0x3042,
        0x4E00, 0xAC00, 0x10400, 0x1F600,
    ];
    let mut all = Vec::new();
    for at in 0..count {
        let start = STARTS[at % STARTS.len()];
        let c = char::from_u32(start + (at / STARTS.len()) as u32 % 20).expect("a character");
        let name = format!("{c}{}{c}-{at}", "Name".repeat(1 + at % 30));
        let others = [name.to_lowercase(), name.to_uppercase()];
        let [low, high] = others;
        all.push([name, low, high]);
    }
    all
}

#[test]
fn names_of_many_scripts_in_a_hash_tree() {
    for version in ["half_md4", "tea", "legacy"] {
        let Some(image) = volume(
            &["-t", "ext4", "-b", "1024", "-O", "casefold"],
            "0x40080000",
        ) else {
            return;
        };
        image.debugfs_write(&format!("ssv def_hash_version {version}"));
        let fs = image.open();
        let root = fs.root().expect("the root");
        let dir = fs.create(&root, b"dir", NewKind::Dir, OWNER).expect("dir");
        let names = scripts(throughline_testkit::tier::pick(700, 3000, 3000));
        for [name, ..] in &names {
            fs.create(&dir, name.as_bytes(), NewKind::File, OWNER)
                .unwrap_or_else(|e| panic!("{version}, {name}: {e}"));
        }
        for [name, others @ ..] in &names {
            let ino = fs.lookup(&dir, name.as_bytes()).expect(name).ino;
            for other in others {
                // Not every case mapping is a folding: the long s, for example.
                let found = fs.lookup(&dir, other.as_bytes());
                assert_eq!(found.expect(other).ino, ino, "{version}: {name}, {other}");
                let made = fs.create(&dir, other.as_bytes(), NewKind::File, OWNER);
                assert!(
                    matches!(made, Err(Error::Caller(Reason::Exists))),
                    "{other}"
                );
            }
        }
        let listed: BTreeSet<_> = fs
            .read_dir(&dir)
            .map(|entry| entry.expect("an entry").name)
            .collect();
        let wanted: BTreeSet<_> = names
            .iter()
            .map(|[name, ..]| name.clone().into_bytes())
            .collect();
        assert_eq!(listed, wanted, "{version}");
        fs.close().expect("closed");
        image.check();
        let shown = image.debugfs("htree_dump /dir");
        assert!(shown.contains("Root node dump"), "{shown}");
        let fs = image.open();
        let dir = fs.resolve(b"/DIR", Last::Follow).expect("the directory");
        for (at, [_, low, high]) in names.iter().enumerate() {
            let name = if at % 2 == 0 { low } else { high };
            fs.unlink(&dir, name.as_bytes()).expect(name);
        }
        fs.rmdir(&fs.root().expect("the root"), b"Dir")
            .expect("empty");
        fs.close().expect("closed");
        image.check();
    }
}

fn is(result: throughline_ext::Result<impl Sized>, reason: &str) -> bool {
    match result {
        Err(Error::Caller(found)) => format!("{found:?}").starts_with(reason),
        _ => false,
    }
}

#[test]
fn names_that_are_not_utf8_are_refused_in_strict_mode_alone() {
    for strict in ["strict", "nostrict"] {
        let flags = format!("encoding_flags={strict}");
        let Some(image) = volume(
            &["-t", "ext4", "-O", "casefold", "-E", &flags],
            "0x40080000",
        ) else {
            return;
        };
        let fs = image.open();
        let root = fs.root().expect("the root");
        let bad = [&b"A\xFF"[..], b"A\xC3(", b"A\xED\xA0\x80"];
        for name in bad {
            let made = fs.create(&root, name, NewKind::File, OWNER);
            assert_eq!(made.is_ok(), strict == "nostrict", "{strict} {name:?}");
        }
        let file = fs
            .create(&root, b"file", NewKind::File, OWNER)
            .expect("file");
        if strict == "strict" {
            assert!(is(
                fs.create(&root, bad[0], NewKind::File, OWNER),
                "Invalid"
            ));
            assert!(is(fs.link(&file, &root, bad[0]), "Invalid"));
            let renamed = fs.rename(&root, b"FILE", &root, bad[0], RenameMode::Replace);
            assert!(is(renamed, "Invalid"));
        } else {
            // They are compared as bytes.
            assert!(is(fs.lookup(&root, b"a\xFF"), "NotFound"));
            fs.create(&root, b"a\xFF", NewKind::File, OWNER)
                .expect("another name");
        }
        // Not assigned in Unicode 12.1: no case, and valid. A name of ignorable characters is as good as
        // empty.
        fs.create(&root, "\u{A7C7}".as_bytes(), NewKind::File, OWNER)
            .expect("new");
        fs.create(&root, "\u{A7C8}".as_bytes(), NewKind::File, OWNER)
            .expect("new");
        fs.create(&root, "\u{AD}".as_bytes(), NewKind::File, OWNER)
            .expect("new");
        assert!(is(
            fs.create(&root, "\u{200D}".as_bytes(), NewKind::File, OWNER),
            "Exists"
        ));
        fs.close().expect("closed");
        image.check();
    }
}

fn set(fs: &Fs, path: &str, flags: InodeFlags) -> throughline_ext::Result<()> {
    let inode = fs.resolve(path.as_bytes(), Last::Follow).expect(path);
    fs.set_flags(&inode, flags)
}

#[test]
fn only_an_empty_directory_changes_whether_it_ignores_case() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "casefold"];
    let Some(image) = Image::make(&args, "32M") else {
        return;
    };
    let fs = image.open();
    let root = fs.root().expect("the root");
    let before = free(&fs);
    let dir = fs.create(&root, b"dir", NewKind::Dir, OWNER).expect("dir");
    fs.create(&root, b"file", NewKind::File, OWNER)
        .expect("file");
    let plain = fs.flags(&dir);
    let folded = plain | InodeFlags::CASEFOLD;
    assert!(is(set(&fs, "/", folded), "NotEmpty"));
    assert!(set(&fs, "/file", folded).is_err());
    // The directory was hashed once, and still has its tree.
    for at in 0..200 {
        let name = format!("{at}-{}", "N".repeat(at));
        fs.create(&dir, name.as_bytes(), NewKind::File, OWNER)
            .expect("file");
    }
    assert!(is(set(&fs, "/dir", folded), "NotEmpty"));
    for at in 0..200 {
        let name = format!("{at}-{}", "N".repeat(at));
        fs.unlink(&dir, name.as_bytes()).expect("removed");
    }
    assert!(fs.flags(&dir).contains(InodeFlags::INDEX));
    for flags in [folded, plain, folded] {
        set(&fs, "/dir", flags).expect("it is empty");
        assert_eq!(fs.ignores_case(&dir), flags == folded);
    }
    for at in 0..200 {
        let name = format!("{at}-{}", "N".repeat(at));
        fs.create(&dir, name.as_bytes(), NewKind::File, OWNER)
            .expect("file");
        let low = fs.lookup(&dir, name.to_lowercase().as_bytes());
        low.expect("the same name");
    }
    let below = fs.create(&dir, b"Below", NewKind::Dir, OWNER).expect("dir");
    let file = fs
        .create(&dir, b"File", NewKind::File, OWNER)
        .expect("file");
    assert!(fs.ignores_case(&below) && !fs.flags(&file).contains(InodeFlags::CASEFOLD));
    assert!(is(set(&fs, "/dir", plain), "NotEmpty"));
    // A rename to another spelling is one to itself; one onto another spelling keeps the name.
    fs.rename(&dir, b"file", &dir, b"FILE", RenameMode::Replace)
        .expect("nothing changes");
    fs.rename(&root, b"file", &dir, b"fILE", RenameMode::Replace)
        .expect("replaced");
    let named = |name: &[u8]| {
        let mut all = fs.read_dir(&dir).map(|entry| entry.expect("an entry"));
        all.any(|entry| entry.name == name)
    };
    assert!(named(b"File") && !named(b"FILE") && !named(b"fILE"));
    assert_ne!(free(&fs), before);
    fs.close().expect("closed");
    image.check();
    let flags = image.debugfs("stat /dir");
    assert!(flags.contains("Flags: 0x40081000"), "{flags}");
    let fs = image.open_with(|options: &mut OpenOptions| options.write = false);
    let fs = fs.expect("it opens");
    fs.resolve(b"/dir/BELOW", Last::Follow)
        .expect("read-only too");
}
