//! Reads a file of an image from the cache, and prints the rate in GiB/s: `read_rate IMAGE /path CALL_BYTES`.
//!
//! The first pass fills the cache; the second is measured.

use std::time::Instant;

use throughline::OpenOptions;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("read_rate IMAGE /path CALL_BYTES");
    let (image, path, call_bytes) = (next()?, next()?, next()?.parse()?);
    let volume = OpenOptions::new().cache_bytes(Some(2 << 30)).open(image)?;
    let file = volume.open_file(path)?;
    let mut buffer = vec![0; call_bytes];
    let mut rate = 0.0;
    for _ in 0..2 {
        let begin = Instant::now();
        let mut at = 0;
        while let read @ 1.. = file.read_at(&mut buffer, at)? {
            at += read as u64;
        }
        rate = at as f64 / begin.elapsed().as_secs_f64() / (1u64 << 30) as f64;
    }
    println!("{rate:.3}");
    Ok(())
}
