//! Hostile archives: each gives a clear error, or a tree in which nothing has left its root.

use crate::common;
use crate::exercise;

use std::io::Cursor;

use common::{Error, Limits, has, shell};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use throughline_archive::{FileContent, Merge, Meta, Tree};

/// A member with the given type and size field, without data.
fn header(name: &[u8], kind: u8, size: &[u8; 12], link: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..107].copy_from_slice(b"0000644");
    block[124..136].copy_from_slice(size);
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link);
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

fn plain(name: &[u8], kind: u8, link: &[u8]) -> Vec<u8> {
    header(name, kind, b"00000000000\0", link)
}

fn with_data(name: &[u8], kind: u8, data: &[u8]) -> Vec<u8> {
    let size: [u8; 12] = format!("{:011o}\0", data.len())
        .as_bytes()
        .try_into()
        .expect("12 bytes");
    let mut member = header(name, kind, &size, b"");
    member.extend_from_slice(data);
    member.resize(member.len().next_multiple_of(512), 0);
    member
}

fn read_within(limits: Limits, bytes: Vec<u8>) -> Result<Tree, Error> {
    let mut merge = Merge::new(limits);
    merge.set_whiteouts(true);
    merge
        .add_stream(Cursor::new(bytes), "test")
        .map(|()| merge.finish().0)
}

fn read(members: &[Vec<u8>]) -> Result<Tree, Error> {
    read_within(Limits::default(), members.concat())
}

fn refused(members: &[Vec<u8>], words: &str) {
    let error = read(members).expect_err(words).to_string();
    assert!(error.contains(words), "{error}");
}

#[test]
fn names_with_two_dots_are_refused_and_absolute_names_lose_their_slash() {
    refused(&[plain(b"../etc/passwd", b'0', b"")], "\"..\"");
    refused(&[plain(b"a/../../b", b'0', b"")], "\"..\"");
    refused(&[plain(b"a/..", b'5', b"")], "\"..\"");
    let tree = read(&[
        plain(b"//etc/./passwd", b'0', b""),
        plain(b"l", b'1', b"/etc/passwd"),
    ]);
    let tree = tree.expect("absolute names are of the tree");
    assert_eq!(tree.lookup(b"etc/passwd"), tree.lookup(b"l"));
}

#[test]
fn symlinks_on_the_way_stay_in_the_tree() {
    let members = [
        plain(b"real/", b'5', b""),
        plain(b"way", b'2', b"/real"),
        plain(b"out", b'2', b"../../../../outside"),
        plain(b"way/file", b'0', b""),
        plain(b"out/file", b'0', b""),
        plain(b"real", b'2', b"/outside"),
        plain(b"way/late", b'0', b""),
    ];
    let tree = read(&members).expect("sound");
    for path in [&b"outside/file"[..], b"outside/late"] {
        assert!(tree.lookup(path).is_some(), "{}", path.escape_ascii());
    }
    refused(
        &[
            plain(b"a", b'2', b"b"),
            plain(b"b", b'2', b"a"),
            plain(b"a/c", b'0', b""),
        ],
        "symlinks",
    );
    refused(
        &[plain(b"a", b'0', b""), plain(b"a/c", b'0', b"")],
        "not a directory",
    );
}

#[test]
fn hard_links_to_nothing_directories_and_themselves() {
    refused(
        &[plain(b"a", b'1', b"b"), plain(b"b", b'1', b"a")],
        "not there",
    );
    refused(
        &[plain(b"d", b'5', b""), plain(b"a", b'1', b"d")],
        "directory",
    );
    let tree = read(&[plain(b"a", b'0', b""), plain(b"a", b'1', b"a")]).expect("itself");
    assert_eq!(tree.node(tree.lookup(b"a").expect("kept")).links(), 1);
}

#[test]
fn the_later_of_equal_names_counts() {
    let members = [
        with_data(b"a", b'0', b"one"),
        plain(b"b", b'1', b"a"),
        with_data(b"a", b'0', b"three"),
        plain(b"d/e/f", b'0', b""),
        plain(b"d", b'0', b""),
    ];
    let tree = read(&members).expect("sound");
    assert_eq!(tree.node(tree.lookup(b"a").expect("a")).size(), 5);
    assert_eq!(tree.node(tree.lookup(b"b").expect("b")).size(), 3);
    assert_eq!((tree.len(), tree.data_bytes()), (4, 8));
}

