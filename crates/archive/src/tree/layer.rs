//! Layers and their whiteouts. A whiteout covers what earlier layers gave, and never what its own layer
//! gives, wherever in the layer it is.

use super::{NodeId, Tree};
use crate::meta::Kind;

impl Tree {
    /// Begins a layer: what is there now can be covered by whiteouts from here on.
    pub fn begin_layer(&mut self) {
        self.store.layer += 1;
    }

    /// Removes what earlier layers have at a path (OCI: `.wh.NAME`, with the path of `NAME`).
    pub fn whiteout(&mut self, path: &[u8]) {
        if let Some(name) = self.name_at(path) {
            self.uncover(name);
        }
    }

    /// Removes what earlier layers have below a directory (OCI: `.wh..wh..opq` in it).
    pub fn opaque(&mut self, directory: &[u8]) {
        if let Some(directory) = self.directory_at(directory) {
            self.uncover_below(directory);
        }
    }

    /// Removes a name and all below it, but for what this layer gave and the directories that lead there.
    /// Recursion is as deep as directories are nested, which the limits bound.
    fn uncover(&mut self, name: u32) -> bool {
        let node = NodeId(self.store.names[name as usize].node);
        let mut kept = self.store.names[name as usize].layer == self.store.layer;
        if self.store.node_of(node).kind() == Kind::Directory {
            kept |= self.uncover_below(node);
        }
        if !kept {
            self.remove_name(name);
        }
        kept
    }

    /// The same, of all names in a directory; whether one is left. Once in a layer: what is added after that
    /// is the layer's own. So many whiteouts of one directory cost no more than one.
    fn uncover_below(&mut self, directory: NodeId) -> bool {
        let layer = self.store.layer;
        if self.store.node_of(directory).source != layer {
            self.store.node_mut(directory).source = layer;
            for name in self.store.names_in(directory) {
                self.uncover(name);
            }
        }
        self.store.node_of(directory).count > 0
    }
}
