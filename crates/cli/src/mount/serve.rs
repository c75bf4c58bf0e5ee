//! The process that serves a mount: checks, opens, mounts, serves requests and closes.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use throughline::internal::{OpenImages, shorten_slice};
use throughline::{Error, NewSize, Reason, Volume};
use throughline_explain::ours::Watched;
use throughline_fuse::options::MountOptions;
use throughline_fuse::{Claim, Ending, Outside, Session, mounts};
use throughline_sandbox::Prepared;

use super::end::{Device, End};
use super::keeper::{Duties, Keeper, Said};
use super::start::{self, Role};
use super::trouble::{self, EXIT_FAILED, Trouble, no_thread, system};
use super::{Plan, point, sandbox};
use crate::arguments;
use crate::commands::replay::parts;
use crate::commands::resize;
use crate::images::note_holder;
use crate::objects::{self, Identity};
use crate::output::note;
use crate::problem::Problem;
use crate::text::quote;

/// Process name of a server while it closes its image, so that messages about a busy image show that it is
/// being closed.
const CLOSING_NAME: &str = "throughline-end";
/// How long to wait for a busy image that is not mounted: its server may have just been unmounted, and may
/// not have changed its name yet.
const UNMOUNTED_WAIT: Duration = Duration::from_secs(10);
/// How long to wait for a server that is closing: all dirty data may still have to be written back.
const CLOSING_WAIT: Duration = Duration::from_secs(600);
const CLOSING_LOOK: Duration = Duration::from_millis(50);
/// How long a request of an untrusted image may take: twice as long as the kernel waits for a disk.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);

/// Serves a mount until it is unmounted or a signal arrives.
pub(super) fn serve(plan: &Plan, role: Role) -> Result<(), Trouble> {
    start::start_session(role);
    // For all threads that are started from now on: they answer soon, also beside threads that compute.
    shorten_slice();
    let dir = point::check(&plan.dir).map_err(|failure| Trouble::Failed(EXIT_FAILED, failure))?;
    let end = End::at_signals().map_err(no_thread)?;
    if role == Role::Guarded {
        end.with_guard().map_err(no_thread)?;
    }
    trouble::check_beforehand(&plan.options)
        .map_err(|failure| Trouble::Failed(EXIT_FAILED, failure))?;
    let image = start::image(plan);
    if plan.options.resize {
        grow(plan, &image)?;
    }
    if sandbox::is_remote(plan) {
        // Credentials of the store are in its memory.
        arguments::keep_from_cores();
    }
    // Opened before the sandbox forbids it. Not /proc/self/comm: root owns that of a process without cores.
    let comm = format!("/proc/self/task/{}/comm", std::process::id());
    let name = std::fs::File::options().write(true).open(comm);
    let keeper = start_keeper(plan, role, &image, &dir, &end)?;
    let sandbox = sandbox::prepare(plan);
    let (session, device, watched) = begin(plan, &image, &dir)?;
    let ending = keep(keeper, &session, &dir)?;
    let left = start::leave_input(role, &image);
    let contained = left.and_then(|()| contain(plan, &session, sandbox, &end));
    contained.inspect_err(|_| {
        if let Err(error) = ending.clean_up() {
            tracing::error!(%error, "cannot unmount");
        }
    })?;
    end.mounted(ending.clone(), device, session.still_open());
    if role == Role::Background {
        // Not joined: if the mount never answers, the thread lasts until the process exits.
        let announcer = thread::Builder::new().name("announce".to_owned());
        announcer.spawn(announce).map_err(no_thread)?;
    }
    tracing::info!(image = %objects::shown(&plan.image).display(), point = %dir.display(), "mounted");
    let served = session.run_and(|| {
        // If this fails, the next mount of the image only waits for a shorter time.
        let _ = name.and_then(|mut name| name.write_all(CLOSING_NAME.as_bytes()));
        if let Some((watched, volume)) = watched {
            watched.closing(&volume);
        }
    });
    tracing::info!(point = %dir.display(), "unmounted");
    served.map_err(|error| {
        tracing::error!(%error, "the image was not closed cleanly");
        // The mount may still be there, without a server.
        if let Err(error) = ending.clean_up() {
            tracing::error!(%error, "cannot unmount");
        }
        Trouble::Failed(
            EXIT_FAILED,
            trouble::serving(&objects::shown(&plan.image), error),
        )
    })
}

