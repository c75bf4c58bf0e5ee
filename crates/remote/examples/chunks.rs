//! What the size of chunks costs and brings: a cold stream of a whole object, and a trace of short reads that
//! touch 2 % of it, with each of several sizes. Prints bytes fetched, requests and the rate: medians over
//! rounds, in which the sizes take turns.
//!
//! ```text
//! cargo run --release -p throughline-remote --example chunks -- URL [ROUNDS]
//! ```
//!
//! The trace has reads of 4 KiB to 256 KiB at random places, the same ones for all sizes, one after another.
//! There is no cache on disk. The URL is one of s3://, with the environment for it, https:// or http://.

use std::error::Error;
use std::time::Instant;

use throughline_image::ReadAt;
use throughline_remote::{Object, Options};

const KIB: u64 = 1 << 10;
const CHUNKS_KIB: [u32; 4] = [256, 1024, 4096, 8192];
const CALL_BYTES: u64 = 8 << 20;
/// The part of the object that the trace reads.
const PART: u64 = 50;

/// What one run has cost.
struct Cost {
    fetched_bytes: u64,
    requests: u64,
    read_bytes: u64,
    seconds: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("the URL of an object is needed")?;
    let rounds: usize = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let mut found: Vec<[Vec<Cost>; 2]> = CHUNKS_KIB.iter().map(|_| Default::default()).collect();
    for _ in 0..rounds {
        for (chunk_kib, [streams, traces]) in CHUNKS_KIB.iter().zip(&mut found) {
            let mut options = Options::default();
            options.chunk_bytes = chunk_kib << 10;
            options.request_bytes = options.request_bytes.max(options.chunk_bytes);
            streams.push(cost(&url, &options, stream)?);
            traces.push(cost(&url, &options, trace)?);
        }
    }
    for (at, name) in ["cold stream", "trace of 2 %"].into_iter().enumerate() {
        println!("{name}");
        for (chunk_kib, costs) in CHUNKS_KIB.iter().zip(&found) {
            let costs = &costs[at];
            let fetched = median(costs, |it| it.fetched_bytes as f64);
            let read = median(costs, |it| it.read_bytes as f64);
            let requests = median(costs, |it| it.requests as f64);
            let rate = median(costs, |it| it.read_bytes as f64 / it.seconds) / mib(1.0);
            println!(
                "  {chunk_kib:>5} KiB: {:>9.1} MiB fetched ({:.2} of what is read), {requests:.0} requests, \
                 {rate:.0} MiB/s",
                fetched / mib(1.0),
                fetched / read,
            );
        }
    }
    Ok(())
}

fn mib(number: f64) -> f64 {
    number * 1024.0 * 1024.0
}

fn median(costs: &[Cost], of: impl Fn(&Cost) -> f64) -> f64 {
    let mut values: Vec<f64> = costs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns how much it has read.
type Work = fn(&Object) -> Result<u64, Box<dyn Error>>;

fn cost(url: &str, options: &Options, work: Work) -> Result<Cost, Box<dyn Error>> {
    let object = Object::open(&url.parse()?, options)?;
    let begin = Instant::now();
    let read_bytes = work(&object)?;
    let seconds = begin.elapsed().as_secs_f64();
    let counters = object.counters();
    Ok(Cost {
        fetched_bytes: counters.bytes,
        requests: counters.requests,
        read_bytes,
        seconds,
    })
}

fn stream(object: &Object) -> Result<u64, Box<dyn Error>> {
    let len = object.len_bytes();
    let mut buffer = vec![0; CALL_BYTES as usize];
    let mut at = 0;
    while at < len {
        let now = (len - at).min(CALL_BYTES);
        object.read_exact_at(&mut buffer[..now as usize], at)?;
        at += now;
    }
    Ok(len)
}

fn trace(object: &Object) -> Result<u64, Box<dyn Error>> {
    let len = object.len_bytes();
    let mut buffer = vec![0; 256 << 10];
    let mut random = 1_u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below.max(1)
    };
    let mut read = 0;
    while read < len / PART {
        let now = ((4 * KIB) << next(7)).min(len);
        let at = next((len - now) / (4 * KIB) + 1) * 4 * KIB;
        let now = now.min(len - at);
        object.read_exact_at(&mut buffer[..now as usize], at)?;
        read += now;
    }
    Ok(read)
}
