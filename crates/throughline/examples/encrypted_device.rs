//! A volume on a custom device that encrypts: AES-256-XTS over a file, as in disk encryption.
//! `cargo run --example encrypted_device -- PLAIN.img SEALED.img` encrypts an image and writes a file into
//! it.

use std::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use aes::{Aes256, cipher::KeyInit};
use throughline::{Device, OpenOptions};
use xts_mode::{Xts128, get_tweak_default};

const SECTOR_BYTES: usize = 512;

struct Encrypted {
    file: File,
    cipher: Xts128<Aes256>,
}

impl Encrypted {
    fn new(file: File, key: &[u8; 64]) -> Encrypted {
        let (data, tweak) = key.split_at(32);
        let cipher = Xts128::new(Aes256::new(data.into()), Aes256::new(tweak.into()));
        Encrypted { file, cipher }
    }
}

impl Device for Encrypted {
    fn len_bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)?;
        let (cipher, first) = (&self.cipher, offset / SECTOR_BYTES as u64);
        cipher.decrypt_area(buf, SECTOR_BYTES, first.into(), get_tweak_default);
        Ok(())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut sealed = buf.to_vec();
        let (cipher, first) = (&self.cipher, offset / SECTOR_BYTES as u64);
        cipher.encrypt_area(&mut sealed, SECTOR_BYTES, first.into(), get_tweak_default);
        self.file.write_all_at(&sealed, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Encrypts the image `plain` into `sealed`, writes a file into it, and reads the file back.
pub(crate) fn run(plain: &Path, sealed: &Path, key: &[u8; 64]) -> Result<String, Box<dyn Error>> {
    std::fs::copy(plain, sealed)?;
    let open = || File::options().read(true).write(true).open(sealed);
    let device = Encrypted::new(open()?, key);
    device.write_all_at(&std::fs::read(plain)?, 0)?;

    let volume = OpenOptions::new().write(true).open_device(device)?;
    volume.write("/secret", "attack at dawn")?;
    volume.close()?;

    let volume = OpenOptions::new().open_device(Encrypted::new(open()?, key))?;
    Ok(volume.read_to_string("/secret")?)
}

#[allow(dead_code, reason = "tests call `run`")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(plain), Some(sealed)) = (arguments.next(), arguments.next()) else {
        return Err("usage: encrypted_device PLAIN.img SEALED.img".into());
    };
    let key = std::array::from_fn(|byte| byte as u8); // use a real key
    println!("{}", run(plain.as_ref(), sealed.as_ref(), &key)?);
    Ok(())
}
