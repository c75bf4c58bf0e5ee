//! How a server ends: by a signal, or with the one who guards it.
//!
//! The mount is taken away, the requests under way come to their end, and the image is closed, which may take its time. Where none of
//! that gets on, because the device below does not answer or a request is caught in a bug, the process ends all the same, and the
//! image is as after a crash: what was said to be durable is there.
//!
//! Invariant: a server that was asked to end is gone when its device has had nothing to answer for [`PATIENCE`].

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use throughline::Volume;
use throughline_fuse::Ending;

use super::trouble::EXIT_FAILED;

/// How long nothing may happen before the process ends as it is.
const PATIENCE: Duration = Duration::from_secs(4);
/// After this those who use the mount are not waited for any more.
const CUT_AFTER: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(100);
/// Where the log cannot be written either.
const LOG_PATIENCE: Duration = Duration::from_millis(500);
/// So many answers of the device in [`PATIENCE`] are work. Fewer may be a thread's that says at intervals that the volume is in use,
/// where no others are waited for.
const WORK: u64 = 8;

/// The end of this server, for all who may ask for it.
#[derive(Clone, Default)]
pub(super) struct End {
    mount: Arc<OnceLock<Mount>>,
    asked: Arc<OnceLock<()>>,
}

/// What there is to end.
struct Mount {
    ending: Ending,
    device: Device,
}

impl End {
    /// From now on signals ask for the end.
    pub(super) fn at_signals() -> io::Result<End> {
        let signals = Signals::arm()?;
        let end = End::default();
        let asked = end.clone();
        thread::spawn(move || {
            while let Ok(signal) = signals.wait() {
                tracing::info!(signal, "unmounting");
                asked.ask();
            }
        });
        Ok(end)
    }

    /// The end of whoever started this process asks for it, too.
    pub(super) fn with_guard(&self) {
        let end = self.clone();
        thread::spawn(move || {
            // Nobody writes to it.
            let _ = io::stdin().lock().read_to_end(&mut Vec::new());
            end.ask();
        });
    }

    /// There is something to end. What asked for it before is heard now.
    pub(super) fn mounted(&self, ending: Ending, device: Device) {
        let _ = self.mount.set(Mount { ending, device });
        if self.asked.get().is_some() {
            self.unmount();
        }
    }

    /// Ends the mount; who asks again only has it tried again, as closing an image may take its time.
    pub(super) fn ask(&self) {
        if self.asked.set(()).is_ok() {
            let end = self.clone();
            thread::spawn(move || end.watch());
        }
        self.unmount();
    }

    /// It may wait for the server, and so is done on a thread of its own.
    fn unmount(&self) {
        let end = self.clone();
        thread::spawn(move || {
            if let Some(Err(error)) = end.mount.get().map(|mount| mount.ending.end()) {
                tracing::error!(%error, "unmounting");
            }
        });
    }

    /// Sees to it that the process ends when nothing gets on any more.
    fn watch(&self) {
        let mut last = (Instant::now(), self.answered());
        let mut cut = false;
        loop {
            thread::sleep(LOOK);
            let still = last.0.elapsed();
            if still >= PATIENCE {
                leave();
            }
            let (answered, in_flight) = self.answered();
            let new = answered.saturating_sub(last.1.0);
            if new >= WORK || new > 0 && in_flight > 0 {
                last = (Instant::now(), (answered, in_flight));
            } else if still >= CUT_AFTER && !cut {
                cut = true;
                let end = self.clone();
                thread::spawn(move || end.cut());
            }
        }
    }

    fn cut(&self) {
        if let Some(Err(error)) = self.mount.get().map(|mount| mount.ending.cut()) {
            tracing::error!(%error, "unmounting");
        }
    }

    fn answered(&self) -> (u64, u64) {
        self.mount
            .get()
            .map_or((0, 0), |mount| (mount.device.answered)())
    }
}

/// The process ends, and closes nothing.
fn leave() {
    let (told, wait) = mpsc::channel();
    thread::spawn(move || {
        tracing::error!(
            "the device does not answer, or a request does not end: the image is not closed, and is as after a crash"
        );
        let _ = told.send(());
    });
    let _ = wait.recv_timeout(LOG_PATIENCE);
    low_level::exit(EXIT_FAILED.into());
}

/// What the device below a volume has answered. It does not keep the volume open.
pub(super) struct Device {
    answered: Box<dyn Fn() -> (u64, u64) + Send + Sync>,
}

impl Device {
    pub(super) fn of(volume: &Volume) -> Device {
        let disk = Arc::downgrade(volume.disk());
        let answered = move || {
            let disk = disk.upgrade();
            disk.map_or((0, 0), |disk| (disk.answered(), disk.in_flight()))
        };
        Device {
            answered: Box::new(answered),
        }
    }
}

/// The signals that end a server, one after the other.
pub(super) struct Signals {
    woken: UnixStream,
    last: Arc<AtomicUsize>,
}

impl Signals {
    /// From now on they end nothing by themselves.
    pub(super) fn arm() -> io::Result<Signals> {
        let (woken, wake) = UnixStream::pair()?;
        let last = Arc::new(AtomicUsize::new(SIGTERM as usize));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: who is woken finds it noted.
            flag::register_usize(signal, Arc::clone(&last), signal as usize)?;
            low_level::pipe::register(signal, wake.try_clone()?)?;
        }
        Ok(Signals { woken, last })
    }

    /// Waits for the next one.
    pub(super) fn wait(&self) -> io::Result<i32> {
        let mut byte = [0];
        (&self.woken).read_exact(&mut byte)?;
        Ok(self.last.load(Ordering::Relaxed) as i32)
    }
}
