//! Your own storage as a device: [`Device`]; and [`Memory`], an image in memory.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError, RwLock};

use smallvec::SmallVec;
use throughline_device::{
    BlockDevice, Completion, DeviceInfo, DeviceKind, Limits, Op, Queue, Request,
};

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

    fn block_bytes(&self) -> u32 {
        (**self).block_bytes()
    }

    fn name(&self) -> String {
        (**self).name()
    }
}

/// Adapts a [`Device`] to the layers below. A request is complete when `submit` returns.
pub(crate) struct Own<D> {
    device: Arc<D>,
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
        let limits = Limits {
            logical_block_bytes: block,
            physical_block_bytes: block.max(4096),
            discard: device.discards(),
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

/// The length without a partial last block.
fn whole_blocks(device: &impl Device) -> u64 {
    let block = u64::from(device.block_bytes().max(1));
    device.len_bytes() / block * block
}

/// One thread's queue on the device.
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

impl<D: Device> Queue for Calls<D> {
    fn submit(&mut self, mut request: Request) {
        // The request's memory must be returned even if the device panics.
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

/// The byte range of a call.
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
