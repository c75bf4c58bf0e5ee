//! [`Object`]: an object of a store as a read-only disk.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use throughline_image::ReadAt;
use throughline_locks::{Condvar, Mutex};
use tokio::sync::Semaphore;

use crate::ahead::Ahead;
use crate::cache::Cache;
use crate::chunks::{Chunk, Chunks, Found};
use crate::claims::Claims;
use crate::failure::Failure;
use crate::fetch;
use crate::name::ObjectName;
use crate::options::Options;
use crate::pin::Pin;
use crate::store::{Place, Uploads};
use crate::workers::Workers;

/// An object, as of when it was opened. See the [crate](crate) for what that means.
pub struct Object {
    // Its requests are given up before the rest is dropped.
    workers: Workers,
    inner: Arc<Inner>,
}

/// What was fetched since an object was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Requests, without the first one, that finds the object.
    pub requests: u64,
    /// Chunks that arrived.
    pub chunks: u64,
    /// Bytes that arrived, those of replies that failed among them.
    pub bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) requests: AtomicU64,
    pub(crate) chunks: AtomicU64,
    pub(crate) bytes: AtomicU64,
}

/// What requests share.
pub(crate) struct Inner {
    pub(crate) name: ObjectName,
    pub(crate) place: Place,
    pub(crate) pin: Pin,
    pub(crate) options: Options,
    pub(crate) chunks: Chunks,
    pub(crate) requests: Semaphore,
    pub(crate) counters: Counts,
    ahead: Ahead,
    pub(crate) cache: Option<Arc<Cache>>,
    stores: Arc<Stores>,
}

/// Chunks that are being written to the cache.
#[derive(Default)]
struct Stores {
    count: Mutex<usize>,
    none: Condvar,
}

/// One of them.
struct Store(Arc<Stores>);

impl Drop for Store {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.0.none.notify_all();
        }
    }
}

impl Inner {
    fn chunk_bytes(&self) -> u64 {
        u64::from(self.options.chunk_bytes)
    }

    /// The bytes of chunks.
    pub(crate) fn bytes(&self, chunks: Range<u64>) -> Range<u64> {
        let end = chunks.end.saturating_mul(self.chunk_bytes());
        chunks.start.saturating_mul(self.chunk_bytes())..end.min(self.pin.len_bytes)
    }

    /// The length of a chunk: the last one may be shorter.
    pub(crate) fn chunk_len(&self, index: u64) -> usize {
        let bytes = self.bytes(index..index.saturating_add(1));
        bytes.end.saturating_sub(bytes.start) as usize
    }

    /// What this process fetches, if other processes share the cache.
    pub(crate) fn claims(&self) -> Option<&Claims> {
        self.cache.as_ref()?.claims.as_ref()
    }

    /// Writes a chunk to the cache, beside the thread that received it. Then it is no longer claimed.
    pub(crate) fn store(&self, index: u64, chunk: &Chunk) {
        let Some(cache) = self.cache.clone() else {
            return;
        };
        *self.stores.count.lock() += 1;
        let (chunk, store) = (Arc::clone(chunk), Store(Arc::clone(&self.stores)));
        tokio::task::spawn_blocking(move || {
            cache.put(index, &chunk);
            if let Some(claims) = &cache.claims {
                claims.release(index..index.saturating_add(1));
            }
            drop(store);
        });
    }
}

impl Object {
    /// Finds an object, with one request. Nothing is read.
    ///
    /// # Errors
    /// As for files: [`io::ErrorKind::NotFound`], [`io::ErrorKind::PermissionDenied`]; others with a
    /// [`Failure`] in them.
    pub fn open(name: &ObjectName, options: &Options) -> io::Result<Object> {
        let options = options.checked();
        let patience = options.patience;
        let workers = Workers::new()?;
        let place = Place::of(name, patience, Uploads::Replace);
        let place = place.map_err(Failure::opening)?;
        let (place, pin) = workers.wait(async move {
            let pin = fetch::pin(&place, patience).await;
            (place, pin)
        })?;
        let pin = pin.map_err(Failure::opening)?;
        let chunk_bytes = u64::from(options.chunk_bytes);
        let inner = Inner {
            name: name.clone(),
            cache: cache(&place, &pin, &options).map(Arc::new),
            chunks: Chunks::new((options.memory_bytes / chunk_bytes) as usize),
            requests: Semaphore::new(options.in_flight),
            counters: Counts::default(),
            ahead: Ahead::default(),
            stores: Arc::default(),
            place,
            pin,
            options,
        };
        Ok(Object {
            workers,
            inner: Arc::new(inner),
        })
    }

    /// Its name, without credentials.
    pub fn name(&self) -> &ObjectName {
        &self.inner.name
    }

    /// Its length.
    pub fn len_bytes(&self) -> u64 {
        self.inner.pin.len_bytes
    }

    /// The unit in which it is fetched.
    pub fn chunk_bytes(&self) -> u32 {
        self.inner.options.chunk_bytes
    }

    /// What one request asks for at most.
    pub fn request_bytes(&self) -> u32 {
        self.inner.options.request_bytes
    }

