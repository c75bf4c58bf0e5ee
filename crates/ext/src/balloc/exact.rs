//! Allocates blocks by number, for recovery: the log says which blocks were in use.

use throughline_extfmt::FsBlock;

use super::Blocks;
use super::Run;
use crate::error::Result;
use crate::handle::Handle;

impl Blocks {
    /// Allocates those of the blocks' clusters that are free, ignoring reserves ([`super::GROUP_CREDITS`] per
    /// group). Returns them.
    ///
    /// # Errors
    /// Errors of the journal; `Corrupt`.
    pub(crate) fn take_free(
        &self,
        h: &mut Handle<'_>,
        start: FsBlock,
        len: u64,
    ) -> Result<Vec<Run>> {
        let mut taken = Vec::new();
        for (group, first, len) in self.by_group(start, len) {
            let end = first.saturating_add(len);
            let claim = || self.with_map(group, |map| map.claim_first(first..end));
            while let Some(found) = claim()? {
                self.balloc.claimed(found.len);
                let group_start = self.geo.group_first_block(group).0;
                let log = self.geo.cluster_ratio_log;
                let run = Run {
                    start: FsBlock(group_start.saturating_add(u64::from(found.first) << log)),
                    len: found.len << log,
                };
                if let Err(error) = self.confirm(h, run) {
                    self.release(run);
                    return Err(error);
                }
                taken.push(run);
            }
        }
        Ok(taken)
    }
}
