//! What an archive costs is bounded by its size: a small one does not keep the machine busy. Counted are the
//! bytes that are allocated, of which every copy and every list on the way has its part, and for patterns of
//! names the bytes that are compared.

use crate::common;

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::Limits;
use throughline_archive::{Merge, Tree};

/// Bytes that may be allocated for each byte of an archive. An entry of the tree needs a part of it, and
/// copies of global records are held to a few times the headers.
const FACTOR: u64 = 48;

/// A member, with data if it is of a kind that has some.
fn member(name: &[u8], kind: u8, data: &[u8]) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..name.len()].copy_from_slice(name);
    block[100..107].copy_from_slice(b"0000644");
    block[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    block[156] = kind;
    block[257..265].copy_from_slice(b"ustar\x0000");
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block.extend_from_slice(data);
    block.resize(block.len().next_multiple_of(512), 0);
    block
}

fn file(number: usize) -> Vec<u8> {
    member(format!("d/{number}").as_bytes(), b'0', b"")
}

/// A PAX header, for one member or for all, of one record.
fn pax(kind: u8, key: &str, value: &[u8]) -> Vec<u8> {
    let bytes = key.len() + value.len() + 3;
    let digits = (1..20).find(|digits| (bytes + digits).to_string().len() == *digits);
    let length = bytes + digits.expect("a length of less than 20 digits");
    let mut record = format!("{length} {key}=").into_bytes();
    record.extend_from_slice(value);
    record.push(b'\n');
    member(b"pax", kind, &record)
}

fn of_each(count: usize, each: impl Fn(usize) -> Vec<Vec<u8>>) -> Vec<u8> {
    (0..count).flat_map(each).flatten().collect()
}

/// Reads an archive. What it says, and the bytes that were allocated.
fn read(bytes: &[u8]) -> (Result<Tree, String>, u64) {
    let mut read = Err("not read".to_owned());
    let counted = allocation_counter::measure(|| {
        let mut merge = Merge::new(Limits::default());
        merge.set_whiteouts(true);
        let added = merge.add_stream(Cursor::new(bytes.to_vec()), "test");
        read = added
            .map(|()| merge.finish().0)
            .map_err(|error| error.to_string());
    });
    (read, counted.bytes_total)
}

/// Attributes of that many bytes for all members.
fn attributes(bytes: usize) -> Vec<u8> {
    pax(b'g', "SCHILY.xattr.user.global", &vec![b'x'; bytes])
}

/// A symlink of which the target has as many components as fit.
fn long_link(number: usize) -> Vec<u8> {
    let last = format!("l{}", number + 1);
    let target = format!("{}{last}\0", "d/../".repeat((4090 - last.len()) / 5));
    let name = format!("l{number}");
    let long = member(b"././@LongLink", b'K', target.as_bytes());
    [long, member(name.as_bytes(), b'2', b"")].concat()
}

#[test]
fn the_work_for_an_archive_is_bounded_by_its_size() {
    const FILES: usize = 4000;
    const LINKS: usize = 39;
    // What it has, the archive, and a part of the refusal, if it is refused.
    let shapes: [(&str, Vec<u8>, Option<&str>); 8] = [
        (
            "attributes for all members",
            [attributes(500_000), of_each(FILES, |n| vec![file(n)])].concat(),
            None,
        ),
        (
            "attributes for all members, and of each",
            [
                attributes(500_000),
                of_each(FILES, |n| {
                    vec![pax(b'x', "SCHILY.xattr.user.own", b"own"), file(n)]
                }),
            ]
            .concat(),
            Some("too large for so many members"),
        ),
        (
            "few attributes for all members, and of each",
            [
                attributes(5000),
                of_each(FILES, |n| {
                    vec![pax(b'x', "SCHILY.xattr.user.own", b"own"), file(n)]
                }),
            ]
            .concat(),
            None,
        ),
        (
            "more attributes for all members before each",
            [
                attributes(500_000),
                of_each(FILES, |n| {
                    vec![pax(b'g', "SCHILY.xattr.user.more", b"more"), file(n)]
                }),
            ]
            .concat(),
            Some("too large for so many members"),
        ),
        (
            "one long path for all members",
            [
                pax(b'g', "path", "name/".repeat(1000).as_bytes()),
                of_each(FILES, |_| vec![member(b"d", b'5', b"")]),
            ]
            .concat(),
            Some("too large for so many members"),
        ),
        (
            "whiteouts of a directory of the same layer",
            of_each(4 * FILES, |n| {
                vec![file(n), member(b"d/.wh..wh..opq", b'0', b"")]
            }),
            None,
        ),
        (
            "whiteouts of its name",
            of_each(4 * FILES, |n| vec![file(n), member(b".wh.d", b'0', b"")]),
            None,
        ),
        (
            "paths through long symlinks",
            [
                member(b"d", b'5', b""),
                of_each(LINKS, |n| vec![long_link(n)]),
                member(format!("l{LINKS}").as_bytes(), b'5', b""),
                of_each(FILES / 40, |n| {
                    vec![member(format!("l0/{n}").as_bytes(), b'0', b"")]
                }),
            ]
            .concat(),
            Some("symlinks"),
        ),
    ];
    for (what, bytes, refused) in shapes {
        let (read, allocated) = read(&bytes);
        match (&read, refused) {
            (Ok(tree), None) => assert!(tree.len() > FILES, "{what}"),
            (Err(error), Some(words)) => assert!(error.contains(words), "{what}: {error}"),
            _ => panic!("{what}: {read:?}"),
        }
        let most = FACTOR * bytes.len() as u64;
        assert!(allocated <= most, "{what}: {allocated} bytes, over {most}");
    }
}

