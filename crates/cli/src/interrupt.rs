//! Ctrl-C in the middle of a change: the command ends at the next file or chunk, and the image is closed as always.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::problem::Failure;

/// What a shell reports for a program that Ctrl-C ended.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Whether the user wants the command to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    wanted: Arc<AtomicBool>,
    /// Readable from the first signal on; there once it is armed.
    woken: Arc<OnceLock<UnixStream>>,
}

impl Interrupt {
    /// From now on, the first signal is only noted; the second ends the process on the spot.
    pub(crate) fn arm(&self) -> std::io::Result<()> {
        let (woken, wake) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the one that ends the process sees the flag as the signal before left it.
            flag::register_conditional_shutdown(
                signal,
                EXIT_INTERRUPTED.into(),
                Arc::clone(&self.wanted),
            )?;
            flag::register(signal, Arc::clone(&self.wanted))?;
            // Behind the flag: who is woken finds it set.
            low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        // Armed before: that one wakes too.
        let _ = self.woken.set(woken);
        Ok(())
    }

    /// Ends the command if the user wants that.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.wanted.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        Ok(())
    }

    /// Waits until there is something to be read, the end included, or the user wants the command to end. A read that
    /// waits for a pipe or a terminal would not hear of that.
    pub(crate) fn wait_readable(&self, stream: BorrowedFd<'_>) -> Result<(), Failure> {
        loop {
            self.check()?;
            // Not armed: a signal ends the process, as any other.
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
                // An error of the stream is what the read will say.
                _ => return self.check(),
            }
        }
    }
}
