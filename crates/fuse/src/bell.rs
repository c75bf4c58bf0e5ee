//! [`Bell`]: wakes one thread, which need not wait yet.

use throughline_locks::{Condvar, Mutex};

/// See the head of this file.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(crate) fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }

    /// Returns when the bell has been rung since the last call.
    pub(crate) fn wait(&self) {
        let mut rung = self.rung.lock();
        while !*rung {
            self.changed.wait(&mut rung);
        }
        *rung = false;
    }
}
