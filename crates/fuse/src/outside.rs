//! [`Outside`]: what a process in a sandbox leaves to one outside.

use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::unmount::{Unmount, UnmountError};
use crate::wire::ioctl;

/// A process that does for a server what that may not do itself.
pub trait Outside: Send + Sync {
    /// As [`crate::Ending::unmount_if_there`].
    ///
    /// # Errors
    /// [`UnmountError`].
    fn unmount(&self, how: Unmount) -> Result<(), UnmountError>;

    /// As [`crate::Ending::sync`].
    ///
    /// # Errors
    /// The system's.
    fn sync(&self) -> io::Result<()>;

    /// As [`asked_shutdown_mode`].
    ///
    /// # Errors
    /// As of that.
    fn shutdown_mode(&self, thread: u32, address: u64) -> io::Result<u32>;
}

/// The argument of `FS_IOC_SHUTDOWN`, at this address of the memory of the thread that makes the call. The
/// number of this ioctl marks its argument as output, so the kernel does not pass it on.
///
/// # Errors
/// The system's, if the memory cannot be read.
pub(crate) fn shutdown_mode(thread: u32, address: u64) -> io::Result<u32> {
    let mut word = [0; 4];
    std::fs::File::open(format!("/proc/{thread}/mem"))?.read_exact_at(&mut word, address)?;
    Ok(u32::from_ne_bytes(word))
}

/// The same for a caller that is not trusted: reads only what a thread passes to that ioctl just now.
///
/// # Errors
/// The same; the thread does not wait in such a call.
pub fn asked_shutdown_mode(thread: u32, address: u64) -> io::Result<u32> {
    let calls = || {
        let text = call_of(thread)?;
        let mut words = text.split_whitespace();
        let call: u32 = words.next()?.parse().ok()?;
        let number = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok();
        let (_, cmd, argument) = (
            words.next()?,
            number(words.next()?)?,
            number(words.next()?)?,
        );
        // The kernel reads 32 bits of the command.
        Some(call == IOCTL && cmd as u32 == ioctl::SHUTDOWN && argument == address)
    };
    match calls() {
        Some(true) => shutdown_mode(thread, address),
        _ => Err(io::Error::other(
            "the thread does not shut a file system down",
        )),
    }
}

/// The system call that a thread waits in. A thread that has made a call may not wait in it yet.
fn call_of(thread: u32) -> Option<String> {
    let end = Instant::now() + WAIT;
    loop {
        let text = std::fs::read_to_string(format!("/proc/{thread}/syscall")).ok()?;
        if text.trim_end() != "running" {
            return Some(text);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(LOOK);
    }
}

/// For how long a thread may run before it waits in its call: it may have lost its CPU.
const WAIT: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(1);

/// The number of the system call.
#[cfg(target_arch = "x86_64")]
const IOCTL: u32 = 16;
#[cfg(not(target_arch = "x86_64"))]
const IOCTL: u32 = 29;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_no_argument_of_the_call_is_not_read() {
        let secret = 0x5ec4e7_u32;
        let address = (&raw const secret).addr() as u64;
        let thread = rustix::thread::gettid().as_raw_pid().cast_unsigned();
        assert_eq!(shutdown_mode(thread, address).unwrap(), secret);
        assert!(asked_shutdown_mode(thread, address).is_err());
    }

    /// The thread runs at first, like a caller that does not sleep in its call yet.
    #[test]
    fn a_thread_that_does_not_wait_yet_is_looked_at_again() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (number, numbers) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let own = rustix::thread::gettid().as_raw_pid().cast_unsigned();
            number.send(own).unwrap();
            while receiver.try_recv().is_err() {}
            std::thread::park();
        });
        let own = numbers.recv().unwrap();
        let asked = std::thread::spawn(move || call_of(own));
        sender.send(()).unwrap();
        let call = asked.join().unwrap().expect("a call");
        assert_ne!(call.trim_end(), "running");
        thread.thread().unpark();
        thread.join().unwrap();
    }
}
