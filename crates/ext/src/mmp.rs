//! Multiple-mount protection: a block that marks the volume as in use, for machines that share the device.
//!
//! A machine that writes the volume updates the block's sequence number every few seconds. A machine that
//! claims the volume first sees no change for longer than the other machine's interval, then writes a new
//! number, and finds it unchanged after the same time. A volume that was closed cleanly is marked so, which
//! saves the first wait. The block bypasses the metadata cache, since other machines change it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use throughline_block::{Disk, Purpose};
use throughline_device::AlignedBuf;
use throughline_extfmt::features::Incompat;
use throughline_extfmt::mmp::{
    MAX_CHECK_INTERVAL, MIN_CHECK_INTERVAL, MmpBlock, SEQ_CLEAN, SEQ_FSCK, SEQ_MAX,
};
use throughline_extfmt::{FsBlock, Geometry, Superblock};
use throughline_locks::Mutex;
use zerocopy::IntoBytes;

use crate::error::{Error, Reason, Result};
use crate::primary;

/// How long our number must stay unchanged on a cleanly closed volume. Two machines that find it closed at
/// the same time also write at nearly the same time, so this can be shorter than the wait for a slow writer.
const WAIT_IF_CLEAN: Duration = Duration::from_secs(1);
/// Polling interval while waiting.
const LOOK: Duration = Duration::from_secs(1);

/// A claim on the volume, renewed by a thread until dropped.
pub(crate) struct MmpGuard {
    shared: Arc<Shared>,
    /// The thread, and a sender that stops it when dropped.
    renewal: Mutex<Option<(mpsc::Sender<()>, JoinHandle<()>)>>,
}

struct Shared {
    disk: Arc<Disk>,
    geo: Geometry,
    block: FsBlock,
    /// Why the claim was lost; `None` while it is held.
    lost: Mutex<Option<Error>>,
    /// Set together with `lost`: a cheap check before every change.
    is_lost: AtomicBool,
}

impl MmpGuard {
    /// Claims the volume. The protocol waits 1 s after a clean close, otherwise several seconds.
    ///
    /// # Errors
    /// `Busy`, naming the other machine; errors of reading and writing the block.
    pub(crate) fn take(disk: &Arc<Disk>, sb: &Superblock, geo: &Geometry) -> Result<Self> {
        let block = FsBlock(sb.s_mmp_block.get());
        if !geo.holds_blocks(block, 1) {
            return Err(Error::corrupt(
                "the block of multiple-mount protection is outside the volume",
            )
            .in_block(block));
        }
        let shared = Arc::new(Shared {
            disk: Arc::clone(disk),
            geo: geo.clone(),
            block,
            lost: Mutex::new(None),
            is_lost: AtomicBool::new(false),
        });
        let found = shared.read()?;
        let sequence = found.mmp_seq.get();
        let update_s = sb.s_mmp_interval.get().clamp(1, MAX_CHECK_INTERVAL);
        let check_s = found
            .mmp_check_interval
            .get()
            .max(update_s)
            .clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL);
        let mut wait = WAIT_IF_CLEAN;
        if sequence == SEQ_FSCK {
            return Err(Reason::Busy(
                "e2fsck is running on the volume, or was interrupted (mmp)".into(),
            )
            .into());
        }
        if sequence != SEQ_CLEAN {
            wait = wait_time(check_s);
            shared.watch(sequence, wait)?;
        }
        let first = first_sequence();
        shared.write(first, update_s)?;
        shared.watch(first, wait)?;
        let (stop, stopped) = mpsc::channel();
        let thread = {
            let shared = Arc::clone(&shared);
            let run = move || shared.renew(first, update_s, &stopped);
            std::thread::Builder::new()
                .name("throughline-mmp".into())
                .spawn(run)
        };
        match thread {
            Ok(thread) => Ok(Self {
                shared,
                renewal: Mutex::new(Some((stop, thread))),
            }),
            Err(error) => {
                shared.write(SEQ_CLEAN, update_s)?;
                Err(Error::System {
                    what: "starting the thread of multiple-mount protection",
                    source: Arc::new(error),
                })
            }
        }
    }

    /// Checks that the claim still holds.
    ///
    /// # Errors
    /// `Busy`, naming the new owner, or the error that prevented renewal.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.shared.is_lost.load(Ordering::Acquire) {
            return Ok(());
        }
        self.shared.lost.lock().clone().map_or(Ok(()), Err)
    }

    /// Stops the thread and leaves the block as it is, as a crash would.
    pub(crate) fn abandon(&self) {
        if let Some((stop, thread)) = self.renewal.lock().take() {
            drop(stop);
            let _ = thread.join(); // its result no longer matters
        }
    }

    /// Releases the volume.
    ///
    /// # Errors
    /// As [`MmpGuard::check`], and errors of writing the block.
    pub(crate) fn release(&self) -> Result<()> {
        let Some((stop, thread)) = self.renewal.lock().take() else {
            return Ok(());
        };
        drop(stop);
        // Only a bug could make the thread panic. The block then rightly stays marked as in use.
        let ended = thread.join().is_ok();
        self.check()?;
        if ended {
            self.shared.write(SEQ_CLEAN, 0)
        } else {
            Ok(())
        }
    }
}

