//! How a server ends: after a signal, or when its guard requests it or exits.
//!
//! The mount is removed, the requests in progress complete, and the image is closed. This may take long, and
//! continues as long as the device completes requests. If the device does not respond, or a request does not
//! complete because of a bug, the process exits anyway. The image is then as after a crash: data that was
//! reported as durable is there. A second request to end has the same effect at once.
//!
//! If the mount cannot be removed, or programs use it and cannot be disconnected, the server closes the image
//! all the same, [`CUT_AFTER`] after the request, and exits. From then on, the programs get errors.
//!
//! Invariants:
//! - After a request to end, the server exits if its device completes nothing for [`PATIENCE`], or for
//!   [`FLUSH_PATIENCE`] while a flush or durable write is in flight.
//! - If the process exits without closing the image, it first makes all later requests to the device fail:
//!   nothing is written afterwards.
//! - The threads for this are started with the server, because a limit on processes may refuse them later.

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use throughline::Volume;
use throughline::internal::{Disk, VolumeLayers};
use throughline_fuse::{Ending, StillOpen};

use super::trouble::EXIT_FAILED;

/// If nothing completes for this long, the process exits without closing the image.
const PATIENCE: Duration = Duration::from_secs(4);
/// The same while a flush or durable write is in flight. This is a single request, however much the device
/// has to write. The value is the kernel's timeout of a disk command (30 s for SCSI and NVMe).
const FLUSH_PATIENCE: Duration = Duration::from_secs(30);
/// A signal later than this after the first is a second request. An earlier one is the same request,
/// delivered twice: timeout(1) sends a signal to the process and to its group, systemd to all processes of a
/// service.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// After this, the connection is aborted even if the mount could not be unmounted; if it cannot be aborted,
/// the image is closed all the same.
const CUT_AFTER: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(100);
/// Between attempts to unmount.
const PAUSE: Duration = Duration::from_millis(500);
/// Time limit for each last step before the process exits without closing the image.
const LAST_PATIENCE: Duration = Duration::from_millis(500);
/// If nothing is in flight, this many completions within [`PATIENCE`] count as progress of the device. Fewer
/// may come from the thread that periodically marks the volume as in use (MMP).
const WORK: u64 = 8;

/// Ends this server. Clones share one state.
#[derive(Clone)]
pub(super) struct End {
    mount: Arc<OnceLock<Mount>>,
    asked: Arc<OnceLock<()>>,
    /// Wakes the thread that unmounts.
    unmounts: Sender<()>,
    /// Wakes the thread that watches the progress.
    watches: Sender<()>,
}

/// What to end.
struct Mount {
    ending: Ending,
    device: Device,
    open: StillOpen,
    /// An attempt to unmount, and a sync after it, have returned.
    is_tried: AtomicBool,
    is_removed: AtomicBool,
}

impl End {
    /// Arms the signals: from now on, they request the end of the server.
    ///
    /// # Errors
    /// The system's, if it refuses a thread.
    pub(super) fn at_signals() -> io::Result<End> {
        let mut signals = signals()?;
        let (unmounts, unmount_requests) = mpsc::channel();
        let (watches, watch_requests) = mpsc::channel();
        let end = End {
            mount: Arc::default(),
            asked: Arc::default(),
            unmounts,
            watches,
        };
        // On a thread of its own, because it may wait for the server.
        end.start("end-unmount", move |end| end.unmount_at(unmount_requests))?;
        end.start("end-watch", move |end| {
            if watch_requests.recv().is_ok() {
                end.watch();
            }
        })?;
        end.start("end-signals", move |end| {
            let mut requests = Requests::default();
            for signal in signals.forever() {
                tracing::info!(signal, "unmounting");
                match requests.next(signal) {
                    Request::End => end.ask(),
                    Request::EndNow => end.now(),
                }
            }
        })?;
        Ok(end)
    }

