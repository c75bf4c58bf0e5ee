//! [`Variants`]: what our engine does for each variant of an experiment, in its measured samples only.
//!
//! Variants take turns on the same volumes and devices, so one listener receives all events and assigns them
//! to the current variant. Events between samples (creating, laying out and removing files) and in the
//! warm-up are dropped.
//!
//! Invariant: at most one variant is active; the clocks of the others are stopped.

use std::sync::{Arc, Weak};
use std::time::Instant;

use throughline::{Event, Listener};
use throughline_fileio::{PageCache, throttle};
use throughline_locks::{Mutex, Rank};

use super::accountant::Explained;
use super::ours::{CacheCounts, Watched};

/// See the module.
pub struct Variants {
    all: Mutex<Vec<(String, Arc<Watched>)>>,
    /// The variant whose sample is in progress.
    now: Mutex<Option<Arc<Watched>>>,
    caches: Mutex<Vec<Watching>>,
}

impl Default for Variants {
    fn default() -> Self {
        Self {
            all: Mutex::ranked(Rank::ExplainVariants, Vec::new()),
            now: Mutex::default(),
            caches: Mutex::ranked(Rank::ExplainCaches, Vec::new()),
        }
    }
}

/// An observed page cache. The reference is weak, so the cache is dropped with its volume.
struct Watching {
    cache: Weak<PageCache>,
    /// Its counts at the start of the sample.
    before: CacheCounts,
    _throttle: throttle::Subscription,
}

impl Variants {
    /// Observes a page cache: its throttle and its counts.
    pub fn cache(self: &Arc<Self>, cache: &Arc<PageCache>) {
        let variants = Arc::clone(self);
        let listener = move |event: &throttle::Event| {
            if let Some(watched) = variants.now() {
                watched.throttled(event);
            }
        };
        let mut caches = self.caches.lock();
        caches.retain(|known| known.cache.strong_count() > 0);
        caches.push(Watching {
            cache: Arc::downgrade(cache),
            before: CacheCounts::of(cache),
            _throttle: cache.throttle().subscribe(Arc::new(listener)),
        });
    }

    /// The variant with this name; a new one starts with its clock stopped.
    pub fn variant(&self, name: &str) -> Arc<Watched> {
        let mut all = self.all.lock();
        if let Some((_, watched)) = all.iter().find(|(other, _)| other == name) {
            return Arc::clone(watched);
        }
        let watched = Arc::new(Watched::new(name.to_owned(), Instant::now()));
        watched.stop();
        all.push((name.to_owned(), Arc::clone(&watched)));
        watched
    }

    /// Starts a sample of this variant; it ends when the returned value is dropped.
    pub fn sample(&self, name: &str) -> Turn<'_> {
        let watched = self.variant(name);
        for known in &mut *self.caches.lock() {
            if let Some(cache) = known.cache.upgrade() {
                known.before = CacheCounts::of(&cache);
            }
        }
        watched.go_on();
        *self.now.lock() = Some(watched);
        Turn(self)
    }

    fn now(&self) -> Option<Arc<Watched>> {
        self.now.lock().clone()
    }

    fn end_of_sample(&self) {
        let Some(watched) = self.now.lock().take() else {
            return;
        };
        watched.stop();
        for known in &*self.caches.lock() {
            if let Some(cache) = known.cache.upgrade() {
                watched.cached(CacheCounts::of(&cache).since(known.before));
            }
        }
    }

    /// One account per variant, in the order they were named.
    pub(super) fn finish(&self) -> Vec<Explained> {
        self.caches.lock().clear();
        let all = std::mem::take(&mut *self.all.lock());
        let finished = all.iter().filter_map(|(_, watched)| watched.finish());
        finished.collect()
    }
}

impl Listener for Variants {
    fn event(&self, event: &Event) {
        if let Some(watched) = self.now() {
            watched.event(event);
        }
    }
}

/// A sample in progress.
#[must_use = "dropping it ends the sample"]
pub struct Turn<'v>(&'v Variants);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.end_of_sample();
    }
}

#[cfg(test)]
mod tests {
    use throughline::internal::{OpenBlockDevice, RawLayers};
    use throughline::{FileOptions, OpenOptions};
    use throughline_device::MemoryDevice;

    use super::*;
    use crate::ours::Watch;

    #[test]
    fn each_variant_has_what_its_own_samples_did() {
        let watch = Watch::new();
        let variants = watch.variants();
        let file = OpenOptions::new()
            .write(true)
            .listener(Some(Arc::clone(variants) as Arc<dyn Listener>))
            .open_raw_block_device(Arc::new(MemoryDevice::new(1 << 20)))
            .expect("memory");
        file.prepare_cache();
        file.cache().iter().for_each(|cache| variants.cache(cache));
        let direct = file.reopen(FileOptions::new().direct(true)).expect("it");
        let write = |bytes: usize| direct.write_all_at(&vec![1; bytes], 0).expect("room");
        for name in ["a", "b", "the kernel's"] {
            variants.variant(name);
        }
        for (name, bytes) in [("b", 8192), ("a", 4096), ("b", 8192)] {
            let turn = variants.sample(name);
            write(bytes);
            drop(turn);
            write(65536);
        }
        let turn = variants.sample("a");
        let mut page = [0; 4096];
        file.read_exact_at(&mut page, 0).expect("it is there");
        file.read_exact_at(&mut page, 0).expect("it is there");
        drop(turn);
        let finished = watch.finish();
        let names: Vec<&str> = finished.iter().map(|one| &*one.account.series).collect();
        assert_eq!(
            names,
            ["a", "b"],
            "the third variant used no engine of ours"
        );
        let (a, b) = (&finished[0].account, &finished[1].account);
        assert_eq!((a.asked["write"].count, a.asked["write"].bytes), (1, 4096));
        assert_eq!((b.asked["write"].count, b.asked["write"].bytes), (2, 16384));
        assert_eq!(b.bios["write data"].bytes, 16384);
        assert_eq!(b.latency["write"].count, b.bios["write data"].count);
        assert!(
            a.cache
                .is_some_and(|cache| cache.hits == 1 && cache.misses == 1)
        );
        assert!(b.depth.busy <= 1.0 && b.wall_us > 0.0);
        assert!(watch.finish().is_empty());
    }
}
