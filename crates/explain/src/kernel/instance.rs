//! A private instance of the kernel's tracer; other tracing is not disturbed.
//!
//! Invariant: it is removed when this value is dropped. If the process is killed it stays, until
//! [`remove_left_over`], called before a new one is created, removes it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::events::{Kind, Tracepoint, tracepoints};
use super::format::Format;
use super::pages::records;
use super::tracefs::Folder;
use crate::{Error, Result};

const PREFIX: &str = "throughline";
/// Maximum number of pages read from one processor's buffer before moving on to the next.
const MAX_PAGES_AT_ONCE: usize = 1024;

/// See the module.
pub(super) struct Instance {
    instances: Folder,
    name: String,
    folder: Folder,
    page_bytes: usize,
    formats: HashMap<u16, (Tracepoint, Format)>,
    /// The name of each processor, and its pages.
    processors: Vec<(String, File)>,
    /// Tracepoints missing from this kernel.
    pub(super) missing: Vec<String>,
}

/// A trace record: its tracepoint, its time in nanoseconds of the monotonic clock, and its bytes.
pub(super) struct Raw<'r> {
    pub(super) point: &'r Tracepoint,
    pub(super) at_ns: u64,
    pub(super) format: &'r Format,
    pub(super) bytes: &'r [u8],
}

/// The configuration of an instance.
pub(super) struct Setup<'s> {
    /// The part of its name that distinguishes instances, such as `io`.
    pub(super) name: &'s str,
    /// The buffer's size per processor.
    pub(super) buffer_bytes: u64,
    /// Which tracepoints to enable.
    pub(super) wanted: &'s dyn Fn(Kind) -> bool,
    /// The kernel's filters: a field, and the filter for tracepoints with this field.
    pub(super) filters: &'s [(&'s str, String)],
}

fn cannot(what: &str) -> impl Fn(io::Error) -> Error + '_ {
    move |error| Error::new(format!("cannot {what} the kernel's trace: {error}"))
}

impl Instance {
    /// Creates an instance with its tracepoints enabled and recording off.
    pub(super) fn new(root: &Folder, setup: &Setup<'_>) -> Result<Instance> {
        let instances = root.folder("instances").map_err(cannot("set up"))?;
        let name = format!("{PREFIX}-{}-{}", std::process::id(), setup.name);
        instances.make(&name).map_err(cannot("set up"))?;
        let folder = match instances.folder(&name) {
            Ok(folder) => folder,
            Err(error) => {
                let _ = instances.remove(&name);
                return Err(cannot("set up")(error));
            }
        };
        let mut instance = Instance {
            instances,
            name,
            folder,
            page_bytes: rustix::param::page_size(),
            formats: HashMap::new(),
            processors: Vec::new(),
            missing: Vec::new(),
        };
        instance.prepare(setup)?;
        Ok(instance)
    }

    fn prepare(&mut self, setup: &Setup<'_>) -> Result<()> {
        let write = |file: &str, text: &str| {
            self.folder
                .write(file, text)
                .map_err(|error| Error::new(format!("cannot set the trace's {file}: {error}")))
        };
        write("tracing_on", "0")?;
        // The clock that this process reads too, so that times are comparable.
        write("trace_clock", "mono")?;
        // Keep the oldest events, so that the trace is complete up to some moment.
        write("options/overwrite", "0")?;
        let kib = setup.buffer_bytes.div_ceil(1024).max(1);
        write("buffer_size_kb", &kib.to_string())?;
        // Sub-buffers may be configured larger than a page.
        if let Ok(text) = self.folder.read("buffer_subbuf_size_kb")
            && let Ok(kib) = text.trim().parse::<usize>()
        {
            let bytes = kib.saturating_mul(1024).min(1 << 20);
            self.page_bytes = self.page_bytes.max(bytes);
        }
        for point in tracepoints() {
            if (setup.wanted)(point.kind) {
                self.enable(point, setup.filters)?;
            }
        }
        let processors = self.folder.folder("per_cpu").and_then(|all| all.names());
        for name in processors.map_err(cannot("read"))? {
            let file = format!("per_cpu/{name}/trace_pipe_raw");
            let pages = self.folder.stream(&file).map_err(cannot("read"))?;
            self.processors.push((name, pages));
        }
        Ok(())
    }