    /// The guard, which started this process, requests the end by a byte ([`Request`]) or by exiting.
    ///
    /// # Errors
    /// The system's, if it refuses a thread.
    pub(super) fn with_guard(&self) -> io::Result<()> {
        self.start("end-guard", |end| {
            let mut byte = [0];
            while io::stdin().lock().read_exact(&mut byte).is_ok() {
                match byte == [Request::EndNow as u8] {
                    true => end.now(),
                    false => end.ask(),
                }
            }
            end.ask();
        })
    }

    /// Starts a thread, which nobody joins.
    fn start(&self, name: &str, work: impl FnOnce(End) + Send + 'static) -> io::Result<()> {
        let end = self.clone();
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || work(end)).map(drop)
    }

    /// Ends the process at once.
    fn now(&self) {
        self.leave(
            "requested to end a second time: the image is not closed, and is left as after a crash",
        );
    }

    /// Requests the end because no other process can reach the mount.
    pub(super) fn desert(&self) {
        tracing::warn!("no process is left in the mount's namespace: unmounting");
        self.ask();
    }

    /// Ends the process because a request of an untrusted image takes too long.
    pub(super) fn overrun(&self) {
        self.leave("a request takes longer than an untrusted image may make it: the mount ends");
    }

    /// Registers the mount. An earlier request to end takes effect now.
    pub(super) fn mounted(&self, ending: Ending, device: Device, open: StillOpen) {
        let _ = self.mount.set(Mount {
            ending,
            device,
            open,
            is_tried: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
        });
        if self.asked.get().is_some() {
            self.unmount();
        }
    }

    /// Requests the end. Further calls only retry the unmount, because closing an image may take long.
    pub(super) fn ask(&self) {
        if self.asked.set(()).is_ok() {
            let _ = self.watches.send(());
        }
        self.unmount();
    }

    fn unmount(&self) {
        let _ = self.unmounts.send(());
    }

    /// Unmounts at each of these requests, and writes everything to the device: the image may have to be
    /// closed with the mount in use.
    fn unmount_at(&self, requests: Receiver<()>) {
        for () in requests {
            let Some(mount) = self.mount.get() else {
                continue;
            };
            let mut ended = mount.ending.end();
            if let Err(error) = &ended {
                tracing::error!(%error, "cannot unmount");
            }
            if let Some(Err(error)) = mount.open.sync() {
                tracing::error!(%error, "cannot write back");
            }
            mount.is_removed.store(ended.is_ok(), Ordering::SeqCst);
            mount.is_tried.store(true, Ordering::SeqCst);
            while ended.is_err() {
                thread::sleep(PAUSE);
                ended = mount.ending.end();
            }
            mount.is_removed.store(true, Ordering::SeqCst);
        }
    }

    /// Ends the process once it makes no more progress.
    fn watch(&self) {
        let mut progress = Progress::new(Instant::now(), self.device());
        let asked = Instant::now();
        let (mut is_cut, mut is_closing) = (false, false);
        loop {
            thread::sleep(LOOK);
            let look = progress.look(Instant::now(), self.device());
            if look == Look::Hung {
                self.leave(
                    "the device does not respond, or a request does not complete: the image is not closed, \
                     and is left as after a crash",
                );
            }
            let is_slow = look == Look::Slow && !self.waits_for_volume();
            if is_slow && !is_cut {
                is_cut = true;
                self.start_or_run("end-cut", End::cut);
            }
            // Programs that still use the mount may make requests of the device for as long as they like;
            // what unmounts may not respond.
            let is_over = asked.elapsed() >= CUT_AFTER && self.has_tried_to_unmount();
            if (is_slow || is_over) && !is_closing {
                is_closing = true;
                self.start_or_run("end-close", End::close);
            }
        }
    }

    /// Does what may wait for the server or the device on a thread of its own, or here if the system refuses
    /// one.
    fn start_or_run(&self, name: &str, work: fn(&End)) {
        if self.start(name, move |end| work(&end)).is_err() {
            work(self);
        }
    }

    /// Closes the image although programs may still use the mount, and ends the process. Does nothing if the
    /// mount has ended: the image is then being closed.
    fn close(&self) {
        let Some(mount) = self.mount.get() else {
            return;
        };
        let Some(closed) = mount.open.close() else {
            return;
        };
        let is_removed = mount.is_removed.load(Ordering::SeqCst);
        match &closed {
            Err(error) => tracing::error!(%error, "the image was not closed cleanly"),
            Ok(()) if is_removed => {
                tracing::warn!("the image is closed: programs that use the mount get errors")
            }
            Ok(()) => tracing::error!("the image is closed, but the mount cannot be removed"),
        }
        self.exit(match closed.is_ok() && is_removed {
            true => 0,
            false => EXIT_FAILED,
        });
    }

    fn has_tried_to_unmount(&self) -> bool {
        let mount = self.mount.get();
        mount.is_some_and(|mount| mount.is_tried.load(Ordering::SeqCst))
    }

    fn cut(&self) {
        if let Some(Err(error)) = self.mount.get().map(|mount| mount.ending.cut()) {
            tracing::error!(%error, "cannot abort the connection");
        }
    }

    /// Whether the mount must stay until nothing more is written.
    fn waits_for_volume(&self) -> bool {
        let mount = self.mount.get();
        mount.is_some_and(|mount| mount.ending.waits_for_volume())
    }

    fn device(&self) -> Seen {
        let mount = self.mount.get();
        mount.map_or_else(Seen::default, |mount| mount.device.seen())
    }

    /// Ends the process without closing the image.
    fn leave(&self, why: &'static str) {
        patiently(move || tracing::error!("{why}"));
        let end = self.clone();
        patiently(move || {
            if let Some(mount) = end.mount.get() {
                mount.device.cut();
            }
        });
        self.exit(EXIT_FAILED);
    }

    /// Ends the process. Aborts the connection first: a thread of this process that waits for its own mount
    /// would prevent that.
    fn exit(&self, code: u8) {
        let end = self.clone();
        patiently(move || {
            // An error was logged at the first attempt.
            let _ = end.mount.get().map(|mount| mount.ending.cut());
        });
        low_level::exit(code.into());
    }
}

