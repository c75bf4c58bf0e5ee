//! What the library reads from an image.

use std::collections::HashSet;
use std::path::Path;

use throughline::{Error, InodeFlags, Node, OpenOptions, Volume};

use crate::damaged::seen::{BLOCK, MAX_BLOCKS, MAX_DIRS, MAX_FILES, MAX_NAMES, Seen};

/// Opens it read-only; with `no_replay`, as it is, without its journal.
pub(crate) fn open(image: &Path, no_replay: bool) -> Result<Volume, Error> {
    let mut options = OpenOptions::new();
    options.no_replay(no_replay).open(image)
}

/// Reads everything.
///
/// # Errors
/// Why it does not open.
pub(crate) fn look(image: &Path, no_replay: bool) -> Result<Seen, String> {
    let message = |error: Error| error.to_string();
    let mut seen = Seen::default();
    let volume = open(image, no_replay).map_err(message)?;
    walk(volume.node("/").map_err(message)?, &mut seen);
    Ok(seen)
}

fn walk(root: Node, seen: &mut Seen) {
    let (mut met, mut files) = (HashSet::from([root.ino()]), 0);
    let mut todo = vec![root];
    while let Some(dir) = todo.pop() {
        for (name, found) in names(&dir, seen) {
            let node = match found {
                Ok(node) => node,
                Err(error) => {
                    let why = error.to_string();
                    seen.unknown.insert((dir.ino(), name), why);
                    continue;
                }
            };
            if !met.insert(node.ino()) {
                continue;
            }
            if node.is_dir() && met.len() < MAX_DIRS * 100 {
                todo.push(node);
            } else if files < MAX_FILES {
                files += 1;
                read(&node, seen);
            }
        }
    }
}

/// All names in a directory, with what they refer to.
fn names(dir: &Node, seen: &mut Seen) -> Vec<(Vec<u8>, Result<Node, Error>)> {
    if dir.flags().contains(InodeFlags::ENCRYPT) {
        seen.encrypted.insert(dir.ino());
    }
    let (mut from, mut all) = (0, Vec::new());
    while let Ok(listed) = dir.list(from) {
        let Some(last) = listed.last() else { break };
        assert!(
            last.next > from,
            "the listing of {} goes back from {from} to {}",
            dir.ino(),
            last.next
        );
        from = last.next;
        for entry in &listed {
            if Seen::is_no_name(&entry.name) || seen.names.len() >= MAX_NAMES {
                continue;
            }
            seen.add_name(dir.ino(), &entry.name);
            all.push((entry.name.clone(), dir.lookup(&entry.name)));
        }
    }
    all
}

/// Reads whatever is readable of a file, block by block.
fn read(node: &Node, seen: &mut Seen) {
    let Ok(meta) = node.metadata() else { return };
    let Ok(file) = node.open(&throughline::FileOptions::new()) else {
        return;
    };
    let blocks = meta.len().div_ceil(BLOCK as u64).min(MAX_BLOCKS);
    let mut bytes = vec![0; BLOCK];
    for at in 0..blocks {
        let start = at * BLOCK as u64;
        let len = (meta.len() - start).min(BLOCK as u64) as usize;
        if file.read_exact_at(&mut bytes[..len], start).is_ok() {
            seen.add_block(node.ino(), at, &bytes[..len]);
        }
    }
}
