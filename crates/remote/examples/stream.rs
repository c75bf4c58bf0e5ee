//! How fast an object streams, beside what plain requests get with as many bytes in flight: prints both, and
//! their ratio, for several rounds.
//!
//! ```text
//! cargo run --release -p throughline-remote --example stream -- URL [CHUNK_KIB [REQUEST_KIB]]
//! ```
//!
//! Each round reads the whole object once in each way, in calls of 8 MiB and without a cache on disk, then
//! with a new one. The URL is one of https:// or http://.

use std::error::Error;
use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use throughline_image::ReadAt;
use throughline_remote::{Object, Options};
use throughline_web::Trust;

const CALL_BYTES: usize = 8 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().ok_or("the URL of an object is needed")?;
    let mut number = |default: u32| -> Result<u32, Box<dyn Error>> {
        Ok(arguments.next().map_or(Ok(default), |text| text.parse())? << 10)
    };
    let mut options = Options::default();
    options.chunk_bytes = number(1024)?;
    options.request_bytes = number(4096)?;
    for round in 0..5 {
        let plain = plain(&url, &options)?;
        options.cache = None;
        let ours = ours(&url, &options)?;
        let dir = tempfile::tempdir()?;
        options.cache = Some(dir.path().to_owned());
        let cached = self::ours(&url, &options)?;
        println!(
            "round {round}: plain {plain:.0} MiB/s; ours {ours:.0} ({:.2}), filling a cache {cached:.0} \
             ({:.2})",
            ours / plain,
            cached / plain
        );
    }
    Ok(())
}

fn ours(url: &str, options: &Options) -> Result<f64, Box<dyn Error>> {
    let object = Object::open(&url.parse()?, options)?;
    let begin = Instant::now();
    let (mut at, len) = (0, object.len_bytes());
    let mut buffer = vec![0; CALL_BYTES];
    while at < len {
        let now = (len - at).min(CALL_BYTES as u64);
        object.read_exact_at(&mut buffer[..now as usize], at)?;
        at += now;
    }
    Ok(rate(len, begin))
}

/// As many requests in flight as on our side, a thread for each, which keeps nothing of what it reads.
fn plain(url: &str, options: &Options) -> Result<f64, Box<dyn Error>> {
    let agent = throughline_web::agent(Trust::default())
        .max_idle_connections_per_host(options.in_flight)
        .build()
        .new_agent();
    let head = agent.head(url).call()?;
    let len = head.headers().get("content-length").ok_or("no length")?;
    let len: u64 = len.to_str()?.parse()?;
    let request = u64::from(options.request_bytes);
    let in_flight = (options.memory_bytes / 2 / request).min(options.in_flight as u64);
    let (begin, next, read) = (Instant::now(), AtomicU64::new(0), AtomicU64::new(0));
    let one = || -> Result<(), ureq::Error> {
        let mut buffer = vec![0; 128 << 10];
        loop {
            let at = next.fetch_add(request, Ordering::Relaxed);
            if at >= len {
                return Ok(());
            }
            let last = (at + request).min(len) - 1;
            let reply = agent.get(url).header("range", format!("bytes={at}-{last}"));
            let mut body = reply.call()?.into_body().into_reader();
            loop {
                match body.read(&mut buffer)? {
                    0 => break,
                    now => read.fetch_add(now as u64, Ordering::Relaxed),
                };
            }
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..in_flight).map(|_| scope.spawn(one)).collect();
        let mut threads = threads.into_iter();
        threads.try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    assert_eq!(read.into_inner(), len);
    Ok(rate(len, begin))
}

fn rate(len: u64, begin: Instant) -> f64 {
    len as f64 / f64::from(1 << 20) / begin.elapsed().as_secs_f64()
}