#[test]
fn sizes_that_lie_and_broken_headers() {
    refused(&[header(b"a", b'0', b"77777777777\0", b"")], "truncated");
    refused(
        &[header(
            b"a",
            b'0',
            b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",
            b"",
        )],
        "more than",
    );
    refused(
        &[header(
            b"a",
            b'0',
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            b"",
        )],
        "size",
    );
    refused(&[header(b"a", b'0', b"zzzzzzzzzzz\0", b"")], "not a number");
    refused(&[header(b"a", b'x', b"77777777777\0", b"")], "records");
    let mut broken = plain(b"a", b'0', b"");
    broken[3] = 7;
    refused(&[plain(b"b", b'0', b""), broken.clone()], "checksum");
    refused(&[broken], "not a tar archive");
    refused(&[Vec::new()], "not a tar archive");
    refused(
        &[plain(b"a", b'0', b"")[..300].to_vec()],
        "not a tar archive",
    );
    refused(&[plain(b"a", b'Z', b"")], "type 'Z'");
}

#[test]
fn records_with_lying_lengths() {
    for records in [
        &b"99 path=a\n"[..],
        b"5 path=a\n",
        b"0 path=a\n",
        b" path=a\n",
        b"9 patha\n\n",
        b"99999999999999999999999 path=a\n",
        b"12 mtime=x.y\n",
        b"22 GNU.sparse.map=1,2,3\n",
        b"28 GNU.sparse.numbytes=1234\n",
    ] {
        let members = [with_data(b"h", b'x', records), plain(b"a", b'0', b"")];
        refused(&members, "PAX header");
    }
}

#[test]
fn bombs_are_bounded() {
    let names = 2000;
    let members: Vec<u8> = (0..names)
        .flat_map(|n| plain(format!("d{n}/").as_bytes(), b'5', b""))
        .collect();
    let few = Limits {
        nodes: 1000,
        ..Limits::default()
    };
    let error = read_within(few, members).expect_err("too many").to_string();
    assert!(error.contains("more than 1000 names"), "{error}");

    let deep = "d/".repeat(40).into_bytes();
    let shallow = Limits {
        depth: 30,
        ..Limits::default()
    };
    let error = read_within(shallow, plain(&deep, b'5', b""))
        .expect_err("too deep")
        .to_string();
    assert!(error.contains("deeper than 30"), "{error}");

    let long = [b"d/".as_slice(), &[b'n'; 256]].concat();
    refused(
        &[with_data(b"x", b'L', &long), plain(b"a", b'0', b"")],
        "longer than 255",
    );

    let value = "v".repeat(2000);
    let record = format!("2026 SCHILY.xattr.user.a={value}\n");
    let members = [
        with_data(b"x", b'x', record.as_bytes()),
        plain(b"a", b'0', b""),
    ]
    .concat();
    assert!(read_within(Limits::default(), members.clone()).is_ok());
    let small = Limits {
        xattr_bytes: 1000,
        ..Limits::default()
    };
    let error = read_within(small, members)
        .expect_err("too large")
        .to_string();
    assert!(error.contains("attributes of one file"), "{error}");
}

#[test]
fn compressed_bombs_end_at_the_limit() {
    let dir = tempfile::tempdir().expect("a directory");
    for program in ["gzip", "xz", "zstd", "bzip2"] {
        if !has(program) {
            continue;
        }
        shell(
            dir.path(),
            &format!("truncate -s 50M z; tar -cf - z | {program} > bomb"),
        );
        let limits = Limits {
            stream_bytes: 10 << 20,
            ..Limits::default()
        };
        let mut merge = Merge::new(limits);
        let error = merge.add(&dir.path().join("bomb")).expect_err("a bomb");
        assert!(matches!(error, Error::Limit { .. }), "{program}: {error}");
        let limits = Limits {
            spool_bytes: 10 << 20,
            ..Limits::default()
        };
        let file = std::fs::File::open(dir.path().join("bomb")).expect("it is there");
        let error = Merge::new(limits)
            .add_stream(file, "stream")
            .expect_err("a bomb");
        assert!(matches!(error, Error::Limit { .. }), "{program}: {error}");
    }
}

