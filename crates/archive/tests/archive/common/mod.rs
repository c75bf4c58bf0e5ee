//! What the tests of this crate share.
#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses a part of this module"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use throughline_archive::{Kind, Merge, NodeId, Sources, Tree};

pub(crate) use throughline_archive::{Error, Limits};

/// Runs a shell script in a directory.
///
/// # Panics
/// If it fails.
pub(crate) fn shell(directory: &Path, script: &str) {
    let mut command = Command::new("bash");
    command
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(directory);
    let output = command.output().expect("bash runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {errors}");
}

/// Whether a program is there; otherwise the test is skipped.
pub(crate) fn has(program: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    let found = found.is_ok_and(|output| output.status.success());
    if !found {
        throughline_testkit::missing!("{program}");
    }
    found
}

/// The merged sources of those paths.
pub(crate) fn merged(paths: &[&Path]) -> (Tree, Sources) {
    let mut merge = Merge::new(Limits::default());
    for path in paths {
        merge.add(path).expect("a sound source");
    }
    merge.finish()
}

/// All names with what they name, and contents read in one pass; holes as zeros.
pub(crate) fn listing(tree: &Tree, sources: &Sources) -> BTreeMap<String, String> {
    let contents = contents(tree, sources);
    let mut listing = BTreeMap::new();
    let mut first = BTreeMap::new();
    let mut walk = tree.walk();
    while let Some(step) = walk.next() {
        let path = step.path.escape_ascii().to_string();
        let node = tree.node(step.node);
        let first = first
            .entry(step.node)
            .or_insert_with(|| path.clone())
            .clone();
        let data = contents.get(&step.node).map(|bytes| fastsum(bytes));
        let link = if first == path {
            String::new()
        } else {
            format!(" = {first}")
        };
        let text = format!(
            "{:06o} {}:{} {:?} {} {:?} {:?} {:?}{link} {data:?}",
            node.mode(),
            node.uid(),
            node.gid(),
            node.mtime(),
            node.size(),
            node.target()
                .map(|target| target.escape_ascii().to_string()),
            node.device(),
            node.xattrs()
                .map(|(name, value)| (name.to_vec(), value.to_vec()))
                .collect::<Vec<_>>(),
        );
        listing.insert(path, text);
    }
    listing
}

fn fastsum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// The contents of all files.
pub(crate) fn contents(tree: &Tree, sources: &Sources) -> BTreeMap<NodeId, Vec<u8>> {
    let mut contents: BTreeMap<NodeId, Vec<u8>> = tree
        .ids()
        .filter(|&id| tree.node(id).kind() == Kind::File)
        .map(|id| (id, vec![0; tree.node(id).size() as usize]))
        .collect();
    let mut visit = |id, offset: u64, bytes: &[u8]| {
        let content: &mut Vec<u8> = contents.get_mut(&id).expect("a file");
        content[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    };
    sources
        .for_each_data(tree, 2, &mut visit)
        .expect("data is read");
    contents
}

/// A tree with every kind of node that needs no root, in the directory `tree`.
pub(crate) const TREE: &str = r#"
long="tree/dir/a very long name of a directory that goes on and on and on and on/and one more"
mkdir -p tree/dir/sub tree/empty "$long"
echo hello > tree/dir/hello; touch -d '2001-02-03 04:05:06.789012345' tree/dir/hello
head -c 1000000 /dev/urandom > tree/dir/sub/random
ln tree/dir/hello tree/linked; ln -s dir/hello tree/symlink
ln -s "$(printf 'x%.0s' {1..150})" tree/longlink
mkfifo tree/pipe; chmod 4751 tree/dir/sub/random; chmod 1777 tree/empty
echo deep > "$long/a file"
: > tree/zero; touch -d '1960-01-01' tree/zero
printf 'umlaut' > tree/$'\xc3\xa4'; printf 'binary' > tree/$'\xff\xfe'
truncate -s 5M tree/sparse; printf data | dd of=tree/sparse bs=1 seek=1000000 conv=notrunc status=none
printf end | dd of=tree/sparse bs=1 seek=4000000 conv=notrunc status=none
truncate -s 3M tree/hole; touch -d '2100-01-01' tree/hole
touch -d '2020-01-01' tree/dir tree
"#;
