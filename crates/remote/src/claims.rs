//! [`Claims`]: which chunks a process fetches, as the other processes with the same cache see it. They wait
//! for these chunks, and find them in the cache.
//!
//! A claim is a lock on one byte of the file `.fetching` of the cache: the object says where its chunks
//! begin, by its hash. So a claim ends with its process, however that ends. Two objects whose bytes overlap,
//! which is unlikely, would only wait for each other.
//!
//! Nobody waits for ever, or in a circle: who waits has no claim on what others wait for, and [`Patience`]
//! ends.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use throughline_device::RangeLocks;
use throughline_locks::Mutex;
use tokio::time::{Instant, sleep};

/// The first pause of somebody who waits, and the longest one: of what a fetch takes, they are a small part.
const PAUSE: Duration = Duration::from_millis(1);
const MAX_PAUSE: Duration = Duration::from_millis(8);
/// How many times as long as the longest fetch of this process a fetch of another may take.
const TIMES: u32 = 4;
/// The shortest time that it may take.
const SHORTEST: Duration = Duration::from_secs(1);

pub(crate) struct Claims {
    locks: RangeLocks,
    /// The byte of the first chunk.
    first: u64,
    others: Mutex<Others>,
}

/// What is known of other processes.
#[derive(Default)]
struct Others {
    /// The longest time that a fetch of this process took.
    longest: Option<Duration>,
    /// One of them did not go on: until then, nobody is waited for.
    stuck_until: Option<Instant>,
}

impl Claims {
    /// Those of an object with this hash, in the directory of the cache.
    ///
    /// # Errors
    /// Of the file system.
    pub(crate) fn open(root: &Path, hash: &[u8; 32]) -> io::Result<Claims> {
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(root.join(".fetching"))?;
        let [a, b, c, d, e, f, g, h, ..] = *hash;
        Ok(Claims {
            locks: RangeLocks::new(file),
            // The last byte that can be locked is 2^63 - 2.
            first: u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 2,
            others: Mutex::default(),
        })
    }

    fn bytes(&self, chunks: Range<u64>) -> Range<u64> {
        self.first.saturating_add(chunks.start)..self.first.saturating_add(chunks.end)
    }

    /// Claims all of these chunks, or none. On a file system without locks, all are claimed by everybody.
    pub(crate) fn claim(&self, chunks: Range<u64>) -> bool {
        self.locks.try_lock(self.bytes(chunks)).unwrap_or(true)
    }

    /// They are in the cache, or will not be. If this process has no claim on one, nothing happens.
    pub(crate) fn release(&self, chunks: Range<u64>) {
        // It fails only where the claim failed.
        let _ = self.locks.unlock(self.bytes(chunks));
    }

    /// A fetch of this process took so long.
    pub(crate) fn took(&self, time: Duration) {
        let mut others = self.others.lock();
        others.longest = Some(others.longest.map_or(time, |longest| longest.max(time)));
    }

    /// How long to wait for others, if what one read may take is `patience`. `None`: not at all.
    pub(crate) fn patience(&self, patience: Duration) -> Option<Patience> {
        let mut others = self.others.lock();
        if others
            .stuck_until
            .is_some_and(|until| Instant::now() < until)
        {
            return None;
        }
        others.stuck_until = None;
        let most = patience / 3;
        let expected = others.longest.map_or(most, |longest| longest * TIMES);
        Some(Patience {
            each: expected.max(SHORTEST).min(most),
            since: Instant::now(),
            pause: PAUSE,
        })
    }

    /// Somebody was waited for in vain.
    pub(crate) fn stuck(&self, patience: Duration) {
        self.others.lock().stuck_until = Some(Instant::now() + patience);
    }
}

/// Of somebody who waits for chunks.
pub(crate) struct Patience {
    /// The longest time until the next chunk.
    each: Duration,
    since: Instant,
    pause: Duration,
}

impl Patience {
    /// A chunk has arrived.
    pub(crate) fn progress(&mut self) {
        self.since = Instant::now();
        self.pause = PAUSE;
    }

    /// Waits a moment. Returns whether to go on.
    pub(crate) async fn pause(&mut self) -> bool {
        if self.since.elapsed() >= self.each {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(MAX_PAUSE);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_one_object_exclude_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let open = |first: u8| Claims::open(dir.path(), &[first; 32]).unwrap();
        let (one, other, third) = (open(255), open(255), open(7));
        assert!(one.claim(0..4));
        assert!(!other.claim(3..8) && other.claim(4..8));
        assert!(third.claim(0..8), "another object");
        one.release(0..4);
        assert!(other.claim(0..4));
        drop(other);
        assert!(one.claim(0..8));
    }

    #[test]
    fn nobody_is_waited_for_longer_than_a_fetch_takes_or_after_that() {
        let dir = tempfile::tempdir().unwrap();
        let claims = Claims::open(dir.path(), &[1; 32]).unwrap();
        let each = |seconds| {
            let patience = claims.patience(Duration::from_secs(seconds));
            patience.map(|it| it.each)
        };
        assert_eq!(each(30), Some(Duration::from_secs(10)));
        claims.took(Duration::from_millis(10));
        assert_eq!(each(30), Some(SHORTEST));
        claims.took(Duration::from_millis(700));
        claims.took(Duration::from_millis(20));
        assert_eq!(each(30), Some(Duration::from_millis(2800)));
        assert_eq!(each(3), Some(Duration::from_secs(1)));
        claims.stuck(Duration::from_secs(600));
        assert_eq!(each(30), None);
    }
}
