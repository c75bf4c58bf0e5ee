//! Gets a run of chunks: fetches them with one request, and again what did not arrive, within bounded time;
//! or waits for another process that does, no longer than that would take.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{join, join_all};
use object_store::ObjectStoreExt as _;
use object_store::{GetOptions, ObjectMeta};
use tokio::time::{Instant, timeout_at};

use crate::chunks::Chunk;
use crate::claims::Claims;
use crate::failure::{Attempt, Failure};
use crate::object::Inner;
use crate::pin::Pin;
use crate::store::Place;
use crate::tries::Tries;

/// Finds an object, and what identifies it.
pub(crate) async fn pin(place: &Place, patience: Duration) -> Result<Pin, Failure> {
    let meta = Tries::new(patience).until_good(|| head(place)).await?;
    Pin::of(&meta)
}

pub(crate) async fn head(place: &Place) -> Result<ObjectMeta, Attempt> {
    let head = place.store.head(&place.path).await.map_err(Attempt::from);
    match head {
        // A signed URL may be for GET alone.
        Err(Attempt::Final(denied @ (Failure::Denied(_) | Failure::Refused(_)))) => {
            let first = GetOptions {
                range: Some((0..1).into()),
                ..GetOptions::default()
            };
            let reply = place.store.get_opts(&place.path, first).await;
            reply
                .map(|reply| reply.meta)
                .map_err(|_| Attempt::Final(denied))
        }
        head => head,
    }
}

/// The chunks of a run that have not arrived. Those that are left when it is dropped have failed.
struct Left {
    inner: Arc<Inner>,
    chunks: Range<u64>,
}

impl Left {
    fn arrived(&mut self, bytes: Vec<u8>) {
        let Some(index) = self.chunks.next() else {
            return;
        };
        let chunk = Chunk::new(bytes);
        self.inner.counters.chunks.fetch_add(1, Ordering::Relaxed);
        self.inner.store(index, &chunk);
        self.inner.chunks.finish(index, Ok(chunk));
    }

    /// The next one was found in the cache.
    fn found(&mut self, bytes: Vec<u8>) {
        if let Some(index) = self.chunks.next() {
            self.inner.chunks.finish(index, Ok(Chunk::new(bytes)));
        }
    }

    fn failed(&mut self, failure: &Failure) {
        if let Some(claims) = self.inner.claims() {
            claims.release(self.chunks.clone());
        }
        for index in self.chunks.by_ref() {
            self.inner.chunks.finish(index, Err(failure.clone()));
        }
    }

