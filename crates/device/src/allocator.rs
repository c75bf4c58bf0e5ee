//! The allocator of the process: how much memory it keeps for itself.
//!
//! The GNU C library gives each thread an arena of its own, up to eight a processor, and keeps what was freed in them. In a
//! server with many threads that is tens of megabytes that hold nothing. Both calls are for the program to make, not
//! for a library on its own: they are about all of the process. With another allocator they do nothing.

/// Has the allocator share `arenas` of its areas between all threads, and give free memory at their ends back soon. To be
/// called before threads start.
pub fn limit_allocator(arenas: u8) {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        let arenas = libc::c_int::from(arenas.max(1));
        // SAFETY: `mallopt` changes settings of the allocator under its own lock, and touches no memory of ours.
        let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, arenas) };
        // SAFETY: as above.
        let _ = unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_BYTES) };
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = arenas;
}

/// Gives the memory back to the system that the allocator keeps and nobody uses. Takes milliseconds: for a moment at which
/// nothing else is to be done. Whether there was any.
pub fn give_memory_back() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: `malloc_trim` takes the allocator's own locks and gives back only pages that hold nothing allocated.
        unsafe { libc::malloc_trim(0) == 1 }
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}

/// Free memory at the end of an area that is given back at once, in bytes.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const TRIM_BYTES: libc::c_int = 1 << 20;

#[cfg(test)]
mod tests {
    #[test]
    fn what_is_in_use_stays() {
        super::limit_allocator(2);
        let mut pieces: Vec<Vec<u8>> = (0..20_000).map(|n| vec![n as u8; 1000]).collect();
        let last = pieces.split_off(pieces.len() - 1);
        drop(pieces);
        super::give_memory_back();
        assert!(last[0].iter().all(|byte| *byte == 19_999_u32 as u8));
    }
}
