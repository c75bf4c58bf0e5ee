//! Layers: several at once, each into its place of one temporary file.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use throughline_archive::{Blob, DigestSum, Fetched};
use throughline_locks::Mutex;

use crate::error::{Error, Kind, Result};
use crate::http::{Answer, words};
use crate::image::damaged;
use crate::options::Progress;
use crate::retry::Tries;
use crate::session::Session;

/// Layers that are fetched at once, as docker does.
const AT_ONCE: usize = 3;
const CHUNK_BYTES: usize = 128 << 10;
/// A connection that brings less in this time is as good as broken, and one that brought less is a failure.
const LEAST_BYTES: u64 = 64 << 10;
const LEAST_TIME: Duration = Duration::from_secs(60);

/// One call of [`fetch`].
struct Fetch<'a> {
    session: &'a Session,
    progress: &'a Progress,
    file: &'a File,
    all_bytes: u64,
    done_bytes: AtomicU64,
    /// Another layer failed, or the caller wants to stop.
    stop: AtomicBool,
}

/// Fetches the blobs. Equal ones are fetched once.
pub(crate) fn fetch(
    session: &Session,
    progress: &Progress,
    blobs: &[Blob],
) -> Result<Vec<Fetched>> {
    let mut places = HashMap::new();
    let mut wanted = Vec::new();
    let mut end = 0;
    for blob in blobs {
        places.entry(&blob.digest).or_insert_with(|| {
            let start = end;
            end += blob.size;
            wanted.push((blob, start));
            start
        });
    }
    let file = tempfile::tempfile().map_err(local)?;
    file.set_len(end).map_err(local)?;
    let fetch = Fetch {
        session,
        progress,
        file: &file,
        all_bytes: end,
        done_bytes: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    let threads = AT_ONCE.min(wanted.len());
    let next = Mutex::new(wanted.into_iter());
    let failed = Mutex::new(None);
    let work = || {
        loop {
            let taken = next.lock().next();
            let Some((blob, start)) = taken.filter(|_| fetch.goes_on()) else {
                return;
            };
            if let Err(error) = fetch.one(blob, start) {
                fetch.stop.store(true, Ordering::Relaxed);
                let mut failed = failed.lock();
                // The first is the one that counts: others were stopped by it.
                failed.get_or_insert(error);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // A limit on processes may allow fewer.
            if std::thread::Builder::new()
                .spawn_scoped(scope, work)
                .is_err()
            {
                break;
            }
        }
        work();
    });
    if let Some(error) = failed.into_inner() {
        return Err(error);
    }
    if !fetch.goes_on() {
        return Err(Error::new(Kind::Stopped, "stopped"));
    }
    let file = Arc::new(file);
    let fetched = blobs.iter().map(|blob| Fetched {
        file: Arc::clone(&file),
        start: places[&blob.digest],
    });
    Ok(fetched.collect())
}

/// The temporary file fails.
fn local(error: std::io::Error) -> Error {
    let (place, why) = (std::env::temp_dir(), words(&error));
    let text = format!("a temporary file in {} (TMPDIR): {why}", place.display());
    Error::new(Kind::Local, text)
}

impl Fetch<'_> {
    fn goes_on(&self) -> bool {
        let wanted = (self.progress)(self.done_bytes.load(Ordering::Relaxed), self.all_bytes);
        if !wanted {
            self.stop.store(true, Ordering::Relaxed);
        }
        !self.stop.load(Ordering::Relaxed)
    }

    /// Fetches one blob. A connection that breaks is continued where it broke.
    fn one(&self, blob: &Blob, start: u64) -> Result<()> {
        let goes_on = || self.goes_on();
        let mut tries = Tries::new(&goes_on);
        let what = format!("blobs/{}", blob.digest);
        let mut sum = DigestSum::new(&blob.digest).map_err(damaged)?;
        let mut done = 0;
        while done < blob.size || blob.size == 0 {
            let mut headers = vec![];
            if done > 0 {
                headers.push(("Range", format!("bytes={done}-")));
            }
            let answer = self.session.get(&what, &headers, &mut tries)?;
            if done > 0 && !continues(&answer, done) {
                // All of it again.
                self.done_bytes.fetch_sub(done, Ordering::Relaxed);
                sum = DigestSum::new(&blob.digest).map_err(damaged)?;
                done = 0;
                if answer.status == 206 {
                    let why = Error::new(Kind::Damaged, "the registry answered with another part");
                    tries.again(&why, None)?;
                    continue;
                }
            }
            let before = done;
            let broken = self.body(answer, blob, start, &mut done, &mut sum)?;
            if done >= blob.size {
                break;
            }
            if done - before >= LEAST_BYTES {
                tries.renew();
            }
            let text = format!("{}: {broken}", blob.digest);
            tries.again(&Error::new(Kind::Unreachable, text), None)?;
        }
        sum.check(&blob.digest).map_err(damaged)
    }

    /// Reads a body to its end, or until it breaks: the reason.
    fn body(
        &self,
        answer: Answer,
        blob: &Blob,
        start: u64,
        done: &mut u64,
        sum: &mut DigestSum,
    ) -> Result<String> {
        let announced = answer.body.content_length();
        if announced.is_some_and(|bytes| bytes > blob.size - *done) {
            let text = format!("{}: it is longer than {} bytes", blob.digest, blob.size);
            return Err(Error::new(Kind::Damaged, text));
        }
        let mut reader = answer.body.into_with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; CHUNK_BYTES];
        let (mut since, mut at_since) = (Instant::now(), *done);
        while *done < blob.size {
            if !self.goes_on() {
                return Err(Error::new(Kind::Stopped, "stopped"));
            }
            let most = (blob.size - *done).min(CHUNK_BYTES as u64) as usize;
            let read = match reader.read(&mut buffer[..most]) {
                Ok(0) => return Ok("the connection ended too early".to_owned()),
                Ok(read) => read,
                Err(error) => return Ok(words(&error)),
            };
            let bytes = &buffer[..read];
            let written = self.file.write_all_at(bytes, start + *done);
            written.map_err(local)?;
            sum.update(bytes);
            *done += read as u64;
            self.done_bytes.fetch_add(read as u64, Ordering::Relaxed);
            if since.elapsed() >= LEAST_TIME {
                if *done - at_since < LEAST_BYTES {
                    return Ok("it is too slow".to_owned());
                }
                (since, at_since) = (Instant::now(), *done);
            }
        }
        Ok(String::new())
    }
}

/// Whether an answer is the rest from there on.
fn continues(answer: &Answer, from: u64) -> bool {
    let range = answer.header("Content-Range");
    let first = range
        .and_then(|range| range.strip_prefix("bytes "))
        .and_then(|range| range.split('-').next());
    answer.status == 206 && first.and_then(|first| first.parse().ok()) == Some(from)
}
