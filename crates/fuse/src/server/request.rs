//! [`Request`], [`Answer`] and [`Refusal`]: the input and output of every family of requests.

use rustix::io::Errno;
use smallvec::SmallVec;
use throughline::Error;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::stale::Changed;
use crate::channel::Channel;
use crate::coherence::Later;
use crate::wire::InHeader;

/// Why a request was not done.
#[derive(Debug)]
pub(super) enum Refusal {
    /// An error of the protocol.
    Errno(Errno),
    /// An error of the volume.
    Volume(Error),
    /// The request is served later: it waits for a turn.
    Later,
}

impl From<Later> for Refusal {
    fn from(_: Later) -> Refusal {
        Refusal::Later
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Refusal {
        Refusal::Errno(errno)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Volume(error)
    }
}

/// The reply to a request.
#[allow(
    clippy::large_enum_variant,
    reason = "one per request, on the stack; a box would be slower"
)]
pub(super) enum Answer {
    /// These bytes.
    Bytes(SmallVec<[u8; 256]>),
    /// This many bytes of the thread's memory.
    Data(usize),
    /// No reply.
    Silence,
}

pub(super) type Answered = Result<Answer, Refusal>;

impl Answer {
    /// Success without data.
    pub(super) fn done() -> Answered {
        Ok(Answer::Bytes(SmallVec::new()))
    }

    pub(super) fn of(value: &(impl IntoBytes + Immutable)) -> Answered {
        Ok(Answer::Bytes(SmallVec::from_slice(value.as_bytes())))
    }
}

/// A request: its header and body.
pub(super) struct Request<'a> {
    pub(super) header: InHeader,
    pub(super) body: &'a [u8],
    /// The channel that it was read from.
    pub(super) channel: &'a Channel,
    /// The inodes that it changed so far.
    pub(super) changed: &'a Changed,
}

impl<'a> Request<'a> {
    /// The argument, and the bytes after it.
    pub(super) fn argument<T: FromBytes>(&self) -> Result<(T, &'a [u8]), Refusal> {
        T::read_from_prefix(self.body).map_err(|_| Errno::INVAL.into())
    }

    /// The NUL-terminated name at the start of `bytes`, and the bytes after it.
    pub(super) fn name(bytes: &'a [u8]) -> Result<(&'a [u8], &'a [u8]), Refusal> {
        let end = bytes.iter().position(|byte| *byte == 0);
        let end = end.ok_or(Errno::INVAL)?;
        Ok((&bytes[..end], &bytes[end + 1..]))
    }
}
