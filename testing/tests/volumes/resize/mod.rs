//! Volumes that change their size, with every feature that we write: judged by `e2fsck`, compared with what
//! `resize2fs` makes of the same volume, mounted by the kernel, and cut by power failures at any moment.

mod cuts;
mod grown;
mod refused;
mod shrunk;
mod tree;

use std::path::Path;

use throughline_testkit::e2fs;

/// A number of `dumpe2fs -h`.
fn number(image: &Path, name: &str) -> u64 {
    let text = e2fs::dumpe2fs(image, &["-h"]);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let value = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    value.trim().parse().expect("a number")
}
