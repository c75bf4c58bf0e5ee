//! [`Options`]: sizes, times and the place of the cache.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

/// How an object is read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The unit in which it is fetched and cached; a power of two from 64 KiB to 16 MiB. 1 MiB.
    pub chunk_bytes: u32,
    /// The most bytes that one request asks for; adjacent chunks are fetched together. 4 MiB.
    pub request_bytes: u32,
    /// The most requests in flight. 16.
    pub in_flight: usize,
    /// Memory for chunks that were read. As much again may be in flight. 64 MiB.
    pub memory_bytes: u64,
    /// The directory of the cache on disk, shared by all processes of a user; `None`: there is none.
    pub cache: Option<PathBuf>,
    /// The most bytes in that directory.
    pub cache_bytes: u64,
    /// The time in which one chunk has to arrive, with all repetitions. 30 s.
    pub patience: Duration,
}

impl Default for Options {
    /// Without a cache on disk.
    fn default() -> Options {
        Options {
            chunk_bytes: 1 << 20,
            request_bytes: 4 << 20,
            in_flight: 16,
            memory_bytes: 64 << 20,
            cache: None,
            cache_bytes: 8 << 30,
            patience: Duration::from_secs(30),
        }
    }
}

impl Options {
    /// As the environment says: the cache is in `THROUGHLINE_CACHE`, else in `throughline` below
    /// `XDG_CACHE_HOME` or `~/.cache`. `THROUGHLINE_CACHE_BYTES` (8G) bounds it, 0 switches it off;
    /// `THROUGHLINE_OBJECT_TIMEOUT` (30) is the patience in seconds. A value that is no number is ignored.
    pub fn from_env() -> Options {
        let mut options = Options::default();
        let path = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let below = |dir: std::ffi::OsString, name: &str| PathBuf::from(dir).join(name);
        let dir = path("THROUGHLINE_CACHE")
            .map(PathBuf::from)
            .or_else(|| path("XDG_CACHE_HOME").map(|dir| below(dir, "throughline")))
            .or_else(|| path("HOME").map(|dir| below(dir, ".cache/throughline")));
        options.cache = dir.filter(|dir| dir.is_absolute());
        let number = |name: &str| env::var(name).ok().and_then(|text| bytes(&text));
        if let Some(bytes) = number("THROUGHLINE_CACHE_BYTES") {
            options.cache_bytes = bytes;
        }
        if let Some(seconds) = number("THROUGHLINE_OBJECT_TIMEOUT").filter(|seconds| *seconds > 0) {
            options.patience = Duration::from_secs(seconds.min(3600));
        }
        options
    }

    /// The same, with every size in its range.
    pub(crate) fn checked(&self) -> Options {
        let mut options = self.clone();
        options.chunk_bytes = self.chunk_bytes.clamp(64 << 10, 16 << 20);
        options.chunk_bytes = options.chunk_bytes.next_power_of_two();
        options.request_bytes = self.request_bytes.clamp(options.chunk_bytes, 1 << 30);
        options.in_flight = self.in_flight.clamp(1, 256);
        options.patience = self.patience.max(Duration::from_millis(100));
        options
    }

    /// The most chunks of one request.
    pub(crate) fn request_chunks(&self) -> u64 {
        u64::from((self.request_bytes / self.chunk_bytes).max(1))
    }

    /// The most chunks that are fetched at once.
    pub(crate) fn flying_chunks(&self) -> u64 {
        let by_requests = self.request_chunks().saturating_mul(self.in_flight as u64);
        let by_memory = self.memory_bytes / u64::from(self.chunk_bytes);
        by_requests.min(by_memory).max(1)
    }
}

/// A number with an optional suffix K, M, G or T, in powers of 1024.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|one: char| !one.is_ascii_digit());
    let shift = match text.get(digits.len()..)? {
        "" => 0,
        "K" | "k" => 10,
        "M" | "m" => 20,
        "G" | "g" => 30,
        "T" | "t" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_with_suffixes() {
        for (text, value) in [
            ("0", Some(0)),
            ("512", Some(512)),
            ("8G", Some(8 << 30)),
            (" 2k ", Some(2048)),
            ("", None),
            ("G", None),
            ("1X", None),
            ("99999999T", None),
        ] {
            assert_eq!(bytes(text), value, "{text}");
        }
    }
}
