//! Ctrl-C during a change: the command ends at the next file or chunk, and the image is closed as usual.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use crate::problem::{Doing, Failure};

/// The exit status that shells report for a program ended by Ctrl-C.
pub const EXIT_INTERRUPTED: u8 = 130;

/// Whether the user has interrupted the command.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    wanted: Arc<AtomicBool>,
    /// Becomes readable at the first signal. Set once armed.
    woken: Arc<OnceLock<UnixStream>>,
}

impl Interrupt {
    /// Installs the handlers. From now on, the first signal is only recorded, and the second ends the process
    /// at once.
    pub fn arm(&self) -> Result<(), Failure> {
        self.install()
            .doing(|| "cannot set up the handler for Ctrl-C")
    }

    fn install(&self) -> std::io::Result<()> {
        let (woken, wake) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // Handlers run in this order: the conditional shutdown tests the flag as it was before this
            // signal.
            flag::register_conditional_shutdown(
                signal,
                EXIT_INTERRUPTED.into(),
                Arc::clone(&self.wanted),
            )?;
            flag::register(signal, Arc::clone(&self.wanted))?;
            // Registered after the flag, so that the flag is set when a waiter wakes.
            low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        // If it was armed before, the earlier pipe stays in use.
        let _ = self.woken.set(woken);
        Ok(())
    }

    /// Fails if the user has interrupted the command.
    pub fn check(&self) -> Result<(), Failure> {
        if self.wanted.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        Ok(())
    }

    /// Waits until `stream` is readable or at its end, or the user interrupts the command. A blocking read of
    /// a pipe or terminal could not be interrupted.
    pub fn wait_readable(&self, stream: BorrowedFd<'_>) -> Result<(), Failure> {
        loop {
            self.check()?;
            // Not armed: a signal ends the process.
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
                // If the stream has an error, the read reports it.
                _ => return self.check(),
            }
        }
    }
}
