//! The server process of [`Mounted`](crate::Mounted): the test's own executable, started again.
//! [`mount_server!`](crate::mount_server) declares its entry point; `Mounted` starts it.
//!
//! The server never outlives its test: its standard input is a pipe without writes. When the pipe closes (the
//! test's process has ended) or its time limit expires, it detaches its mount point and exits.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing_subscriber::filter::LevelFilter;

/// Name of the entry point that [`mount_server!`](crate::mount_server) declares.
pub(crate) const ENTRY: &str = "the_mount_server";
const IMAGE: &str = "THROUGHLINE_SERVE_IMAGE";
const POINT: &str = "THROUGHLINE_SERVE_POINT";
const OPTIONS: &str = "THROUGHLINE_SERVE_OPTIONS";
/// Maximum lifetime of a server; a request without an answer would block its program forever.
const LIFE: Duration = Duration::from_secs(600);
/// The same for long tests.
const LONG_LIFE: Duration = Duration::from_secs(6 * 3600);

/// Declares, in the root of a test crate, the entry point of the process in which [`Mounted`](crate::Mounted)
/// runs the server. The crate must depend on `throughline-fuse` and `throughline-sandbox`.
#[macro_export]
macro_rules! mount_server {
    () => {
        /// Not a test: the server of a mount, in its own process. Does nothing unless started as a server.
        #[test]
        fn the_mount_server() {
            $crate::serve(|image, point, options| {
                let mut mount = throughline_fuse::MountOptions::default();
                mount.add(options).map_err(|error| error.to_string())?;
                let volume = mount.volume_options().open(image);
                let volume = volume.map_err(|error| error.to_string())?;
                let session = throughline_fuse::Session::mount(volume, image, point, &mount);
                let session = session.map_err(|error| error.to_string())?;
                if $crate::in_sandbox() {
                    let mut policy = throughline_sandbox::Policy::server();
                    policy.rings = Some(96);
                    let entered = throughline_sandbox::enter(&policy);
                    assert_eq!(entered.missing(), [""; 0], "the sandbox is incomplete");
                }
                session.run().map_err(|error| error.to_string())
            });
        }
    };
}

/// Whether servers are to enter the sandbox, as those of `throughline mount` do: with
/// `THROUGHLINE_TEST_SANDBOX=1`. Not by default, because a server in it cannot detach the mount of a test
/// that has ended.
pub fn in_sandbox() -> bool {
    std::env::var_os("THROUGHLINE_TEST_SANDBOX").is_some()
}

/// The command that starts the server of a mount: this executable.
pub(crate) fn command(image: &Path, point: &Path, options: &str) -> Command {
    let this = std::env::current_exe().expect("the test's executable");
    let mut command = Command::new(this);
    command
        .args(["--exact", ENTRY, "--nocapture", "--test-threads=1"])
        .env(IMAGE, image)
        .env(POINT, point)
        .env(OPTIONS, crate::transport::with_transport(options));
    command
}

/// If this process was started to serve a mount: serves it with `server` and ends the process, with exit
/// status 0 if `server` returns `Ok`. `server` gets image, mount point and options, and returns after the
/// unmount.
pub fn serve(server: impl FnOnce(&Path, &Path, &str) -> Result<(), String>) {
    let (Some(image), Some(point)) = (std::env::var_os(IMAGE), std::env::var_os(POINT)) else {
        return;
    };
    log();
    let options = std::env::var(OPTIONS).unwrap_or_default();
    let watched = PathBuf::from(&point);
    std::thread::spawn(move || watch(&watched));
    let code = match server(Path::new(&image), Path::new(&point), &options) {
        Ok(()) => 0,
        Err(what) => {
            eprintln!("{what}");
            1
        }
    };
    exit(code);
}

/// Sends the server's warnings and errors to standard error, for [`Mounted::log`](crate::Mounted::log).
fn log() {
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr);
    log.with_max_level(LevelFilter::WARN).init();
}

/// Ends this process when the process that started it ends, or at its time limit.
fn watch(point: &Path) {
    let input = std::io::stdin();
    let soak = throughline_testkit::tier::soak();
    let limit = Timespec::try_from(if soak { LONG_LIFE } else { LIFE }).ok();
    let fd = input.as_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    // A signal restricts this thread, as all others, when the server enters the sandbox.
    let mut polled = poll(&mut fds, limit.as_ref());
    while polled == Err(rustix::io::Errno::INTR) {
        polled = poll(&mut fds, limit.as_ref());
    }
    let why = match polled {
        Ok(0) => "the time limit has expired",
        Ok(_) => "the test has ended",
        Err(_) => "standard input cannot be polled",
    };
    eprintln!("the server of {} ends: {why}", point.display());
    // If nothing is mounted yet, there is nothing to detach.
    crate::mounted::detach(point);
    exit(3);
}
