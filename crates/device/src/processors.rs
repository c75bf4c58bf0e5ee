//! The CPUs that the kernel may use, and threads bound to one.

use std::io;
use std::sync::OnceLock;

use crate::background::leave_background;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The CPUs that the kernel may ever use, whether they are online or not.
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// The numbers of the possible CPUs.
///
/// # Errors
/// The system does not say.
pub fn possible_processors() -> io::Result<Vec<u16>> {
    let text = std::fs::read_to_string(POSSIBLE)?;
    parse(text.trim()).ok_or_else(|| io::Error::other(format!("unknown CPUs: {text}")))
}

/// Parses a list such as `0-3,8`.
fn parse(list: &str) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse().ok()?..=last.parse::<u16>().ok()?);
    }
    (!all.is_empty()).then_some(all)
}

/// The CPUs that threads of the process may use, if some are bound to one.
static USUAL: OnceLock<CpuSet> = OnceLock::new();

/// Binds the current thread to a CPU, unless the process may not use that CPU or it is offline.
/// Threads that a bound thread starts are bound, too, until they call [`free_thread`].
pub fn bind_thread(processor: u16) {
    let processor = usize::from(processor);
    if processor >= CpuSet::MAX_CPU {
        return;
    }
    if let (None, Ok(usual)) = (USUAL.get(), sched_getaffinity(None)) {
        let _ = USUAL.set(usual);
    }
    // A user may have restricted the process: taskset(1).
    if USUAL.get().is_none_or(|usual| !usual.is_set(processor)) {
        return;
    }
    let mut only = CpuSet::new();
    only.set(processor);
    // It is an optimisation.
    let _ = sched_setaffinity(None, &only);
}

/// Lets the current thread run on all CPUs again.
pub fn spread_thread() {
    if let Some(usual) = USUAL.get() {
        let _ = sched_setaffinity(None, usual);
    }
}

/// The same, with the usual policy. Call it in a thread that may have been started by a bound one.
pub fn free_thread() {
    spread_thread();
    leave_background();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_parsed() {
        assert_eq!(parse("0"), Some(vec![0]));
        assert_eq!(parse("0-1"), Some(vec![0, 1]));
        assert_eq!(parse("0-2,5,7-8"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse("1-0"), None);
        for wrong in ["", "x", "0-", "-1", "0,,1", "99999"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert!(possible_processors().unwrap().contains(&0));
    }

    #[test]
    fn a_thread_is_bound_until_it_is_freed_and_so_are_those_it_starts() {
        let allowed = || sched_getaffinity(None).unwrap();
        let usual = allowed();
        let here = (0..CpuSet::MAX_CPU).find(|one| usual.is_set(*one)).unwrap();
        let thread = std::thread::spawn(move || {
            free_thread();
            assert_eq!(allowed(), usual);
            bind_thread(here as u16);
            let bound = allowed();
            assert!(bound.is_set(here) && bound.count() == 1);
            // It is not there: nothing changes.
            bind_thread(u16::MAX);
            bind_thread(1000);
            assert_eq!(allowed(), bound);
            let started = std::thread::spawn(move || {
                assert_eq!(allowed(), bound);
                free_thread();
                assert_eq!(allowed(), usual);
            });
            started.join().unwrap();
            assert_eq!(allowed(), bound);
        });
        thread.join().unwrap();
    }
}