#[test]
fn members_have_the_attributes_of_all_and_their_own() {
    let own = |value: &[u8]| pax(b'x', "SCHILY.xattr.user.own", value);
    let all = |name: &str, value: &[u8]| pax(b'g', &format!("SCHILY.xattr.{name}"), value);
    let archive = [
        file(0),
        all("user.a", b"1"),
        file(1),
        file(2),
        own(b"o"),
        file(3),
        all("user.own", b"all"),
        file(4),
        own(b"o"),
        file(5),
        all("user.a", b"2"),
        member(b"e", b'5', b""),
    ];
    let (tree, _) = read(&archive.concat());
    let tree = tree.expect("sound");
    let of = |path: &[u8]| {
        let node = tree.node(tree.lookup(path).expect("it is there"));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let pairs = node
            .xattrs()
            .map(|(name, value)| text(name) + "=" + &text(value));
        pairs.collect::<Vec<_>>().join(" ")
    };
    for (path, attributes) in [
        (&b"d/0"[..], ""),
        (b"d/1", "user.a=1"),
        (b"d/2", "user.a=1"),
        (b"d/3", "user.a=1 user.own=o"),
        (b"d/4", "user.a=1 user.own=all"),
        (b"d/5", "user.a=1 user.own=o"),
        (b"e", "user.a=2 user.own=all"),
        (b"d", ""),
    ] {
        assert_eq!(of(path), attributes, "{}", path.escape_ascii());
    }
    let set = |path: &[u8]| {
        tree.node(tree.lookup(path).expect("it is there"))
            .xattr_set()
    };
    assert_eq!(set(b"d/1"), set(b"d/2"));
    assert_eq!(set(b"d/3"), set(b"d/5"));
}

#[test]
fn a_map_of_a_sparse_file_is_not_for_all_members() {
    for (key, value) in [("map", "0,10"), ("offset", "0"), ("numblocks", "1")] {
        let key = format!("GNU.sparse.{key}");
        let (read, _) = read(&[pax(b'g', &key, value.as_bytes()), file(0)].concat());
        let error = read.expect_err("refused");
        assert!(error.contains("in a global header"), "{error}");
    }
}

#[test]
fn a_long_path_is_compared_with_patterns_for_as_many_components_as_a_tree_has() {
    let path = "a/".repeat(500_000) + "b";
    let long = member(b"././@LongLink", b'L', path.as_bytes());
    let bytes = [long, member(b"b", b'0', b"")].concat();
    let compared = Arc::new(AtomicU64::new(0));
    let mut merge = Merge::onto(Tree::new(Limits::default()), Limits::default());
    let counter = Arc::clone(&compared);
    merge.set_exclude(move |path| {
        counter.fetch_add(path.len() as u64, Ordering::Relaxed);
        false
    });
    let size = bytes.len() as u64;
    let refused = merge.add_stream(Cursor::new(bytes), "test");
    let refused = refused.expect_err("too deep").to_string();
    assert!(refused.contains("nested deeper"), "{refused}");
    let compared = compared.load(Ordering::Relaxed);
    assert!(compared <= FACTOR * size, "{compared} bytes of {size}");
    assert!(compared > 0);
}
