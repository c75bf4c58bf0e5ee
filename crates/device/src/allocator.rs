//! Limits the memory that the process's allocator retains.
//!
//! The GNU C library gives each thread its own arena, up to eight per CPU, and retains freed memory in
//! them. In a server with many threads that is tens of megabytes of unused memory. Both calls affect the
//! whole process, so only the program should make them, not a library. With another allocator they do
//! nothing.

/// Limits the allocator to `arenas` arenas (at least 1), shared by all threads, and makes it return free
/// memory at the top of its heap sooner. Call it before starting threads.
pub fn limit_allocator(arenas: u8) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let arenas = libc::c_int::from(arenas.max(1));
        // SAFETY: `mallopt` changes settings of the allocator under its own lock, and accesses none of our
        // memory.
        let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, arenas) };
        // SAFETY: as above.
        let _ = unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_BYTES) };
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = arenas;
}

/// Returns unused memory that the allocator retains to the system. Takes milliseconds, so call it when idle.
/// Returns whether any was returned.
pub fn give_memory_back() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `malloc_trim` takes the allocator's own locks and returns only pages without allocations.
        unsafe { libc::malloc_trim(0) == 1 }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

/// Free memory at the top of the heap beyond which it is returned at once, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_BYTES: libc::c_int = 1 << 20;

#[cfg(test)]
mod tests {
    #[test]
    fn trimming_keeps_memory_in_use() {
        super::limit_allocator(2);
        let mut pieces: Vec<Vec<u8>> = (0..20_000).map(|n| vec![n as u8; 1000]).collect();
        let last = pieces.split_off(pieces.len() - 1);
        drop(pieces);
        super::give_memory_back();
        assert!(last[0].iter().all(|byte| *byte == 19_999_u32 as u8));
    }
}
