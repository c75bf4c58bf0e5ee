//! A volume on a custom in-memory device: an image is loaded, changed, and saved.
//!
//! `cargo run --example memory_device -- DISK.img NEW.img` does not change DISK.img. ([`throughline::Memory`]
//! is a ready-made device of this kind.)

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::{Arc, RwLock};

use throughline::{Device, OpenOptions};

#[derive(Clone)]
struct Image(Arc<RwLock<Vec<u8>>>);

impl Device for Image {
    fn len_bytes(&self) -> u64 {
        self.0.read().unwrap().len() as u64
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let image = self.0.read().unwrap();
        buf.copy_from_slice(&image[offset as usize..][..buf.len()]);
        Ok(())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut image = self.0.write().unwrap();
        image[offset as usize..][..buf.len()].copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(()) // memory does not survive a crash anyway
    }
}

/// Loads an image, writes a file into it, and saves it under another path; returns the names in its root.
pub(crate) fn run(from: &Path, to: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let image = Image(Arc::new(RwLock::new(std::fs::read(from)?)));
    let volume = OpenOptions::new().write(true).open_device(image.clone())?;
    volume.write("/hello", "from memory\n")?;
    let mut names = Vec::new();
    for entry in volume.read_dir("/")? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    volume.close()?;
    std::fs::write(to, &*image.0.read().unwrap())?;
    Ok(names)
}

#[allow(dead_code, reason = "tests call `run`")]
fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [from, to] = arguments.as_slice() else {
        return Err("usage: memory_device DISK.img NEW.img".into());
    };
    println!("{}", run(from.as_ref(), to.as_ref())?.join("\n"));
    Ok(())
}
