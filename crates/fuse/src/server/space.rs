//! What `df` shows: STATFS.

use super::{Answer, Answered, Server};
use crate::wire::StatfsOut;

impl Server {
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
}
