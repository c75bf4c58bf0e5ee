//! What is known before anything is written: whether the options are sound, what would be made, and what is in
//! it.

use throughline_archive::{Sources, Tree};

use super::inode;
use super::options::{PackOptions, Packed};
use super::size;
use super::tree::{Input, Kind};
use super::walk::Walk;
use crate::error::{Error, Result};
use crate::make::{Made, made};
use crate::plan::Plan;

impl PackOptions {
    /// Whether the options are sound, whatever is packed: to be called before sources are read.
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::Unsupported`].
    pub fn check_options(&self) -> Result<()> {
        size::check(&self.given()?, self.size)
    }

    /// What [`PackOptions::pack`] would make of a tree. Data is not read, so the UUID is zero if it would
    /// follow from that.
    ///
    /// # Errors
    /// As there.
    pub fn plan(&self, tree: &Tree, sources: &Sources) -> Result<Packed> {
        let walk = Walk::new(Input { tree, sources })?;
        let options = self.volume(&walk)?;
        let sized = size::choose(&options, self.size, &walk)?;
        let mut request = sized.request.clone();
        if options.uuid.is_none() {
            request.uuid = [0; 16];
        }
        let plan = Plan::with(&request, &sized.measured)?
            .map_err(|_| Error::invalid("no plan holds all of it"))?;
        Ok(self.packed(made(&plan, &request), &walk, sized.bytes))
    }

    /// Counts what is in an image.
    pub(super) fn packed(&self, made: Made, walk: &Walk<'_>, bytes: u64) -> Packed {
        let latest = self.latest();
        let inode_bytes = made.inode_bytes;
        let mut packed = Packed {
            made,
            bytes,
            directories: 0,
            files: 0,
            others: 0,
            hard_links: 0,
            data_bytes: walk.bytes,
            clamped_times: 0,
        };
        for node in walk.nodes() {
            let kind = walk.tree.kind(node);
            match kind {
                Kind::Directory => packed.directories += 1,
                Kind::File { .. } => packed.files += 1,
                _ => packed.others += 1,
            }
            if kind != Kind::Directory {
                packed.hard_links += u64::from(walk.links(node).saturating_sub(1));
            }
            let time = inode::time_of(walk.tree.attributes(node), latest);
            packed.clamped_times += u64::from(!inode::holds(inode_bytes, time));
        }
        packed
    }
}
