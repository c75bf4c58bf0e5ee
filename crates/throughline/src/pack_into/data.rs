//! Data of new files: one pass over the sources, each file written where its data is.

use std::collections::HashMap;

use throughline_archive::{self as archive, NodeId, Visited};

use super::Apply;
use crate::file::File;
use crate::read_tree::at;

impl Apply<'_> {
    /// Gives every new file its data.
    pub(super) fn data(
        &mut self,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> archive::Result<()> {
        let new = std::mem::take(&mut self.new);
        let contents = new
            .iter()
            .filter_map(|(node, _)| self.tree.node(*node).content());
        let all = contents.map(|content| content.data_bytes()).sum();
        let paths: HashMap<NodeId, &[u8]> = new
            .iter()
            .map(|(node, path)| (*node, path.as_slice()))
            .collect();
        let mut open: Option<(NodeId, File)> = None;
        let mut failed = None;
        let (tree, sources) = (self.tree, self.sources);
        let mut visit = |node: NodeId, offset: u64, bytes: &[u8]| -> Visited {
            let mut write = || {
                let path = paths.get(&node).copied().unwrap_or_default();
                if open.as_ref().is_none_or(|(known, _)| *known != node) {
                    open = Some((node, self.file(node, path)?));
                }
                let (_, file) = open.as_ref().expect("it was opened");
                let done = file.write_all_at(bytes, offset);
                done.map_err(|error| at(path, error))?;
                self.done.data_bytes += bytes.len() as u64;
                self.wrote(node, bytes.len() as u64)?;
                match progress(self.done.data_bytes, all) {
                    true => Ok(()),
                    false => Err(archive::Error::Stopped),
                }
            };
            write().map_err(|error| {
                failed = Some(error);
                "the target".into()
            })
        };
        // Files of the base are without data in the tree.
        let passed = sources.for_each_data(tree, 1, &mut visit);
        drop(open);
        self.new = new;
        match failed {
            Some(error) => Err(error),
            None => passed,
        }
    }

    fn file(&self, node: NodeId, path: &[u8]) -> archive::Result<File> {
        let opened = self.node(node, path)?.open_file();
        opened.map_err(|error| at(path, error))
    }
}
