//! Copies whole files to standard output, for `cat`.

use throughline::AlignedBuf;

use super::Sparse;
use super::host::HostContent;
use super::pump::{ALIGN_BYTES, Buffers, Transfer, copy_large, copy_small};
use super::side::Content;
use super::tree::close;
use super::workers::SMALL_BYTES;
use crate::interrupt::Interrupt;
use crate::place::Place;
use crate::problem::{Doing, Failure};
use crate::progress::Progress;

/// Standard output as a target, with the buffers of all files.
pub(crate) struct ToStdout {
    stdout: HostContent,
    small: AlignedBuf,
    large: Buffers,
    progress: Progress,
}

impl ToStdout {
    /// This process's standard output.
    pub(crate) fn new() -> Result<ToStdout, Failure> {
        Ok(ToStdout {
            stdout: HostContent::stdout().doing(|| "cannot write to standard output")?,
            small: AlignedBuf::zeroed(SMALL_BYTES as usize, ALIGN_BYTES),
            large: Buffers::default(),
            progress: Progress::hidden(),
        })
    }

    /// Closes it.
    pub(crate) fn close(self) -> Result<(), Failure> {
        close(Box::new(self.stdout), &Place::Stream)
    }

    /// Writes a file, with zeroes for its holes.
    pub(crate) fn copy(
        &mut self,
        from: &dyn Content,
        source: &Place,
        interrupt: &Interrupt,
    ) -> Result<(), Failure> {
        let transfer = Transfer {
            from,
            to: &self.stdout,
            source,
            target: &Place::Stream,
            sparse: Sparse::Auto,
            progress: &self.progress,
            interrupt,
        };
        let len_bytes = from
            .meta()
            .doing(|| format!("cannot read {source}"))?
            .len_bytes;
        match len_bytes <= SMALL_BYTES {
            true => copy_small(&transfer, &mut self.small)?,
            false => copy_large(&transfer, &mut self.large)?,
        };
        Ok(())
    }
}
