//! Your own storage as a device: [`Device`]; and [`Memory`], an image in memory.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use smallvec::SmallVec;
use throughline_device::{
    BlockDevice, Completion, DeviceInfo, DeviceKind, Execute, Limits, Op, Queue, Request,
    ThreadsQueue,
};
use throughline_locks::{RwLock, apart};

/// The storage of a volume or a raw file: an array of bytes. Implement it for your own storage and open it
/// with [`OpenOptions::open_device`](crate::OpenOptions::open_device).
///
/// Several threads call it at once, but never for a range that another call is writing. Offsets and lengths
/// are multiples of [`Device::block_bytes`] and within [`Device::len_bytes`]. A read sees all writes that
/// returned before it.
///
/// **Written data may be lost in a crash until [`Device::flush`] returns**, and may reach the storage in any
/// order until then. Once it returns `Ok`, all earlier writes must survive. All crash guarantees of this
/// library depend on that.
///
/// An error fails the library call that needed the data, as [`Error::Device`](crate::Error::Device) with this
/// error as its source. After a failed metadata write the volume refuses further changes. A panic counts as
/// an error.
///
/// ```
/// use std::io;
/// use std::sync::Mutex;
///
/// struct Tape(Mutex<Vec<u8>>);
///
/// impl throughline::Device for Tape {
///     fn len_bytes(&self) -> u64 {
///         self.0.lock().unwrap().len() as u64
///     }
///
///     fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
///         let tape = self.0.lock().unwrap();
///         buf.copy_from_slice(&tape[offset as usize..][..buf.len()]);
///         Ok(())
///     }
///
///     fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
///         let mut tape = self.0.lock().unwrap();
///         tape[offset as usize..][..buf.len()].copy_from_slice(buf);
///         Ok(())
///     }
///
///     fn flush(&self) -> io::Result<()> {
///         Ok(())
///     }
/// }
///
/// # fn main() -> throughline::Result<()> {
/// let mut options = throughline::OpenOptions::new();
/// let file = options.write(true).open_raw_device(Tape(Mutex::new(vec![0; 1 << 20])))?;
/// file.write_all_at(b"kept", 5)?;
/// file.sync_all()?;
/// # Ok(())
/// # }
/// ```
pub trait Device: Send + Sync {
    /// Size in bytes; a partial last block is not used. Must not change while the device is open.
    fn len_bytes(&self) -> u64;

    /// Fills `buf` from byte `offset`.
    ///
    /// # Errors
    /// Any failure to fill all of `buf`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at byte `offset`.
    ///
    /// # Errors
    /// Any failure to write all of `buf`; part of it may have been written.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Writes all of `bufs`, one behind another, from byte `offset` on. By default, each by a call of
    /// [`Device::write_all_at`].
    ///
    /// # Errors
    /// As of that.
    fn write_all_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        let mut at = offset;
        for buf in bufs {
            self.write_all_at(buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }

    /// Returns when all earlier writes survive a crash.
    ///
    /// # Errors
    /// Any failure after which a write may not survive.
    fn flush(&self) -> io::Result<()>;

    /// Whether [`Device::discard`] does something.
    fn discards(&self) -> bool {
        false
    }

    /// The bytes are no longer needed; they may keep their content, or become any other.
    ///
    /// # Errors
    /// Any failure.
    fn discard(&self, _offset: u64, _len_bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The number of calls that are worth having in progress at once. With 1, the default, each is made by
    /// the thread that needs it, one after another. With more, threads of this library make them: for storage
    /// with a latency, such as a network's.
    fn queue_depth(&self) -> u32 {
        1
    }

    /// Writes shorter than this are made by the thread that needs them, also with a queue: those that are
    /// only copied to memory, so that it would cost more to hand them over.
    fn quick_write_bytes(&self) -> u64 {
        0
    }

    /// The unit of I/O in bytes: a power of two from 512 to the volume's block size. The default is 512.
    fn block_bytes(&self) -> u32 {
        512
    }

    /// The device's name in errors and in [`Volume::info`](crate::Volume::info).
    fn name(&self) -> String {
        "device".into()
    }
}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn len_bytes(&self) -> u64 {
        (**self).len_bytes()
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        (**self).read_exact_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        (**self).write_all_at(buf, offset)
    }

    fn write_all_vectored_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        (**self).write_all_vectored_at(bufs, offset)
    }

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }

    fn discards(&self) -> bool {
        (**self).discards()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        (**self).discard(offset, len_bytes)
    }

    fn queue_depth(&self) -> u32 {
        (**self).queue_depth()
    }

    fn quick_write_bytes(&self) -> u64 {
        (**self).quick_write_bytes()
    }

    fn block_bytes(&self) -> u32 {
        (**self).block_bytes()
    }

    fn name(&self) -> String {
        (**self).name()
    }
}

/// What a request to threads should have: it costs to hand one over.
const THREADS_BYTES: u32 = 1 << 20;

/// Adapts a [`Device`] to the layers below.
pub(crate) struct Own<D> {
    served: Arc<Served<D>>,
    info: DeviceInfo,
}

