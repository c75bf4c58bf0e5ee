//! What an attacker tries by functions of the libraries: it succeeds outside of the sandbox.

use std::fs::{self, File};
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::process::Command;

use nix::sys::ptrace;

use crate::Target;

/// An attempt: its name, and what is done.
pub(crate) type Attempt = (&'static str, fn(&Target) -> io::Result<()>);

/// What an attacker tries.
pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("open to read", |target| {
        File::open(target.path("secret")).map(drop)
    }),
    ("open to write", |target| {
        File::options()
            .write(true)
            .open(target.path("secret"))
            .map(drop)
    }),
    ("create", |target| {
        File::create(target.path("new")).map(drop)
    }),
    ("list", |target| fs::read_dir(target.path("")).map(drop)),
    ("remove", |target| {
        fs::remove_file(target.path("victim")).or_else(is_gone)
    }),
    ("truncate", |target| {
        nix::unistd::truncate(&target.path("secret"), 6).map_err(io::Error::from)
    }),
    ("change permissions", |target| {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(target.path("secret"), fs::Permissions::from_mode(0o600))
    }),
    ("connect by path", |target| {
        UnixStream::connect(target.path("socket")).map(drop)
    }),
    ("connect by TCP", |target| {
        TcpStream::connect(("127.0.0.1", target.port)).map(drop)
    }),
    ("send by UDP", |_| UdpSocket::bind("127.0.0.1:0").map(drop)),
    ("exec", |_| Command::new("/bin/true").status().map(drop)),
    ("ptrace", |target| {
        ptrace::attach(target.pid)?;
        nix::sys::wait::waitpid(target.pid, Some(nix::sys::wait::WaitPidFlag::__WALL))?;
        Ok(ptrace::detach(target.pid, None)?)
    }),
    ("read memory", |target| {
        File::open(format!("/proc/{}/mem", target.pid)).map(drop)
    }),
    ("signal", |target| {
        Ok(nix::sys::signal::kill(target.pid, None)?)
    }),
    ("mount", |target| {
        let none = None::<&str>;
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(
            Some("none"),
            &target.path("place"),
            Some("tmpfs"),
            flags,
            none,
        )?;
        Ok(nix::mount::umount(&target.path("place"))?)
    }),
    ("read an environment", |target| {
        fs::read(format!("/proc/{}/environ", target.pid)).map(drop)
    }),
    ("name the host", |_| {
        let name = nix::unistd::gethostname()?;
        Ok(nix::unistd::sethostname(name)?)
    }),
    ("make a ring of io_uring", |_| {
        io_uring::IoUring::new(2).map(drop)
    }),
];

/// The same attempt may have succeeded in another thread.
fn is_gone(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}
