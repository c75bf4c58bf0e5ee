//! [`upload`]: bytes become an object, in parts.
//!
//! ```text
//!  caller:   read part │ read part │ …          wait for replies, tell the progress
//!  workers:      └ send, again if it fails ┘    then: complete, or abort
//! ```
//!
//! Invariants:
//! - The object is there as a whole or not at all: its parts are not visible until the upload is completed.
//!   What fails is aborted. A killed process leaves parts that nobody sees; stores can be told to remove
//!   them after some days, and Azure does.
//! - An object that is there is not replaced, unless that is wanted. S3 checks it when the upload is
//!   completed. Google Cloud Storage and Azure cannot: there, it is looked up before and after the parts are
//!   sent, and an object that is made in between is replaced.
//! - Memory is bounded: at most [`MEMORY_BYTES`], or two parts.
//! - Success is returned only if the store has said so, or has an object with the mark of this upload.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use object_store::multipart::{MultipartStore, PartId};
use object_store::{
    Attribute, Attributes, GetOptions, MultipartId, PutMultipartOptions, PutPayload,
};
use throughline_image::ReadAt;
use tokio::task::AbortHandle;
use uuid::Uuid;

use crate::failure::Failure;
use crate::fetch;
use crate::name::ObjectName;
use crate::options::Options;
use crate::store::{Place, Uploads};
use crate::tries::Tries;
use crate::workers::Workers;

/// The most parts of an upload, of all stores.
const MAX_PARTS: u64 = 10_000;
/// Memory for parts.
const MEMORY_BYTES: u64 = 128 << 20;
/// How often the caller is told the progress, so that it can end the upload.
const TICK: Duration = Duration::from_millis(100);
/// Metadata of the object: by it, the upload that has made it is told from others.
const MARK: &str = "throughline-upload";

/// How an object is uploaded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UploadOptions {
    /// The size of a part; larger ones are used for what would have more than 10,000. S3 takes no parts of
    /// less than 5 MiB. 8 MiB.
    pub part_bytes: u32,
    /// The most parts in flight; fewer of large ones. 4.
    pub in_flight: usize,
    /// Whether an object of that name is replaced.
    pub replace: bool,
    /// For how long a request is repeated, beside the time for the bytes of a part. 30 s.
    pub patience: Duration,
}

impl Default for UploadOptions {
    fn default() -> UploadOptions {
        UploadOptions {
            part_bytes: 8 << 20,
            in_flight: 4,
            replace: false,
            patience: Options::default().patience,
        }
    }
}

impl UploadOptions {
    /// With the patience that the environment says, as of [`Options::from_env`].
    pub fn from_env() -> UploadOptions {
        UploadOptions {
            patience: Options::from_env().patience,
            ..UploadOptions::default()
        }
    }
}

/// Is told how many bytes of how many are uploaded; an error ends the upload.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> io::Result<()>;

/// Uploads all bytes of `from` as the object `name`. See the head of this file for what is promised.
///
/// # Errors
/// - [`io::ErrorKind::AlreadyExists`] if there is an object, and it is not to be replaced;
/// - [`io::ErrorKind::Unsupported`] for `https://` and `http://`;
/// - as [`Object::open`](crate::Object::open); of `from` and `progress`.
pub fn upload(
    name: &ObjectName,
    from: &dyn ReadAt,
    options: &UploadOptions,
    progress: Progress<'_>,
) -> io::Result<()> {
    let parts = Parts::of(from.len_bytes()?, options)?;
    let uploads = match options.replace {
        true => Uploads::Replace,
        false => Uploads::Create,
    };
    let workers = Workers::new()?;
    let place = Place::of(name, options.patience, uploads);
    let mut place = place.map_err(Failure::opening)?;
    let Some(store) = place.in_parts.take() else {
        let why = "only s3://, gs:// and az:// take uploads";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    };
    let target = Arc::new(Target {
        mark: (name.url().scheme() != "az").then(|| Uuid::new_v4().simple().to_string()),
        first_part: match name.url().scheme() {
            // The parts of all uploads of a name are in one place there.
            "az" => (Uuid::new_v4().as_u128() as u32 as usize) << 16,
            _ => 0,
        },
        place,
        store,
        uploads,
        patience: options.patience,
        flying_bytes: (parts.each_bytes.saturating_mul(parts.in_flight as u64))
            .min(parts.len_bytes),
    });
    let upload = Upload {
        workers,
        target,
        parts,
    };
    upload.run(from, progress)
}

