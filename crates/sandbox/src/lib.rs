//! Drops the rights that a process does not need, before it serves an image of a stranger: an attacker who
//! can run code in the process, by a bug in the parser of images, finds nothing to do there.
//!
//! ```text
//!  enter(policy) ─► files.rs   landlock: opens nothing but what the policy lists; signals and abstract
//!      │                       sockets of other processes are out of reach, and so is their memory
//!      ├────────► calls.rs     seccomp: no system calls but those of a list, which has no exec, fork,
//!      │                       ptrace, mount, new namespaces, network …
//!      └────────► device       no capabilities and no new privileges, on every thread; no ring of io_uring
//!                              but those that were made before, each restricted to what its owner does
//! ```
//!
//! What is open stays open: the image, the connection to the kernel, the log. An attacker can read and write
//! the image, and answer the mount's requests as he likes; that is what the process is for.
//!
//! Invariants:
//! - All threads are restricted, or the [`Entered`] says what is missing. A thread that is left out would
//!   give its rights to the whole process, as threads share their memory.
//! - Entering cannot be undone, and later threads inherit it.
//! - A part that the kernel lacks does not prevent the others.
#![forbid(unsafe_code)]

mod calls;
mod files;

use std::os::fd::AsFd;
use std::path::PathBuf;

pub use throughline_device::Kept;

use self::files::Ruleset;

/// What a process may still do.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Policy {
    /// Whose calls are listed.
    role: Role,
    /// Which sockets can be made. Those that are connected already can still be used.
    pub network: Network,
    /// What of the file system may be opened; `None`: everything that its permissions allow.
    pub files: Option<Files>,
    /// The number of rings of io_uring for the queues of devices, if there are to be no others but those that
    /// exist. A thread that gets none uses system calls. `None`: new ones can be made.
    pub rings: Option<usize>,
    /// Message queues and semaphores of System V can be used, by which fakeroot(1) works. Only for commands.
    pub fakeroot: bool,
    /// What only capabilities allow can still be done. Without them, a process of root has the rights of the
    /// owner of root's files.
    pub capabilities: bool,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Server,
    Command,
}

/// Which sockets a process can make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// None.
    #[default]
    Closed,
    /// Those of the internet's protocols, and of the kernel (netlink), which the C library asks for
    /// addresses. Not local sockets: who connects to them can have other processes of the user do something.
    Open,
}

/// Files that may be opened. Those that do not exist are left out.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Files {
    /// To read: files, and directories with all that is below them.
    pub read: Vec<PathBuf>,
    /// To read and to write: files and devices that exist.
    pub write: Vec<PathBuf>,
    /// Directories below which files may be made, changed and removed.
    pub below: Vec<PathBuf>,
}

impl Policy {
    /// The policy of the server of a mount, which reads `/proc` and `/sys` and opens the device of FUSE for
    /// its threads.
    pub fn server() -> Policy {
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        Policy {
            role: Role::Server,
            network: Network::Closed,
            files: Some(Files {
                // The time zone is for the times in the system's log.
                read: paths(&["/proc", "/sys", "/etc/localtime", "/usr/share/zoneinfo"]),
                write: paths(&["/dev/fuse", "/dev/null"]),
                below: Vec::new(),
            }),
            rings: None,
            fakeroot: false,
            capabilities: false,
        }
    }

    /// The policy of a command that works on images, which opens the files that its user names.
    pub fn command() -> Policy {
        Policy {
            role: Role::Command,
            network: Network::Closed,
            files: None,
            rings: None,
            fakeroot: false,
            capabilities: true,
        }
    }
}

/// What is in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entered {
    /// The version of landlock's interface whose rights are in force (landlock(7)); 0: landlock restricts
    /// nothing, and any file may be opened.
    pub landlock_abi: u8,
    /// Seccomp restricts system calls.
    pub calls: bool,
    /// No ring of io_uring can be made.
    pub rings: bool,
    /// The capabilities that threads still have, if they had them before.
    pub capabilities: Kept,
    /// The sockets that can be made.
    pub network: Network,
    missing: Vec<String>,
}

impl Entered {
    /// What the policy asks for, and the system does not have or refused, with the reason.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Notes a part that is missing.
    fn lacks(&mut self, part: &str, why: impl std::fmt::Display) {
        self.missing.push(format!("{part}: {why}"));
    }
}

/// What [`Policy::prepare`] has opened.
pub struct Prepared {
    policy: Policy,
    ruleset: Option<Result<Ruleset, String>>,
}

impl Policy {
    /// Opens what the policy lists, without any restriction yet: for a process that must not use paths later.
    pub fn prepare(self) -> Prepared {
        let network = self.network == Network::Open;
        let files = self.files.as_ref();
        Prepared {
            ruleset: files.map(|allowed| files::ruleset(allowed, network)),
            policy: self,
        }
    }
}

/// Restricts this process for ever. What cannot be had is in [`Entered::missing`].
pub fn enter(policy: &Policy) -> Entered {
    policy.clone().prepare().enter()
}

impl Prepared {
    /// As [`enter`].
    pub fn enter(self) -> Entered {
        let policy = &self.policy;
        calls::note_role(policy.role);
        let mut entered = Entered {
            network: policy.network,
            capabilities: Kept::All,
            ..Entered::default()
        };
        if let Some(rings) = policy.rings {
            match throughline_device::keep_rings(rings) {
                Ok(()) => entered.rings = true,
                Err(error) => entered.lacks("io_uring", error),
            }
        }
        let ruleset = match self.ruleset {
            Some(Ok(ruleset)) => Some(ruleset),
            Some(Err(error)) => {
                entered.lacks("landlock", error);
                None
            }
            None => None,
        };
        // Without a ruleset, this is for "no new privileges".
        let descriptor = ruleset.as_ref().map(|ruleset| ruleset.fd.as_fd());
        let kept = match policy.capabilities {
            true => Kept::All,
            false => throughline_device::keep_scheduling(),
        };
        match throughline_device::restrict_every_thread(descriptor, kept) {
            Ok(()) => {
                entered.landlock_abi = ruleset.map_or(0, |ruleset| ruleset.abi);
                entered.capabilities = kept;
            }
            Err(error) if ruleset.is_some() => entered.lacks("landlock, or capabilities", error),
            Err(error) => entered.lacks("no new privileges", error),
        }
        match calls::refuse(policy, entered.rings) {
            Ok(()) => entered.calls = true,
            Err(error) => {
                entered.lacks("seccomp", error);
                entered.network = Network::Open;
            }
        }
        entered
    }
}

/// The examples of the README are compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