/// Catches the signals that end a server. From now on, they have no other effect.
pub(super) fn signals() -> io::Result<Signals> {
    Signals::new([SIGINT, SIGTERM, SIGHUP])
}

/// Runs `work`, which may hang, for at most [`LAST_PATIENCE`]; without a limit if no thread can be started.
fn patiently(work: impl FnOnce() + Clone + Send + 'static) {
    let (sender, wait) = mpsc::channel();
    let here = work.clone();
    let started = thread::Builder::new().spawn(move || {
        work();
        let _ = sender.send(());
    });
    match started {
        Ok(_) => drop(wait.recv_timeout(LAST_PATIENCE)),
        Err(_) => here(),
    }
}

/// A request to a server; the value is its byte on the pipe from the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Request {
    /// Unmount and close the image.
    End = b'e',
    /// Exit at once, without closing the image.
    EndNow = b'n',
}

/// Decides whether a signal is the first or a second request to end.
#[derive(Default)]
pub(super) struct Requests {
    first: Option<Instant>,
}

impl Requests {
    /// The request that a signal means if it arrives now.
    pub(super) fn next(&mut self, signal: i32) -> Request {
        self.next_at(Instant::now(), signal)
    }

    /// SIGHUP is never a second request: a terminal that is closed sends it after other signals.
    fn next_at(&mut self, now: Instant, signal: i32) -> Request {
        let first = *self.first.get_or_insert(now);
        match signal != SIGHUP && now.saturating_duration_since(first) >= AGAIN_AFTER {
            true => Request::EndNow,
            false => Request::End,
        }
    }
}

/// The state of a device at one moment.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// The number of completed requests.
    answered: u64,
    in_flight: u64,
    /// Whether a flush or another request that may take long is in flight.
    is_lengthy: bool,
}

