//! Data of new files: one pass over the sources, each file written where its data is.

use throughline_archive::{self as archive, NodeId, Visited};

use super::Apply;
use crate::file::File;
use crate::read_tree::at;

impl Apply<'_> {
    /// Gives every new file its size and its data.
    pub(super) fn data(
        &mut self,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> archive::Result<()> {
        let mut all = 0;
        for (node, path) in &self.new {
            let wanted = self.tree.node(*node);
            let Some(content) = wanted.content().filter(|content| content.size > 0) else {
                continue;
            };
            all += content.data_bytes();
            let sized = self.file(*node, path)?.set_len(content.size);
            sized.map_err(|error| at(path, error))?;
        }
        let paths: std::collections::HashMap<NodeId, &[u8]> = self
            .new
            .iter()
            .map(|(node, path)| (*node, path.as_slice()))
            .collect();
        let mut open: Option<(NodeId, File)> = None;
        let mut written = 0;
        let mut failed = None;
        let mut visit = |node: NodeId, offset: u64, bytes: &[u8]| -> Visited {
            let mut write = || {
                let path = paths.get(&node).copied().unwrap_or_default();
                if open.as_ref().is_none_or(|(known, _)| *known != node) {
                    open = Some((node, self.file(node, path)?));
                }
                let (_, file) = open.as_ref().expect("it was opened");
                let done = file.write_all_at(bytes, offset);
                done.map_err(|error| at(path, error))?;
                written += bytes.len() as u64;
                match progress(written, all) {
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
        let passed = self.sources.for_each_data(self.tree, 1, &mut visit);
        self.done.data_bytes = written;
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
