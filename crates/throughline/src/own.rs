//! Devices of the caller's own: [`Device`], and [`Memory`] as one.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use throughline_device::{
    BlockDevice, Completion, DeviceInfo, DeviceKind, Limits, Op, Queue, Request,
};

/// Where a volume or a raw file may lie: bytes under offsets. Implement it for storage of your own and open it with
/// [`OpenOptions::open_device`](crate::OpenOptions::open_device).
///
/// Calls come from several threads at once, for ranges that never overlap while one of them is written. Offset and length are
/// multiples of [`Device::block_bytes`] and within [`Device::len_bytes`]. What one call writes, every later one reads.
///
/// **What was written may be lost in a crash until [`Device::flush`] returns**, and may reach the storage in any order until
/// then. Once it has returned `Ok`, all that was written before has to survive. Everything that this library promises of a
/// crash rests on that.
///
/// An error fails the call of the library that needed the bytes, as [`Error::Device`](crate::Error::Device) with this error as
/// its source; after a failed write of metadata the volume takes no more changes. A panic is taken for an error.
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
    /// How many bytes there are, of which whole blocks are used. Does not change while it is open.
    fn len_bytes(&self) -> u64;

    /// Fills `buf` from byte `offset` on.
    ///
    /// # Errors
    /// Whatever kept it from filling all of `buf`.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all of `buf` at byte `offset`.
    ///
    /// # Errors
    /// Whatever kept it from writing all of `buf`; a part may have been written then.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Returns when all that was written before survives a crash.
    ///
    /// # Errors
    /// If that is not certain.
    fn flush(&self) -> io::Result<()>;

    /// The unit of its calls in bytes: a power of two from 512 to the block of the volume. 512 unless it says otherwise.
    fn block_bytes(&self) -> u32 {
        512
    }

    /// What errors and [`Volume::info`](crate::Volume::info) call it.
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

    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }

    fn block_bytes(&self) -> u32 {
        (**self).block_bytes()
    }

    fn name(&self) -> String {
        (**self).name()
    }
}

/// A [`Device`] as the layers below know one. A request is done when it has been submitted.
pub(crate) struct Own<D> {
    device: Arc<D>,
    info: DeviceInfo,
}

impl<D: Device + 'static> Own<D> {
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for blocks of a size that is none.
    pub(crate) fn new(device: D) -> io::Result<Own<D>> {
        let block = device.block_bytes();
        if block < 512 || !block.is_power_of_two() {
            let why = format!("blocks of {block} bytes: a power of two from 512 on is needed");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let limits = Limits {
            logical_block_bytes: block,
            physical_block_bytes: block.max(4096),
            discard: false,
            write_zeroes: false,
            fua: false,
            ..Limits::default()
        };
        let info = DeviceInfo {
            name: device.name(),
            kind: DeviceKind::Other,
            engine: "calls",
            direct: true,
            read_only: false,
            limits,
        };
        Ok(Own {
            device: Arc::new(device),
            info,
        })
    }
}

impl<D: Device + 'static> BlockDevice for Own<D> {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn len_bytes(&self) -> u64 {
        whole_blocks(&*self.device)
    }

    fn open_queue(&self) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(Calls {
            device: Arc::clone(&self.device),
            limits: self.info.limits,
            ready: Vec::new(),
        }))
    }
}

/// What is behind the last whole block is not used.
fn whole_blocks(device: &impl Device) -> u64 {
    let block = u64::from(device.block_bytes().max(1));
    device.len_bytes() / block * block
}

/// One thread's way to a device.
struct Calls<D> {
    device: Arc<D>,
    limits: Limits,
    ready: Vec<Completion>,
}

impl<D: Device> Calls<D> {
    fn carry_out(&self, request: &mut Request) -> io::Result<()> {
        self.limits.admit(request, whole_blocks(&*self.device))?;
        let mut at = request.offset_bytes();
        match request.op() {
            Op::Read => {
                for memory in request.slices_mut() {
                    self.device.read_exact_at(memory, at)?;
                    at += memory.len() as u64;
                }
            }
            Op::Write => {
                for memory in request.slices() {
                    self.device.write_all_at(memory, at)?;
                    at += memory.len() as u64;
                }
            }
            Op::Flush => self.device.flush()?,
            Op::Discard | Op::WriteZeroes => return Err(io::ErrorKind::Unsupported.into()),
        }
        Ok(())
    }
}

impl<D: Device> Queue for Calls<D> {
    fn submit(&mut self, mut request: Request) {
        // The memory of a request has to come back, whatever the device does.
        let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(&mut request)));
        let result = done.unwrap_or_else(|_| Err(io::Error::other("the device panicked")));
        self.ready.push(Completion { request, result });
    }

    fn kick(&mut self) {}

    fn reap(&mut self, _wait_for: usize, done: &mut Vec<Completion>) {
        done.append(&mut self.ready);
    }

    fn in_flight(&self) -> usize {
        self.ready.len()
    }

    fn depth(&self) -> usize {
        self.limits.queue_depth.max(1) as usize
    }
}

/// An image in memory. Clones share the bytes, so that they can be had when the volume is closed.
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
    /// As many zeros. The system gives memory as it is written.
    pub fn zeroed(bytes: usize) -> Memory {
        Memory::from(vec![0; bytes])
    }

    /// A copy of the bytes as they are now: after [`Volume::close`](crate::Volume::close), those of a clean image.
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
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

/// The part of `bytes` that a call is about.
fn part(len: usize, offset: u64, total: usize) -> io::Result<std::ops::Range<usize>> {
    let begin = usize::try_from(offset).map_err(io::Error::other)?;
    let end = begin.checked_add(len).filter(|end| *end <= total);
    let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(begin..end)
}

impl Device for Memory {
    fn len_bytes(&self) -> u64 {
        self.bytes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let part = part(buf.len(), offset, bytes.len())?;
        buf.copy_from_slice(&bytes[part]);
        Ok(())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
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