/// Gives up rights and, for an untrusted image, bounds what its requests take.
fn contain(
    plan: &Plan,
    session: &Session,
    sandbox: Option<Prepared>,
    end: &End,
) -> Result<(), Trouble> {
    sandbox::drop_rights(plan, session, sandbox)?;
    if plan.options.untrusted {
        let end = end.clone();
        let bounded = session.bound_requests(REQUEST_LIMIT, move || end.overrun());
        bounded.map_err(system("cannot bound the time of requests"))?;
    }
    Ok(())
}

/// What tells of a mount that is explained.
type Explained = Option<(Arc<Watched>, Volume)>;

/// Opens the image by its path in this process, and mounts it.
fn begin(plan: &Plan, image: &Path, dir: &Path) -> Result<(Session, Device, Explained), Trouble> {
    let claim = claim(plan, image, dir);
    let mut options = plan.options.clone();
    let volume = open(plan, image, &mut options, claim.is_some())?;
    let watched = plan
        .watched
        .clone()
        .map(|watched| (watched, volume.clone()));
    if let Some((watched, volume)) = &watched {
        watched.opened(volume);
    }
    let device = Device::of(&volume);
    let source = shown(image);
    let session = match claim {
        Some(claim) => Session::of_claim(volume, claim, &source, &options),
        None => Session::mount(volume, &source, dir, &options),
    }
    .map_err(|error| Trouble::Failed(EXIT_FAILED, trouble::mounting(&plan.dir, error)))?;
    Ok((session, device, watched))
}

/// Starts the process that does for this one what it may not do, before there is a connection.
fn start_keeper(
    plan: &Plan,
    role: Role,
    image: &Path,
    dir: &Path,
    end: &End,
) -> Result<Keeper, Trouble> {
    let duties = Duties {
        clean_up: plan.options.auto_unmount,
        ask: role == Role::Foreground && !plan.quiet,
        watch: role == Role::Background,
    };
    start::keep_from_children(image);
    let (end, point) = (end.clone(), dir.to_owned());
    let said = move |said| match said {
        Said::Deserted => end.desert(),
        Said::Answers => tracing::info!(point = %point.display(), "the mount is ready"),
    };
    let started = Keeper::start(dir, duties, said);
    started.map_err(system("cannot start the process that unmounts"))
}

/// Leaves the mount to the keeper. Returns how it ends.
fn keep(keeper: Keeper, session: &Session, dir: &Path) -> Result<Ending, Trouble> {
    let found = session.ending(dir).and_then(|ending| {
        keeper.mounted(&ending)?;
        Ok(ending)
    });
    let ending = found.map_err(system(format!("cannot find the mount at {}", quote(dir))))?;
    let keeper: Arc<dyn Outside> = Arc::new(keeper);
    session.set_outside(Arc::clone(&keeper));
    Ok(ending.through(keeper))
}

/// Grows the volume to the size of its device or file.
fn grow(plan: &Plan, image: &Path) -> Result<(), Trouble> {
    let done = plan.open.resize(image, NewSize::Max).map_err(|error| {
        let failure = resize::problem(error).met(format!(
            "cannot grow {}",
            quote(objects::shown(&plan.image))
        ));
        Trouble::Failed(EXIT_FAILED, failure)
    })?;
    if done.size.blocks != done.size.blocks_before {
        let (before, now) = (done.size.blocks_before, done.size.blocks);
        tracing::info!(before, now, "the volume has grown");
    }
    Ok(())
}

