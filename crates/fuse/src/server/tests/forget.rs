//! FORGET and BATCH_FORGET: the server counts the same look-ups as the kernel.

use super::bytes::{self, Bytes, op};
use super::harness::{Mount, mount};
use crate::nodes::ROOT_NODEID;

fn forget(mount: &Mount, node: u64, lookups: u64) {
    mount.send_unanswered(op::FORGET, node, Bytes::new().u64(lookups));
}

fn batch(mount: &Mount, count: u32, entries: &[(u64, u64)]) {
    let mut body = Bytes::new().u32(count).u32(0);
    for (node, lookups) in entries {
        body = body.u64(*node).u64(*lookups);
    }
    mount.send_unanswered(op::BATCH_FORGET, 0, body);
}

#[test]
fn each_reply_with_an_entry_counts_as_a_look_up() {
    let Some(mount) = mount() else { return };
    let dir = mount.dir("dir");
    let node = mount.file("file");
    mount.find("file");
    mount.ask(op::LINK, dir, bytes::link(node, "linked")).ok();
    mount.ask(op::LOOKUP, dir, bytes::named("linked")).ok();
    mount.ask(op::LOOKUP, node, bytes::named(".")).ok();
    let page = mount.ask(op::READDIRPLUS, dir, bytes::read(0, 0, 4096));
    page.ok();
    // MKNOD, LOOKUP, LINK, LOOKUP, LOOKUP, READDIRPLUS.
    forget(&mount, node, 5);
    assert_eq!(mount.known(), 2);
    forget(&mount, node, 1);
    assert_eq!(mount.known(), 1);
    forget(&mount, dir, 1);
    assert_eq!(mount.known(), 0);
}

#[test]
fn a_reply_without_an_entry_does_not_count() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    let missing = mount.ask_root(op::LOOKUP, bytes::named("missing"));
    missing.ok();
    let again = mount.ask_root(op::MKNOD, bytes::mknod(0o100_644, 0, "file"));
    assert!(!again.is_ok());
    let open = mount.ask_root(op::CREATE, bytes::create(2, 0o100_644, "file"));
    assert!(!open.is_ok());
    mount.attr(node);
    mount.ask_root(op::READDIR, bytes::read(0, 0, 4096)).ok();
    mount.find("..");
    forget(&mount, node, 1);
    assert_eq!(mount.known(), 0);
}

#[test]
fn a_batch_forgets_all_its_entries() {
    let Some(mount) = mount() else { return };
    let nodes: Vec<_> = (0..4).map(|at| mount.file(&format!("{at}"))).collect();
    mount.find("2");
    let entries: Vec<_> = nodes.iter().map(|node| (*node, 1)).collect();
    batch(&mount, 4, &entries);
    assert_eq!(mount.known(), 1);
    batch(&mount, 1, &[(nodes[2], 1)]);
    assert_eq!(mount.known(), 0);
}

#[test]
fn a_batch_ends_after_its_entries_or_its_count() {
    let Some(mount) = mount() else { return };
    let nodes: Vec<_> = (0..3).map(|at| mount.file(&format!("{at}"))).collect();
    let entries: Vec<_> = nodes.iter().map(|node| (*node, 1)).collect();
    batch(&mount, 0, &entries);
    assert_eq!(mount.known(), 3);
    batch(&mount, 1, &entries);
    assert_eq!(mount.known(), 2);
    // Its count is larger than the number of its entries.
    batch(&mount, u32::MAX, &entries[1..2]);
    assert_eq!(mount.known(), 1);
}

#[test]
fn forgetting_too_much_does_not_underflow() {
    let Some(mount) = mount() else { return };
    let node = mount.file("file");
    for (node, lookups) in [(999, 5), (u64::MAX, 1), (0, 1), (ROOT_NODEID, u64::MAX)] {
        forget(&mount, node, lookups);
    }
    assert_eq!(mount.known(), 1);
    forget(&mount, node, u64::MAX);
    assert_eq!(mount.known(), 0);
    forget(&mount, node, 1);
    // The next look-up is counted from zero.
    mount.find("file");
    assert_eq!(mount.known(), 1);
    mount.attr(ROOT_NODEID);
}

#[test]
fn forgotten_nodes_can_be_used_again() {
    let Some(mount) = mount() else { return };
    let node = mount.file_with("file", b"data");
    forget(&mount, node, 1);
    // The node id alone is enough: the server needs no look-up before it.
    assert_eq!(mount.contents(node), b"data");
    assert_eq!(mount.find("file"), node);
}
