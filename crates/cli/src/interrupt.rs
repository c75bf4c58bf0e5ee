//! Ctrl-C during a change: the command ends at the next file or chunk, and the image is closed as usual.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::problem::Failure;

/// The exit status that shells report for a program ended by Ctrl-C.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Whether the user has asked for the command to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    wanted: Arc<AtomicBool>,
    /// Readable from the first signal on. Set once armed.
    woken: Arc<OnceLock<UnixStream>>,
}

impl Interrupt {
    /// From now on, the first signal is only recorded; the second ends the process at once.
    pub(crate) fn arm(&self) -> std::io::Result<()> {
        let (woken, wake) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the conditional shutdown sees the flag as the previous signal left it.
            flag::register_conditional_shutdown(
                signal,
                EXIT_INTERRUPTED.into(),
                Arc::clone(&self.wanted),
            )?;
            flag::register(signal, Arc::clone(&self.wanted))?;
            // Registered after the flag: when the waiter wakes, the flag is set.
            low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        // If it was armed before, the earlier pipe is also written to.
        let _ = self.woken.set(woken);
        Ok(())
    }

    /// Fails if the user has asked for the command to end.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.wanted.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        Ok(())
    }

    /// Waits until `stream` is readable or at its end, or the user asks for the command to end. A blocking
    /// read of a pipe or terminal could not be interrupted.
    pub(crate) fn wait_readable(&self, stream: BorrowedFd<'_>) -> Result<(), Failure> {
        loop {
            self.check()?;
            // Not armed: a signal ends the process in the usual way.
            let Some(woken) = self.woken.get() else {
                return Ok(());
            };
            let woken = woken.as_fd();
            let mut both = [
                PollFd::new(&stream, PollFlags::IN),
                PollFd::new(&woken, PollFlags::IN),
            ];
            match poll(&mut both, None) {
                Ok(_) if both[0].revents().is_empty() => {}
                Err(Errno::INTR) => {}
                // The read will report an error of the stream.
                _ => return self.check(),
            }
        }
    }
}