/// How the bytes are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parts {
    len_bytes: u64,
    each_bytes: u64,
    in_flight: usize,
}

impl Parts {
    fn of(len_bytes: u64, options: &UploadOptions) -> io::Result<Parts> {
        if len_bytes == 0 {
            let why = "there is nothing to upload";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        const UNIT: u64 = 1 << 20;
        let least = len_bytes.div_ceil(MAX_PARTS);
        let each_bytes = match least <= u64::from(options.part_bytes) {
            true => u64::from(options.part_bytes).max(1),
            false => least.next_multiple_of(UNIT),
        };
        // One more is being read.
        let by_memory = (MEMORY_BYTES / each_bytes).saturating_sub(1);
        Ok(Parts {
            len_bytes,
            each_bytes,
            in_flight: options.in_flight.min(by_memory as usize).max(1),
        })
    }

    fn count(&self) -> usize {
        self.len_bytes.div_ceil(self.each_bytes) as usize
    }

    fn range(&self, index: usize) -> Range<u64> {
        let start = self.each_bytes.saturating_mul(index as u64);
        start..start.saturating_add(self.each_bytes).min(self.len_bytes)
    }
}

struct Upload {
    workers: Workers,
    target: Arc<Target>,
    parts: Parts,
}

impl Upload {
    fn run(&self, from: &dyn ReadAt, progress: Progress<'_>) -> io::Result<()> {
        progress(0, self.parts.len_bytes)?;
        self.asks(async |target| target.check_absent().await)?;
        let id = self.asks(async |target| target.begin().await)?;
        let parts = match self.send(&id, from, progress) {
            Ok(parts) => parts,
            Err(error) => {
                self.abort(id);
                return Err(error);
            }
        };
        let completed = {
            let id = id.clone();
            self.asks(async move |target| target.complete(&id, parts).await)
        };
        completed.or_else(|error| {
            self.abort(id);
            // A reply may have been lost, of a request that was carried out.
            self.asks(async |target| target.is_made().await)
                .map_err(|_| error)
        })
    }

    fn abort(&self, id: MultipartId) {
        let aborted = self.asks(async move |target| target.abort(&id).await);
        if let Err(error) = aborted {
            tracing::warn!("parts of a failed upload may be left in the store: {error}");
        }
    }

    /// Asks the store for something, and waits for the answer.
    fn asks<T: Send + 'static, A>(&self, ask: impl FnOnce(Arc<Target>) -> A) -> io::Result<T>
    where
        A: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let answer = self.workers.wait(ask(Arc::clone(&self.target)))?;
        answer.map_err(Failure::opening)
    }

    /// Sends all parts.
    fn send(
        &self,
        id: &MultipartId,
        from: &dyn ReadAt,
        progress: Progress<'_>,
    ) -> io::Result<Vec<PartId>> {
        let mut flying = Flying::default();
        let (sender, receiver) = mpsc::channel();
        let mut arrived = vec![None; self.parts.count()];
        let (mut next, mut done_bytes) = (0, 0);
        while next < arrived.len() || flying.count > 0 {
            progress(done_bytes, self.parts.len_bytes)?;
            let is_room = next < arrived.len() && flying.count < self.parts.in_flight;
            if is_room {
                let range = self.parts.range(next);
                let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
                from.read_exact_at(&mut bytes, range.start)?;
                let (target, id, sender) = (Arc::clone(&self.target), id.clone(), sender.clone());
                let work = async move {
                    let sent = target.part(&id, next, bytes.into()).await;
                    let _ = sender.send((next, sent));
                };
                flying.handles.push(self.workers.spawn(work).abort_handle());
                flying.count += 1;
                next += 1;
            }
            let wait = if is_room { Duration::ZERO } else { TICK };
            match receiver.recv_timeout(wait) {
                Ok((index, sent)) => {
                    flying.count -= 1;
                    let part = sent.map_err(Failure::opening)?;
                    let range = self.parts.range(index);
                    done_bytes += range.end.saturating_sub(range.start);
                    arrived[index] = Some(part);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // This function has a sender.
                Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::Other.into()),
            }
        }
        progress(done_bytes, self.parts.len_bytes)?;
        Ok(arrived.into_iter().flatten().collect())
    }
}

/// Parts in flight. They are given up when this is dropped.
#[derive(Default)]
struct Flying {
    count: usize,
    handles: Vec<AbortHandle>,
}

impl Drop for Flying {
    fn drop(&mut self) {
        self.handles.iter().for_each(AbortHandle::abort);
    }
}