/// A claim on a volume that is changed without being opened. It keeps other machines away from a volume with
/// multiple-mount protection; others need none beside the lock of the device.
pub struct Claim(Option<MmpGuard>);

impl Claim {
    /// Claims the volume on `disk`. With multiple-mount protection, this takes a second or more.
    ///
    /// # Errors
    /// `Busy`, naming the other machine; `Corrupt`; device errors.
    pub fn take(disk: &Arc<Disk>) -> Result<Claim> {
        let sb = primary::read(disk)?;
        let geo = Geometry::new(&sb)?;
        let guard = match geo.incompat.contains(Incompat::MMP) {
            true => Some(MmpGuard::take(disk, &sb, &geo)?),
            false => None,
        };
        Ok(Claim(guard))
    }

    /// Checks that the claim still holds.
    ///
    /// # Errors
    /// `Busy`, naming the new owner, or the error that prevented renewal.
    pub fn check(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), MmpGuard::check)
    }

    /// Releases the volume.
    ///
    /// # Errors
    /// As [`Claim::check`], and errors of writing the block.
    pub fn release(self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), MmpGuard::release)
    }
}

/// Releases the claim if the volume failed to open.
impl Drop for MmpGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if let Err(error) = self.release() {
            tracing::warn!(%error, "releasing multiple-mount protection");
        }
    }
}

impl Shared {
    fn read(&self) -> Result<MmpBlock> {
        let bytes = self.read_block()?;
        self.parse(&bytes)
    }

    fn read_block(&self) -> Result<AlignedBuf> {
        let align = self.disk.limits().memory_align_bytes.max(1) as usize;
        let mut bytes = AlignedBuf::zeroed(self.geo.block_bytes as usize, align);
        Purpose::Metadata.during(|| self.disk.read_at(self.offset(), &mut bytes))?;
        Ok(bytes)
    }

    fn parse(&self, bytes: &[u8]) -> Result<MmpBlock> {
        MmpBlock::read(bytes, self.geo.csum_seed).map_err(|e| Error::from(e).in_block(self.block))
    }

    /// Fails if the sequence number changes within `wait`.
    fn watch(&self, sequence: u32, wait: Duration) -> Result<()> {
        let mut left = wait;
        while !left.is_zero() {
            let pause = left.min(LOOK);
            std::thread::sleep(pause);
            self.expect(sequence)?;
            left = left.saturating_sub(pause);
        }
        Ok(())
    }

    /// Fails if the block's sequence number is not the expected one.
    fn expect(&self, sequence: u32) -> Result<()> {
        let found = self.read()?;
        if found.mmp_seq.get() == sequence {
            return Ok(());
        }
        let text = String::from_utf8_lossy;
        let (node, device) = (text(found.nodename()), text(found.bdevname()));
        Err(Reason::Busy(format!(
            "the volume is in use on {node} as {device} (multiple-mount protection)"
        ))
        .into())
    }

    /// Writes a sequence number. An interval of 0 leaves the stored interval unchanged.
    fn write(&self, sequence: u32, check_s: u16) -> Result<()> {
        let mut bytes = self.read_block()?;
        let mut mmp = self.parse(&bytes)?;
        mmp.mmp_seq.set(sequence);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        mmp.mmp_time.set(now.as_secs());
        if check_s != 0 {
            mmp.mmp_check_interval.set(check_s);
        }
        put_text(
            &mut mmp.mmp_nodename,
            rustix::system::uname().nodename().to_bytes(),
        );
        put_text(&mut mmp.mmp_bdevname, self.disk.info().name.as_bytes());
        mmp.update_checksum(self.geo.csum_seed);
        if let Some(place) = bytes.get_mut(..mmp.as_bytes().len()) {
            place.copy_from_slice(mmp.as_bytes());
        }
        Purpose::Metadata.during(|| self.disk.write_at(self.offset(), &bytes, true))?;
        Ok(())
    }

    fn offset(&self) -> u64 {
        self.block.0.saturating_mul(self.geo.block_bytes.into())
    }

    /// Renews the claim until it is stopped or the claim is lost.
    fn renew(&self, first: u32, update_s: u16, stopped: &mpsc::Receiver<()>) {
        let mut sequence = first;
        let pause = Duration::from_secs(update_s.into());
        while stopped.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
            let next = if sequence >= SEQ_MAX {
                1
            } else {
                sequence.saturating_add(1)
            };
            // Check first: this thread may have slept longer than another machine has to wait.
            if let Err(error) = self
                .expect(sequence)
                .and_then(|()| self.write(next, update_s))
            {
                tracing::error!(%error, "multiple-mount protection: the claim on the volume is lost");
                *self.lost.lock() = Some(error);
                self.is_lost.store(true, Ordering::Release);
                return;
            }
            sequence = next;
        }
    }
}

/// How long the block must stay unchanged before the volume counts as unused: just over two of the other
/// machine's intervals, or one interval plus a minute if that is shorter.
fn wait_time(interval_s: u16) -> Duration {
    let interval = u64::from(interval_s);
    Duration::from_secs((2 * interval + 1).min(interval + 60))
}

/// A sequence number that another machine is unlikely to choose at the same time.
fn first_sequence() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(std::process::id()) % u64::from(SEQ_MAX)) as u32 + 1
}

fn put_text(to: &mut [u8], text: &[u8]) {
    to.fill(0);
    to.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
}