#[test]
fn whiteouts_cover_earlier_layers_only() {
    let lower = [
        plain(b"d/one", b'0', b""),
        plain(b"d/two", b'0', b""),
        plain(b"e/one", b'0', b""),
        plain(b"e/f/old", b'0', b""),
        plain(b"keep", b'0', b""),
    ];
    let upper = [
        plain(b"d/.wh.one", b'0', b""),
        plain(b"e/new", b'0', b""),
        plain(b"e/f/new", b'0', b""),
        plain(b"e/.wh..wh..opq", b'0', b""),
        plain(b"d/two", b'0', b""),
        plain(b"d/.wh.two", b'0', b""),
        plain(b"link", b'1', b"keep"),
        plain(b".wh.keep", b'0', b""),
        plain(b".wh...", b'0', b""),
        plain(b".wh.nothing", b'0', b""),
    ];
    let mut merge = Merge::new(Limits::default());
    merge.set_whiteouts(true);
    merge
        .add_stream(Cursor::new(lower.concat()), "lower")
        .expect("sound");
    merge
        .add_stream(Cursor::new(upper.concat()), "upper")
        .expect("sound");
    let (tree, _) = merge.finish();
    let mut paths = Vec::new();
    let mut walk = tree.walk();
    while let Some(step) = walk.next() {
        paths.push(String::from_utf8(step.path.to_vec()).expect("ASCII"));
    }
    assert_eq!(
        paths,
        ["d", "d/two", "e", "e/f", "e/f/new", "e/new", "link"]
    );
}

#[test]
fn a_million_empty_directories_and_files() {
    let mut tree = Tree::new(Limits::default());
    let meta = Meta::new(0o755);
    for n in 0..1_000_000 {
        tree.mkdir(format!("d{}/name-{n}", n / 100_000).as_bytes(), &meta)
            .expect("room");
    }
    assert_eq!(tree.len(), 1_000_011);
    assert_eq!(
        tree.children(tree.lookup(b"d3").expect("it is there"))
            .len(),
        100_000
    );
    assert!(tree.remove(b"d3"));
    assert_eq!(tree.len(), 900_010);
}

/// The name of a link replaces the directory of its target, its target, or fails.
#[test]
fn links_over_their_own_target() {
    let meta = Meta::new(0o644);
    let content = FileContent::hole(5);
    let mut tree = Tree::new(Limits::default());
    let file = tree.add_file(b"d/file", &meta, &content).expect("a file");
    assert!(tree.link(b"d/file/x", b"d/file").is_err());
    assert_eq!(tree.link(b"d/file", b"d/file").expect("itself"), file);
    assert_eq!(tree.node(file).links(), 1);
    assert_eq!(tree.link(b"d", b"d/file").expect("a link"), file);
    assert_eq!(tree.lookup(b"d"), Some(file));
    assert_eq!(tree.node(file).links(), 1);
    // No node is used twice.
    let other = tree.add_file(b"other", &meta, &content).expect("a file");
    assert_ne!(other, file);
    assert_eq!(tree.len(), 3);
}

#[test]
fn a_file_that_changes_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    shell(dir.path(), "mkdir t; echo one > t/a");
    let (tree, sources) = common::merged(&[&dir.path().join("t")]);
    shell(dir.path(), "echo longer > t/a");
    let error = sources.for_each_data(&tree, 1, &mut |_, _, _| Ok(()));
    assert!(matches!(error, Err(Error::Changed(_))), "{error:?}");
}

fn seed() -> Vec<u8> {
    let sparse = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n29 GNU.sparse.realsize=10000\n";
    let mut map = b"2\n0\n3\n9000\n4\n".to_vec();
    map.resize(512, 0);
    map.extend_from_slice(b"oneffff");
    [
        plain(b"d/", b'5', b""),
        with_data(b"d/file", b'0', b"some content"),
        with_data(
            b"x",
            b'x',
            b"30 mtime=1234567890.123456789\n25 SCHILY.xattr.user.a=b\n",
        ),
        plain(b"d/link", b'1', b"d/file"),
        with_data(b"s", b'x', sparse),
        with_data(b"sparse", b'0', &map),
        plain(b"d/.wh.file", b'0', b""),
        with_data(b"n", b'L', b"a/long/name"),
        plain(b"s", b'2', b"target"),
        vec![0; 1024],
    ]
    .concat()
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        ..ProptestConfig::with_cases(2000)
    })]

    #[test]
    fn changed_archives_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let mut bytes = seed();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if !whole {
            bytes.truncate(cut.index(bytes.len()));
        }
        exercise::archive(&bytes);
    }
}

#[test]
fn the_seed_of_the_changes_is_sound() {
    let tree = read_within(Limits::default(), seed()).expect("sound");
    let sparse = tree.node(tree.lookup(b"sparse").expect("it is there"));
    assert_eq!(
        (
            sparse.size(),
            sparse.content().expect("a file").data_bytes()
        ),
        (10_000, 7)
    );
    assert!(tree.lookup(b"a/long/name").is_some());
}