/// Mounts a block device before opening it, if possible. If it cannot be opened, the later open reports the
/// reason.
fn claim(plan: &Plan, image: &Path, dir: &Path) -> Option<Claim> {
    // What lies below the mount could not be opened after it.
    let named = plan.options.journal.iter().chain(&plan.options.overlay);
    let mut opened = named.chain(&plan.options.backing).map(PathBuf::as_path);
    let is_below = |path: &Path| shown(path).starts_with(dir);
    if !Claim::is_for(image, &plan.options) || is_below(image) || opened.any(is_below) {
        return None;
    }
    let mut look = plan.open.clone();
    look.write(false).no_replay(true).beside_writer(true);
    let volume = look.open(image).ok()?;
    let block_bytes = volume.stat_fs().ok()?.block_bytes;
    drop(volume);
    match Claim::mount(&shown(image), dir, block_bytes, &plan.options) {
        Ok(claim) => Some(claim),
        Err(error) => {
            tracing::info!(%error, "the block device is mounted like an image, not as fuseblk");
            None
        }
    }
}

/// Opens the image by its path in this process. Waits if another server is still closing the image. If the
/// image is write-protected, opens it read-only, as mount(8) does, and sets that in `options`.
fn open(
    plan: &Plan,
    image: &Path,
    options: &mut MountOptions,
    is_claimed: bool,
) -> Result<Volume, Trouble> {
    let failed = |problem: Problem| {
        let failure = problem.met(format!(
            "cannot open {}",
            quote(objects::shown(&plan.image))
        ));
        Trouble::Failed(EXIT_FAILED, failure)
    };
    let found = Identity::of(image).map_err(|error| failed(error.into()))?;
    if found.is_dir {
        return Err(failed(
            Problem::new("Is a directory").with_next("name an image file or a block device"),
        ));
    }
    let since = Instant::now();
    let mut how = plan.open.clone();
    how.held_by_mount(is_claimed);
    let mut waits = false;
    let volume = loop {
        match how.open(image) {
            Err(Error::Open { source, .. })
                if source.kind() == ErrorKind::ReadOnlyFilesystem && !options.read_only =>
            {
                options.read_only = true;
                how.write(false);
                if !plan.quiet {
                    let image = quote(objects::shown(&plan.image));
                    note(&format!("{image} is write-protected, mounted read-only"));
                }
            }
            Err(Error::Caller(Reason::Busy(by)))
                if since.elapsed() < closing_wait(&by) && !is_mounted(image, is_claimed) =>
            {
                if !std::mem::replace(&mut waits, true) {
                    tracing::info!(%by, "waiting for the image");
                }
                thread::sleep(CLOSING_LOOK);
            }
            Err(error) => return Err(failed(trouble::opening(plan, image, error))),
            Ok(volume) => break volume,
        }
    };
    if options.read_only && !plan.quiet && !is_claimed {
        note_holder(image);
    }
    let mended = parts(volume.recovery());
    if !mended.is_empty() && !plan.quiet {
        note(&format!(
            "{} was not closed cleanly: {}",
            quote(objects::shown(&plan.image)),
            mended.join("; ")
        ));
    }
    Ok(volume)
}

/// How long to wait for a busy image.
fn closing_wait(by: &str) -> Duration {
    if by.contains(CLOSING_NAME) {
        CLOSING_WAIT
    } else {
        UNMOUNTED_WAIT
    }
}

/// Whether the image is the source of a mount that is visible to this process, besides its own one, which
/// there is if it has claimed the image.
fn is_mounted(image: &Path, is_claimed: bool) -> bool {
    let shown = shown(image);
    mounts::all().is_ok_and(|all| {
        let fuse = all.iter().filter(|mount| mount.is_fuse());
        let of_image = fuse.filter(|mount| mount.source == shown.as_os_str());
        of_image.count() > usize::from(is_claimed)
    })
}

/// The image as the list of mounts and the status show it: by its absolute path if it has one, and without
/// the secrets of a URL.
fn shown(image: &Path) -> PathBuf {
    if objects::is_object(image) {
        return objects::shown(image);
    }
    let path = std::fs::canonicalize(image).unwrap_or_else(|_| image.to_owned());
    // A deleted file that is open as a descriptor has no path.
    if path.exists() {
        path
    } else {
        image.to_owned()
    }
}

/// Reports that the volume is mounted.
fn announce() {
    if let Err(error) = start::report_mounted() {
        tracing::warn!(%error, "cannot detach from the terminal");
    }
}
