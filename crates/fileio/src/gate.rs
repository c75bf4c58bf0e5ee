//! A reader-writer lock whose readers share no cache line: each thread has its own lock, and a writer takes
//! all of them.
//!
//! For a lock that is taken shared on every I/O and exclusively almost never. A reader pays two uncontended
//! operations on its own cache line; a writer pays for every thread that ever used the lock. (Founding report
//! 2 shows the cost of one shared counter.)
//!
//! Why a writer excludes every reader: a thread's lock is added to `all` under the mutex before the thread
//! can take it, and a writer holds that mutex as long as it holds the locks.

use std::sync::Arc;

use crossbeam_utils::CachePadded;
use thread_local::ThreadLocal;
use throughline_locks::{Mutex, Rank, RwLock, RwLockReadGuard};

type Turnstile = Arc<CachePadded<RwLock<()>>>;

/// See the module documentation.
pub(crate) struct Gate {
    mine: ThreadLocal<Turnstile>,
    all: Mutex<Vec<Turnstile>>,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            mine: ThreadLocal::new(),
            all: Mutex::ranked(Rank::Gate, Vec::new()),
        }
    }
}

/// Adds the lock of a thread.
fn added(all: &mut Vec<Turnstile>) -> Turnstile {
    let lock = RwLock::numbered(Rank::Turnstile, all.len() as u64, ());
    let turnstile = Arc::new(CachePadded::new(lock));
    all.push(Arc::clone(&turnstile));
    turnstile
}

impl Gate {
    /// Acquires the lock shared. Do not acquire it again while holding it.
    pub(crate) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        let mine = self.mine.get_or(|| added(&mut self.all.lock()));
        mine.read()
    }

    /// Runs `f` with the lock held exclusively.
    pub(crate) fn exclusive<R>(&self, f: impl FnOnce() -> R) -> R {
        let all = self.all.lock();
        let _held: Vec<_> = all.iter().map(|turnstile| turnstile.write()).collect();
        f()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// Increments by separate load and store: they would be lost if the gate admitted a second holder besides
    /// an exclusive one.
    #[test]
    fn the_exclusive_holder_is_the_only_one() {
        let gate = Gate::default();
        let (guarded, readers_in) = (AtomicU64::new(0), AtomicU64::new(0));
        let (threads, rounds) = (4_u64, 2_000_u64);
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (gate, guarded, readers_in) = (&gate, &guarded, &readers_in);
                scope.spawn(move || {
                    for round in 0..rounds {
                        if (round + thread) % 4 == 0 {
                            gate.exclusive(|| {
                                assert_eq!(readers_in.load(Ordering::Relaxed), 0);
                                let seen = guarded.load(Ordering::Relaxed);
                                std::hint::black_box(seen);
                                guarded.store(seen + 1, Ordering::Relaxed);
                            });
                        } else {
                            let _in = gate.shared();
                            readers_in.fetch_add(1, Ordering::Relaxed);
                            std::hint::spin_loop();
                            readers_in.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(guarded.load(Ordering::Relaxed), threads * rounds / 4);
    }
}