/// Where an object is made.
struct Target {
    place: Place,
    store: Arc<dyn MultipartStore>,
    uploads: Uploads,
    /// `None`: the store keeps none for uploads in parts.
    mark: Option<String>,
    /// The number of the first part.
    first_part: usize,
    patience: Duration,
    /// All parts that are in flight share one line.
    flying_bytes: u64,
}

impl Target {
    fn tries(&self) -> Tries {
        Tries::new(self.patience)
    }

    /// What is seen here is seen again by S3, when the upload is completed.
    async fn check_absent(self: Arc<Target>) -> Result<(), Failure> {
        if self.uploads == Uploads::Replace {
            return Ok(());
        }
        match self.tries().until_good(|| fetch::head(&self.place)).await {
            Ok(_) => Err(Failure::Exists),
            Err(Failure::NotFound) => Ok(()),
            // Who may not list a bucket of S3 is told that of any object that is not there.
            Err(Failure::Denied(_)) if self.place.key.starts_with("s3:") => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    async fn begin(self: Arc<Target>) -> Result<MultipartId, Failure> {
        let options = || {
            let mut attributes = Attributes::new();
            if let Some(mark) = &self.mark {
                attributes.insert(Attribute::Metadata(MARK.into()), mark.clone().into());
            }
            PutMultipartOptions {
                attributes,
                ..PutMultipartOptions::default()
            }
        };
        let ask = || {
            self.store
                .create_multipart_opts(&self.place.path, options())
        };
        let none = |failure| match failure {
            Failure::NotFound => Failure::Refused("there is no such bucket".to_owned()),
            other => other,
        };
        self.tries().until_good(ask).await.map_err(none)
    }

    async fn part(
        &self,
        id: &MultipartId,
        index: usize,
        bytes: PutPayload,
    ) -> Result<PartId, Failure> {
        let tries = Tries::sending(self.patience, self.flying_bytes);
        let number = self.first_part.saturating_add(index);
        let path = &self.place.path;
        let ask = || self.store.put_part(path, id, number, bytes.clone());
        tries.until_good(ask).await.map_err(aborted)
    }

    async fn complete(
        self: Arc<Target>,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<(), Failure> {
        Arc::clone(&self).check_absent().await?;
        let path = &self.place.path;
        let ask = || self.store.complete_multipart(path, id, parts.clone());
        match self.tries().until_good(ask).await {
            Ok(_) => Ok(()),
            Err(Failure::Replaced(_)) if self.uploads == Uploads::Create => Err(Failure::Exists),
            Err(failure) => Err(aborted(failure)),
        }
    }

    async fn abort(self: Arc<Target>, id: &MultipartId) -> Result<(), Failure> {
        let ask = || self.store.abort_multipart(&self.place.path, id);
        match self.tries().until_good(ask).await {
            Err(Failure::NotFound) => Ok(()),
            done => done,
        }
    }

    /// Whether the object is that of this upload.
    async fn is_made(self: Arc<Target>) -> Result<(), Failure> {
        let Some(mark) = &self.mark else {
            return Err(Failure::NotFound);
        };
        let head = GetOptions {
            head: true,
            ..GetOptions::default()
        };
        let ask = || self.place.store.get_opts(&self.place.path, head.clone());
        let found = self.tries().until_good(ask).await?;
        let its = found.attributes.get(&Attribute::Metadata(MARK.into()));
        match its.is_some_and(|its| its.as_ref() == mark) {
            true => Ok(()),
            false => Err(Failure::NotFound),
        }
    }
}

/// The failure of a request for an upload in parts.
fn aborted(failure: Failure) -> Failure {
    match failure {
        Failure::NotFound => Failure::Refused("the upload was aborted by somebody else".to_owned()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_length() {
        let options = UploadOptions::default();
        for len_bytes in [1, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, 80 << 30, 5 << 40] {
            let parts = Parts::of(len_bytes, &options).unwrap();
            let count = parts.count();
            assert!(count as u64 <= MAX_PARTS, "{parts:?}");
            let mut end = 0;
            for index in 0..count {
                let range = parts.range(index);
                assert!(range.start == end && range.end > end, "{parts:?} {index}");
                end = range.end;
            }
            assert_eq!(end, len_bytes);
            let memory = parts.each_bytes * (parts.in_flight as u64 + 1);
            assert!(memory <= MEMORY_BYTES || parts.in_flight == 1, "{parts:?}");
        }
        assert!(Parts::of(0, &options).is_err());
    }
}
