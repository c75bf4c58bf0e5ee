//! [`Session`]: a mounted volume.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use fuser::InitFlags;
use throughline::Volume;
use throughline_locks::{Mutex, Rank};

use crate::block_device::Claim;
use crate::connection::{Connection, Origin};
use crate::options::MountOptions;
use crate::outside::Outside;
use crate::read_ahead;
use crate::server::Server;
use crate::unmount::Ending;

/// The interval of [`Session::bound_requests`].
const LOOK: Duration = Duration::from_secs(1);

/// Why a mount failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// The system or `fusermount3` refused the mount.
    #[error("mounting: {0}")]
    Mount(#[source] io::Error),
    /// The connection to the kernel failed.
    #[error("serving the mount: {0}")]
    Serve(#[source] io::Error),
    /// The volume could not be closed cleanly.
    #[error("closing the volume: {0}")]
    Close(#[source] throughline::Error),
}

/// A mounted volume. Requests wait until [`Session::run`]; a session that is dropped without it is unmounted.
pub struct Session {
    connection: Connection,
    server: Arc<Server>,
    open: StillOpen,
    volume: Volume,
    /// Set if a block device was mounted before its volume was opened.
    claim: Option<Claim>,
}

/// The volume of a mount until [`Session::run`] closes it, for other threads. Does not keep it open.
#[derive(Clone)]
pub struct StillOpen(Arc<Mutex<Weak<Server>>>);

impl StillOpen {
    /// Writes everything to the device. `None` if the volume is closed, or being closed, by [`Session::run`].
    ///
    /// # Errors
    /// As [`Volume::sync`].
    pub fn sync(&self) -> Option<throughline::Result<()>> {
        let held = self.0.lock();
        held.upgrade().map(|server| server.sync())
    }

    /// Closes the volume while the kernel still has the mount: waits for the requests in progress, and
    /// refuses all later ones. Nothing is written after it returns; if closing fails, the device is cut off.
    /// `None` as for [`StillOpen::sync`].
    ///
    /// # Errors
    /// As [`Volume::end_writing`].
    pub fn close(&self) -> Option<throughline::Result<()>> {
        let held = self.0.lock();
        held.upgrade().map(|server| server.close_early())
    }
}

impl Session {
    /// Mounts a volume at a directory. `source` is shown as the source in the list of mounts.
    ///
    /// # Errors
    /// [`MountError::Mount`].
    pub fn mount(
        volume: Volume,
        source: &Path,
        at: &Path,
        options: &MountOptions,
    ) -> Result<Session, MountError> {
        let session = Session::begin(volume, None, source, options, Origin::Directory(at))?;
        read_ahead::raise(at);
        Ok(session)
    }

    /// Serves a block device that was mounted before its volume was opened.
    ///
    /// # Errors
    /// [`MountError::Mount`].
    pub fn of_claim(
        volume: Volume,
        claim: Claim,
        source: &Path,
        options: &MountOptions,
    ) -> Result<Session, MountError> {
        let connection = claim.connection().map_err(MountError::Mount)?;
        let at = claim.point().to_owned();
        let origin = Origin::Descriptor(connection);
        let session = Session::begin(volume, Some(claim), source, options, origin)?;
        read_ahead::raise(&at);
        Ok(session)
    }

    /// Serves a connection that somebody else has mounted, and unmounts: a descriptor of `/dev/fuse`, or a
    /// socket of datagrams on which a test plays the part of the kernel.
    ///
    /// # Errors
    /// [`MountError::Mount`].
    pub fn of_connection(
        volume: Volume,
        connection: OwnedFd,
        source: &Path,
        options: &MountOptions,
    ) -> Result<Session, MountError> {
        let origin = Origin::Descriptor(connection);
        Session::begin(volume, None, source, options, origin)
    }

    fn begin(
        volume: Volume,
        claim: Option<Claim>,
        source: &Path,
        options: &MountOptions,
        origin: Origin<'_>,
    ) -> Result<Session, MountError> {
        let connection = Connection::new(origin, source, options)?;
        let long_setxattr = connection.agreed.contains(InitFlags::FUSE_SETXATTR_EXT);
        let server = Server::new(volume.clone(), source, options, long_setxattr);
        let server = Arc::new(server);
        Ok(Session {
            connection,
            open: StillOpen(Arc::new(Mutex::ranked(
                Rank::Session,
                Arc::downgrade(&server),
            ))),
            server,
            volume,
            claim,
        })
    }

    /// A handle by which another thread ends this mount, whose mount point is `at`. On a claimed block
    /// device, it closes the volume before it aborts the connection, which releases the device.
    ///
    /// # Errors
    /// As [`Ending::of`].
    pub fn ending(&self, at: &Path) -> io::Result<Ending> {
        let ending = Ending::of(at)?;
        if self.claim.is_none() {
            return Ok(ending);
        }
        let open = self.still_open();
        Ok(ending.closing_first(move || {
            if let Some(Err(error)) = open.close() {
                tracing::error!(%error, "the image was not closed cleanly");
            }
        }))
    }

    /// The volume, for a thread that ends the mount although the kernel may keep it.
    pub fn still_open(&self) -> StillOpen {
        self.open.clone()
    }

    /// Shows in the mount's status what this process gave up.
    pub fn set_sandbox(&self, sandbox: serde_json::Value) {
        self.server.set_sandbox(sandbox);
    }

    /// Leaves to `outside` what this process may not do.
    pub fn set_outside(&self, outside: Arc<dyn Outside>) {
        self.server.set_outside(outside);
    }

    /// The address space of the threads that serve requests at most, and of what they read them into, in
    /// bytes.
    pub fn reserved_bytes(&self) -> usize {
        self.connection.reserved_bytes()
    }

    /// Calls `over` if a request of an untrusted image takes longer than `limit`, which is checked once a
    /// second, on a thread that lasts as long as the mount.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn bound_requests(
        &self,
        limit: Duration,
        over: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let server = Arc::downgrade(&self.server);
        let watch = move || {
            loop {
                std::thread::sleep(LOOK);
                match server.upgrade().map(|server| server.longest_request()) {
                    None => return,
                    Some(longest) if longest > limit => return over(),
                    Some(_) => {}
                }
            }
        };
        let thread = std::thread::Builder::new().name("fuse-limit".to_owned());
        thread.spawn(watch).map(drop)
    }

    /// Serves the mount until it is unmounted, then closes the volume. When it returns, all data is on the
    /// device.
    ///
    /// # Errors
    /// [`MountError::Serve`], [`MountError::Close`].
    pub fn run(self) -> Result<(), MountError> {
        self.run_and(|| {})
    }

    /// The same. `ended` is called when the mount is gone, before the volume is closed, which may take long.
    ///
    /// # Errors
    /// As [`Session::run`].
    pub fn run_and(mut self, ended: impl FnOnce()) -> Result<(), MountError> {
        let served = self.connection.serve(&*self.server);
        ended();
        // Waits for a thread that is closing the volume early, and for its reference to the server.
        *self.open.0.lock() = Weak::new();
        self.server.end();
        drop(self.server);
        if served.is_ok() {
            self.connection.has_ended();
            if let Some(claim) = self.claim {
                claim.has_gone();
            }
        }
        let closed = self.volume.close();
        served.map_err(MountError::Serve)?;
        closed.map_err(MountError::Close)
    }
}
