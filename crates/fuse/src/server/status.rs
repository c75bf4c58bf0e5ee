//! The status of a mount, which `throughline status` reads as an extended attribute of the mount's root.
//!
//! Invariant: the status is read from memory. No I/O is done for it, because the device may hang.
//!
//! Each thread counts its requests in its own cache line; the counts are summed when the status is read.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rustix::io::Errno;
use serde_json::{Value, json};
use smallvec::SmallVec;
use thread_local::ThreadLocal;
use throughline::Volume;
use throughline::internal::VolumeLayers;

use crate::files::Files;
use crate::nodes::ROOT_NODEID;
use crate::options::{CHOICES, MountOptions};
use crate::transport::Transport;
use crate::wire::{GetxattrIn, GetxattrOut, Opcode};

use super::stale::Notices;
use super::volume_ioctls::check_administers;
use super::{Answer, Answered, Refusal, Request};

/// The attribute of the mount's root with the status as JSON. It is not listed.
pub const STATUS_ATTRIBUTE: &str = "throughline.status";

/// Reading this attribute of the mount's root closes the volume for writing, once the mount has been made
/// read-only. (The kernel refuses to set attributes then.) Its value is `read-only`.
pub const END_WRITING_ATTRIBUTE: &str = "throughline.end-writing";

/// The value of [`END_WRITING_ATTRIBUTE`].
const READ_ONLY: &str = "read-only";

/// What stays the same while it is mounted, and the counts.
pub(super) struct Status {
    /// The image's path, as the list of mounts shows it.
    image: PathBuf,
    options: MountOptions,
    volume: Volume,
    since: Instant,
    /// What the server gave up, if it has.
    sandbox: OnceLock<Value>,
    counts: ThreadLocal<CachePadded<Counts>>,
    transport: Transport,
}

/// The counts of one thread.
#[derive(Default)]
struct Counts {
    /// When the request in progress began, in milliseconds since the mount, plus one; 0: there is none, or
    /// the time is not bounded.
    since_ms: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    refused: AtomicU64,
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
}

/// The result of a request, for the counts.
#[derive(Clone, Copy)]
pub(super) enum Served {
    /// An error.
    Refused,
    /// Success; the number of bytes, for a read or a write.
    Bytes(usize),
}

impl Status {
    pub(super) fn new(volume: &Volume, image: PathBuf, options: &MountOptions) -> Status {
        Status {
            image,
            options: options.clone(),
            volume: volume.clone(),
            since: Instant::now(),
            sandbox: OnceLock::new(),
            counts: ThreadLocal::new(),
            transport: Transport::default(),
        }
    }