    /// What tells this version of the object from others.
    pub fn version(&self) -> String {
        self.inner.pin.key()
    }

    /// What was fetched until now.
    pub fn counters(&self) -> Counters {
        let counters = &self.inner.counters;
        Counters {
            requests: counters.requests.load(Ordering::Relaxed),
            chunks: counters.chunks.load(Ordering::Relaxed),
            bytes: counters.bytes.load(Ordering::Relaxed),
        }
    }

    /// Begins to fetch bytes that will be read, without waiting for them. Errors are returned by that read.
    pub fn begin(&self, at: u64, len_bytes: u64) {
        let end = at.saturating_add(len_bytes).min(self.len_bytes());
        if at < end {
            self.fetch(self.chunks(at..end), None);
            self.fetch_ahead(&(at..end));
        }
    }

    /// Requests what follows a read, if it is part of a long run.
    fn fetch_ahead(&self, bytes: &Range<u64>) {
        let chunk = self.inner.chunk_bytes();
        let options = &self.inner.options;
        let step = options.request_chunks().saturating_mul(chunk);
        // What is fetched ahead has to stay in memory until it is read.
        let max = (options.flying_chunks() / 2).saturating_mul(chunk);
        if let Some(ahead) = self.inner.ahead.read(bytes, step, max) {
            let ahead = ahead.start..ahead.end.min(self.len_bytes());
            // A chunk that the run only begins is fetched when more of it is due.
            let chunks = ahead.start.div_ceil(chunk)..ahead.end.div_ceil(chunk);
            self.fetch(chunks, None);
        }
    }

    fn chunks(&self, bytes: Range<u64>) -> Range<u64> {
        let chunk = self.inner.chunk_bytes().max(1);
        bytes.start / chunk..bytes.end.div_ceil(chunk)
    }

    /// Requests what is missing of these chunks.
    fn fetch(&self, chunks: Range<u64>, needed: Option<u64>) {
        let inner = &self.inner;
        let cache = inner.cache.as_ref();
        let mut missing = inner.chunks.missing(chunks);
        missing.retain(|index| {
            needed == Some(*index) || !cache.is_some_and(|cache| cache.has(*index))
        });
        if missing.is_empty() {
            return;
        }
        let (max, run) = (
            inner.options.flying_chunks(),
            inner.options.request_chunks(),
        );
        for run in inner.chunks.claim(&missing, needed, max, run) {
            drop(self.workers.spawn(fetch::fetch(Arc::clone(inner), run)));
        }
    }

    fn chunk(&self, index: u64) -> Result<Chunk, Failure> {
        let inner = &self.inner;
        loop {
            match inner.chunks.find(index) {
                Found::Ready(chunk) => return Ok(chunk),
                Found::Pending(pending) => return inner.chunks.wait(&pending),
                Found::Missing => {}
            }
            let cache = inner.cache.as_ref();
            if let Some(bytes) = cache.and_then(|cache| cache.get(index, inner.chunk_len(index))) {
                let chunk = Chunk::new(bytes);
                inner.chunks.keep(index, Arc::clone(&chunk));
                return Ok(chunk);
            }
            self.fetch(index..index.saturating_add(1), Some(index));
        }
    }
}

impl ReadAt for Object {
    fn read_exact_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(buffer.len() as u64);
        let end = end.filter(|end| *end <= self.len_bytes());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        let chunks = self.chunks(at..end);
        self.fetch_ahead(&(at..end));
        let ahead = self.inner.options.flying_chunks();
        let mut begun = chunks.start;
        let mut rest = buffer;
        for index in chunks.clone() {
            // As much is requested as may be in flight, in portions that are worth a request.
            if begun < chunks.end && begun <= index.saturating_add(ahead / 2) {
                let until = index.saturating_add(ahead).min(chunks.end);
                self.fetch(begun..until, None);
                begun = until;
            }
            let chunk = self.chunk(index).map_err(Failure::reading)?;
            let begin = self.inner.bytes(index..index.saturating_add(1)).start;
            let skip = at.saturating_sub(begin) as usize;
            let part = chunk.get(skip..).unwrap_or_default();
            let (now, later) = rest.split_at_mut(part.len().min(rest.len()));
            now.copy_from_slice(part.get(..now.len()).unwrap_or_default());
            rest = later;
        }
        Ok(())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(self.inner.pin.len_bytes)
    }
}

/// The cache on disk, if there is to be one, and can be.
fn cache(place: &Place, pin: &Pin, options: &Options) -> Option<Cache> {
    let below = options.cache.as_ref().filter(|_| options.cache_bytes > 0)?;
    let key = format!("{}\n{}\n{}", place.key, pin.key(), options.chunk_bytes);
    let opened = Cache::open(below, &key, options.cache_bytes);
    opened
        .inspect_err(|error| {
            let below = below.display();
            tracing::warn!("objects are not cached in {below}: {error}");
        })
        .ok()
}

impl Drop for Object {
    /// Requests in flight are given up; chunks that have arrived get to the cache.
    fn drop(&mut self) {
        let mut count = self.inner.stores.count.lock();
        while *count > 0 {
            self.inner.stores.none.wait(&mut count);
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.inner.name, self.inner.pin.key())
    }
}
