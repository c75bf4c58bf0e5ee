//! [`Connection`]: the connection to the kernel: what is negotiated with it, and the requests that it sends.
//!
//! `fuser` mounts, through `fusermount3` or directly as root, and negotiates with [`Negotiation`]. Then our
//! threads (`workers`) take over the connection.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::{Config, InitFlags, KernelConfig, MountOption, SessionACL};

use crate::channel::Channel;
use crate::mounts;
use crate::options::{Access, Atime, Choices, MountOptions, escape};
use crate::rings::Able;
use crate::service::Service;
use crate::session::MountError;
use crate::workers;

/// Arenas of the allocator, shared by all threads: fewer arenas keep less free memory.
const ARENAS: u8 = 2;
/// The data of a request in bytes, unless the kernel is configured for more.
const USUAL_REQUEST_BYTES: u32 = 1 << 20;
/// The maximum data of a request in bytes: each thread has this much memory.
const MAX_REQUEST_BYTES: u32 = 4 << 20;
/// Background requests of the kernel in flight: readahead, releases, parts of large direct I/Os.
const MAX_BACKGROUND: u16 = 64;

/// The capabilities of every mount, if the kernel has them.
const ALWAYS: InitFlags = InitFlags::FUSE_HAS_IOCTL_DIR
    .union(InitFlags::FUSE_MAX_PAGES)
    // Files that bypass the kernel's cache can still be mapped.
    .union(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
    // A new size or time of a file does not drop its data from the kernel's cache.
    .union(InitFlags::FUSE_EXPLICIT_INVAL_DATA)
    .union(InitFlags::FUSE_CACHE_SYMLINKS)
    .union(InitFlags::FUSE_NO_OPEN_SUPPORT)
    .union(InitFlags::FUSE_NO_OPENDIR_SUPPORT)
    .union(InitFlags::FUSE_ASYNC_DIO)
    .union(InitFlags::FUSE_ATOMIC_O_TRUNC)
    .union(InitFlags::FUSE_READDIRPLUS_AUTO)
    .union(InitFlags::FUSE_PARALLEL_DIROPS)
    // A write clears set-user-ID bits in the same request.
    .union(InitFlags::FUSE_HANDLE_KILLPRIV_V2);

/// Where a connection comes from.
pub(crate) enum Origin<'a> {
    /// `fuser` mounts at a directory, and unmounts when the connection is dropped.
    Directory(&'a Path),
    /// Somebody else has mounted, and unmounts.
    Descriptor(OwnedFd),
}

/// See the head of this file.
pub(crate) struct Connection {
    mount: fuser::Session<Negotiation>,
    /// Whether dropping `mount` unmounts.
    unmounts: bool,
    /// The capabilities that were agreed on.
    pub(crate) agreed: InitFlags,
    request_bytes: usize,
    choices: Choices,
    /// Set if the kernel waits for rings.
    able: Option<Able>,
}

impl Connection {
    /// Mounts if that is to be done, and negotiates. `source` is shown in the list of mounts.
    ///
    /// # Errors
    /// [`MountError::Mount`].
    pub(crate) fn new(
        origin: Origin<'_>,
        source: &Path,
        options: &MountOptions,
    ) -> Result<Connection, MountError> {
        throughline_device::limit_allocator(ARENAS);
        let request_bytes = request_bytes();
        let able = able(&options.choices);
        let agreed = Arc::default();
        let negotiation = Negotiation {
            capabilities: capabilities(options, able.is_some()),
            request_bytes,
            agreed: Arc::clone(&agreed),
        };
        let config = config(source, options);
        let unmounts = matches!(origin, Origin::Directory(_));
        let mount = match origin {
            Origin::Directory(at) => fuser::Session::new(negotiation, at, &config),
            Origin::Descriptor(fd) => fuser::Session::from_fd(negotiation, fd, config.acl, config),
        };
        let mount = mount.map_err(MountError::Mount)?;
        let agreed = InitFlags::from_bits_retain(agreed.load(Ordering::Acquire));
        let over_rings = agreed.contains(InitFlags::FUSE_OVER_IO_URING);
        if able.is_some() && !over_rings {
            tracing::info!(
                "requests come through /dev/fuse, as the kernel does not offer io_uring"
            );
        }
        Ok(Connection {
            mount,
            unmounts,
            agreed,
            request_bytes: request_bytes as usize,
            choices: options.choices,
            able: able.filter(|_| over_rings),
        })
    }

    /// The address space of the threads that serve requests at most, and of what they read them into.
    pub(crate) fn reserved_bytes(&self) -> usize {
        match &self.able {
            Some(able) => able.reserved_bytes(self.request_bytes),
            None => workers::MAX_THREADS * (self.request_bytes + workers::STACK_BYTES),
        }
    }

    /// Passes requests to `service` until the mount is gone.
    ///
    /// # Errors
    /// The system's, when a request is read.
    pub(crate) fn serve(&mut self, service: &dyn Service) -> io::Result<()> {
        let channel = Channel::new(self.mount.as_fd().try_clone_to_owned()?);
        let able = self.able.take();
        workers::run(service, channel, self.request_bytes, &self.choices, able)
    }

    /// The mount is gone. `fuser` 0.18 takes an ended connection for a live one and would unmount whatever is
    /// mounted there by now: its descriptors stay open until the process ends.
    pub(crate) fn has_ended(self) {
        if self.unmounts {
            std::mem::forget(self.mount);
        }
    }
}

/// What is requested from the kernel in INIT. `fuser` calls no other method of it.
struct Negotiation {
    capabilities: InitFlags,
    request_bytes: u32,
    /// The capabilities that were agreed on, as bits.
    agreed: Arc<AtomicU64>,
}

impl fuser::Filesystem for Negotiation {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = self.capabilities & config.capabilities();
        for refused in self.capabilities.difference(wanted).iter_names() {
            tracing::debug!(capability = refused.0, "not supported by the kernel");
        }
        // These cannot fail: the kernel has the capabilities, and the sizes are in range.
        self.agreed.store(wanted.bits(), Ordering::Release);
        let _ = config.add_capabilities(wanted);
        let _ = config.set_max_write(self.request_bytes);
        let _ = config.set_max_readahead(self.request_bytes);
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }
}

