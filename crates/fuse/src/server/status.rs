//! What a mount says of itself: `throughline status` reads it as an extended attribute of the mount's root.
//!
//! Requests are counted where they are served, each thread in a line of memory of its own; the sums are made when somebody asks.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use rustix::io::Errno;
use serde_json::{Value, json};
use smallvec::SmallVec;
use thread_local::ThreadLocal;
use throughline::Volume;

use crate::nodes::ROOT_NODEID;
use crate::options::{CHOICES, MountOptions};
use crate::wire::{GetxattrIn, GetxattrOut, Opcode};

use super::volume_ioctls::check_administers;
use super::{Answer, Answered, Refusal, Request, Server};

/// The attribute of the mount's root. It is in no list.
pub const STATUS_ATTRIBUTE: &str = "throughline.status";

/// Asked for at the mount's root by whoever has made it read-only: closes the volume for writing. Its value says that it is.
/// (Setting an attribute is what the kernel refuses there.)
pub const END_WRITING_ATTRIBUTE: &str = "throughline.end-writing";

/// What does not change while it is mounted, and the counts.
pub(super) struct Status {
    /// The image's path, as the list of mounts shows it.
    image: PathBuf,
    options: MountOptions,
    since: Instant,
    counts: ThreadLocal<CachePadded<Counts>>,
}

impl Server {
    /// The answer to a request for an attribute, where it is for this one.
    pub(super) fn status_attribute(&self, request: &Request<'_>) -> Option<Answered> {
        let (wanted, rest) = request.argument::<GetxattrIn>().ok()?;
        let (name, _) = Request::name(rest).ok()?;
        if request.header.nodeid != ROOT_NODEID {
            return None;
        }
        let text = match std::str::from_utf8(name) {
            Ok(STATUS_ATTRIBUTE) => self.status.json(&self.volume).to_string(),
            // How long it is can be asked for without anything being done.
            Ok(END_WRITING_ATTRIBUTE) if wanted.size == 0 => READ_ONLY.to_owned(),
            Ok(END_WRITING_ATTRIBUTE) => match self.end_writing(request) {
                Ok(()) => READ_ONLY.to_owned(),
                Err(refusal) => return Some(Err(refusal)),
            },
            _ => return None,
        };
        Some(match wanted.size as usize {
            0 => Answer::of(&GetxattrOut {
                size: text.len() as u32,
                padding: 0,
            }),
            room if room < text.len() => Err(Errno::RANGE.into()),
            _ => Ok(Answer::Bytes(SmallVec::from_slice(text.as_bytes()))),
        })
    }
}

/// The value of [`END_WRITING_ATTRIBUTE`].
const READ_ONLY: &str = "read-only";

impl Server {
    /// The kernel lets nobody change anything any more: the volume is closed for writing.
    fn end_writing(&self, request: &Request<'_>) -> Result<(), Refusal> {
        check_administers(request)?;
        self.volume.end_writing()?;
        tracing::info!("the volume is closed for writing");
        Ok(())
    }
}

/// What one thread has served.
#[derive(Default)]
struct Counts {
    begun: AtomicU64,
    ended: AtomicU64,
    refused: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// What a request came to, for the counts.
#[derive(Clone, Copy)]
pub(super) enum Served {
    /// An error.
    Refused,
    /// Of a read or a write, so many bytes.
    Bytes(usize),
}

impl Status {
    pub(super) fn new(image: PathBuf, options: &MountOptions) -> Status {
        Status {
            image,
            options: options.clone(),
            since: Instant::now(),
            counts: ThreadLocal::new(),
        }
    }

    /// A request is being worked at.
    pub(super) fn begin(&self) {
        let counts = self.counts.get_or_default();
        counts.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// It is done, on the same thread.
    pub(super) fn end(&self, opcode: Option<Opcode>, served: Served) {
        let counts = self.counts.get_or_default();
        let of_data = match opcode {
            Some(Opcode::Read) => Some((&counts.reads, &counts.read_bytes)),
            Some(Opcode::Write) => Some((&counts.writes, &counts.written_bytes)),
            _ => None,
        };
        if let (Some((calls, sum)), Served::Bytes(bytes)) = (of_data, served) {
            calls.fetch_add(1, Ordering::Relaxed);
            sum.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        if matches!(served, Served::Refused) {
            counts.refused.fetch_add(1, Ordering::Relaxed);
        }
        counts.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// All of it, as JSON.
    pub(super) fn json(&self, volume: &Volume) -> Value {
        let sum = |count: fn(&Counts) -> &AtomicU64| -> u64 {
            let all = self.counts.iter();
            all.map(|counts| count(counts).load(Ordering::Relaxed))
                .sum()
        };
        // In this order: one that ends in between is not counted as one that is worked at.
        let ended = sum(|counts| &counts.ended);
        let begun = sum(|counts| &counts.begun);
        let choices: serde_json::Map<String, Value> = CHOICES
            .iter()
            .map(|choice| {
                (
                    choice.name.to_owned(),
                    choice.is_made(&self.options.choices).into(),
                )
            })
            .collect();
        let settings: serde_json::Map<String, Value> = self
            .options
            .settings()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        let space = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        let mut all = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "pid_namespace": space.to_string_lossy(),
            "image": self.image.to_string_lossy(),
            "offset_bytes": self.options.offset_bytes,
            "log": self.options.log_file.as_ref().map(|path| path.to_string_lossy().into_owned()),
            "mounted_s": self.since.elapsed().as_secs_f64(),
            "requests": {
                "served": ended,
                "now": begun.saturating_sub(ended),
                "refused": sum(|counts| &counts.refused),
                "reads": sum(|counts| &counts.reads),
                "read_bytes": sum(|counts| &counts.read_bytes),
                "writes": sum(|counts| &counts.writes),
                "written_bytes": sum(|counts| &counts.written_bytes),
            },
            "choices": choices,
            "settings": settings,
        });
        add_volume(&mut all, volume);
        all
    }
}

/// Beside what the mount says of itself, what its volume says, with a few words of ours in its parts.
fn add_volume(all: &mut Value, volume: &Volume) {
    let parts = serde_json::to_value(volume.status()).unwrap_or_default();
    if let (Some(all), Value::Object(parts)) = (all.as_object_mut(), parts) {
        all.extend(parts);
    }
    let disk = volume.disk();
    // Its name is the image's, which is there as the list of mounts has it.
    all["device"] = json!({
        "engine": disk.info().engine,
        "queue_depth": disk.limits().queue_depth,
    });
    // Damage to it is what the log tells, and every change that fails by it.
    let info = volume.info().ok();
    all["journal"]["state"] = json!(info.map(|info| info.journal.as_str()));
}
