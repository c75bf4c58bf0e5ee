//! Blocks of the volume: STATFS, which `df` shows, and BMAP.

use std::sync::Arc;

use rustix::io::Errno;
use throughline::Volume;

use super::{Answer, Answered, Request};
use crate::nodes::Nodes;
use crate::options::MountOptions;
use crate::wire::{BmapIn, BmapOut, StatfsOut};

/// See the head of this file.
pub(super) struct SpaceRequests {
    volume: Volume,
    nodes: Arc<Nodes>,
    /// With `minixdf`: the total number of blocks, with which `df` includes the volume's own metadata.
    minix_blocks: Option<u64>,
}

impl SpaceRequests {
    pub(super) fn new(
        volume: &Volume,
        nodes: &Arc<Nodes>,
        options: &MountOptions,
    ) -> SpaceRequests {
        let minix_blocks = match options.minix_df {
            true => volume.info().ok().map(|info| info.blocks),
            false => None,
        };
        SpaceRequests {
            volume: volume.clone(),
            nodes: Arc::clone(nodes),
            minix_blocks,
        }
    }

    pub(super) fn statfs(&self) -> Answered {
        let stat = self.volume.stat_fs()?;
        Answer::of(&StatfsOut {
            blocks: self.minix_blocks.unwrap_or(stat.blocks),
            bfree: stat.free_blocks,
            bavail: stat.available_blocks,
            files: stat.inodes.into(),
            ffree: stat.free_inodes.into(),
            bsize: stat.block_bytes,
            namelen: stat.name_max,
            frsize: stat.block_bytes,
            ..StatfsOut::default()
        })
    }

    /// FIBMAP: the volume's block of a file block; 0 for a hole.
    pub(super) fn bmap(&self, request: &Request<'_>) -> Answered {
        let (ask, _) = request.argument::<BmapIn>()?;
        let node = self.nodes.get(request.header.nodeid)?;
        let own_bytes = u64::from(self.volume.block_bytes());
        if own_bytes != u64::from(ask.block_bytes) {
            return Err(Errno::INVAL.into());
        }
        let block = node.block_at(ask.block)?.unwrap_or(0);
        Answer::of(&BmapOut { block })
    }
}
