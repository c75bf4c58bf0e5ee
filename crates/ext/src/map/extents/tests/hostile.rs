//! Trees with damaged nodes: every operation must refuse them.

use super::*;

#[test]
fn hostile_nodes_are_refused() {
    for seed in 1..=3000u64 {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut store = Memory::new(100);
        for i in 0..60u32 {
            insert(
                &mut store,
                extent(i * 4, 2, 5000 + u64::from(i) * 3, i % 5 == 0),
            )
            .expect("insert");
        }
        let mut blocks: Vec<u64> = store.nodes.keys().copied().collect();
        blocks.sort_unstable();
        for _ in 0..=random.below(3) {
            let node = blocks[random.below(blocks.len() as u64) as usize];
            let bytes = store.nodes.get_mut(&node).expect("node");
            match random.below(3) {
                0 => {
                    let at = random.below(100) as usize;
                    bytes[at] = random.below(256) as u8;
                }
                1 => {
                    let at = random.below(12) as usize;
                    bytes[at] ^= 1 << random.below(8);
                }
                _ => {
                    // A child referenced twice, or an ancestor referenced again.
                    let other = blocks[random.below(blocks.len() as u64) as usize];
                    let at = 12 + 12 * random.below(6) as usize;
                    bytes[at + 4..at + 8].copy_from_slice(&(other as u32).to_le_bytes());
                    bytes[at + 8..at + 10].copy_from_slice(&((other >> 32) as u16).to_le_bytes());
                }
            }
        }
        let mut store = Hostile(store);
        for at in (0..260).step_by(3) {
            let _ = lookup(&store, at, 50);
        }
        let _ = insert(&mut store, extent(3, 1, 9000, false));
        let _ = set_unwritten(&mut store, 0, 200, true, 100);
        let _ = split_at(&mut store, 101);
        let _ = shift_left(&mut store, 4, 2, 100);
        let _ = shift_right(&mut store, 8, END, 7, 100);
        let _ = remove(&mut store, 0, END, Budget::ALL, drop);
    }
}

/// Returns errors where [`Memory`] would panic over a bug.
struct Hostile(Memory);

impl Nodes for Hostile {
    type Node = Vec<u8>;

    fn root(&self) -> Root {
        self.0.root
    }

    fn node(&self, block: FsBlock) -> Result<Vec<u8>> {
        // Not even checked: the descent alone must hold.
        self.0
            .nodes
            .get(&block.0)
            .cloned()
            .ok_or_else(|| Error::corrupt("no such node"))
    }

    fn check_entries(&self, node: &[u8]) -> Result<()> {
        check_node(node)
    }

    fn check_run(&self, block: FsBlock, len: u32) -> Result<()> {
        self.0.check_run(block, len)
    }
}

impl NodesMut for Hostile {
    fn edit_root(&mut self, edit: impl FnOnce(&mut Root)) -> Result<()> {
        self.0.edit_root(edit)
    }

    fn edit(&mut self, block: FsBlock, edit: impl FnOnce(&mut [u8])) -> Result<()> {
        self.0
            .nodes
            .get_mut(&block.0)
            .map(|n| edit(n))
            .ok_or_else(|| Error::corrupt("no such node"))
    }

    fn create(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<FsBlock> {
        self.0.create(fill)
    }

    fn free(&mut self, block: FsBlock) -> Result<()> {
        self.0
            .nodes
            .remove(&block.0)
            .map(drop)
            .ok_or_else(|| Error::corrupt("freed twice"))
    }
}
