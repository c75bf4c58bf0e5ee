//! [`Placing`]: the clusters of the disk that are being given another place.
//!
//! Invariant: a cluster is in at most one [`Place`] at a time. So two threads that write to one cluster do
//! not both give it a new place, while others are written to.

use std::ops::Range;

use throughline_locks::{Condvar, Mutex};

/// See the head of this file.
#[derive(Default)]
pub(super) struct Placing {
    ranges: Mutex<Vec<Range<u64>>>,
    one_less: Condvar,
}

/// Clusters of the disk, for as long as this is alive.
pub(super) struct Place<'a> {
    all: &'a Placing,
    clusters: Range<u64>,
}

impl Placing {
    /// Waits until none of these clusters is in another place, and takes them.
    pub(super) fn take(&self, clusters: Range<u64>) -> Place<'_> {
        let mut ranges = self.ranges.lock();
        while ranges
            .iter()
            .any(|other| other.start < clusters.end && clusters.start < other.end)
        {
            self.one_less.wait(&mut ranges);
        }
        ranges.push(clusters.clone());
        drop(ranges);
        Place {
            all: self,
            clusters,
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut ranges = self.all.ranges.lock();
        if let Some(at) = ranges.iter().position(|range| *range == self.clusters) {
            ranges.swap_remove(at);
        }
        drop(ranges);
        self.all.one_less.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// Each cluster is a counter that is changed in two steps.
    #[test]
    fn a_cluster_is_in_one_place_at_a_time() {
        let placing = Placing::default();
        let users: Vec<AtomicU32> = (0..16).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|threads| {
            for seed in 0..4 {
                let (placing, users) = (&placing, &users);
                threads.spawn(move || {
                    let mut numbers = fastrand::Rng::with_seed(seed);
                    for _ in 0..2000 {
                        let from = numbers.usize(..users.len());
                        let to = numbers.usize(from..users.len()) + 1;
                        let place = placing.take(from as u64..to as u64);
                        for user in &users[from..to] {
                            assert_eq!(user.fetch_add(1, Ordering::Relaxed), 0);
                        }
                        for user in &users[from..to] {
                            user.fetch_sub(1, Ordering::Relaxed);
                        }
                        drop(place);
                    }
                });
            }
        });
        assert!(placing.ranges.lock().is_empty());
    }
}
