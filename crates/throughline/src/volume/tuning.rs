//! [`Tuning`]: what can be changed of an open volume's memory and I/O.

use std::time::Duration;

use throughline_ext::Fs;
use throughline_fileio::DirtyLimits;

/// Changes settings of an open volume ([`Volume::tune`](crate::Volume::tune)). They have the names, the units
/// and the defaults of [`OpenOptions`](crate::OpenOptions) and [`VolumeOptions`](crate::VolumeOptions), and
/// take effect at once.
///
/// ```no_run
/// # fn main() -> throughline::Result<()> {
/// let volume = throughline::Volume::open("disk.img")?;
/// volume.tune().cache_bytes(Some(64 << 20)).readahead_max(Some(1 << 20));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Tuning<'a> {
    fs: &'a Fs,
}

impl std::fmt::Debug for Tuning<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tuning")
            .field("device", &self.fs.disk().info().name)
            .finish_non_exhaustive()
    }
}

impl<'a> Tuning<'a> {
    pub(super) fn of(fs: &'a Fs) -> Tuning<'a> {
        Tuning { fs }
    }

    /// The memory limit of the page cache, in bytes. Excess memory is freed as it becomes clean. `None` takes
    /// a quarter of the memory available to the process.
    pub fn cache_bytes(self, bytes: Option<u64>) -> Self {
        let bytes = bytes.unwrap_or_else(throughline_fileio::memory::default_budget_bytes);
        self.fs.cache().set_budget_bytes(bytes);
        self
    }

    /// The limits of dirty memory.
    pub fn dirty_limits(self, limits: DirtyLimits) -> Self {
        self.fs.cache().throttle().set_limits(limits);
        self
    }

    /// The age at which dirty file data is written back.
    pub fn dirty_age(self, age: Duration) -> Self {
        self.fs.cache().writeback().set_age(age);
        self
    }

    /// The largest readahead window, in bytes (0 disables readahead); `None` derives it from the device.
    pub fn readahead_max(self, bytes: Option<u64>) -> Self {
        self.fs.cache().readahead().set_max_bytes(bytes);
        self
    }

    /// The target size of data I/Os, in bytes; `None` derives it from the device.
    pub fn bio_target(self, bytes: Option<u32>) -> Self {
        self.fs.disk().set_bio_target_bytes(bytes);
        self
    }
}