/// What the rings need, if they are chosen and this process may use them.
fn able(choices: &Choices) -> Option<Able> {
    let able = choices.io_uring.then(Able::new)?;
    able.inspect_err(|error| {
        tracing::info!(%error, "requests come through /dev/fuse, as io_uring is not possible");
    })
    .ok()
}

fn capabilities(options: &MountOptions, over_rings: bool) -> InitFlags {
    let mut wanted = ALWAYS | chosen(&options.choices);
    wanted.set(InitFlags::FUSE_OVER_IO_URING, over_rings);
    if options.read_only || options.small_files {
        // If files are opened without a request, O_TRUNC must reach the server as a separate SETATTR. On a
        // read-only mount, this matters only if root makes it writable.
        wanted.remove(InitFlags::FUSE_ATOMIC_O_TRUNC);
    }
    if !options.read_only {
        // With it, direct writes would be background requests. The number of these is bounded, so writes
        // would queue behind cache fills that wait for a write (`coherence.rs`).
        wanted.remove(InitFlags::FUSE_ASYNC_DIO);
    }
    if options.acl {
        wanted |= InitFlags::FUSE_DONT_MASK;
        // The kernel's ACL support implies permission checks.
        if options.kernel_checks_permissions() {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
    }
    wanted
}

/// The capabilities that the choices need.
fn chosen(choices: &Choices) -> InitFlags {
    [
        (choices.writeback_cache, InitFlags::FUSE_WRITEBACK_CACHE),
        (choices.readdirplus, InitFlags::FUSE_DO_READDIRPLUS),
        (choices.setxattr_ext, InitFlags::FUSE_SETXATTR_EXT),
        (choices.export, InitFlags::FUSE_EXPORT_SUPPORT),
    ]
    .into_iter()
    .filter(|(made, _)| *made)
    .fold(InitFlags::empty(), |all, (_, capability)| all | capability)
}

/// The options of mount(2), and what the list of mounts shows.
fn config(source: &Path, options: &MountOptions) -> Config {
    let name = options.fs_name.clone();
    let mut name = name.unwrap_or_else(|| source.to_string_lossy().into_owned());
    if !mounts::may_mount() {
        // fusermount3 takes a comma-separated list.
        name = escape(&name);
    }
    let subtype = options.subtype.as_deref().unwrap_or("throughline");
    let either = |on, yes, no| if on { yes } else { no };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(name),
        // `fuser`'s own subtype option works only with fusermount3.
        MountOption::CUSTOM(format!("subtype={subtype}")),
        either(options.read_only, MountOption::RO, MountOption::RW),
        either(options.suid, MountOption::Suid, MountOption::NoSuid),
        either(options.dev, MountOption::Dev, MountOption::NoDev),
        either(options.exec, MountOption::Exec, MountOption::NoExec),
    ];
    if options.kernel_checks_permissions() {
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    if options.atime == Atime::Never {
        config.mount_options.push(MountOption::NoAtime);
    }
    config.acl = match options.access {
        Access::All => SessionACL::All,
        Access::OwnerAndRoot => SessionACL::RootAndOwner,
        Access::Owner => SessionACL::Owner,
    };
    config
}

/// The kernel's configured request size in bytes, within our bounds.
fn request_bytes() -> u32 {
    let pages = std::fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit");
    let pages: Option<u32> = pages.ok().and_then(|text| text.trim().parse().ok());
    pages.map_or(USUAL_REQUEST_BYTES, |pages| {
        let bytes = pages.saturating_mul(rustix::param::page_size() as u32);
        bytes.clamp(USUAL_REQUEST_BYTES, MAX_REQUEST_BYTES)
    })
}
