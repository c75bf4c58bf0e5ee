//! The FUSE features of a mount that can be chosen, by name: `with=NAME` and `without=NAME` switch them.

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
    direct_io: false, "all files bypass the kernel's cache";
    fuseblk: false, "root mounts a block device as fuseblk: sync(2) and FIBMAP reach the server, and \
                     unmounting waits until the volume is closed; but umount -f releases the device \
                     before that";
    export: true, "file handles stay valid after the kernel has forgotten the inode, for \
                   open_by_handle_at(2) and NFS";
    writeback_cache: false, "the kernel delays writes in its cache; they are lost if the server ends early";
    entry_cache: true, "the kernel caches names and attributes: nothing else changes the image";
    io_uring: true, "requests come over io_uring if root has switched that on in the kernel";
    idle_policy: true, "the threads of io_uring's queues, and the one that serves requests in sequence on the \
                        program's CPU, have the policy SCHED_IDLE, so that the scheduler leaves the \
                        program on that CPU";
    readdirplus: true, "directories are listed with the attributes of their files";
    setxattr_ext: true, "setting an ACL clears the setgid bit in the same request";
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
