//! [`Service`]: serves requests, independently of their transport.

use std::io;
use std::sync::Arc;

use crate::channel::{Channel, Scratch};
use crate::transport::Transport;

/// See the head of this file.
pub(crate) trait Service: Sync {
    /// Serves the request in `scratch`, which was read from `channel`, and sends its reply.
    ///
    /// # Errors
    /// The system's, when the reply is written.
    fn serve(&self, channel: &Arc<Channel>, scratch: &mut Scratch) -> io::Result<()>;

    /// Serves the request in `scratch`, which is the memory of a ring's entry; `channel` is for
    /// notifications. Returns `false` if it needs a turn: call it again after [`Service::await_turn`].
    /// Otherwise commit the entry, then call [`Service::send_notices`] on another thread.
    ///
    /// # Errors
    /// The request is malformed.
    fn serve_entry(&self, channel: &Channel, scratch: &mut Scratch) -> io::Result<bool>;

    /// Blocks until a turn is free.
    fn await_turn(&self);

    /// Whether notifications wait to be sent.
    fn has_notices(&self) -> bool;

    /// Sends the notifications that follow replies, if a turn is free. The kernel may wait for other requests
    /// meanwhile.
    fn send_notices(&self, channel: &Channel);

    /// How requests reach this service.
    fn transport(&self) -> &Transport;
}
