//! The kernel's FUSE features that a mount uses, each by a name: `without=NAME` and `with=NAME` switch it for measuring.

use super::list::nearest_choice;

/// One choice.
pub struct Choice {
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub help: &'static str,
    get: fn(&Choices) -> bool,
    set: fn(&mut Choices, bool),
}

impl Choice {
    /// It is made, by these.
    pub fn is_made(&self, choices: &Choices) -> bool {
        (self.get)(choices)
    }
}

macro_rules! choices {
    ($($name:ident: $default:literal, $help:literal;)*) => {
        /// Which of the kernel's FUSE features are used, where the kernel has them.
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
    direct_writes: true, "files opened write-only go past the kernel's cache, into ours";
    direct_new: true, "so do files opened for reading and writing while they are empty";
    direct_mixed: false, "so do all files opened for reading and writing";
    direct_io: false, "so do all files";
    fuseblk: false, "root mounts a block device as the kernel knows such mounts: sync(2) and FIBMAP reach it, unmounting waits until it is closed; ended by force, the device is free before it is closed";
    export: true, "file handles outlive what the kernel remembers: open_by_handle_at(2), NFS";
    parallel_direct_writes: true, "writes past the kernel's cache to one file run side by side";
    direct_mmap: true, "what goes past the kernel's cache can still be mapped";
    keep_cache: true, "what the kernel's cache holds of a file stays over its next open";
    explicit_inval: true, "a file's new size or time does not empty the kernel's cache";
    writeback_cache: false, "the kernel's cache holds writes back; they are lost with this server";
    give_back: true, "our cache gives back what the kernel's holds";
    entry_cache: true, "the kernel remembers names and attributes: nobody else changes the image";
    negative_cache: true, "the kernel remembers names that are not there";
    cache_symlinks: true, "the kernel remembers where symbolic links point";
    no_opendir: true, "directories are opened without a request, and the kernel remembers their names";
    no_flush: true, "closing a descriptor needs no request";
    clone_fd: true, "each thread reads requests through a descriptor of its own";
    spin: true, "requests that come one after the other are served by one thread that looks for the next before it sleeps";
    async_dio: true, "where it is mounted read-only, the parts of a large direct I/O run side by side";
    atomic_o_trunc: true, "opening with O_TRUNC is one request";
    readdirplus: true, "directories are listed with their files' attributes";
    readdirplus_auto: true, "that is done only where the attributes are wanted";
    parallel_dirops: true, "look-ups and listings of one directory run side by side";
    setxattr_ext: true, "setting an ACL takes the setgid bit away in the same request";
    handle_killpriv: true, "set-user-ID bits go with a write's own request";
}

impl Choices {
    /// Makes or unmakes the choice of that name.
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
