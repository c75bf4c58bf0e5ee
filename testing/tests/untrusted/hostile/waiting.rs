//! A request of an untrusted image that takes too long is noticed, by whoever set the bound.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use throughline::{Device, Memory, MkfsOptions, OpenOptions, Volume};
use throughline_fuse::MountOptions;

use super::choices::Choices;
use super::served::Kernel;

/// A device whose reads wait while it is shut.
struct Gated {
    memory: Memory,
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gated {
    fn set_shut(&self, shut: bool) {
        *self.is_shut.lock() = shut;
        self.opened.notify_all();
    }
}

impl Device for Gated {
    fn len_bytes(&self) -> u64 {
        self.memory.len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.opened
            .wait_while(&mut self.is_shut.lock(), |shut| *shut);
        self.memory.read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.memory.write_all_at(buf, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }
}

#[test]
fn a_request_that_takes_too_long_is_noticed() {
    let memory = Memory::zeroed(8 << 20);
    Volume::make_on(memory.clone(), &MkfsOptions::new()).expect("a volume");
    let gated = Arc::new(Gated {
        memory,
        is_shut: Mutex::new(false),
        opened: Condvar::new(),
    });
    let volume = OpenOptions::new().open_device(Arc::clone(&gated));
    let mut options = MountOptions::default();
    options.read_only = true;
    options.untrusted = true;
    let (mut kernel, session, to_shut) = Kernel::mounting(
        Choices::of_seed(1),
        volume.expect("a sound volume"),
        &options,
    );
    let (over, is_over) = channel();
    let (other_over, other_is_over) = channel();
    let set = |limit, over: Sender<()>| {
        // Nobody may be left to be told.
        session.bound_requests(limit, move || {
            let _ = over.send(());
        })
    };
    set(Duration::from_millis(100), over).expect("a thread");
    set(Duration::from_secs(3600), other_over).expect("a thread");
    // The root directory is not cached.
    gated.set_shut(true);
    std::thread::scope(|scope| {
        let served = scope.spawn(|| session.run());
        kernel.look_up("lost+found");
        assert_eq!(is_over.recv_timeout(Duration::from_secs(60)), Ok(()));
        assert_eq!(other_is_over.try_recv(), Err(TryRecvError::Empty));
        gated.set_shut(false);
        assert!(kernel.found(), "the request was not ended");
        to_shut.shutdown(Shutdown::Read).expect("the end");
        served.join().expect("no panic").expect("a clean end");
    });
    // The watch ends with the mount, and says nothing.
    let ended = other_is_over.recv_timeout(Duration::from_secs(60));
    assert_eq!(ended, Err(RecvTimeoutError::Disconnected));
}