    fn enable(&mut self, point: Tracepoint, filters: &[(&str, String)]) -> Result<()> {
        let path = &point.path;
        let file = |name| format!("events/{path}/{name}");
        let Ok(text) = self.folder.read(&file("format")) else {
            self.missing.push(path.clone());
            return Ok(());
        };
        let format = Format::parse(&text)?;
        let filter = filters
            .iter()
            .find(|(field, _)| format.field(field).is_some());
        let result = match filter {
            Some((_, filter)) => self.folder.write(&file("filter"), filter),
            None => Ok(()),
        };
        result
            .and_then(|()| self.folder.write(&file("enable"), "1"))
            .map_err(|error| Error::new(format!("cannot trace {path}: {error}")))?;
        self.formats.insert(format.id, (point, format));
        Ok(())
    }

    /// Records only the calling thread and all its descendants.
    pub(super) fn follow_this_thread(&self) -> Result<()> {
        let tid = rustix::thread::gettid().as_raw_nonzero().to_string();
        self.folder
            .write("options/event-fork", "1")
            .and_then(|()| self.folder.write("set_event_pid", &tid))
            .map_err(cannot("confine"))
    }

    /// Turns recording on or off.
    pub(super) fn record(&self, on: bool) -> Result<()> {
        let text = if on { "1" } else { "0" };
        self.folder
            .write("tracing_on", text)
            .map_err(cannot("start"))
    }

    /// Calls `each` with the events recorded since the last call. Returns whether there were any, and if some
    /// were left for the next call: all events before this time were read.
    pub(super) fn read(&mut self, mut each: impl FnMut(Raw<'_>)) -> Result<(bool, Option<u64>)> {
        let mut page = vec![0; self.page_bytes];
        let (mut any, mut up_to_ns) = (false, None::<u64>);
        for (_, file) in &mut self.processors {
            let mut last_ns = 0;
            let mut pages = 0;
            loop {
                if pages == MAX_PAGES_AT_ONCE {
                    up_to_ns = Some(up_to_ns.map_or(last_ns, |known| known.min(last_ns)));
                    break;
                }
                let len = match file.read(&mut page) {
                    Ok(0) => break,
                    Ok(len) => len,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(cannot("read")(error)),
                };
                pages += 1;
                any = true;
                records(&page[..len], |at_ns, bytes| {
                    last_ns = at_ns;
                    let id = bytes.first_chunk().map(|id| u16::from_ne_bytes(*id));
                    if let Some((point, format)) = id.and_then(|id| self.formats.get(&id)) {
                        each(Raw {
                            point,
                            at_ns,
                            format,
                            bytes,
                        });
                    }
                });
            }
        }
        Ok((any, up_to_ns))
    }

    /// Events dropped because the buffers were full.
    pub(super) fn lost(&self) -> u64 {
        let each = self.processors.iter().map(|(name, _)| {
            let stats = format!("per_cpu/{name}/stats");
            lost_of(&self.folder.read(&stats).unwrap_or_default())
        });
        each.sum()
    }
}

/// The number of events lost, from a processor's statistics.
fn lost_of(stats: &str) -> u64 {
    let mut lost = 0u64;
    for line in stats.lines() {
        if let Some((name, count)) = line.split_once(':')
            && matches!(name.trim(), "overrun" | "commit overrun" | "dropped events")
        {
            lost = lost.saturating_add(count.trim().parse().unwrap_or(0));
        }
    }
    lost
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.folder.write("tracing_on", "0");
        // It cannot be removed while its files are open.
        self.processors.clear();
        let _ = self.instances.remove(&self.name);
    }
}

/// Removes the instances of processes that no longer exist.
pub(super) fn remove_left_over(root: &Folder) {
    let Ok(instances) = root.folder("instances") else {
        return;
    };
    for name in instances.names().unwrap_or_default() {
        let mut parts = name.split('-');
        let is_ours = parts.next() == Some(PREFIX);
        let pid = parts.next().and_then(|pid| pid.parse::<u32>().ok());
        let is_dead = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
        if pid.is_some_and(|pid| is_ours && (pid == std::process::id() || is_dead(pid))) {
            // An instance in use from another PID namespace stays: the kernel refuses to remove it.
            let _ = instances.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_summed() {
        let stats = "entries: 3\noverrun: 5\ncommit overrun: 1\nbytes: 9\ndropped events: 7\n\
            read events: 2\n";
        assert_eq!(lost_of(stats), 13);
        assert_eq!(lost_of("overrun: many"), 0);
    }
}
