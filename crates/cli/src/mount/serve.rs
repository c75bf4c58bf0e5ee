//! The process that serves a mount: checks, opens, mounts, answers, closes.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};
use throughline::{Error, Reason, Volume};
use throughline_fuse::{Ending, Session, mounts};

use super::start::{self, Role};
use super::trouble::{self, EXIT_FAILED, EXIT_SYSTEM, Trouble};
use super::{Plan, keeper, point};
use crate::commands::replay::parts;
use crate::output::note;
use crate::problem::Problem;
use crate::text::quote;

/// What a server calls itself while it closes its image: so the one who says who has an image says that too.
const CLOSING_NAME: &str = "throughline-end";
/// An image that nobody has mounted and somebody holds may be that of a server that was just unmounted, and has not called itself so
/// yet.
const UNMOUNTED_WAIT: Duration = Duration::from_secs(10);
/// All that was written may have to go to the disk yet.
const CLOSING_WAIT: Duration = Duration::from_secs(600);
const CLOSING_LOOK: Duration = Duration::from_millis(50);

/// Serves a mount until it is unmounted or a signal comes.
pub(super) fn serve(plan: &Plan, role: Role) -> Result<(), Trouble> {
    start::settle(role);
    let dir = point::check(&plan.dir).map_err(|failure| Trouble::Failed(EXIT_FAILED, failure))?;
    let signals = Signals::arm().map_err(|error| {
        Trouble::Failed(
            EXIT_SYSTEM,
            Problem::from(error).met("cannot watch for signals"),
        )
    })?;
    trouble::look_ahead(&plan.options).map_err(|failure| Trouble::Failed(EXIT_FAILED, failure))?;
    let volume = open(plan)?;
    let watched = plan
        .watched
        .clone()
        .map(|watched| (watched, volume.clone()));
    if let Some((watched, volume)) = &watched {
        watched.opened(volume);
    }
    let session = Session::mount(volume, &shown(&plan.image), &dir, &plan.options)
        .map_err(|error| Trouble::Failed(EXIT_FAILED, trouble::mounting(&plan.dir, error)))?;
    let ending = Ending::of(&dir).map_err(|error| {
        let failure = Problem::from(error).met(format!("cannot find the mount at {}", quote(&dir)));
        Trouble::Failed(EXIT_SYSTEM, failure)
    })?;
    // Held until this process ends, whichever way.
    let _keeper = match plan.options.auto_unmount {
        true => Some(keeper::start(&ending).map_err(|error| {
            let failure = Problem::from(error).met("cannot start what unmounts after the server");
            Trouble::Failed(EXIT_SYSTEM, failure)
        })?),
        false => None,
    };
    watch(signals, ending.clone());
    if role == Role::Guarded {
        watch_guard(ending);
    }
    let answers = dir.clone();
    let quiet = plan.quiet;
    // It is not joined: where nobody answers, it waits, and ends with the process.
    thread::spawn(move || announce(&answers, role, quiet));
    tracing::info!(image = %plan.image.display(), point = %dir.display(), "mounted");
    let served = session.run_and(|| {
        // Where it cannot, whoever mounts the image next waits less long for it.
        let _ = std::fs::write("/proc/self/comm", CLOSING_NAME);
        if let Some((watched, volume)) = watched {
            watched.closing(&volume);
        }
    });
    tracing::info!(point = %dir.display(), "unmounted");
    served.map_err(|error| {
        tracing::error!(%error, "the image was not closed well");
        Trouble::Failed(EXIT_FAILED, trouble::serving(&plan.image, error))
    })
}

/// Opens the image. One that a server is just closing is waited for.
fn open(plan: &Plan) -> Result<Volume, Trouble> {
    let failed = |problem: Problem| {
        let failure = problem.met(format!("cannot open {}", quote(&plan.image)));
        Trouble::Failed(EXIT_FAILED, failure)
    };
    let found = std::fs::metadata(&plan.image).map_err(|error| failed(error.into()))?;
    if found.is_dir() {
        return Err(failed(
            Problem::new("Is a directory").with_next("name an image file or a block device"),
        ));
    }
    let since = Instant::now();
    let volume = loop {
        match plan.open.open(&plan.image) {
            Err(Error::Caller(Reason::Busy(by)))
                if since.elapsed() < closing_wait(&by) && !is_mounted(&plan.image) =>
            {
                thread::sleep(CLOSING_LOOK);
            }
            Err(error) => return Err(failed(trouble::opening(plan, error))),
            Ok(volume) => break volume,
        }
    };
    let mended = parts(volume.recovery());
    if !mended.is_empty() && !plan.quiet {
        note(&format!(
            "{} was not closed the last time: {}",
            quote(&plan.image),
            mended.join("; ")
        ));
    }
    Ok(volume)
}

/// How long an image is waited for that somebody holds.
fn closing_wait(by: &str) -> Duration {
    if by.contains(CLOSING_NAME) {
        CLOSING_WAIT
    } else {
        UNMOUNTED_WAIT
    }
}

/// The image is the source of a mount that this process sees.
fn is_mounted(image: &Path) -> bool {
    let shown = shown(image);
    mounts::all().is_ok_and(|all| {
        let mut fuse = all.iter().filter(|mount| mount.is_fuse());
        fuse.any(|mount| mount.source == shown.as_os_str())
    })
}

/// What the list of mounts shows as the image: its absolute path, where it has one.
fn shown(image: &Path) -> std::path::PathBuf {
    let path = std::fs::canonicalize(image).unwrap_or_else(|_| image.to_owned());
    // A descriptor's file that was removed has none.
    if path.exists() {
        path
    } else {
        image.to_owned()
    }
}

/// Says that the mount answers, once it does.
fn announce(dir: &Path, role: Role, quiet: bool) {
    if let Err(error) = point::ask(dir) {
        tracing::warn!(%error, "looking at the mount");
    }
    if let Err(error) = start::let_go(role) {
        tracing::warn!(%error, "leaving the terminal");
    }
    if role == Role::Foreground && !quiet {
        tracing::info!(point = %dir.display(), "the mount answers");
    }
}

/// Ends the mount at the first signal, and tries again at the next ones.
fn watch(signals: Signals, ending: Ending) {
    thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            tracing::info!(signal, "unmounting");
            end(&ending);
        }
    });
}

/// Ends the mount when the one who started us has gone.
fn watch_guard(ending: Ending) {
    thread::spawn(move || {
        // Nobody writes to it.
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        end(&ending);
    });
}

fn end(ending: &Ending) {
    if let Err(error) = ending.end() {
        tracing::error!(%error, "unmounting");
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