    /// The reply to GETXATTR of one of these attributes; `None` for any other.
    pub(super) fn attribute(
        &self,
        request: &Request<'_>,
        notices: &Notices,
        files: &Files,
    ) -> Option<Answered> {
        let (wanted, rest) = request.argument::<GetxattrIn>().ok()?;
        let (name, _) = Request::name(rest).ok()?;
        if request.header.nodeid != ROOT_NODEID {
            return None;
        }
        let text = match std::str::from_utf8(name) {
            Ok(STATUS_ATTRIBUTE) => self.json(notices.pending(), files.len()).to_string(),
            // Querying the length has no effect.
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

    /// Closes the volume for writing, once the kernel refuses all changes.
    fn end_writing(&self, request: &Request<'_>) -> Result<(), Refusal> {
        check_administers(request)?;
        self.volume.end_writing()?;
        tracing::info!("the volume is closed for writing");
        Ok(())
    }

    /// How requests reach the server.
    pub(super) fn transport(&self) -> &Transport {
        &self.transport
    }

    /// Shows from now on what the server gave up.
    pub(super) fn set_sandbox(&self, sandbox: Value) {
        let _ = self.sandbox.set(sandbox);
    }

    /// How long the longest request in progress has taken; of an untrusted image only.
    pub(super) fn longest(&self) -> Duration {
        let oldest = self
            .counts
            .iter()
            .filter_map(|counts| counts.since_ms.load(Ordering::Relaxed).checked_sub(1));
        let begun = oldest.min().map(Duration::from_millis);
        begun.map_or(Duration::ZERO, |begun| {
            self.since.elapsed().saturating_sub(begun)
        })
    }

    /// A request is in progress.
    pub(super) fn begin(&self) {
        let counts = self.counts.get_or_default();
        if self.options.untrusted {
            let now_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX - 1);
            counts.since_ms.store(now_ms + 1, Ordering::Relaxed);
        }
        counts.begun.fetch_add(1, Ordering::SeqCst);
    }

    /// The number of requests in progress.
    pub(super) fn at_work(&self) -> u64 {
        // In this order: a request that begins and ends in between must not make `begun` less than `ended`.
        let ended: u64 = self.each(|counts| counts.ended.load(Ordering::Acquire));
        let begun: u64 = self.each(|counts| counts.begun.load(Ordering::SeqCst));
        begun.saturating_sub(ended)
    }

    fn each(&self, count: impl Fn(&Counts) -> u64) -> u64 {
        self.counts.iter().map(|counts| count(counts)).sum()
    }

    /// The request is done, on the same thread.
    pub(super) fn end(&self, opcode: Option<Opcode>, served: Served) {
        let counts = self.counts.get_or_default();
        if self.options.untrusted {
            counts.since_ms.store(0, Ordering::Relaxed);
        }
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
        counts.ended.fetch_add(1, Ordering::Release);
    }

    /// The whole status, as JSON.
    fn json(&self, notices_due: usize, open_files: usize) -> Value {
        let sum = |count: fn(&Counts) -> &AtomicU64| -> u64 {
            let all = self.counts.iter();
            all.map(|counts| count(counts).load(Ordering::Relaxed))
                .sum()
        };
        let ended = sum(|counts| &counts.ended);
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
            "partition": self.options.partition,
            "format": self.options.format.map(|format| format.to_string()),
            "backing": self.options.backing_shown(),
            "overlay": self.options.overlay,
            "log": self.options.log_file.as_ref().map(|path| path.to_string_lossy().into_owned()),
            "mounted_s": self.since.elapsed().as_secs_f64(),
            "requests": {
                "served": ended,
                "now": self.at_work(),
                "refused": sum(|counts| &counts.refused),
                "reads": sum(|counts| &counts.reads),
                "read_bytes": sum(|counts| &counts.read_bytes),
                "writes": sum(|counts| &counts.writes),
                "written_bytes": sum(|counts| &counts.written_bytes),
                "notices_due": notices_due,
            },
            "open_files": open_files,
            "sandbox": self.sandbox.get(),
            "transport": self.transport.json(),
            "choices": choices,
            "settings": settings,
        });
        add_volume(&mut all, &self.volume);
        all
    }
}

/// Adds the status of the volume, with some entries replaced.
fn add_volume(all: &mut Value, volume: &Volume) {
    let parts = serde_json::to_value(volume.status()).unwrap_or_default();
    if let (Some(all), Value::Object(parts)) = (all.as_object_mut(), parts) {
        all.extend(parts);
    }
    let disk = volume.disk();
    // Without the device's name: that is the image, which the status already has.
    all["device"] = json!({
        "engine": disk.info().engine,
        "queue_depth": disk.limits().queue_depth,
    });
    all["journal"]["state"] = json!(volume.journal_state().as_str());
}

#[cfg(test)]
mod tests {
    use throughline::{Memory, MkfsOptions, OpenOptions};

    use super::*;

    #[test]
    fn the_longest_request_of_an_untrusted_image_is_known() {
        let memory = Memory::zeroed(8 << 20);
        Volume::make_on(memory.clone(), &MkfsOptions::new()).unwrap();
        let volume = OpenOptions::new().open_device(memory).unwrap();
        let mut options = MountOptions::default();
        for is_bounded in [false, true] {
            options.untrusted = is_bounded;
            let status = Status::new(&volume, "image".into(), &options);
            assert_eq!(status.longest(), Duration::ZERO);
            status.begin();
            // The clock goes on.
            while is_bounded && status.longest().is_zero() {
                std::thread::yield_now();
            }
            assert_eq!(status.longest().is_zero(), !is_bounded);
            status.end(None, Served::Refused);
            assert_eq!(status.longest(), Duration::ZERO);
        }
    }
}
