//! IOCTL on the volume as a whole: trimming, its label, shutdown.
//!
//! On a local file system, everything but reading the label needs `CAP_SYS_ADMIN`. Here it is allowed for
//! root and for the user who mounted the volume.

use rustix::io::Errno;
use throughline::TakeDown;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::ioctls::{IoctlRequests, answer};
use super::{Answered, Refusal, Request};
use crate::outside::shutdown_mode;
use crate::wire::{IoctlIn, ioctl};

/// The size of a label in `FS_IOC_GETFSLABEL` and `FS_IOC_SETFSLABEL`, with its terminating NUL.
const LABEL_BYTES: usize = 256;

/// `struct fstrim_range`, in bytes; in the reply, `len` is the number of bytes trimmed.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TrimRange {
    start: u64,
    len: u64,
    least: u64,
}

impl IoctlRequests {
    /// Serves one of these requests; `ENOTTY` for any other.
    pub(super) fn volume_ioctl(
        &self,
        request: &Request<'_>,
        ask: &IoctlIn,
        argument: &[u8],
    ) -> Answered {
        match ask.cmd {
            ioctl::GET_LABEL => {
                let mut text = [0; LABEL_BYTES];
                let label = self.volume.label();
                text.iter_mut()
                    .zip(&label)
                    .for_each(|(to, from)| *to = *from);
                answer(&text)
            }
            ioctl::SET_LABEL => {
                check_administers(request)?;
                let end = argument
                    .iter()
                    .take(LABEL_BYTES)
                    .position(|byte| *byte == 0);
                let label = argument.get(..end.ok_or(Errno::INVAL)?);
                self.volume.set_label(label.unwrap_or_default())?;
                answer(&())
            }
            ioctl::TRIM => {
                check_administers(request)?;
                let (mut range, _) =
                    TrimRange::read_from_prefix(argument).map_err(|_| Errno::INVAL)?;
                let end = range.start.saturating_add(range.len);
                range.len = self.volume.trim(range.start..end, range.least)?;
                answer(&range)
            }
            ioctl::SHUTDOWN => {
                check_administers(request)?;
                let mode = self.take_down_mode(request.header.pid, ask.arg)?;
                self.volume.take_down(mode)?;
                answer(&())
            }
            _ => Err(Errno::NOTTY.into()),
        }
    }

    /// The shutdown mode that the caller requests. If it cannot be read from the caller's memory, it is the
    /// one that loses nothing.
    fn take_down_mode(&self, thread: u32, address: u64) -> Result<TakeDown, Refusal> {
        let read = match self.outside.get() {
            Some(outside) => outside.shutdown_mode(thread, address),
            None => shutdown_mode(thread, address),
        };
        match read {
            Ok(0) => Ok(TakeDown::Flush),
            Ok(1) => Ok(TakeDown::FlushLog),
            Ok(2) => Ok(TakeDown::NoFlush),
            Ok(_) => Err(Errno::INVAL.into()),
            Err(error) => {
                tracing::warn!(%error, "cannot read the shutdown mode: flushing everything first");
                Ok(TakeDown::Flush)
            }
        }
    }
}

/// Allows root and the user who mounted the volume; stands for `CAP_SYS_ADMIN`.
pub(super) fn check_administers(request: &Request<'_>) -> Result<(), Refusal> {
    let (uid, own) = (request.header.uid, rustix::process::geteuid());
    match uid == 0 || uid == own.as_raw() {
        true => Ok(()),
        false => Err(Errno::PERM.into()),
    }
}
