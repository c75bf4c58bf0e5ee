//! Ctrl-C in the middle of a change: the command ends at the next file or chunk, and the image is closed as always.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::problem::Failure;

/// What a shell reports for a program that Ctrl-C ended.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// Whether the user wants the command to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on, the first signal is only noted; the second ends the process on the spot.
    pub(crate) fn arm(&self) -> std::io::Result<()> {
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the one that ends the process sees the flag as the signal before left it.
            flag::register_conditional_shutdown(
                signal,
                EXIT_INTERRUPTED.into(),
                Arc::clone(&self.0),
            )?;
            flag::register(signal, Arc::clone(&self.0))?;
        }
        Ok(())
    }

    /// Ends the command if the user wants that.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        Ok(())
    }
}
