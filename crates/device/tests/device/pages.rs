//! The page pool: budget, alignment, no overlaps, recycling, and memory returned to the system. Small enough
//! for Miri.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use throughline_device::{MAX_PAGES_BYTES, MIN_PAGES_BYTES, PagePool, Pages};
use throughline_testkit::cases::config;

const CHUNK: u64 = MAX_PAGES_BYTES as u64;

/// The memory that the pool may hold beyond its budget.
const SPARE_BYTES: u64 = 2 * CHUNK;

#[derive(Clone, Debug)]
enum Step {
    /// Allocates `MIN_PAGES_BYTES << .0`.
    Take(u32),
    Drop(prop::sample::Index),
    /// Sets the budget to this many smallest pieces.
    SetBudget(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let one = prop_oneof![
        6 => (0_u32..10).prop_map(Step::Take),
        4 => any::<prop::sample::Index>().prop_map(Step::Drop),
        1 => (0_u64..4000).prop_map(Step::SetBudget),
    ];
    prop::collection::vec(one, 1..if cfg!(miri) { 12 } else { 120 })
}

/// The addresses of the pieces, which must not overlap.
#[derive(Default)]
struct Places(BTreeMap<usize, usize>);

impl Places {
    fn add(&mut self, pages: &Pages) {
        let (begin, end) = (pages.as_ptr().addr(), pages.as_ptr().addr() + pages.len());
        assert!(begin.is_multiple_of(pages.len()), "aligned to its size");
        let before = self.0.range(..end).next_back();
        assert!(before.is_none_or(|(_, before_end)| *before_end <= begin));
        self.0.insert(begin, end);
    }

