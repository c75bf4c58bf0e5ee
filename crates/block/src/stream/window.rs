//! How much a stream keeps in flight: [`Window`].
//!
//! A few milliseconds' worth of bios keep a device busy as long as their submitter gets a CPU whenever
//! it is woken. More is of no use then: data that is held back may still grow or be overwritten in memory,
//! and what a thread waits for does not queue behind it. A submitter that competes with others for a
//! CPU is late, finds its queue empty, and the device has idled. So the window follows what happens: it
//! doubles when a reap finds a full one drained, and shrinks slowly while none is.

use std::time::Duration;

/// Minimum window, in bios of the target size.
const MIN_BIOS: u64 = 32;

/// Maximum window: what the device writes in this time, by its measured bandwidth. It bounds what a flush
/// waits for.
pub(super) const LONGEST: Duration = Duration::from_millis(25);

/// The window shrinks by an eighth after this many reaps in a row that were in time.
const CALM_REAPS: u32 = 4096;

/// The number of bytes that are useful in flight.
#[derive(Debug)]
pub(super) struct Window {
    bios: u64,
    calm: u32,
}

impl Default for Window {
    fn default() -> Self {
        Window {
            bios: MIN_BIOS,
            calm: 0,
        }
    }
}

impl Window {
    /// In bytes, with bios of this size.
    pub(super) fn bytes(&self, target_bytes: u64) -> u64 {
        self.bios * target_bytes
    }

    /// A reap has reduced the bytes in flight from `before_bytes` to `after_bytes`. The window does not grow
    /// beyond `most_bytes`.
    pub(super) fn reaped(
        &mut self,
        before_bytes: u64,
        after_bytes: u64,
        target_bytes: u64,
        most_bytes: u64,
    ) {
        let window = self.bytes(target_bytes);
        let was_full = before_bytes >= window / 4 * 3;
        if was_full && after_bytes <= window / 8 {
            let most = most_bytes / target_bytes.max(1);
            self.bios = (self.bios * 2).min(most).max(MIN_BIOS);
            self.calm = 0;
            return;
        }
        self.calm += 1;
        if self.calm >= CALM_REAPS {
            self.bios = (self.bios - self.bios / 8).max(MIN_BIOS);
            self.calm = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    #[test]
    fn it_doubles_when_a_full_window_has_drained_and_shrinks_when_none_does() {
        let mut window = Window::default();
        let reap = |window: &mut Window, from: u64, to: u64| {
            window.reaped(from * KIB, to * KIB, 256 * KIB, 50 << 20);
            window.bytes(256 * KIB) / KIB
        };
        assert_eq!(reap(&mut window, 8192, 7936), 8192);
        assert_eq!(reap(&mut window, 1024, 0), 8192, "the end of the data");
        assert_eq!(reap(&mut window, 12288, 256), 16384, "the reap was late");
        assert_eq!(reap(&mut window, 12288, 2048), 32768);
        assert_eq!(reap(&mut window, 32768, 4096), 51200, "the device's limit");
        for _ in 1..CALM_REAPS {
            assert_eq!(reap(&mut window, 51200, 51000), 51200);
        }
        assert_eq!(reap(&mut window, 51200, 51000), 44800);
        for _ in 0..100 * CALM_REAPS {
            reap(&mut window, 0, 0);
        }
        assert_eq!(window.bytes(256 * KIB), 8 << 20, "the minimum");
    }

    #[test]
    fn a_slow_or_shallow_device_keeps_the_minimum() {
        let mut window = Window::default();
        window.reaped(8 << 20, 0, 256 * KIB, 1 << 20);
        assert_eq!(window.bytes(256 * KIB), 8 << 20);
    }
}
