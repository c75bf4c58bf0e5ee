//! What the fuzz target `archive` and the test of changed archives do with their input.

use std::io::Cursor;

use throughline_archive::{Kind, Limits, Merge, Sources, Tree, write_tar};

/// Reads bytes as an archive, and if that succeeds reads all data and writes the tree as a tar.
pub(crate) fn archive(bytes: &[u8]) {
    let limits = Limits {
        nodes: 1000,
        data_bytes: 1 << 20,
        stream_bytes: 4 << 20,
        spool_bytes: 4 << 20,
        ..Limits::default()
    };
    let mut merge = Merge::new(limits);
    merge.set_whiteouts(true);
    if merge
        .add_stream(Cursor::new(correct_sums(bytes)), "input")
        .is_ok()
    {
        let (tree, sources) = merge.finish();
        check(&tree, &sources);
    }
}

fn check(tree: &Tree, sources: &Sources) {
    let mut read = 0;
    let mut visit = |id, offset: u64, bytes: &[u8]| {
        assert!(
            offset + bytes.len() as u64 <= tree.node(id).size(),
            "data beyond a file's end"
        );
        read += bytes.len() as u64;
        Ok(())
    };
    sources
        .for_each_data(tree, 1, &mut visit)
        .expect("what was scanned is there");
    assert_eq!(read, tree.data_bytes());
    let mut out = Vec::new();
    write_tar(tree, sources, &mut out).expect("what was scanned is written");
    let mut again = Merge::new(Limits::default());
    again
        .add_stream(Cursor::new(out), "written")
        .expect("what is written is read");
    let sockets = tree.ids().any(|id| tree.node(id).kind() == Kind::Socket);
    let (again, _) = again.finish();
    assert!(
        sockets || tree.same_shape(&again),
        "the written tar gives another tree"
    );
}

/// The checksums of headers that were changed, so that more than these is tested.
fn correct_sums(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(512) {
        if &block[257..262] == b"ustar" {
            block[148..156].fill(b' ');
            let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
            block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
    }
    bytes
}
