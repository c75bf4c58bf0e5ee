//! Multiple-mount protection: a block through which machines that share a device see that somebody has the volume open.
//!
//! Whoever writes the volume changes the block's sequence number every few seconds. Taking it: see no change for longer than
//! the other's interval, write a number of our own, and find it there after as long again. A volume that was closed well says
//! so, which saves the first wait. The block goes past the metadata cache, since others change it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use throughline_block::{Disk, Purpose};
use throughline_device::AlignedBuf;
use throughline_extfmt::mmp::{
    MAX_CHECK_INTERVAL, MIN_CHECK_INTERVAL, MmpBlock, SEQ_CLEAN, SEQ_FSCK, SEQ_MAX,
};
use throughline_extfmt::{FsBlock, Geometry, Superblock};
use zerocopy::IntoBytes;

use crate::error::{Error, Reason, Result};

/// How long our number has to stand on a volume that was closed well. Two that find it closed at the same moment write at
/// nearly the same moment too, so it need not be as long as where somebody may only be slow.
const WAIT_IF_CLEAN: Duration = Duration::from_secs(1);
/// Between two looks while waiting.
const LOOK: Duration = Duration::from_secs(1);

/// The volume is ours while this lives. A thread renews the claim.
pub(crate) struct MmpGuard {
    shared: Arc<Shared>,
    /// The thread, and what is dropped to end it.
    renewal: Mutex<Option<(mpsc::Sender<()>, JoinHandle<()>)>>,
}

struct Shared {
    disk: Arc<Disk>,
    geo: Geometry,
    block: FsBlock,
    /// Why the claim was lost, if it was.
    lost: Mutex<Option<Error>>,
    /// Set with it: cheap to ask before every change.
    is_lost: AtomicBool,
}

impl MmpGuard {
    /// Takes the volume. Takes several seconds: that is the protocol.
    ///
    /// # Errors
    /// `Busy`, naming the other machine; those of reading and writing the block.
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
                "e2fsck is running on the volume, or was broken off (mmp)".into(),
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
            Err(e) => {
                shared.write(SEQ_CLEAN, update_s)?;
                Err(Error::Unsupported(format!(
                    "multiple-mount protection needs a thread: {e}"
                )))
            }
        }
    }

    /// Whether the claim still stands.
    ///
    /// # Errors
    /// `Busy` with who took it, or what stood against renewing it.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.shared.is_lost.load(Ordering::Acquire) {
            return Ok(());
        }
        self.shared.lost.lock().clone().map_or(Ok(()), Err)
    }

    /// Ends the thread and leaves the block as it is, as a crash does.
    pub(crate) fn abandon(&self) {
        if let Some((stop, thread)) = self.renewal.lock().take() {
            drop(stop);
            let _ = thread.join(); // it can tell nothing that matters any more
        }
    }

    /// Gives the volume back.
    ///
    /// # Errors
    /// As [`MmpGuard::check`], and those of writing the block.
    pub(crate) fn release(&self) -> Result<()> {
        let Some((stop, thread)) = self.renewal.lock().take() else {
            return Ok(());
        };
        drop(stop);
        // It cannot have panicked but by our own bug, and then the block says that the volume is in use: rightly so.
        let ended = thread.join().is_ok();
        self.check()?;
        if ended {
            self.shared.write(SEQ_CLEAN, 0)
        } else {
            Ok(())
        }
    }
}

/// What was not released, because the volume did not open after all, is given back.
impl Drop for MmpGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        if let Err(error) = self.release() {
            tracing::warn!(%error, "giving multiple-mount protection back");
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

    /// Refuses if the sequence number changes within `wait`.
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

    /// Refuses if the block has another sequence number than we know.
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

    /// Writes a sequence number; an interval of 0 leaves it as it is.
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

    /// Renews the claim until told to stop, or until it is lost.
    fn renew(&self, first: u32, update_s: u16, stopped: &mpsc::Receiver<()>) {
        let mut sequence = first;
        let pause = Duration::from_secs(update_s.into());
        while stopped.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
            let next = if sequence >= SEQ_MAX {
                1
            } else {
                sequence.saturating_add(1)
            };
            // Looked at before: we may have slept longer than the other had to wait.
            if let Err(error) = self
                .expect(sequence)
                .and_then(|()| self.write(next, update_s))
            {
                tracing::error!(%error, "multiple-mount protection: the volume is no longer ours");
                *self.lost.lock() = Some(error);
                self.is_lost.store(true, Ordering::Release);
                return;
            }
            sequence = next;
        }
    }
}

/// How long nothing may change before a volume counts as left alone: longer than two of the other's intervals, or one and a
/// minute.
fn wait_time(interval_s: u16) -> Duration {
    let interval = u64::from(interval_s);
    Duration::from_secs((2 * interval + 1).min(interval + 60))
}

/// A sequence number that another machine will hardly choose at the same moment.
fn first_sequence() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(std::process::id()) % u64::from(SEQ_MAX)) as u32 + 1
}

fn put_text(to: &mut [u8], text: &[u8]) {
    to.fill(0);
    to.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
}
