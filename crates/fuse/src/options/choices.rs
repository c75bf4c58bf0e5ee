//! The FUSE features that a mount uses, by name: `without=NAME` and `with=NAME` switch them for measurements.

use super::list::nearest_choice;

/// One choice.
pub struct Choice {
    /// Its name.
    pub name: &'static str,
    /// Its help text.
    pub help: &'static str,
    get: fn(&Choices) -> bool,
    set: fn(&mut Choices, bool),
}

impl Choice {
    /// Whether `choices` has it switched on.
    pub fn is_made(&self, choices: &Choices) -> bool {
        (self.get)(choices)
    }
}

macro_rules! choices {
    ($($name:ident: $default:literal, $help:literal;)*) => {
        /// The FUSE features to use, if the kernel has them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Choices {
            $(#[doc = $help] pub $name: bool,)*
        }

        impl Default for Choices {
            fn default() -> Choices {
                Choices { $($name: $default,)* }
            }
        }

        /// All choices.
        pub static CHOICES: &[Choice] = &[$(Choice {
            name: stringify!($name),
            help: $help,
            get: |choices| choices.$name,
            set: |choices, made| choices.$name = made,
        },)*];
    };
}

choices! {
    direct_writes: true, "files opened write-only bypass the kernel's cache and use ours";
    direct_new: true, "files opened read-write while they are empty bypass the kernel's cache";
    direct_mixed: false, "all files opened read-write bypass the kernel's cache";
    direct_io: false, "all files bypass the kernel's cache";
    fuseblk: false, "root mounts a block device as fuseblk: sync(2) and FIBMAP reach the server, and \
                     unmounting waits until the volume is closed; but umount -f releases the device \
                     before that";
    export: true, "file handles stay valid after the kernel has forgotten the inode, for \
                   open_by_handle_at(2) and NFS";
    parallel_direct_writes: true, "writes to one file that bypass the kernel's cache run in parallel";
    direct_mmap: true, "files that bypass the kernel's cache can still be mapped";
    keep_cache: true, "the kernel keeps cached file data across opens";
    explicit_inval: true, "a new size or time of a file does not drop its data from the kernel's cache";
    writeback_cache: false, "the kernel delays writes in its cache; they are lost if the server ends early";
    give_back: true, "our cache drops data that the kernel caches";
    entry_cache: true, "the kernel caches names and attributes: nothing else changes the image";
    negative_cache: true, "the kernel caches missing names";
    cache_symlinks: true, "the kernel caches the targets of symbolic links";
    no_opendir: true, "directories are opened without a request, and the kernel caches their listings";
    no_open: true, "on a read-only mount, files are opened without a request";
    no_flush: true, "closing a descriptor needs no request";
    clone_fd: true, "each thread reads requests through its own descriptor";
    spin: true, "requests in sequence are served by one thread, which spins for the next before it sleeps";
    io_uring: true, "requests come over io_uring if root has switched that on in the kernel";
    idle_policy: true, "the threads of io_uring's queues, and the one that serves requests in sequence on the \
                        program's CPU, have the policy SCHED_IDLE, so that the scheduler leaves the \
                        program on that CPU";
    async_dio: true, "on a read-only mount, the parts of a large direct I/O run in parallel";
    atomic_o_trunc: true, "opening with O_TRUNC is one request";
    readdirplus: true, "directories are listed with the attributes of their files";
    readdirplus_auto: true, "directories are listed with attributes only if programs use them";
    parallel_dirops: true, "look-ups and listings of one directory run in parallel";
    setxattr_ext: true, "setting an ACL clears the setgid bit in the same request";
    handle_killpriv: true, "a write clears set-user-ID bits in the same request";
}

impl Choices {
    /// Switches the choice of that name on or off.
    pub(super) fn set(&mut self, name: &str, made: bool) -> Result<(), String> {
        match CHOICES.iter().find(|choice| choice.name == name) {
            Some(choice) => {
                (choice.set)(self, made);
                Ok(())
            }
            None => Err(match nearest_choice(name) {
                Some(nearest) => format!("there is no such choice: did you mean '{nearest}'?"),
                None => {
                    let names: Vec<_> = CHOICES.iter().map(|choice| choice.name).collect();
                    format!("there is no such choice: write one of {}", names.join(", "))
                }
            }),
        }
    }
}
