//! Objects in object storage as devices that are only read.
//!
//! A request that is submitted begins to be fetched, and is completed when it is reaped. So the requests of a
//! queue are in flight together, without a thread for each.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use throughline_device::{
    BlockDevice, Completion, DeviceInfo, DeviceKind, Limits, Op, Queue, Request,
};
use throughline_image::{Object as Image, ReadAt};
use throughline_remote::{Object, ObjectName, UploadOptions, open_shared, upload as send};
pub use throughline_remote::{
    has_secrets as has_object_secrets, without_secrets as without_url_secrets,
    word_without_secrets as word_without_url_secrets,
};

/// The object that a path names; `None` for a path on the host.
fn named(path: &Path) -> Option<io::Result<Arc<Object>>> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
    let name = ObjectName::of_path(path)?.map_err(invalid);
    Some(name.and_then(|name| open_shared(&name)))
}

/// How long the beginning of a name is, up to `://`; `None` if it does not name an object.
pub fn object_scheme_bytes(name: &[u8]) -> Option<usize> {
    ObjectName::scheme_bytes(name)
}

/// The name of an object without credentials; `None` for a path on the host.
pub fn object_shown(path: &Path) -> Option<String> {
    let name = ObjectName::of_path(path)?;
    Some(name.map_or_else(|error| error.to_string(), |name| name.to_string()))
}

/// The name of an object with what the environment knows of it: a query, or a user and a password. `None` if
/// that is nothing, or cannot be read, which opening the object reports.
pub(crate) fn whole(path: &Path) -> Option<PathBuf> {
    let name = ObjectName::of_path(path)?.ok()?;
    // Who compares the two as texts finds them equal but for that.
    let is_usual = path.to_str() == Some(&*name.to_string());
    is_usual.then(|| name.whole().map(PathBuf::from)).flatten()
}

/// The directory below which chunks of objects are cached.
pub fn object_cache_dir() -> Option<PathBuf> {
    throughline_remote::Options::from_env().cache
}

/// An object that is found once while this is alive, however often it is opened.
#[derive(Debug)]
pub struct HeldObject {
    _object: Arc<Object>,
}

/// Finds the object that a path names; `None` for a path on the host.
///
/// # Errors
/// As opening it.
pub fn hold_object(path: &Path) -> Option<io::Result<HeldObject>> {
    Some(named(path)?.map(|_object| HeldObject { _object }))
}

/// The object at `path`, as an image; `None` for a path on the host.
pub(crate) fn open(path: &Path) -> Option<io::Result<Image>> {
    Some(named(path)?.map(|object| Image {
        version: object.version(),
        bytes: Box::new(object),
    }))
}

/// Whether a path names an object.
pub(crate) fn is_named(path: &Path) -> bool {
    ObjectName::of_path(path).is_some()
}

/// Uploads bytes as the object that `path` names; `None` for a path on the host.
pub(crate) fn upload(
    path: &Path,
    from: &dyn ReadAt,
    replace: bool,
    progress: crate::overlay::Progress<'_>,
) -> Option<io::Result<()>> {
    let name = match ObjectName::of_path(path)? {
        Ok(name) => name,
        Err(error) => return Some(Err(io::Error::new(io::ErrorKind::InvalidInput, error))),
    };
    let mut options = UploadOptions::from_env();
    options.replace = replace;
    Some(send(&name, from, &options, progress))
}

/// The device of the raw image that is the object at `path`; `None` for a path on the host.
pub(super) fn device(path: &Path, write: bool) -> Option<io::Result<Arc<dyn BlockDevice>>> {
    if write && is_named(path) {
        return Some(Err(only_read()));
    }
    Some(named(path)?.map(raw))
}

/// Why nothing is written to an object.
pub(super) fn only_read() -> io::Error {
    let why = "an object is only read: an overlay takes changes; or copy it to a file, change that, and upload it";
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why)
}

fn raw(object: Arc<Object>) -> Arc<dyn BlockDevice> {
    let info = DeviceInfo {
        name: object.name().to_string(),
        kind: DeviceKind::Other,
        engine: "object",
        direct: true,
        read_only: true,
        limits: Limits {
            queue_depth: QUEUE_DEPTH,
            max_transfer_bytes: object.request_bytes(),
            io_opt_bytes: object.request_bytes(),
            discard: false,
            write_zeroes: false,
            fua: false,
            ..Limits::default()
        },
    };
    Arc::new(Disk { object, info })
}

/// Requests that a thread has in flight; the object bounds their bytes.
const QUEUE_DEPTH: u32 = 64;

struct Disk {
    object: Arc<Object>,
    info: DeviceInfo,
}

impl BlockDevice for Disk {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Without a part of a block at its end.
    fn len_bytes(&self) -> u64 {
        let block = u64::from(self.info.limits.logical_block_bytes);
        Object::len_bytes(&self.object) / block * block
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(Reads {
            object: Arc::clone(&self.object),
            limits: self.info.limits,
            len_bytes: BlockDevice::len_bytes(self),
            waiting: VecDeque::new(),
            ready: Vec::new(),
        }))
    }
}

/// The queue of one thread.
struct Reads {
    object: Arc<Object>,
    limits: Limits,
    len_bytes: u64,
    /// Begun, in the order in which they are completed.
    waiting: VecDeque<Request>,
    ready: Vec<Completion>,
}

impl Reads {
    fn carry_out(&self, request: &mut Request) -> io::Result<()> {
        let mut at = request.offset_bytes();
        match request.op() {
            Op::Read => {
                for memory in request.slices_mut() {
                    ReadAt::read_exact_at(&*self.object, memory, at)?;
                    at = at.saturating_add(memory.len() as u64);
                }
                Ok(())
            }
            Op::Flush => Ok(()),
            Op::Write | Op::Discard | Op::WriteZeroes => {
                Err(io::ErrorKind::ReadOnlyFilesystem.into())
            }
        }
    }

    fn complete_first(&mut self) {
        if let Some(mut request) = self.waiting.pop_front() {
            let result = self.carry_out(&mut request);
            self.ready.push(Completion { request, result });
        }
    }
}

impl Queue for Reads {
    fn submit(&mut self, request: Request) {
        if let Err(error) = self.limits.admit(&request, self.len_bytes) {
            let result = Err(error);
            self.ready.push(Completion { request, result });
            return;
        }
        if self.in_flight() >= self.depth() {
            self.complete_first();
        }
        if request.op() == Op::Read {
            self.object
                .begin(request.offset_bytes(), request.len_bytes());
        }
        self.waiting.push_back(request);
    }

    fn kick(&mut self) {}

    fn reap(&mut self, wait_for: usize, done: &mut Vec<Completion>) {
        while self.ready.len() < wait_for && !self.waiting.is_empty() {
            self.complete_first();
        }
        done.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.waiting.len().saturating_add(self.ready.len())
    }

    fn depth(&self) -> usize {
        self.limits.queue_depth.max(1) as usize
    }
}
