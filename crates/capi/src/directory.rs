//! The names of a directory.

use std::ffi::{CString, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStringExt;

use rustix::io::Errno;
use throughline::{Error, ReadDir, Reason};

use crate::failure::{Failure, done, freed, run};
use crate::pointers::{Text, given};
use crate::volume::tl_volume;

/// An open directory, and a position in it. Only one thread may use it at a time.
pub struct tl_dir {
    names: ReadDir,
    /// What the last entry points to.
    name: CString,
}

/// A name of a directory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct tl_dirent {
    /// The number of its inode.
    pub ino: u64,
    /// The type's bits of `st_mode`, such as S_IFREG.
    pub type_bits: u32,
    /// 0.
    pub reserved: u32,
    /// The name. It is valid until the next call with this directory.
    pub name: *const c_char,
}

/// Opens a directory. Close it with tl_closedir.
#[unsafe(no_mangle)]
pub extern "C" fn tl_opendir(
    volume: Option<&tl_volume>,
    at: Text<'_>,
    directory: Option<&mut MaybeUninit<Box<tl_dir>>>,
) -> c_int {
    done(|| {
        let (volume, directory) = (given(volume)?, given(directory)?);
        let names = volume.0.read_dir(at.path()?)?;
        let name = CString::default();
        directory.write(Box::new(tl_dir { names, name }));
        Ok(())
    })
}

/// Fills in the next name, without "." and "..", and returns 1; 0 after the last one. After an error that is
/// `-EUCLEAN`, damage, more names may follow. Names that are removed meanwhile may be left out.
#[unsafe(no_mangle)]
pub extern "C" fn tl_readdir(
    directory: Option<&mut tl_dir>,
    entry: Option<&mut MaybeUninit<tl_dirent>>,
) -> c_int {
    let result = run(|| {
        let (directory, entry) = (given(directory)?, given(entry)?);
        let (next, file_type) = loop {
            let Some(next) = directory.names.next().transpose()? else {
                return Ok(0);
            };
            match next.file_type() {
                // It was removed since it was listed.
                Err(Error::Caller(Reason::NotFound)) => {}
                file_type => break (next, file_type?),
            }
        };
        let with_nul = |_| Failure::new(Errno::UCLEAN, "a name with a NUL byte");
        directory.name = CString::new(next.file_name().into_vec()).map_err(with_nul)?;
        entry.write(tl_dirent {
            ino: next.ino(),
            type_bits: file_type.mode_bits(),
            reserved: 0,
            name: directory.name.as_ptr(),
        });
        Ok(1)
    });
    c_int::try_from(result).unwrap_or(-Errno::IO.raw_os_error())
}

/// Closes a directory; NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn tl_closedir(directory: Option<Box<tl_dir>>) {
    freed(directory);
}
