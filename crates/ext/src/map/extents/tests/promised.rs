//! Nodes reserved for a number of changes: sufficient in any order.

use super::*;

/// A reservation as used by write-back: only surplus is released, and the rest always suffices.
struct Promised {
    nodes: u64,
    entries: u64,
}

impl Promised {
    fn new(store: &Memory, entries: u64) -> Self {
        let nodes = nodes_needed(&store.root, store.node_bytes as u32, entries);
        Self { nodes, entries }
    }

    /// Some entries were inserted, and this many nodes created.
    fn used(&mut self, store: &Memory, entries: u64, nodes: u64, what: &str) {
        let left = self.nodes.checked_sub(nodes);
        self.entries -= entries;
        self.nodes = left
            .unwrap_or_else(|| panic!("{what}: {nodes} nodes, {} promised", self.nodes))
            .min(nodes_needed(
                &store.root,
                store.node_bytes as u32,
                self.entries,
            ));
    }
}

/// Single blocks to map and to convert (`true`), none of them adjacent to another.
fn single_blocks(order: u64, space: u32) -> Vec<(u32, bool)> {
    let mut ops: Vec<(u32, bool)> = (0..space / 6).map(|i| (i * 6 + 3, false)).collect();
    ops.extend((0..4500).map(|i| (100_000 + 4 * i, true)));
    match order {
        0 => {}
        1 => ops.reverse(),
        2 => ops.sort_by_key(|(at, _)| at % 97),
        3 => ops.sort_by_key(|(at, _)| std::cmp::Reverse(at % 65)),
        4 => ops.sort_by_key(|(at, _)| u64::from(*at).wrapping_mul(0x9E37_79B9) % 1009),
        _ => ops.sort_by_key(|(at, _)| (at % 12, std::cmp::Reverse(*at))),
    }
    ops
}

#[test]
fn promised_nodes_suffice_in_any_order() {
    let space = 3000;
    let single = |at: u32, base: u64| extent(at, 1, base | (u64::from(at) * 9), false);
    for (node_bytes, order) in [72, 96, 240, 600, 1024]
        .into_iter()
        .flat_map(|bytes| (0..6).map(move |order| (bytes, order)))
    {
        let mut store = Memory::new(node_bytes);
        let mut random = Random(node_bytes as u64 * 7 + order + 1);
        for _ in 0..random.below(1500) {
            let at = random.below(u64::from(space / 6)) as u32 * 6;
            if lookup(&store, at, 1).expect("a lookup").kind == Kind::Hole {
                insert(&mut store, single(at, 1 << 20)).expect("room");
            }
        }
        for i in 0..random.below(20) as u32 {
            let at = 100_000 + 1000 * i;
            insert(&mut store, extent(at, 900, 1 << 30 | u64::from(at), true)).expect("room");
        }
        let mut ops = single_blocks(order, space);
        ops.truncate(1 + random.below(3000) as usize);
        let cost = |convert: bool| 1 + u64::from(convert);
        let entries = ops.iter().map(|(_, convert)| cost(*convert)).sum();
        let mut promised = Promised::new(&store, entries);
        let all = ops.into_iter().try_for_each(|(at, convert)| {
            let before = store.next;
            let done = if convert {
                set_unwritten(&mut store, at.into(), u64::from(at) + 1, false, 1).map(|_| ())
            } else {
                insert(&mut store, single(at, 1 << 25))
            };
            let what = format!("nodes of {node_bytes} bytes, order {order}, at {at}");
            promised.used(&store, cost(convert), store.next - before, &what);
            done
        });
        match all {
            Ok(()) => assert_eq!(promised.nodes, 0, "nothing is needed for nothing"),
            // The tree has its maximum depth.
            Err(error) => assert!(matches!(error, Error::Caller(Reason::TooLarge)), "{error}"),
        }
    }
}