impl<D: Device + 'static> Own<D> {
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for an invalid block size.
    pub(crate) fn new(device: D) -> io::Result<Own<D>> {
        let block = device.block_bytes();
        if block < 512 || !block.is_power_of_two() {
            let why = format!("blocks of {block} bytes: must be a power of two, at least 512");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let any = Limits::default();
        let has_threads = device.queue_depth() > 1;
        let (queue_depth, io_opt_bytes) = match has_threads {
            true => (device.queue_depth().min(any.queue_depth), THREADS_BYTES),
            false => (any.queue_depth, any.io_opt_bytes),
        };
        let limits = Limits {
            logical_block_bytes: block,
            physical_block_bytes: block.max(4096),
            discard: device.discards(),
            write_zeroes: false,
            fua: false,
            queue_depth,
            io_opt_bytes,
            ..any
        };
        let info = DeviceInfo {
            name: device.name(),
            kind: DeviceKind::Other,
            engine: if has_threads { "threads" } else { "calls" },
            direct: true,
            read_only: false,
            limits,
        };
        Ok(Own {
            served: Arc::new(Served {
                len_bytes: device.len_bytes() / u64::from(block) * u64::from(block),
                quick_write_bytes: device.quick_write_bytes(),
                device,
                limits,
            }),
            info,
        })
    }
}

impl<D: Device + 'static> BlockDevice for Own<D> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        self.served.len_bytes
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        let served = Arc::clone(&self.served);
        Ok(match served.device.queue_depth() {
            0 | 1 => Box::new(Calls {
                served,
                ready: Vec::new(),
            }),
            _ => Box::new(ThreadsQueue::new(served)),
        })
    }
}

/// The device, as it carries out requests.
struct Served<D> {
    device: D,
    limits: Limits,
    /// Without a partial last block.
    len_bytes: u64,
    quick_write_bytes: u64,
}

impl<D: Device> Served<D> {
    fn carry_out(&self, request: &mut Request) -> io::Result<()> {
        let mut at = request.offset_bytes();
        match request.op() {
            Op::Read => {
                for memory in request.slices_mut() {
                    self.device.read_exact_at(memory, at)?;
                    at += memory.len() as u64;
                }
            }
            Op::Write => {
                let slices: SmallVec<[&[u8]; 16]> = request.slices().collect();
                self.device.write_all_vectored_at(&slices, at)?;
            }
            Op::Flush => self.device.flush()?,
            Op::Discard => self.device.discard(at, request.len_bytes())?,
            Op::WriteZeroes => return Err(io::ErrorKind::Unsupported.into()),
        }
        Ok(())
    }
}

impl<D: Device + 'static> Execute for Served<D> {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn admit(&self, request: &Request) -> io::Result<()> {
        self.limits.admit(request, self.len_bytes)
    }

    fn is_quick(&self, request: &Request) -> bool {
        request.op() == Op::Write && request.len_bytes() < self.quick_write_bytes
    }

    fn execute(&self, mut request: Request) -> Completion {
        // The request's memory must be returned even if the device panics.
        let done = apart(|| catch_unwind(AssertUnwindSafe(|| self.carry_out(&mut request))));
        let result = done.unwrap_or_else(|_| Err(io::Error::other("the device panicked")));
        Completion { request, result }
    }
}

/// One thread's queue on a device that serves one call at a time. A request is complete when `submit`
/// returns.
struct Calls<D> {
    served: Arc<Served<D>>,
    ready: Vec<Completion>,
}

impl<D: Device + 'static> Queue for Calls<D> {
    fn submit(&mut self, request: Request) {
        let completion = match self.served.admit(&request) {
            Ok(()) => self.served.execute(request),
            Err(error) => Completion {
                request,
                result: Err(error),
            },
        };
        self.ready.push(completion);
    }

    fn kick(&mut self) {}

    fn reap(&mut self, _wait_for: usize, done: &mut Vec<Completion>) {
        done.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.ready.len()
    }

    fn depth(&self) -> usize {
        self.served.limits.queue_depth.max(1) as usize
    }
}

/// An image in memory. Clones share the bytes, so that they remain accessible after the volume is closed.
///
/// ```no_run
/// use throughline::{Memory, OpenOptions};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = Memory::from(std::fs::read("disk.img")?);
/// let volume = OpenOptions::new().write(true).open_device(memory.clone())?;
/// volume.write("/motd", "hello\n")?;
/// volume.close()?;
/// std::fs::write("changed.img", memory.to_vec())?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Memory {
    bytes: Arc<RwLock<Vec<u8>>>,
}

impl Memory {
    /// `bytes` zero bytes. The system allocates the memory as it is written.
    pub fn zeroed(bytes: usize) -> Memory {
        Memory::from(vec![0; bytes])
    }

    /// A copy of the current bytes; after [`Volume::close`](crate::Volume::close), a clean image.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }
}

impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Memory {
        Memory {
            bytes: Arc::new(RwLock::new(bytes)),
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("bytes", &self.len_bytes())
            .finish()
    }
}

/// The byte range of a call.
fn part(len: usize, offset: u64, total: usize) -> io::Result<std::ops::Range<usize>> {
    let begin = usize::try_from(offset).map_err(io::Error::other)?;
    let end = begin.checked_add(len).filter(|end| *end <= total);
    let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(begin..end)
}

impl Device for Memory {
    fn len_bytes(&self) -> u64 {
        self.bytes.read().len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.bytes.read();
        let part = part(buf.len(), offset, bytes.len())?;
        buf.copy_from_slice(&bytes[part]);
        Ok(())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes.write();
        let part = part(buf.len(), offset, bytes.len())?;
        bytes[part].copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn name(&self) -> String {
        "memory".into()
    }
}
