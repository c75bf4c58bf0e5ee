//! Archives of files that cannot be read to their end.

use std::io;

use throughline_archive::{
    Error, Extent, FileContent, Item, Limits, Meta, Result, Source, Sources, Tree, write_tar,
    write_tar_past,
};

const READABLE_BYTES: u64 = 1 << 20;

/// One file, which is full of sevens, and fails from a place on.
struct Failing;

impl Source for Failing {
    fn describe(&self) -> String {
        "failing".to_owned()
    }

    fn open_item(&self, _: u32) -> Result<Box<dyn Item + '_>> {
        Ok(Box::new(Failing))
    }
}

impl Item for Failing {
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> Result<()> {
        buffer.fill(7);
        match at + buffer.len() as u64 <= READABLE_BYTES {
            true => Ok(()),
            false => Err(Error::Io {
                place: "there".to_owned(),
                source: io::Error::other("unreadable"),
            }),
        }
    }
}

/// As with GNU tar, so that all that follows is there.
#[test]
fn zeros_stand_for_what_cannot_be_read() {
    let mut sources = Sources::new();
    let source = sources.add(Box::new(Failing));
    let mut tree = Tree::new(Limits::default());
    let size = 2 * READABLE_BYTES + 5;
    let content = FileContent {
        source,
        item: 0,
        size,
        extents: vec![Extent {
            offset: 0,
            length: size,
            at: 0,
        }],
    };
    tree.add_file(b"long", &Meta::new(0o644), &content).unwrap();
    tree.mkdir(b"z", &Meta::new(0o755)).unwrap();
    let mut out = Vec::new();
    assert!(write_tar(&tree, &sources, &mut out).is_err());
    out.clear();
    let mut damaged = Vec::new();
    let mut note = |path: &[u8], error: Error| {
        damaged.push((path.to_owned(), error.to_string()));
        Ok(())
    };
    let written = write_tar_past(&tree, &sources, &mut out, &mut note).unwrap();
    assert_eq!(written.members, 3);
    assert_eq!(damaged.len(), 1);
    assert_eq!(damaged[0].0, b"long");
    assert!(damaged[0].1.contains("unreadable"));
    let sevens = out.iter().filter(|byte| **byte == 7).count() as u64;
    assert_eq!(sevens, READABLE_BYTES);
    assert!(out.len() as u64 > size && out.len().is_multiple_of(512));
}