    /// Takes the first of them, up to this one.
    fn split(&mut self, end: u64) -> Left {
        let end = end.clamp(self.chunks.start, self.chunks.end);
        let first = self.chunks.start..end;
        self.chunks.start = end;
        Left {
            inner: Arc::clone(&self.inner),
            chunks: first,
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.failed(&Failure::Refused("the request was given up".to_owned()));
    }
}

/// Gets chunks that this process has marked as on their way: fetches those that no other process fetches.
pub(crate) async fn fetch(inner: Arc<Inner>, chunks: Range<u64>) {
    let mut left = Left {
        inner: Arc::clone(&inner),
        chunks,
    };
    let Some(claims) = inner.claims() else {
        return request(left).await;
    };
    let (mut own, mut of_others) = (Vec::new(), Vec::new());
    let is_all = claims.claim(left.chunks.clone());
    while !left.chunks.is_empty() {
        let is_own = is_own(&inner, claims, left.chunks.start, is_all);
        let mut end = left.chunks.start.saturating_add(1);
        while end < left.chunks.end && self::is_own(&inner, claims, end, is_all) == is_own {
            end = end.saturating_add(1);
        }
        let list = if is_own { &mut own } else { &mut of_others };
        list.push(left.split(end));
    }
    let own = join_all(own.into_iter().map(request));
    let of_others = join_all(of_others.into_iter().map(from_another));
    join(own, of_others).await;
}

/// Whether a chunk is to be fetched by this process, which then has claimed it: nobody else does, and it has
/// not got into the cache since it was looked for there.
fn is_own(inner: &Inner, claims: &Claims, index: u64, is_claimed: bool) -> bool {
    let one = index..index.saturating_add(1);
    if !is_claimed && !claims.claim(one.clone()) {
        return false;
    }
    let is_there = inner.cache.as_ref().is_some_and(|cache| cache.has(index));
    if is_there {
        claims.release(one);
    }
    !is_there
}

/// Takes chunks that another process fetches from the cache, and fetches what it does not bring there.
async fn from_another(mut left: Left) {
    let inner = Arc::clone(&left.inner);
    let patience = inner.options.patience;
    let waiting = inner.claims().and_then(|claims| claims.patience(patience));
    if let (Some(claims), Some(mut waiting)) = (inner.claims(), waiting) {
        while !left.chunks.is_empty() {
            if let Some(bytes) = cached(&inner, left.chunks.start).await {
                left.found(bytes);
                waiting.progress();
            } else if claims.claim(left.chunks.start..left.chunks.start.saturating_add(1)) {
                // It has failed, or ended; or the chunk has arrived just now.
                match cached(&inner, left.chunks.start).await {
                    Some(bytes) => {
                        claims.release(left.chunks.start..left.chunks.start.saturating_add(1));
                        left.found(bytes);
                    }
                    None => {
                        let mut end = left.chunks.start.saturating_add(1);
                        while end < left.chunks.end && is_own(&inner, claims, end, false) {
                            end = end.saturating_add(1);
                        }
                        request(left.split(end)).await;
                    }
                }
                waiting.progress();
            } else if !waiting.pause().await {
                claims.stuck(patience);
                tracing::debug!("another process does not go on to fetch {}", inner.name);
                break;
            }
        }
    }
    if !left.chunks.is_empty() {
        request(left).await;
    }
}

/// A chunk of the cache, read beside the thread that receives others.
async fn cached(inner: &Inner, index: u64) -> Option<Vec<u8>> {
    let cache = Arc::clone(inner.cache.as_ref()?);
    if !cache.has(index) {
        return None;
    }
    let len = inner.chunk_len(index);
    let read = tokio::task::spawn_blocking(move || cache.get(index, len));
    read.await.ok().flatten()
}

/// Fetches chunks.
async fn request(mut left: Left) {
    let inner = Arc::clone(&left.inner);
    let patience = inner.options.patience;
    let place = timeout_at(Instant::now() + patience, inner.requests.acquire()).await;
    let Ok(Ok(_place)) = place else {
        left.failed(&Failure::Exhausted {
            patience,
            attempts: 0,
            last: "earlier requests were not answered".to_owned(),
        });
        return;
    };
    let begun = Instant::now();
    let mut tries = Tries::new(patience);
    while !left.chunks.is_empty() {
        let Err(failed) = attempt(&mut left, &mut tries).await else {
            continue;
        };
        if let Err(failure) = tries.again(failed).await {
            tracing::debug!("cannot read {}: {failure}", inner.name);
            left.failed(&failure);
        }
    }
    if let Some(claims) = inner.claims() {
        claims.took(begun.elapsed());
    }
}

/// One request for all that is left.
async fn attempt(left: &mut Left, tries: &mut Tries) -> Result<(), Attempt> {
    let inner = Arc::clone(&left.inner);
    let range = inner.bytes(left.chunks.clone());
    inner.counters.requests.fetch_add(1, Ordering::Relaxed);
    let request = inner.pin.request(range.clone());
    let reply = inner.place.store.get_opts(&inner.place.path, request);
    let silent = |_| tries.silent();
    let reply = timeout_at(tries.deadline(), reply)
        .await
        .map_err(silent)??;
    inner.pin.check(&reply.meta).map_err(Attempt::Final)?;
    if reply.range != range {
        return Err(Attempt::Again(
            "another range was sent than asked for".to_owned(),
        ));
    }
    let mut body = reply.into_stream();
    let mut chunk = Vec::new();
    loop {
        let silent = |_| tries.silent();
        let part = timeout_at(tries.deadline(), body.next())
            .await
            .map_err(silent)?;
        let Some(part) = part.transpose()? else {
            return match left.chunks.is_empty() {
                true => Ok(()),
                false => Err(Attempt::Again("the reply ended early".to_owned())),
            };
        };
        let mut part = &part[..];
        inner
            .counters
            .bytes
            .fetch_add(part.len() as u64, Ordering::Relaxed);
        while !part.is_empty() {
            if left.chunks.is_empty() {
                // All chunks are complete, and were those of the right range.
                return Ok(());
            }
            let len = inner.chunk_len(left.chunks.start);
            chunk.reserve_exact(len.saturating_sub(chunk.len()));
            let (now, later) = part.split_at(part.len().min(len.saturating_sub(chunk.len())));
            chunk.extend_from_slice(now);
            part = later;
            if chunk.len() == len {
                left.arrived(std::mem::take(&mut chunk));
                tries.progress();
            }
        }
        if left.chunks.is_empty() {
            return Ok(());
        }
    }
}
