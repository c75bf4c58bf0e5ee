//! Fetches a run of chunks with one request, and again what did not arrive, within bounded time.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use object_store::ObjectStoreExt as _;
use object_store::{GetOptions, ObjectMeta};
use tokio::time::{Instant, timeout_at};

use crate::chunks::Chunk;
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

    fn failed(&mut self, failure: &Failure) {
        for index in self.chunks.by_ref() {
            self.inner.chunks.finish(index, Err(failure.clone()));
        }
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        self.failed(&Failure::Refused("the request was given up".to_owned()));
    }
}

/// Fetches chunks that were claimed.
pub(crate) async fn fetch(inner: Arc<Inner>, chunks: Range<u64>) {
    let mut left = Left {
        inner: Arc::clone(&inner),
        chunks,
    };
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