    fn remove(&mut self, pages: &Pages) {
        assert!(self.0.remove(&pages.as_ptr().addr()).is_some());
    }
}

/// Writes `number` to the first, middle and last byte.
fn mark(pages: &mut Pages, number: u8) {
    let len = pages.len();
    (pages[0], pages[len / 2], pages[len - 1]) = (number, number, number);
}

fn is_marked(pages: &Pages, number: u8) -> bool {
    [0, pages.len() / 2, pages.len() - 1].map(|at| pages[at]) == [number; 3]
}

proptest! {
    #![proptest_config(config(if cfg!(miri) { 2 } else { 128 }))]

    #[test]
    fn pieces_are_apart_and_inside_the_budget(steps in steps()) {
        let mut budget = 3 * CHUNK;
        let pool = PagePool::new(budget);
        let mut places = Places::default();
        let (mut out, mut used, mut number) = (Vec::<(Pages, u8)>::new(), 0, 0_u8);
        for step in steps {
            match step {
                Step::Take(order) => {
                    let bytes = MIN_PAGES_BYTES << order;
                    let held = pool.held_bytes();
                    match pool.take(bytes) {
                        Some(mut pages) => {
                            used += bytes as u64;
                            prop_assert!(used <= budget && pages.len() == bytes);
                            places.add(&pages);
                            number = number.wrapping_add(1);
                            mark(&mut pages, number);
                            out.push((pages, number));
                        }
                        None => {
                            let fits = used + bytes as u64 <= budget;
                            prop_assert!(!fits || held >= budget, "refused with chunks left to make");
                        }
                    }
                }
                Step::Drop(which) if !out.is_empty() => {
                    let (pages, number) = out.swap_remove(which.index(out.len()));
                    prop_assert!(is_marked(&pages, number), "another wrote to it");
                    places.remove(&pages);
                    used -= pages.len() as u64;
                }
                Step::Drop(_) => {}
                Step::SetBudget(pieces) => {
                    budget = pieces * MIN_PAGES_BYTES as u64;
                    pool.set_max_bytes(budget);
                }
            }
            prop_assert_eq!((pool.used_bytes(), pool.max_bytes()), (used, budget));
        }
        prop_assert!(out.iter().all(|(pages, number)| is_marked(pages, *number)));
        out.clear();
        prop_assert!(
            pool.held_bytes() < budget + CHUNK + SPARE_BYTES,
            "free memory beyond the budget is held"
        );
        // All free memory is merged into whole chunks.
        let whole: Vec<Pages> = std::iter::from_fn(|| pool.take(MAX_PAGES_BYTES)).collect();
        prop_assert_eq!(whole.len() as u64, budget / CHUNK);
    }
}

#[test]
fn free_memory_is_released_when_the_budget_shrinks() {
    let pool = PagePool::new(6 * CHUNK);
    let mut pieces: Vec<Pages> = (0..6)
        .map(|_| pool.take(MAX_PAGES_BYTES).unwrap())
        .collect();
    assert!(
        pool.take(MIN_PAGES_BYTES).is_none(),
        "the budget is used up"
    );
    assert_eq!(
        (pool.held_bytes(), pool.used_bytes()),
        (6 * CHUNK, 6 * CHUNK)
    );
    pieces.truncate(4);
    assert_eq!(pool.held_bytes(), 6 * CHUNK, "kept for re-use");
    pool.set_max_bytes(CHUNK);
    assert_eq!(pool.held_bytes(), 4 * CHUNK, "handed out memory stays");
    assert!(pool.take(MIN_PAGES_BYTES).is_none());
    pieces.clear();
    assert_eq!(pool.held_bytes(), CHUNK + SPARE_BYTES);
    assert!(pool.take(MAX_PAGES_BYTES).is_some());
}

#[test]
fn memory_is_recycled_as_it_is() {
    let pool = PagePool::new(CHUNK);
    let mut pages = pool.take(MIN_PAGES_BYTES).unwrap();
    assert!(
        pages.iter().all(|byte| *byte == 0),
        "new memory is the system's"
    );
    pages.fill(7);
    let address = pages.as_ptr().addr();
    drop(pages);
    let again = pool.take(MIN_PAGES_BYTES).unwrap();
    assert_eq!((again.as_ptr().addr(), again[17]), (address, 7));
    drop(pool);
    assert_eq!(again[17], 7, "it outlives the pool's handle");
}

#[test]
fn shared_memory_cannot_be_changed_until_it_is_alone() {
    let pool = PagePool::new(CHUNK);
    let mut pages = Arc::new(pool.take(8 << 10).unwrap());
    let reader = Arc::clone(&pages);
    assert!(Arc::get_mut(&mut pages).is_none());
    let sum = std::thread::spawn(move || reader.iter().map(|b| usize::from(*b)).sum::<usize>());
    assert_eq!(sum.join().unwrap(), 0);
    Arc::get_mut(&mut pages).unwrap().fill(1);
}

#[test]
fn threads_take_and_give_at_once() {
    let rounds = if cfg!(miri) { 5 } else { 5000 };
    let pool = PagePool::new(2 * CHUNK);
    let got = AtomicUsize::new(0);
    std::thread::scope(|threads| {
        for seed in 1..=4_usize {
            let (pool, got) = (&pool, &got);
            threads.spawn(move || {
                let mut held = Vec::new();
                for round in 0..rounds {
                    let bytes = MIN_PAGES_BYTES << ((round * 7 + seed) % 10);
                    if let Some(mut pages) = pool.take(bytes) {
                        mark(&mut pages, seed as u8);
                        held.push(pages);
                        got.fetch_add(1, Ordering::Relaxed);
                    }
                    if held.len() > 3 {
                        let pages = held.swap_remove(round % 4);
                        assert!(is_marked(&pages, seed as u8));
                    }
                }
            });
        }
    });
    assert!(got.into_inner() > 0);
    assert_eq!(pool.used_bytes(), 0);
    let whole: Vec<Pages> = std::iter::from_fn(|| pool.take(MAX_PAGES_BYTES)).collect();
    assert_eq!(whole.len(), 2, "freed memory is merged into whole chunks");
}

/// Recycled memory causes no page faults.
#[test]
#[cfg(not(miri))]
fn recycled_memory_faults_no_pages() {
    /// The minor faults of this thread.
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        after_name
            .split_whitespace()
            .nth(7)
            .unwrap()
            .parse()
            .unwrap()
    }
    let pool = PagePool::new(8 * CHUNK);
    let use_all = || {
        let mut pieces: Vec<Pages> = (0..128).map(|_| pool.take(64 << 10).unwrap()).collect();
        pieces.iter_mut().for_each(|pages| pages.fill(3));
    };
    use_all();
    let before = faults();
    for _ in 0..16 {
        use_all();
    }
    let (new, touched) = (faults() - before, 16 * 128 * 16);
    assert!(new < touched / 16, "{new} faults for {touched} pages");
}
