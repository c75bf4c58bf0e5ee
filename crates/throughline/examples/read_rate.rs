//! Reads a file of an image from the cache: `read_rate IMAGE /path CALL_BYTES`. Prints the rate in GiB/s, by
//! the clock and by the time of the processor.
//!
//! The first pass fills the cache; the second is measured.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use throughline::OpenOptions;

/// The time of the processor that this thread has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("read_rate IMAGE /path CALL_BYTES");
    let (image, path, call_bytes) = (next()?, next()?, next()?.parse()?);
    let volume = OpenOptions::new().cache_bytes(Some(2 << 30)).open(image)?;
    let file = volume.open_file(path)?;
    let mut buffer = vec![0; call_bytes];
    let mut rates = (0.0, 0.0);
    for _ in 0..2 {
        let begin = (Instant::now(), processor_time());
        let mut at = 0;
        while let read @ 1.. = file.read_at(&mut buffer, at)? {
            at += read as u64;
        }
        let rate = |time: Duration| at as f64 / time.as_secs_f64() / (1u64 << 30) as f64;
        rates = (rate(begin.0.elapsed()), rate(processor_time() - begin.1));
    }
    println!("{:.3} {:.3}", rates.0, rates.1);
    Ok(())
}