/// The result of a check of the progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    On,
    /// Nothing has completed for [`CUT_AFTER`].
    Slow,
    /// Nothing has completed for so long that the device counts as hung.
    Hung,
}

/// The progress of a device.
struct Progress {
    since: Instant,
    answered: u64,
}

impl Progress {
    fn new(now: Instant, seen: Seen) -> Progress {
        Progress {
            since: now,
            answered: seen.answered,
        }
    }

    fn look(&mut self, now: Instant, seen: Seen) -> Look {
        let new = seen.answered.saturating_sub(self.answered);
        if new >= WORK || new > 0 && seen.in_flight > 0 {
            *self = Progress::new(now, seen);
            return Look::On;
        }
        let still = now.saturating_duration_since(self.since);
        let patience = if seen.is_lengthy {
            FLUSH_PATIENCE
        } else {
            PATIENCE
        };
        match still {
            _ if still >= patience => Look::Hung,
            _ if still >= CUT_AFTER => Look::Slow,
            _ => Look::On,
        }
    }
}

/// The device below a volume. Does not keep the volume open.
pub(super) struct Device(Weak<Disk>);

impl Device {
    pub(super) fn of(volume: &Volume) -> Device {
        Device(Arc::downgrade(volume.disk()))
    }

    fn seen(&self) -> Seen {
        self.0.upgrade().map_or_else(Seen::default, |disk| Seen {
            answered: disk.answered(),
            in_flight: disk.in_flight(),
            is_lengthy: disk.lengthy() > 0,
        })
    }

    /// Makes all later requests fail. Returns when those in flight have completed.
    fn cut(&self) {
        if let Some(disk) = self.0.upgrade() {
            disk.cut();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(answered: u64, in_flight: u64, is_lengthy: bool) -> Seen {
        Seen {
            answered,
            in_flight,
            is_lengthy,
        }
    }

    #[test]
    fn a_device_that_completes_requests_is_waited_for() {
        let begun = Instant::now();
        let mut progress = Progress::new(begun, seen(0, 1, false));
        for second in 1..1000 {
            let now = begun + Duration::from_secs(3 * second);
            assert_eq!(progress.look(now, seen(second, 1, false)), Look::On);
        }
        // A single completion with nothing in flight is not progress.
        let last = begun + Duration::from_secs(3 * 999);
        assert_eq!(
            progress.look(last + PATIENCE, seen(1000, 0, false)),
            Look::Hung
        );
    }

    #[test]
    fn a_flush_may_take_long() {
        let begun = Instant::now();
        let mut progress = Progress::new(begun, seen(7, 1, true));
        assert_eq!(progress.look(begun, seen(7, 1, true)), Look::On);
        for after in [CUT_AFTER, PATIENCE, FLUSH_PATIENCE - LOOK] {
            assert_eq!(progress.look(begun + after, seen(7, 1, true)), Look::Slow);
        }
        assert_eq!(
            progress.look(begun + PATIENCE, seen(7, 1, false)),
            Look::Hung
        );
        assert_eq!(
            progress.look(begun + FLUSH_PATIENCE, seen(7, 1, true)),
            Look::Hung
        );
        assert_eq!(
            progress.look(begun + FLUSH_PATIENCE, seen(8, 1, true)),
            Look::On
        );
    }

    #[test]
    fn a_second_request_is_distinguished_from_a_duplicate_signal() {
        let begun = Instant::now();
        let mut requests = Requests::default();
        assert_eq!(requests.next_at(begun, SIGTERM), Request::End);
        let soon = begun + AGAIN_AFTER / 2;
        assert_eq!(requests.next_at(soon, SIGTERM), Request::End);
        let later = begun + AGAIN_AFTER;
        assert_eq!(requests.next_at(later, SIGHUP), Request::End);
        assert_eq!(requests.next_at(later, SIGINT), Request::EndNow);
    }
}
